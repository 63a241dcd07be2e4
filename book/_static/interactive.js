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
