// Draws a figure to point at when a reader opens it; the library is loaded then, once a page, and not before.
(() => {
  const library = new URL("../vendor/bokeh/bokeh.min.js", document.currentScript.src).href;
  let loaded = null;
  const load = () => (loaded ??= new Promise((resolve, reject) => {
    const script = Object.assign(document.createElement("script"), { src: library, onload: resolve, onerror: reject });
    document.head.append(script);
  }));
  const draw = async (details) => {
    const [place, data] = [details.querySelector("div"), details.querySelector("script[type='application/json']")];
    place.textContent = "Drawing …";
    try {
      await load();
      place.textContent = "";
      await Bokeh.embed.embed_item(JSON.parse(data.textContent), place);
      details.dataset.drawn = "yes";
    } catch (error) {
      loaded = null;
      place.textContent = "This figure could not be drawn; the one above shows the same.";
      throw error;
    }
  };
  const prepare = () => document.querySelectorAll("details.study-interactive").forEach((details) => {
    details.hidden = false;
    details.addEventListener("toggle", () => details.open && !details.dataset.drawn && draw(details));
  });
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", prepare);
  else prepare();
})();

// Marks what scrolls sideways with the sides that hide more, for the style sheet to show.
(() => {
  const BOXES = ".study-scroll, .study-tall, .pst-scrollable-table-container, .table-wrapper, mjx-container[display='true']";
  const mark = (box) => {
    const hidden = box.scrollWidth - box.clientWidth, at = Math.abs(box.scrollLeft);
    const more = [at > 1 && "left", hidden - at > 1 && "right"].filter(Boolean).join(" ");
    if (hidden > 1 && more) box.dataset.more = more;
    else delete box.dataset.more;
  };
  const sizes = new ResizeObserver((entries) => entries.forEach((entry) => mark(entry.target)));
  const watch = () => document.querySelectorAll(BOXES).forEach((box) => {
    if (box.dataset.watched) return;
    box.dataset.watched = "yes";
    box.addEventListener("scroll", () => mark(box), { passive: true });
    sizes.observe(box);
  });
  window.addEventListener("load", () => { watch(); window.MathJax?.startup?.promise?.then(watch); });
})();
