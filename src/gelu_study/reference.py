"""A Sphinx extension for the book's reference: `ledger.table` in a docstring becomes a link to where that is described.

Docstrings name things as code does after `from gelu_study import ledger`; Sphinx itself looks for `gelu_study.ledger.table`.
All else of the reference is Sphinx's own autodoc, autosummary and napoleon.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gelu_study import __version__

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

PACKAGE = "gelu_study"


def candidates(name: str, module: str) -> list[str]:
    """The full names that a name in a docstring of `module` may stand for, the nearest first; none where it is no name."""
    if not re.fullmatch(r"[\w.]+", name):
        return []
    places = (module, module.rpartition(".")[0], PACKAGE, f"{PACKAGE}.errors")  # errors go by their names alone
    return [f"{place}.{name}" for place in dict.fromkeys(places) if place]


def _link(app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.TextElement) -> nodes.Element | None:
    """The link for a name that Sphinx did not find; None leaves it as plain code."""
    if node.get("refdomain") != "py":
        return None
    domain = env.get_domain("py")
    for name in candidates(node["reftarget"], node.get("py:module") or PACKAGE):
        if name in domain.objects:  # type: ignore[attr-defined]
            return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", name, node, text)
    return None


def setup(app: Sphinx) -> dict[str, Any]:
    """What Sphinx calls."""
    app.connect("missing-reference", _link)
    return {"version": __version__, "parallel_read_safe": True, "parallel_write_safe": True}
