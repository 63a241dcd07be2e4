"""What a book needs to be found and opened by others: its configuration with addresses, a card, a site map, buttons."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pandas as pd

from gelu_study import figures

CARD = "card.png"
CARD_SIZE = (1200, 630)
"""Pixels of the picture that is shown where someone links to a page: the width to height that sites ask for."""

LAUNCH_BRANCH = "launch"
"""The branch that the buttons open: the workflow writes it, with a first cell for Colab in each notebook (see `.binder`)."""


def configure(configuration: dict[str, Any], repository: str, site: str = "", card: str = "", pdf: str = "") -> dict[str, Any]:
    """Jupyter Book's configuration with what an address makes possible.

    With a repository, its buttons; with one on GitHub, also those that open a notebook on Binder and Colab. With the site's
    address, what names it: canonical addresses, Open Graph, and a 404 page, whose links hold at any depth. `card` is the
    picture's path below the site, `pdf` that of the whole book as one, to which every page then has a link.
    """
    result = copy.deepcopy(configuration)
    settings = result.setdefault("sphinx", {}).setdefault("config", {})
    # of the theme's own options too, since those that the book sets replace Jupyter Book's
    options = settings.setdefault("html_theme_options", {})
    if repository:
        result.setdefault("repository", {})["url"] = repository
        options |= {"repository_url": repository, "use_repository_button": True, "use_issues_button": True}
        if not re.search("github|gitlab|bitbucket", repository):
            options["repository_provider"] = "github"  # the theme refuses a host that it does not know
        result.setdefault("html", {}).update(use_repository_button=True, use_issues_button=True)
    if urlsplit(repository).netloc == "github.com":
        # notebooks lie in the book's own folder while it is built, and elsewhere in the repository
        options |= {"path_to_docs": "notebooks", "repository_branch": LAUNCH_BRANCH}
        options["launch_buttons"] = {
            "binderhub_url": "https://mybinder.org",
            "colab_url": "https://colab.research.google.com",
            "notebook_interface": "jupyterlab",
        }
    if pdf:
        link = f"{site}/{pdf}" if site else pdf
        result.setdefault("html", {})["extra_footer"] = f'<p><a href="{link}">The whole book as a PDF</a></p>'
    if site:
        _address(settings, str(result.get("title", "")), site, card)
    return result


def _address(settings: dict[str, Any], title: str, site: str, card: str) -> None:
    """Add to Sphinx's settings what needs the site's address."""
    root = f"{urlsplit(site).path}/"
    settings.setdefault("extensions", []).extend(["sphinxext.opengraph", "gelu_study.site.description", "notfound.extension"])
    settings |= {
        "html_baseurl": f"{site}/",
        "notfound_urls_prefix": root,
        "notfound_context": {
            "title": "Page not found",
            "pagetitle": "Page not found",
            "body": f'<h1>Page not found</h1><p>There is nothing at this address. <a href="{root}index.html">The first page</a> '
            f'has the answer and a way to every chapter; <a href="{root}search.html">the search</a> finds words.</p>',
        },
        "ogp_site_url": f"{site}/",
        "ogp_site_name": title,
        "ogp_social_cards": {"enable": False},  # they would be drawn from titles; ours is the answer's figure
    }
    if card:
        width, height = CARD_SIZE
        settings |= {
            "ogp_image": card,
            "ogp_image_alt": "Ratio of GELU's final training loss to each rival's, with 95 % intervals",
            "ogp_custom_meta_tags": [
                f'<meta property="og:image:width" content="{width}" />',
                f'<meta property="og:image:height" content="{height}" />',
                '<meta name="twitter:card" content="summary_large_image" />',
            ],
        }


def draw_card(verdicts: pd.DataFrame, folder: Path) -> str:
    """Draw the answer's figure as a picture of `CARD_SIZE` in the book's folder of static files; its path below the site."""
    drawn = figures.intervals(verdicts)
    dots = 150
    drawn.set_size_inches(CARD_SIZE[0] / dots, CARD_SIZE[1] / dots)
    if (layout := drawn.get_layout_engine()) is not None:
        layout.set(w_pad=0.2, h_pad=0.15)  # type: ignore[call-arg]  # inches; a card is cut close by some sites
    drawn.savefig(folder / CARD, dpi=dots, metadata={"Software": None})
    return f"{folder.name}/{CARD}"


def write_site_map(folder: Path, names: Sequence[str], site: str) -> None:
    """Write `sitemap.xml`, a list of the book's pages for search engines. (A library for it brings a process and git's dates.)"""
    root = ElementTree.Element("urlset", xmlns="http://www.sitemaps.org/schemas/sitemap/0.9")
    for name in names:
        ElementTree.SubElement(ElementTree.SubElement(root, "url"), "loc").text = f"{site}/{name}.html"
    ElementTree.indent(root)
    ElementTree.ElementTree(root).write(folder / "sitemap.xml", encoding="utf-8", xml_declaration=True)
