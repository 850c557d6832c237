/** A matrix as a picture of one pixel a number, drawn large; pointer and arrow keys read single numbers. */
import {isDark, rampColour} from "./colours.js";
import {element, shortNumber, uniqueId} from "./dom.js";

/** A heat map: {node, show}. `show({rows, columns, values, low, high, ramp, names})` draws; `values` is row-major,
 * -Infinity and NaN are left blank; `names(i, j)` says which number it is, `blank(i, j)` why there is none; rowTexts and
 * columnTexts stand at the sides, the text of row `marked` bold; `title` replaces the label. `pick(i, j)` hears of
 * clicks and Enter. */
export function heatmap(label, {pick = null, wide = false} = {}) {
  const canvas = element("canvas", {class: wide ? "map stretched" : "map", tabindex: "0", role: "img"}),
    id = uniqueId("map");
  const read = element("p", {class: "read", id}, "\u00a0"),
    bar = element("span", {class: "ramp", "aria-hidden": "true"});
  const ends = [element("span"), element("span")],
    down = element("div", {class: "names down", "aria-hidden": "true"}),
    across = element("div", {class: "names across", "aria-hidden": "true"}),
    caption = element("figcaption", {}, label);
  const key = element("div", {class: "key"}, ends[0], bar, ends[1]);
  canvas.setAttribute("aria-describedby", id);
  let shown = null,
    place = {row: 0, column: 0};

  const say = () => {
    if (!shown) return;
    const value = shown.values[place.row * shown.columns + place.column];
    const text = Number.isFinite(value) ? shortNumber(value) : shown.blank(place.row, place.column);
    read.textContent = `${shown.names(place.row, place.column)}: ${text}`;
  };
  const move = (row, column) => {
    place = {row: clamp(row, shown.rows), column: clamp(column, shown.columns)};
    say();
  };
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    move(
      Math.floor(((event.clientY - box.top) / box.height) * shown.rows),
      Math.floor(((event.clientX - box.left) / box.width) * shown.columns),
    );
  };
  canvas.addEventListener("pointermove", (event) => {
    if (shown) at(event);
  });
  canvas.addEventListener("focus", say);
  canvas.addEventListener("click", (event) => {
    if (!shown) return;
    at(event);
    pick?.(place.row, place.column);
  });
  canvas.addEventListener("keydown", (event) => {
    const step = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
    if (step) move(place.row + step[0], place.column + step[1]);
    else if (event.key === "Enter" && pick) pick(place.row, place.column);
    else return;
    event.preventDefault();
  });

  const show = (data) => {
    shown = {
      low: 0,
      high: 1,
      ramp: "share",
      names: (i, j) => `row ${i}, column ${j}`,
      blank: () => "hidden",
      ...data,
    };
    paint(canvas, shown);
    // each row as high as its name
    if (wide && shown.rowTexts?.length) canvas.style.height = `max(15rem, ${0.85 * shown.rows}rem)`;
    paintRamp(bar, shown.ramp);
    const rowName = (text, i) => element("span", {class: i === shown.marked ? "marked" : null}, text);
    down.replaceChildren(...(shown.rowTexts ?? []).map(rowName));
    across.replaceChildren(...(shown.columnTexts ?? []).map((text) => element("span", {}, text)));
    ends[0].textContent = shortNumber(shown.low);
    ends[1].textContent = shortNumber(shown.high);
    caption.textContent = shown.title ?? label;
    canvas.setAttribute(
      "aria-label",
      `${shown.title ?? label}, ${shown.rows} by ${shown.columns}. Arrow keys read single numbers.`,
    );
    place = {row: clamp(place.row, shown.rows), column: clamp(place.column, shown.columns)};
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    if (shown) show(shown);
  });
  const node = element(
    "figure",
    {class: "plot"},
    caption,
    element("div", {class: "frame"}, down, canvas, across),
    key,
    read,
  );
  return {node, canvas, show};
}

function clamp(number, size) {
  return Math.min(size - 1, Math.max(0, number));
}

function paint(canvas, {rows, columns, values, low, high, ramp}) {
  canvas.width = columns;
  canvas.height = rows;
  canvas.style.aspectRatio = `${columns} / ${rows}`;
  const pen = canvas.getContext("2d"),
    image = pen.createImageData(columns, rows),
    dark = isDark(),
    span = high - low || 1;
  for (let i = 0; i < rows * columns; i++) {
    if (!Number.isFinite(values[i])) continue;
    image.data.set([...rampColour(ramp, (values[i] - low) / span, dark), 255], 4 * i);
  }
  pen.putImageData(image, 0, 0);
}

function paintRamp(bar, ramp) {
  const stops = [0, 0.25, 0.5, 0.75, 1].map((place) => `rgb(${rampColour(ramp, place).join()})`);
  bar.style.background = `linear-gradient(to right, ${stops.join()})`;
}

/** The largest absolute value, for a ramp that is symmetric about 0. */
export function largest(values) {
  let top = 0;
  for (const value of values) if (Number.isFinite(value)) top = Math.max(top, Math.abs(value));
  return top || 1;
}
