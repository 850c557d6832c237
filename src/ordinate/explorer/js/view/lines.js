/** Line charts, drawn by uPlot: each line named below, numbers read by pointer or arrow keys, and in a table. */
import {Plot} from "../vendor/uplot.js";
import {element, shortNumber, svg, uniqueId} from "./dom.js";

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
// of the axis of numbers, and of the other one [pixels]
const LEFT = 56,
  BELOW = 42;
const KEYS = {ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity};

/** A chart: {node, show}. `show({lines, x, y, ...})`: each line is {name, xs, ys, colour, dash}; x and y are
 * {label, low, high, log}; `marks` are vertical rules {at, name}. Gaps are NaN. What lies outside is cut off. */
export function lineChart(label, {height = 300} = {}) {
  const id = uniqueId("chart"),
    host = element("div", {class: "lines", role: "img", tabindex: "0", "aria-describedby": id});
  const read = element("p", {class: "read", id}, "\u00a0"),
    key = element("ul", {class: "legend"}),
    {table, fill} = numbers(label);
  const chart = {host, read, height, width: 0, seen: false, later: 0, shown: null, plot: null};
  host.addEventListener("keydown", (event) => step(chart, event));
  host.addEventListener("focus", () => say(chart, chart.plot?.cursor.idx ?? 0));
  // letters keep their size at any width; without a width there is no place for a picture yet
  new ResizeObserver(([{contentRect}]) => {
    chart.width = Math.floor(contentRect.width);
    draw(chart);
  }).observe(host);
  new IntersectionObserver(([{isIntersecting}]) => {
    chart.seen = isIntersecting;
  }).observe(host);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(chart));
  const show = (data) => {
    chart.shown = {...data, columns: aligned(data.lines)};
    host.setAttribute("aria-label", `${label}. ${data.said ?? ""} Arrow keys read single numbers.`);
    key.replaceChildren(...data.lines.map((line) => element("li", {}, sample(line), line.name)));
    fill(chart.shown);
    clearTimeout(chart.later);
    // what is on the screen comes first
    if (chart.seen) draw(chart);
    else chart.later = setTimeout(() => draw(chart), 0);
  };
  const node = element("figure", {class: "plot chart"}, element("figcaption", {}, label), host, key, read, table);
  return {node, show};
}

function sample({colour, dash}) {
  const line = svg("line", {x1: 0, y1: 5, x2: 26, y2: 5, "stroke-dasharray": dash || null});
  line.style.stroke = colour;
  return svg("svg", {viewBox: "0 0 26 10", class: "sample", "aria-hidden": "true"}, line);
}

/** Columns of one table of lines: all their places, then the numbers of each; null is a gap, undefined no number. */
export function aligned(lines) {
  const values = (ys) => Array.from(ys, (y) => (Number.isFinite(y) ? y : null)),
    tables = lines.map(({xs, ys}) => [Array.from(xs), values(ys)]);
  return tables.length > 1 ? Plot.join(tables) : (tables[0] ?? [[]]);
}

/** Draw anew: the picture is small, and what has changed is seldom known. */
function draw(chart) {
  const {host, shown, width, height} = chart;
  if (!shown || !width) return;
  const left = chart.plot?.cursor.left ?? -1;
  chart.plot?.destroy();
  chart.plot = new Plot(options(chart, width, height), shown.columns, host);
  // what was read stays where it was
  if (left >= 0) chart.plot.setCursor({left, top: 0});
}

function options(chart, width, height) {
  const {host, shown} = chart,
    {x, y, lines, marks = []} = shown,
    style = getComputedStyle(host),
    colour = (text) => text.replace(/^var\((--[\w-]+)\)$/, (_, name) => style.getPropertyValue(name).trim());
  const [soft, grid, faint, mark] = ["--soft", "--line", "--faint", "--mark"].map((name) =>
    style.getPropertyValue(name),
  );
  const axis = {stroke: soft, font: FONT, labelFont: FONT, labelSize: 18, labelGap: 0};
  return {
    width,
    height,
    padding: [10, 18, 0, 0],
    legend: {show: false},
    cursor: {y: false, drag: {x: false, y: false}, points: {size: 7}},
    scales: {x: scale(x), y: scale(y)},
    series: [
      {},
      ...lines.map((line) => ({
        stroke: colour(line.colour),
        width: 2,
        dash: line.dash ? line.dash.split(" ").map(Number) : undefined,
        points: {show: false},
        pxAlign: 0,
      })),
    ],
    axes: [
      {
        ...axis,
        ...places(x),
        label: x.label,
        size: BELOW - 18,
        gap: 3,
        grid: {show: false},
        ticks: {stroke: faint, width: 1, size: 4},
        border: {show: true, stroke: faint, width: 1},
      },
      {
        ...axis,
        ...places(y),
        label: y.label,
        size: LEFT - 18,
        gap: 3,
        grid: {stroke: grid, width: 1},
        ticks: {show: false},
      },
    ],
    hooks: {
      draw: [(plot) => marks.forEach((one) => drawMark(plot, one, mark))],
      setCursor: [({cursor}) => say(chart, cursor.idx)],
    },
  };
}

function scale({low, high, log}) {
  return {
    time: false,
    distr: log ? 3 : 1,
    range: (_, least, most) => {
      const ends = [low ?? least ?? 0, high ?? most ?? 1];
      return ends[0] < ends[1] ? ends : [ends[0] - 0.5, ends[0] + 0.5];
    },
  };
}

/** Where an axis has its numbers, and how they are written. */
function places({log}) {
  return {
    splits: (_, __, low, high) => ticks({low, high, log}),
    filter: (_, values) => values,
    values: (_, values) => values.map(tickText),
  };
}

function drawMark(plot, {at, name}, colour) {
  const {ctx: pen, bbox: box} = plot,
    ratio = devicePixelRatio,
    x = Math.round(plot.valToPos(at, "x", true));
  pen.save();
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = ratio;
  pen.setLineDash([3 * ratio, 3 * ratio]);
  pen.beginPath();
  pen.moveTo(x, box.top);
  pen.lineTo(x, box.top + box.height);
  pen.stroke();
  pen.font = FONT.replace("12px", `${12 * ratio}px`);
  pen.textBaseline = "top";
  // at the right end the name stands on the other side
  const wide = pen.measureText(name).width + 5 * ratio,
    fits = x + wide < box.left + box.width;
  pen.textAlign = fits ? "left" : "right";
  pen.fillText(name, x + (fits ? 5 : -5) * ratio, box.top + 2 * ratio);
  pen.restore();
}

/** Say the numbers of all lines at one of their places. */
function say({read, shown}, index) {
  if (!shown || index === null || index === undefined || !(index in shown.columns[0])) {
    read.textContent = "\u00a0";
    return;
  }
  const [xs, ...columns] = shown.columns,
    told = shown.lines.map(({name}, i) => [name, columns[i][index]]).filter(([, value]) => Number.isFinite(value));
  read.textContent = `${shown.x.label} ${placeText(xs[index])}: ${told.map(([name, value]) => `${name} ${shortNumber(value)}`).join(", ") || "no number"}`;
}

/** Arrow keys move from place to place. */
function step({plot}, event) {
  const by = KEYS[event.key];
  if (!plot || by === undefined) return;
  event.preventDefault();
  const [xs] = plot.data,
    index = Math.min(xs.length - 1, Math.max(0, (plot.cursor.idx ?? 0) + by));
  plot.setCursor({left: plot.valToPos(xs[index], "x"), top: 0});
}

/** A place on an axis: whole numbers in full, so that 1024 is not 1020. */
export function placeText(value) {
  return Number.isInteger(value) ? String(value).replace("-", "−") : shortNumber(value);
}

function tickText(value) {
  if (Math.abs(value) < 10000) return placeText(value);
  return value < 1e6 ? `${shortNumber(value / 1000)}k` : `${shortNumber(value / 1e6)}M`;
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
  const size = [1, 2, 5, 10].map((times) => times * power).find((one) => one >= rough);
  const found = [];
  for (let n = Math.ceil(low / size - 1e-9); n * size <= high + 1e-9 * span; n++) found.push(n * size + 0);
  return found;
}

/** A table of all numbers, closed: {table, fill}. */
function numbers(label) {
  const body = element("tbody"),
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
  let latest = null;
  const fill = (data) => {
    latest = data;
    if (table.open) fillTable(head, body, data);
  };
  // closed, it costs nothing while a control moves
  table.addEventListener("toggle", () => {
    if (table.open && latest) fillTable(head, body, latest);
  });
  return {table, fill};
}

function fillTable(head, body, {lines, x, columns: [xs, ...columns]}) {
  const every = Math.max(1, Math.ceil(xs.length / 33));
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
        element("th", {scope: "row"}, placeText(value)),
        columns.map((column) => element("td", {}, Number.isFinite(column[i]) ? shortNumber(column[i]) : "–")),
      ),
    ),
  );
}
