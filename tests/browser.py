"""A headless Chromium on a folder of pages, as a reader's browser would see them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

PREFIX = "/a/sub-path/"
"""Pages of a project lie under a sub-path on GitHub, so a link that begins at the host's root must fail here too."""

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class _Handler(SimpleHTTPRequestHandler):
    def translate_path(self, path: str) -> str:
        inside = path.removeprefix(PREFIX)
        return super().translate_path(f"/{inside}" if path.startswith(PREFIX) else "/there is nothing outside the sub-path")

    def send_error(self, code: int, *arguments: Any) -> None:
        """Answer with the site's own page for an address that leads nowhere, if it has one, as GitHub Pages does."""
        page = Path(self.directory) / "404.html"
        if code != 404 or not page.is_file() or not self.path.startswith(PREFIX):
            super().send_error(code, *arguments)
            return
        body = page.read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder under a sub-path of 127.0.0.1 and give its address, which ends in a slash."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}{PREFIX}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def launched(executable: Path) -> Iterator[Browser]:
    """The system's own Chromium under Playwright."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(executable), args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A page, and all that went wrong or left the site while it loaded."""

    def __init__(self, browser: Browser, address: str, width: int = 1280, scheme: str = "light", height: int = 900) -> None:
        self.problems: list[str] = []
        self._home = address.split("/", 3)[2]
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce")
        context.set_default_timeout(120_000)  # a machine that trains meanwhile is slow
        self.page: Page = context.new_page()
        self.page.on("console", lambda said: said.type == "error" and self.problems.append(f"console: {said.text}"))
        self.page.on("pageerror", lambda error: self.problems.append(f"page error: {error}"))
        self.page.on("request", lambda request: self._check(request.url))
        self.page.on("requestfailed", lambda request: self.problems.append(f"failed: {request.url} {request.failure}"))
        self.page.on("response", lambda got: got.status >= 400 and self.problems.append(f"{got.status}: {got.url}"))
        self.page.goto(address, wait_until="load")
        if self.page.evaluate("typeof MathJax !== 'undefined' && 'startup' in MathJax"):
            self.page.evaluate("MathJax.startup.promise.then(() => null)")
        self.page.evaluate("document.fonts.ready.then(() => null)")

    def _check(self, url: str) -> None:
        if not url.startswith(("data:", "blob:")) and url.split("/", 3)[2] != self._home:
            self.problems.append(f"request to another host: {url}")

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        self.page.context.close()


FIGURES = """() => [...document.querySelectorAll('main img')].map(image => {
    const canvas = Object.assign(document.createElement('canvas'), {width: 96, height: 64});
    const context = canvas.getContext('2d');
    context.fillStyle = '#fff';
    context.fillRect(0, 0, 96, 64);
    if (image.naturalWidth) context.drawImage(image, 0, 0, 96, 64);
    const values = context.getImageData(0, 0, 96, 64).data.filter((_, i) => i % 4 < 3);
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length;
    const box = image.getBoundingClientRect();
    return {alt: image.alt, natural: image.naturalWidth, width: box.width, height: box.height, variance};
})"""
"""Each picture's size and how much its pixels vary: 0 for a blank one."""

MATHEMATICS = """() => [...document.querySelectorAll('main .math')].map(formula => {
    const set = formula.querySelector('mjx-container');
    return {
        source: formula.textContent.slice(0, 60),
        width: set ? set.getBoundingClientRect().width : 0,
        error: formula.querySelector('mjx-merror') !== null,
    };
})"""

RAW_TEX = r"""() => {
    const main = document.querySelector('main').cloneNode(true);
    main.querySelectorAll('code, pre, script, style, mjx-container').forEach(node => node.remove());
    return main.textContent.match(/\$[^$\n]{1,80}\$|\\\(|\\\[|\\(frac|operatorname|Phi|text)\b|\{cite[^}]*\}/g) || [];
}"""
"""TeX or roles that reached the reader as they were written."""

OVERFLOW = """() => {
    const width = document.documentElement.clientWidth;
    const clipped = node => {
        for (let box = node.parentElement; box && box.tagName !== 'MAIN'; box = box.parentElement)
            if (['auto', 'scroll'].includes(getComputedStyle(box).overflowX)) return true;
        return false;
    };
    const wide = [...document.querySelectorAll('main *')].filter(node => {
        const box = node.getBoundingClientRect();
        return box.width > 1 && box.right > width + 1 && !clipped(node) && !node.closest('.bd-sidebar-secondary');
    });
    const found = wide.map(node => `${node.tagName} ${node.className} ${node.textContent.trim().slice(0, 40)}`);
    if (document.documentElement.scrollWidth > width + 1) found.push(`the page is ${document.documentElement.scrollWidth} wide`);
    return found;
}"""
"""What reaches beyond the window and is in no box that scrolls; the page's contents wait beside it until called for."""

LOW_CONTRAST = """() => {
    const parse = text => {
        const found = text.match(/[\\d.]+/g).map(Number);
        const scale = text.startsWith('color(srgb') ? 255 : 1;
        return [found[0] * scale, found[1] * scale, found[2] * scale, found[3] === undefined ? 1 : found[3]];
    };
    const opacity = node => node ? Number(getComputedStyle(node).opacity) * opacity(node.parentElement) : 1;
    const luminance = colour => {
        const [r, g, b] = colour.slice(0, 3).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = node => {
        for (let box = node; box; box = box.parentElement) {
            const colour = parse(getComputedStyle(box).backgroundColor);
            if (colour[3] > 0.5) return colour;
        }
        return [255, 255, 255, 1];
    };
    const texts = [...document.querySelectorAll('main h1, main h2, main p, main li, main td, main th, main a:not(.headerlink), main figcaption, '
        + 'main code, main .verdict, main .study-interval, main .study-note')];
    return [...new Set(texts.filter(node => node.offsetWidth && [...node.childNodes].some(c => c.nodeType === 3 && c.data.trim()))
        .map(node => {
            const [ground, ink, part] = [behind(node), parse(getComputedStyle(node).color), opacity(node)];
            const seen = ink.map((value, i) => part * value + (1 - part) * ground[i]);
            const [a, b] = [luminance(seen), luminance(ground)].sort((x, y) => y - x);
            const ratio = (a + 0.05) / (b + 0.05);
            return ratio < 4.5 ? `${node.tagName}.${node.className} ${ratio.toFixed(2)}: ${node.textContent.trim().slice(0, 40)}` : null;
        }).filter(Boolean))];
}"""
"""Text whose contrast with what lies behind it is below 4.5, the level AA of WCAG 2."""

IS_SCHEME = """scheme => {
    const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).map(Number);
    return scheme === 'dark' ? r + g + b < 120 : r + g + b > 720;
}"""
"""Whether the page is dark, or light."""

THE_THEMES_OWN = {"label-content-name-mismatch", "aria-required-children"}
"""Rules of axe that the theme's own parts break."""


def barriers(page: Page) -> list[str]:
    """What axe finds serious or worse on a page, the theme's own aside; of a long table only the first rows are looked at."""
    options = {"resultTypes": ["violations"], "iframes": False, "preload": False}  # it would look for style sheets in wrong places
    found = Axe().run(page, {"exclude": [["main tbody tr:nth-child(n+12)"]]}, options).response["violations"]
    return [
        f"{rule['id']}: {rule['help']}: {node['html'][:150]}"
        for rule in found
        if rule["impact"] in ("serious", "critical") and rule["id"] not in THE_THEMES_OWN
        for node in rule["nodes"]
    ]


LINKS = """() => [...document.querySelectorAll('a[href]')].map(link => link.href)"""
