/* The explorer of activations: functions, mean-field recursion, plots and controls, without a library.
   What is offered comes from gelu_study.explorer as JSON beside the script. */
"use strict";
(() => {
  // Functions: each gives [f(x), f'(x)]; at a kink the derivative from the left.

  // Relative accuracy in the tail too, where 1 - erf has no digit left.
  function erfc(t) { // of t >= 0
    const square = t * t;
    if (t < 2) {
      let term = t, sum = t;
      for (let n = 1; term > 1e-17 * sum; n++) sum += term *= 2 * square / (2 * n + 1);
      return 1 - 2 / Math.sqrt(Math.PI) * Math.exp(-square) * sum;
    }
    let fraction = t;
    for (let n = 60; n > 0; n--) fraction = t + n / 2 / fraction;
    return Math.exp(-square) / Math.sqrt(Math.PI) / fraction;
  }

  function gaussian(u) {
    const tail = erfc(Math.abs(u) * Math.SQRT1_2) / 2;
    return [u < 0 ? tail : 1 - tail, Math.exp(-u * u / 2) / Math.sqrt(2 * Math.PI)];
  }
  const sigmoid = t => 1 / (1 + Math.exp(-t));
  const logistic = (c1, c3) => u => {
    const t = u * (c1 + c3 * u * u);
    const density = sigmoid(t) * sigmoid(-t);
    return [sigmoid(t), density && density * (c1 + 3 * c3 * u * u)];
  };
  function laplace(u) {
    const tail = Math.exp(-Math.abs(u)) / 2;
    return [u < 0 ? tail : 1 - tail, tail];
  }
  const cauchy = u => [Math.atan2(1, -u) / Math.PI, 1 / (Math.PI * (1 + u * u))];

  const TANH = 2 * Math.sqrt(2 / Math.PI); // 0.5 (1 + tanh v) = sigmoid(2 v)
  const GATES = {
    gelu: gaussian, gelu_tanh: logistic(TANH, 0.044715 * TANH), gelu_sigmoid: logistic(1.702, 0), silu: logistic(1, 0),
    lalu: laplace, calu: cauchy,
  };
  const [SELU_SCALE, SELU_ALPHA] = [1.0507009873554805, 1.6732632423543772];
  const elu = (x, alpha) => x > 0 ? [x, 1] : [alpha * Math.expm1(x), alpha * Math.exp(x)];
  const softplus = x => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
  const OTHERS = {
    relu: x => x > 0 ? [x, 1] : [0, 0],
    elu: (x, p) => elu(x, p.alpha),
    leaky_relu: (x, p) => x > 0 ? [x, 1] : [p.negative_slope * x, p.negative_slope],
    squared_relu: x => x > 0 ? [x * x, 2 * x] : [0, 0],
    selu: x => elu(x, SELU_ALPHA).map((part, i) => SELU_SCALE * (x > 0 ? [x, 1][i] : part)),
    softplus: x => [softplus(x), sigmoid(x)],
    mish: x => {
      const gate = Math.tanh(softplus(x));
      return [x * gate, gate + x * (1 - gate) * (1 + gate) * sigmoid(x)];
    },
    hard_swish: x => x <= -3 ? [0, 0] : x <= 3 ? [x * (x + 3) / 6, (2 * x + 3) / 6] : [x, 1],
    identity: x => [x, 1],
  };

  function evaluate(name, x, p) {
    if (!(name in GATES)) return OTHERS[name](x, p);
    const [gate, density] = GATES[name]((x - p.mu) / p.sigma);
    return [x * gate, gate + x / p.sigma * density];
  }
  const STANDARD = { mu: 0, sigma: 1 };
  const exactGelu = x => evaluate("gelu", x, STANDARD)[0];

  // Mean field: E[f(x)^2] for x ~ N(0, q) by the trapezoid rule, with 0, where most kinks are, among its points.
  const STEP = 1 / 128, REACH = 12;
  function secondMoment(name, q, p) {
    let sum = 0;
    for (let i = -REACH / STEP; i <= REACH / STEP; i++) {
      const z = i * STEP;
      sum += Math.exp(-z * z / 2) * evaluate(name, Math.sqrt(q) * z, p)[0] ** 2;
    }
    return sum * STEP / Math.sqrt(2 * Math.PI);
  }
  function secondMoments(name, gain, layers, p) {
    const factor = gain ?? 1 / secondMoment(name, 1, p);
    const moments = [];
    for (let q = 1; moments.length < layers; q = factor * moments.at(-1))
      moments.push(Number.isFinite(q) ? secondMoment(name, q, p) : Infinity);
    return { gain: factor, moments };
  }
  globalThis.geluExplorer = { evaluate, secondMoments }; // for the tests

  const root = document.getElementById("explorer");
  if (!root) return;
  const told = JSON.parse(document.getElementById("explorer-data").textContent);
  const NAMES = Object.keys(told.activations);

  // Numbers as text
  const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  const power = n => "10" + String(n).replace("-", "⁻").replace(/\d/g, digit => SUPERSCRIPTS[digit]);
  const minus = text => text.replace("-", "−");
  function number(value, digits = 4) {
    if (!Number.isFinite(value)) return value > 0 ? "∞" : "–";
    if (value === 0) return "0";
    if (Math.abs(value) >= 1e-3 && Math.abs(value) < 1e5) return minus(value.toPrecision(digits));
    const [mantissa, exponent] = value.toExponential(Math.max(1, digits - 2)).split("e");
    return `${minus(mantissa)} × ${power(Number(exponent))}`;
  }

  // State: what the reader has set, kept in the fragment of the address
  const KEYS = ["mu", "sigma", "alpha", "negative_slope", "reach", "x", "layer"];
  let state = read() ?? { ...told.start };

  function clamp(key, value) {
    const { low, high } = told.controls[key];
    const bounded = Math.min(high, Math.max(low, value));
    return key === "layer" ? Math.round(bounded) : bounded;
  }
  function read() {
    const found = new URLSearchParams(location.hash.slice(1));
    if (!found.has("activations")) return null; // an ordinary anchor
    const result = { ...told.start };
    const wanted = found.get("activations").split(",");
    result.activations = NAMES.filter(name => wanted.includes(name));
    for (const key of KEYS) {
      const value = Number.parseFloat(found.get(key));
      if (Number.isFinite(value)) result[key] = clamp(key, value);
    }
    if (found.get("initialisation") in told.initialisations) result.initialisation = found.get("initialisation");
    if (found.has("logarithmic")) result.logarithmic = found.get("logarithmic") === "1";
    return result;
  }
  function written() {
    const parts = [`activations=${state.activations.join(",")}`];
    for (const key of KEYS) if (state[key] !== told.start[key]) parts.push(`${key}=${state[key]}`);
    if (state.initialisation !== told.start.initialisation) parts.push(`initialisation=${state.initialisation}`);
    if (state.logarithmic !== told.start.logarithmic) parts.push(`logarithmic=${Number(state.logarithmic)}`);
    return parts.join("&");
  }

  // Building blocks
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes))
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value !== false) made.setAttribute(name, value === true ? "" : value);
    made.append(...children);
    return made;
  }
  function fragment(markup) {
    const template = document.createElement("template");
    template.innerHTML = markup;
    return template.content;
  }
  const dash = name => told.activations[name].dash.map(length => 2 * length).join(" ");
  const marker = (name, x, y, size = 5.5) =>
    `<path d="${told.activations[name].marker}" transform="translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${size})"/>`;
  const swatch = name => `<svg class="explorer-swatch" width="30" height="12" aria-hidden="true"><g class="explorer-curve"
    style="--colour: ${told.activations[name].colour}"><path class="explorer-line" d="M0 6H30" stroke-dasharray="${dash(name)}"/>
    ${marker(name, 15, 6)}</g></svg>`;

  // Controls
  const inputs = {};
  function control(key) {
    const { label, meaning, low, high, step } = told.controls[key];
    const attributes = { min: low, max: high, step };
    const id = `explorer-${key}`;
    const slider = element("input", { type: "range", id, ...attributes, oninput: () => set(key, slider.valueAsNumber) });
    const field = element("input", {
      type: "number", inputmode: "decimal", ...attributes, "aria-label": `${label}, ${meaning}`,
      oninput: () => { if (Number.isFinite(field.valueAsNumber)) set(key, clamp(key, field.valueAsNumber), field); },
      onchange: () => render(),
    });
    inputs[key] = [slider, field];
    return element("div", { class: "explorer-control", "data-key": key },
      element("label", { for: id }, element("b", {}, label), ` ${meaning}`), slider, field);
  }
  const checks = {};
  function choice(name) {
    checks[name] = element("input", { type: "checkbox", onchange: () => {
      change({ activations: NAMES.filter(other => checks[other].checked) });
    } });
    return element("label", { class: "explorer-choice" }, checks[name], fragment(swatch(name)), element("span", {}, told.activations[name].title));
  }
  const logarithmic = element("input", { type: "checkbox", onchange: () => change({ logarithmic: logarithmic.checked }) });
  const initialisation = element("select", { id: "explorer-initialisation", onchange: () => change({ initialisation: initialisation.value }) },
    ...Object.entries(told.initialisations).map(([name, { title }]) => element("option", { value: name }, title)));
  const button = (text, act) => element("button", { type: "button", class: "explorer-button", onclick: act }, text);

  function plot(title, after = []) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("role", "img");
    const caption = element("div", { class: "explorer-title" }, element("span", {}, title), ...after);
    return { svg, caption, box: element("div", { class: "explorer-plot" }, caption, svg) };
  }
  const plots = {
    value: plot("Function f(x)"),
    slope: plot("Derivative f′(x)"),
    difference: plot("", [element("label", {}, logarithmic, " logarithmic")]),
    moments: plot("Second moment E[f²] after each layer"),
  };
  const values = element("div", { class: "study-scroll" });
  const momentValues = element("div", { class: "study-scroll" });
  const said = element("p", { role: "status", class: "explorer-said" });

  root.append(
    element("div", { class: "explorer-presets", role: "group", "aria-label": "Presets" },
      ...told.presets.map(preset => button(preset.title, () => load(preset))),
      button("Reset", () => { change(told.start); history.replaceState(null, "", location.pathname + location.search); })),
    element("fieldset", {}, element("legend", {}, "Activations"), element("div", { class: "explorer-choices" }, ...NAMES.map(choice))),
    element("div", { class: "explorer-controls" }, ...[...told.parameters, "reach"].map(control)),
    plots.value.box, plots.slope.box, plots.difference.box,
    element("div", { class: "explorer-controls" }, control("x")), values,
    element("div", { class: "explorer-controls explorer-signal" },
      element("div", { class: "explorer-control" }, element("label", { for: "explorer-initialisation" }, element("b", {}, "initialisation")), initialisation),
      control("layer")),
    plots.moments.box, momentValues, said);
  document.getElementById("explorer-still")?.remove();
  for (const show of document.querySelectorAll("[data-preset]")) {
    show.hidden = false;
    show.addEventListener("click", () => load(told.presets[show.dataset.preset]));
  }

  // Drawing
  const MARGIN = { left: 50, right: 12, top: 6, bottom: 22 };
  const cache = new Map();
  function momentsOf(name) {
    const { gain } = told.initialisations[state.initialisation];
    const key = [name, gain, ...told.activations[name].parameters.map(parameter => state[parameter])].join();
    if (!cache.has(key)) {
      if (cache.size > 200) cache.clear(); // a long drag
      cache.set(key, secondMoments(name, gain, told.layers, state));
    }
    return cache.get(key);
  }

  function ticks(low, high, count) {
    const rough = (high - low) / count, unit = 10 ** Math.floor(Math.log10(rough));
    const step = unit * [1, 2, 5, 10].find(factor => factor * unit >= rough * 0.999);
    const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push([i * step, minus((i * step).toFixed(decimals))]);
    return found;
  }
  function decades(low, high, count) {
    const step = Math.max(1, Math.ceil((high - low) / count));
    const found = [];
    for (let n = Math.ceil(low / step) * step; n <= high; n += step) found.push([n, n === 0 ? "1" : power(n)]);
    return found;
  }

  // `curves` holds for each activation its points [x, y]; y is a logarithm where `log` says so.
  function draw({ svg }, { x: [left, right], y: [low, high], log, xTicks, xLabel, curves, cursor, height, label }) {
    const width = Math.max(200, svg.parentElement.clientWidth);
    const bottom = MARGIN.bottom + (xLabel ? 16 : 0);
    const [w, h] = [width - MARGIN.left - MARGIN.right, height - MARGIN.top - bottom];
    const across = x => MARGIN.left + (x - left) / (right - left) * w;
    const up = y => MARGIN.top + (high - y) / (high - low) * h;
    const near = y => Math.min(2 * high - low, Math.max(2 * low - high, y)); // an infinite path is not drawn at all
    const parts = [];
    for (const [y, text] of (log ? decades : ticks)(low, high, Math.floor(h / 26)))
      parts.push(`<path class="explorer-grid${y === 0 && !log ? " explorer-zero" : ""}" d="M${MARGIN.left} ${up(y).toFixed(1)}h${w}"/>`,
        `<text x="${MARGIN.left - 6}" y="${(up(y) + 4).toFixed(1)}" text-anchor="end">${text}</text>`);
    for (const [x, text] of xTicks(Math.floor(w / 55)))
      parts.push(`<path class="explorer-grid${x === 0 && !log ? " explorer-zero" : ""}" d="M${across(x).toFixed(1)} ${MARGIN.top}v${h}"/>`,
        `<text x="${across(x).toFixed(1)}" y="${height - bottom + 16}" text-anchor="middle">${text}</text>`);
    parts.push(`<text class="explorer-axis" x="${MARGIN.left + w / 2}" y="${height - 5}" text-anchor="middle">${xLabel}</text>`);
    const inside = y => y >= low - 1e-9 && y <= high + 1e-9;
    const lines = curves.map(({ name, points }, place) => {
      const line = points.map(([x, y]) => Number.isFinite(y) ? `${across(x).toFixed(1)} ${up(near(y)).toFixed(1)}` : null);
      const path = line.map((at, i) => at && `${i && line[i - 1] ? "L" : "M"}${at}`).filter(Boolean).join("");
      const marks = [];
      for (let at = MARGIN.left + 12 + 17 * place % 80; at < MARGIN.left + w; at += 80) {
        const x = left + (at - MARGIN.left) / w * (right - left);
        const [px, py] = points.reduce((best, point) => Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best);
        if (inside(py)) marks.push(marker(name, across(px), up(py)));
      }
      const read = cursor.at[place];
      if (inside(read)) marks.push(marker(name, across(cursor.x), up(read), 9));
      return `<g class="explorer-curve" data-name="${name}" style="--colour: ${told.activations[name].colour}">
        <path class="explorer-line" d="${path}" stroke-dasharray="${dash(name)}"/>${marks.join("")}</g>`;
    });
    if (cursor.x >= left && cursor.x <= right)
      parts.push(`<path class="explorer-cursor" d="M${across(cursor.x).toFixed(1)} ${MARGIN.top}v${h}"/>`);
    const clip = `${svg.dataset.key}-inside`;
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    svg.setAttribute("aria-label", label);
    svg.innerHTML = `<clipPath id="${clip}"><rect x="${MARGIN.left}" y="${MARGIN.top - 2}" width="${w}" height="${h + 4}"/></clipPath>
      ${parts.join("")}<g clip-path="url(#${clip})">${lines.join("")}</g>`;
    svg.pointed = event => left + (event.clientX - svg.getBoundingClientRect().left - MARGIN.left) / w * (right - left);
  }

  // A regular grid, and denser where a gate is steep or a derivative jumps.
  function grid() {
    const { reach, mu, sigma } = state;
    const found = [];
    for (let i = -240; i <= 240; i++) found.push(i / 240 * reach, mu + i / 60 * sigma);
    for (const kink of [-3, 0, 3]) found.push(kink, kink + 1e-9);
    return found.filter(x => Math.abs(x) <= reach).sort((a, b) => a - b);
  }

  // The extent of the curves, at most `bounds`, with a little air.
  function extent(curves, bounds) {
    const all = curves.flatMap(({ points }) => points.map(([, y]) => y)).filter(Number.isFinite);
    const low = Math.max(bounds[0], Math.min(0, ...all)), high = Math.min(bounds[1], Math.max(0, ...all));
    const air = 0.06 * (high - low) || 0.1;
    return [low - air, high + air];
  }
  function extentOfLogs(curves, least, most) {
    const all = curves.flatMap(({ points }) => points.map(([, y]) => y)).filter(y => Number.isFinite(y) && Math.abs(y) < 40);
    if (!all.length) return [-1, 0.2];
    const high = Math.min(15, Math.max(...all)), low = Math.max(Math.min(...all), high - most);
    return [Math.min(low, high - least) - 0.15, high + 0.15];
  }

  function table(head, rows) {
    return `<table class="dataframe study explorer-table"><thead><tr>${head.map(text => `<th scope="col">${text}</th>`).join("")}</tr></thead><tbody>${
      rows.map(([name, ...cells]) => `<tr><th scope="row">${swatch(name)} ${told.activations[name].title}</th>${
        cells.map(cell => `<td>${cell}</td>`).join("")}</tr>`).join("")}</tbody></table>`;
  }

  function render(typing) {
    const { activations: names, reach, x } = state;
    const among = names.map(name => told.activations[name].title).join(", ") || "none chosen";
    for (const name of NAMES) checks[name].checked = names.includes(name);
    for (const [key, [slider, field]] of Object.entries(inputs)) {
      if (key === "x") for (const input of [slider, field]) [input.min, input.max] = [-reach, reach];
      slider.value = state[key];
      if (field !== typing) field.value = state[key];
      if (told.parameters.includes(key))
        slider.parentElement.hidden = !names.some(name => told.activations[name].parameters.includes(key));
    }
    logarithmic.checked = state.logarithmic;
    initialisation.value = state.initialisation;

    const xs = grid();
    const computed = names.map(name => xs.map(at => evaluate(name, at, state)));
    const exact = xs.map(exactGelu);
    const here = names.map(name => evaluate(name, x, state));
    const size = y => state.logarithmic ? Math.log10(Math.abs(y)) : y;
    const curves = part => names.map((name, i) => ({ name, points: xs.map((at, k) => [at, part(computed[i][k], exact[k])]) }));
    const axis = { x: [-reach, reach], xTicks: count => ticks(-reach, reach, count), xLabel: "" };

    let drawn = curves(([f]) => f);
    draw(plots.value, { ...axis, height: 230, curves: drawn, y: extent(drawn, [-reach, 1.2 * reach]), cursor: { x, at: here.map(([f]) => f) },
      label: `Function over x: ${among}. The values at x are in the table below.` });
    drawn = curves(([, slope]) => slope);
    draw(plots.slope, { ...axis, height: 180, curves: drawn, y: extent(drawn, [-1.5, 2.5]), cursor: { x, at: here.map(([, slope]) => slope) },
      label: `Derivative over x: ${among}` });
    drawn = curves(([f], reference) => size(f - reference));
    plots.difference.caption.firstChild.textContent = state.logarithmic ? "Size of f(x) − x Φ(x)" : "Difference from the exact GELU, f(x) − x Φ(x)";
    draw(plots.difference, { ...axis, height: 196, xLabel: "x", curves: drawn, log: state.logarithmic,
      y: state.logarithmic ? extentOfLogs(drawn, 3, 6) : extent(drawn, [-reach, reach]),
      cursor: { x, at: here.map(([f]) => size(f - exactGelu(x))) }, label: `Difference from the exact GELU over x: ${among}` });
    values.innerHTML = table([`x = ${minus(String(x))}`, "f(x)", "f′(x)", "f(x) − x Φ(x)"],
      names.map((name, i) => [name, number(here[i][0]), number(here[i][1]), number(here[i][0] - exactGelu(x))]));

    const travelled = names.map(momentsOf);
    drawn = names.map((name, i) => ({ name, points: travelled[i].moments.map((moment, l) => [l + 1, Math.log10(moment)]) }));
    draw(plots.moments, { x: [1, told.layers], xLabel: "layer", log: true, height: 246, curves: drawn, y: extentOfLogs([...drawn, { points: [[1, 0]] }], 2, 40),
      xTicks: count => [[1, "1"], ...ticks(1, told.layers, Math.min(6, count))].filter(([l]) => l >= 1),
      cursor: { x: state.layer, at: travelled.map(({ moments }) => Math.log10(moments[state.layer - 1])) },
      label: `Second moment over the layers, on a logarithmic axis: ${among}. The values after the chosen layer are in the table below.` });
    momentValues.innerHTML = table([`layer ${state.layer}`, "gain", "E[f²]"],
      names.map((name, i) => [name, number(travelled[i].gain), number(travelled[i].moments[state.layer - 1])]));
  }

  // Changes: drawn at the next frame; the address and the spoken values follow when the reader pauses.
  let frame = 0, pause = 0;
  function change(settings, { typing, spoken = "" } = {}) {
    state = { ...state, ...settings };
    state.x = Math.min(state.reach, Math.max(-state.reach, state.x));
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => render(typing));
    clearTimeout(pause);
    pause = setTimeout(() => {
      if (written() !== location.hash.slice(1)) history.replaceState(null, "", `#${written()}`);
      if (spoken) said.textContent = sentence(spoken);
    }, 700);
  }
  const set = (key, value, typing) => change({ [key]: value }, { typing, spoken: key });
  function sentence(key) {
    const some = state.activations.slice(0, 3);
    const more = state.activations.length - some.length;
    const parts = some.map(name => {
      const text = key === "layer" ? number(momentsOf(name).moments[state.layer - 1], 2) : number(evaluate(name, state.x, state)[0], 3);
      return `${told.activations[name].title} ${text}`;
    });
    if (more > 0) parts.push(`${more} more in the table`);
    return `${key === "layer" ? `after layer ${state.layer}` : `at x = ${minus(String(state.x))}`}: ${parts.join(", ")}`;
  }
  function load({ settings, plot }) {
    change(settings);
    plots[plot].box.scrollIntoView({ block: "nearest" });
  }
  for (const [key, { svg }] of Object.entries(plots)) {
    svg.dataset.key = key;
    const follow = event => {
      const at = svg.pointed(event);
      change(key === "moments" ? { layer: clamp("layer", at) } : { x: Math.round(at * 100) / 100 });
    };
    // a pointer at rest gets events too, when what lies beneath it is redrawn
    let rest = "";
    svg.addEventListener("pointermove", event => {
      const place = `${event.clientX} ${event.clientY}`;
      if (place !== rest) follow(event);
      rest = place;
    });
    svg.addEventListener("pointerdown", follow);
  }
  addEventListener("hashchange", () => { if (read()) change(read()); });
  new ResizeObserver(() => render(document.activeElement)).observe(root);
})();
