/** Add, concatenate, or a scalar: token and position in one vector, and how well each is read back. */
import {firstDirection, reachable, readBack, unitRows} from "../core/mixing.js";
import {sinusoids} from "../core/sinusoids.js";
import {byteLabel, byteName} from "../core/text.js";
import {SERIES} from "../view/colours.js";
import {choice, controls, slider} from "../view/controls.js";
import {element, shortNumber, svg} from "../view/dom.js";
import {lineChart} from "../view/lines.js";

const TOKENS = Array.from("e (.t_asrdlu):o,=fpcmhin", (letter) => letter.charCodeAt(0));
const POSITIONS = 64;
const DRAWN = 6;
// the first position lies far from all others, and would leave them no room in the picture
const FIRST = 1;
const CODES = {learned: "the trained table of the model", sinusoids: "sinusoids", scalar: "a scalar from 0 to 1"};
const WAYS = {add: "added", concatenate: "concatenated"};

export function fields() {
  return {
    code: {kind: "choice", initial: "learned", among: Object.keys(CODES)},
    way: {kind: "choice", initial: "add", among: Object.keys(WAYS)},
    share: {kind: "number", initial: 50, low: 0, high: 100, step: 1},
  };
}

export function render({state, el, tools}) {
  const picture = svg("svg", {viewBox: "-1.9 -1.5 3.8 3", class: "plane", role: "img"}),
    facts = element("dl", {class: "facts"});
  const curve = lineChart("Read back from the sum, by the nearest vector"),
    note = element("p", {class: "note"}),
    key = element("ul", {class: "legend"});
  el.append(
    controls(
      choice(state, "code", "Position as", CODES),
      choice(state, "way", "Together", WAYS),
      slider(state, "share", "Share of position", (share) => `${share} %`),
    ),
    facts,
    element(
      "div",
      {class: "two"},
      element(
        "figure",
        {class: "plot"},
        element(
          "figcaption",
          {},
          `${DRAWN} tokens at positions ${FIRST} to ${POSITIONS - 1}, along the main direction of tokens (across) and of positions (up)`,
        ),
        picture,
        key,
      ),
      curve.node,
    ),
    note,
  );
  const cache = new Map();
  return () => draw(state, tools, {picture, facts, curve, note, key}, cache);
}

/** Centred rows of tokens and positions, from the model with a learned table. */
function tablesOf(tools, code) {
  const model = tools.model("learned"),
    {width} = model,
    table = model.tensors["tokens.weight"].data;
  const rows = new Float64Array(TOKENS.length * width);
  TOKENS.forEach((id, r) => rows.set(table.subarray(id * width, (id + 1) * width), r * width));
  const places = {
    learned: () => model.tensors["schemes.0.table"].data,
    sinusoids: () => sinusoids(POSITIONS, width, 10000),
    // along one fixed direction
    scalar: () =>
      Float64Array.from(
        {length: POSITIONS * width},
        (_, i) => (Math.floor(i / width) / (POSITIONS - 1)) * Math.cos(2.4 * (i % width)),
      ),
  }[code]();
  return {width, tokens: unitRows(rows, TOKENS.length, width), places: unitRows(places, POSITIONS, width)};
}

/** Token and position rows as they meet: added in the same columns, or side by side. */
export function combined({width, tokens, places}, share, way) {
  const scaled = (rows, factor, columns, first) => {
    const out = new Float64Array((rows.length / width) * columns);
    for (let i = 0; i < rows.length; i++)
      out[Math.floor(i / width) * columns + first + (i % width)] = rows[i] * factor;
    return out;
  };
  const columns = way === "concatenate" ? 2 * width : width;
  return {
    columns,
    tokens: scaled(tokens, 1 - share, columns, 0),
    places: scaled(places, share, columns, columns - width),
  };
}

function accuracies(tables, share, way) {
  const both = combined(tables, share, way),
    counts = [TOKENS.length, POSITIONS];
  return [0, 1].map((part) => readBack(both.tokens, both.places, counts, both.columns, part));
}

function draw(state, tools, parts, cache) {
  const code = state.get("code"),
    way = state.get("way"),
    share = state.get("share") / 100;
  if (!cache.has(code)) cache.set(code, {tables: tablesOf(tools, code), curves: new Map()});
  const {tables, curves} = cache.get(code);
  if (!curves.has(way))
    curves.set(
      way,
      Array.from({length: 11}, (_, i) => accuracies(tables, i / 10, way)),
    );
  const [token, place] = accuracies(tables, share, way),
    count = reachable(tables.places, POSITIONS, tables.width);
  const fact = (name, value) => element("div", {}, element("dt", {}, name), element("dd", {class: "big"}, value));
  parts.facts.replaceChildren(
    fact("tokens read back", percent(token)),
    fact("positions read back", percent(place)),
    fact("positions that their own vector singles out", `${count} of ${POSITIONS}`),
  );
  const xs = curves.get(way).map((_, i) => 10 * i);
  parts.curve.show({
    x: {label: "share of position [%]", low: 0, high: 100},
    y: {label: "share read back", low: 0, high: 1},
    marks: [{at: 100 * share, name: ""}],
    lines: [
      {name: "token", xs, ys: curves.get(way).map(([one]) => one), colour: SERIES[0]},
      {name: "position", xs, ys: curves.get(way).map(([, other]) => other), colour: SERIES[1], dash: "8 3"},
    ],
  });
  plane(parts, tables, share, way);
  parts.note.textContent = explanation(code, way);
  tools.say(`${percent(token)} of tokens and ${percent(place)} of positions are read back.`);
}

function explanation(code, way) {
  if (code === "scalar")
    return "A linear function of one number is largest at one of its two ends: no head can single out a position in between, however the scalar is scaled. Two of 64 remain.";
  if (way === "concatenate")
    return "Side by side nothing overlaps, at twice the columns. Added, both are read back too: adding p W is concatenating p, with the second matrix folded into the table.";
  return "In 96 columns tokens and positions lie in nearly separate directions: between the ends both are read back from one sum.";
}

function plane({picture, key}, tables, share, way) {
  const {width, tokens, places} = tables,
    across = firstDirection(tokens, DRAWN, width),
    up = firstDirection(places, POSITIONS, width);
  const along = (rows, r, direction) => direction.reduce((sum, value, c) => sum + value * rows[r * width + c], 0);
  // each direction is drawn as wide as it is, so that both fill the picture
  const extent = (rows, from, to, direction) =>
    Math.max(...Array.from({length: to - from}, (_, r) => Math.abs(along(rows, from + r, direction))));
  const [wide, high] = [extent(tokens, 0, DRAWN, across), extent(places, FIRST, POSITIONS, up)];
  const dots = [];
  for (let t = 0; t < DRAWN; t++) {
    for (let p = FIRST; p < POSITIONS; p++) {
      const overlap = way === "add" ? 1 : 0;
      const x = (1 - share) * along(tokens, t, across) + overlap * share * along(places, p, across),
        y = share * along(places, p, up) + overlap * (1 - share) * along(tokens, t, up);
      const dot = svg("circle", {
        cx: ((2.6 * x) / wide).toFixed(3),
        cy: ((-2 * y) / high).toFixed(3),
        r: (0.014 + (0.022 * p) / POSITIONS).toFixed(3),
      });
      dot.style.fill = SERIES[t];
      dots.push(dot);
    }
  }
  picture.replaceChildren(...dots);
  picture.setAttribute(
    "aria-label",
    `Points of ${DRAWN} tokens at ${POSITIONS} positions, ${Math.round(100 * share)} percent position.`,
  );
  key.replaceChildren(
    ...TOKENS.slice(0, DRAWN).map((id, t) => {
      const dot = element("span", {class: "swatch", "aria-hidden": "true"});
      dot.style.background = SERIES[t];
      return element("li", {"aria-label": byteLabel(id)}, dot, byteName(id));
    }),
    element("li", {}, "larger: later"),
  );
}

function percent(share) {
  return `${shortNumber(100 * share)} %`;
}
