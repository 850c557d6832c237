/** Line charts as SVG: few lines, each named at its end, numbers in a table below for those who cannot see it. */
import {element, shortNumber, svg} from "./dom.js";

const LEFT = 56,
  RIGHT = 12,
  TOP = 10,
  BOTTOM = 38;
// until the chart has a place on the page
const WIDTH = 640;

/** A chart: {node, show}. `show({lines, x, y, ...})`: each line is {name, xs, ys, colour, dash}; x and y are
 * {label, low, high, log}; `marks` are vertical rules {at, name}. Gaps are NaN. */
export function lineChart(label, {height = 300} = {}) {
  const picture = svg("svg", {role: "img", class: "lines"});
  let shown = null;
  const key = element("ul", {class: "legend"}),
    body = element("tbody"),
    head = element("tr");
  const table = element(
    "details",
    {class: "numbers"},
    element("summary", {}, "Numbers"),
    element(
      "div",
      {class: "scroll", tabindex: "0", role: "region", "aria-label": `Numbers: ${label}`},
      element("table", {}, element("thead", {}, head), body),
    ),
  );
  const show = (data) => {
    shown = data;
    draw(picture, data, height);
    picture.setAttribute("aria-label", `${label}. ${data.said ?? ""}`);
    key.replaceChildren(...data.lines.map((line) => element("li", {}, sample(line), line.name)));
    fillTable(head, body, data);
  };
  // letters keep their size at any width
  new ResizeObserver(() => {
    if (shown) draw(picture, shown, height);
  }).observe(picture);
  const node = element("figure", {class: "plot chart"}, element("figcaption", {}, label), picture, key, table);
  return {node, show};
}

function sample({colour, dash}) {
  const line = svg("line", {x1: 0, y1: 5, x2: 26, y2: 5, "stroke-dasharray": dash || null});
  line.style.stroke = colour;
  return svg("svg", {viewBox: "0 0 26 10", class: "sample", "aria-hidden": "true"}, line);
}

/** Functions from numbers to pixels. */
function scales({x, y, lines}, width, height) {
  const all = (key) => lines.flatMap((line) => Array.from(line[key])).filter(Number.isFinite);
  const range = (axis, values) => ({
    low: axis.low ?? Math.min(...values),
    high: axis.high ?? Math.max(...values),
    log: axis.log,
  });
  const across = range(x, all("xs")),
    up = range(y, all("ys"));
  const part = (value, {low, high, log}) =>
    log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low || 1);
  return {
    across,
    up,
    px: (value) => LEFT + part(value, across) * (width - LEFT - RIGHT),
    py: (value) => height - BOTTOM - part(value, up) * (height - TOP - BOTTOM),
  };
}

function draw(picture, data, height) {
  const width = picture.clientWidth || WIDTH,
    {across, up, px, py} = scales(data, width, height);
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const parts = [];
  for (const value of ticks(up)) {
    parts.push(
      svg("line", {class: "grid", x1: LEFT, x2: width - RIGHT, y1: py(value), y2: py(value)}),
      svg("text", {x: LEFT - 7, y: py(value) + 4, "text-anchor": "end"}, tickText(value)),
    );
  }
  for (const value of ticks(across)) {
    parts.push(
      svg("line", {class: "tick", x1: px(value), x2: px(value), y1: height - BOTTOM, y2: height - BOTTOM + 4}),
      svg("text", {x: px(value), y: height - BOTTOM + 17, "text-anchor": "middle"}, tickText(value)),
    );
  }
  parts.push(
    svg("line", {class: "axis", x1: LEFT, x2: width - RIGHT, y1: height - BOTTOM, y2: height - BOTTOM}),
    svg("text", {class: "name", x: (LEFT + width - RIGHT) / 2, y: height - 4, "text-anchor": "middle"}, data.x.label),
    svg(
      "text",
      {class: "name", x: -(height - BOTTOM + TOP) / 2, y: 13, "text-anchor": "middle", transform: "rotate(-90)"},
      data.y.label,
    ),
  );
  for (const {at, name} of data.marks ?? []) {
    parts.push(
      svg("line", {class: "mark", x1: px(at), x2: px(at), y1: TOP, y2: height - BOTTOM}),
      svg("text", {class: "mark", x: px(at) + 5, y: TOP + 11}, name),
    );
  }
  for (const line of data.lines) {
    const path = svg("path", {class: "line", d: pathOf(line, px, py, up), "stroke-dasharray": line.dash || null});
    path.style.stroke = line.colour;
    parts.push(path);
  }
  picture.replaceChildren(...parts);
}

function tickText(value) {
  if (Math.abs(value) < 10000) return shortNumber(value);
  return value < 1e6 ? `${shortNumber(value / 1000)}k` : `${shortNumber(value / 1e6)}M`;
}

function pathOf({xs, ys}, px, py, up) {
  let d = "",
    down = false;
  for (let i = 0; i < xs.length; i++) {
    if (!Number.isFinite(ys[i])) {
      down = false;
      continue;
    }
    const y = Math.min(Math.max(ys[i], up.low), up.high);
    d += `${down ? "L" : "M"}${px(xs[i]).toFixed(1)} ${py(y).toFixed(1)}`;
    down = true;
  }
  return d;
}

/** About five round numbers between two ends; powers of two or ten on a logarithmic axis. */
export function ticks({low, high, log}) {
  if (log) {
    const base = high / low >= 1000 ? 10 : 2,
      found = [];
    for (let value = base ** Math.ceil(Math.log(low) / Math.log(base) - 1e-9); value <= high * 1.0001; value *= base)
      found.push(value);
    return found;
  }
  const span = high - low || 1,
    rough = span / 5,
    power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * span; n++) found.push(n * step + 0);
  return found;
}

function fillTable(head, body, {lines, x}) {
  const xs = Array.from(lines[0]?.xs ?? []),
    every = Math.max(1, Math.ceil(xs.length / 33));
  head.replaceChildren(
    element("th", {scope: "col"}, x.label),
    ...lines.map((line) => element("th", {scope: "col"}, line.name)),
  );
  const rows = xs.map((value, i) => [value, i]).filter(([, i]) => i % every === 0 || i === xs.length - 1);
  body.replaceChildren(
    ...rows.map(([value, i]) =>
      element(
        "tr",
        {},
        element("th", {scope: "row"}, shortNumber(value)),
        lines.map((line) => element("td", {}, Number.isFinite(line.ys[i]) ? shortNumber(line.ys[i]) : "–")),
      ),
    ),
  );
}
