/** The sinusoidal matrix: rows, distances, slow waves, and the Fourier series of a sawtooth beside it. */
import {closestPair, frequencies, rowDistances, sawtoothSum, sinusoids} from "../core/sinusoids.js";
import {SERIES} from "../view/colours.js";
import {controls, slider} from "../view/controls.js";
import {element, shortNumber} from "../view/dom.js";
import {heatmap} from "../view/heatmap.js";
import {lineChart} from "../view/lines.js";

const BASES = [10, 100, 1000, 10000, 100000, 1000000];

export function fields() {
  return {
    width: {kind: "number", initial: 32, low: 2, high: 128, step: 1},
    base: {kind: "number", initial: 3, low: 0, high: BASES.length - 1, step: 1},
    length: {kind: "number", initial: 96, low: 8, high: 256, step: 8},
    row: {kind: "number", initial: 20, low: 0, high: 255, step: 1},
    terms: {kind: "number", initial: 3, low: 1, high: 40, step: 1},
  };
}

export function render({state, el, tools}) {
  const facts = element("dl", {class: "facts"});
  const matrix = heatmap("P: a row for each position, a column for each sine or cosine", {wide: true});
  const far = heatmap("Distance of every row from every other", {pick: (row) => state.set({row})});
  const profile = lineChart("Distance from one row to all others");
  const waves = lineChart("Wavelengths: how many tokens until a column repeats", {height: 240});
  const saw = lineChart("The slowest wave, and partial sums of a sawtooth’s Fourier series", {height: 240});
  el.append(
    controls(
      slider(state, "width", "Width", (width) => `${width}${width % 2 ? ", odd" : ""}`),
      slider(state, "base", "Base", (i) => BASES[i].toLocaleString("en")),
      slider(state, "length", "Positions"),
      slider(state, "row", "Row"),
    ),
    facts,
    matrix.node,
    element("div", {class: "two"}, far.node, profile.node),
    element("h3", {}, "Slow waves in short texts"),
    element(
      "p",
      {class: "note"},
      "A column whose wave is far longer than the text hardly changes in it: it is nearly a constant. That costs little, since tokens can use the room; and in longer texts the wave is there.",
    ),
    waves.node,
    element("h3", {}, "Is it the Fourier series of a sawtooth?"),
    element(
      "p",
      {class: "note"},
      "No. A Fourier series has frequencies 1, 2, 3 … and falling amplitudes. The matrix has frequencies in geometric progression, all of amplitude 1. Both tell where one is within a period.",
    ),
    controls(slider(state, "terms", "Terms of the series")),
    saw.node,
  );
  return () => draw(state, tools, {facts, matrix, far, profile, waves, saw});
}

function draw(state, tools, parts) {
  const width = state.get("width"),
    length = state.get("length"),
    base = BASES[state.get("base")],
    row = Math.min(state.get("row"), length - 1);
  const table = sinusoids(length, width, base),
    far = rowDistances(table, length, width),
    closest = closestPair(far, length);
  const rates = frequencies(width, base),
    slow = rates.filter((rate) => (2 * Math.PI) / rate > 4 * length).length;
  parts.matrix.show({
    rows: length,
    columns: width,
    values: table,
    low: -1,
    high: 1,
    ramp: "signed",
    names: (i, j) =>
      `position ${i}, column ${j}, ${j % 2 ? "cosine" : "sine"} of wavelength ${shortNumber((2 * Math.PI) / rates[j >> 1])}`,
  });
  parts.far.show({
    rows: length,
    columns: length,
    values: far,
    low: 0,
    high: Math.max(...far),
    names: (i, j) => `positions ${i} and ${j}`,
  });
  showFacts(parts.facts, closest, slow, rates.length);
  showProfile(parts.profile, far, length, row);
  parts.waves.show({
    x: {label: "pair of columns", low: 0, high: Math.max(1, rates.length - 1)},
    y: {label: "tokens", log: true, low: 4, high: 10 ** Math.ceil(Math.log10(2 * Math.PI * base))},
    lines: [
      {
        name: "wavelength",
        xs: rates.map((_, m) => m),
        ys: rates.map((rate) => (2 * Math.PI) / rate),
        colour: SERIES[0],
      },
      {
        name: "length of the text",
        xs: rates.map((_, m) => m),
        ys: rates.map(() => length),
        colour: SERIES[5],
        dash: "4 4",
      },
    ],
  });
  showSawtooth(parts.saw, state.get("terms"));
  tools.say(`The closest rows are ${closest.offset} apart, at distance ${shortNumber(closest.distance)}.`);
}

function showFacts(host, closest, slow, pairs) {
  const fact = (name, value) => element("div", {}, element("dt", {}, name), element("dd", {class: "big"}, value));
  host.replaceChildren(
    fact("closest two rows are apart by", `${closest.offset} ${closest.offset === 1 ? "position" : "positions"}`),
    fact("their distance", shortNumber(closest.distance)),
    fact("waves with less than a quarter turn", `${slow} of ${pairs}`),
  );
}

function showProfile(chart, far, length, row) {
  const xs = Array.from({length}, (_, p) => p);
  chart.show({
    x: {label: "position", low: 0, high: length - 1},
    y: {label: "distance", low: 0},
    said: `Row ${row}.`,
    lines: [{name: `from position ${row}`, xs, ys: xs.map((p) => far[row * length + p]), colour: SERIES[0]}],
    marks: [{at: row, name: `position ${row}`}],
  });
}

function showSawtooth(chart, terms) {
  const xs = Array.from({length: 241}, (_, i) => i / 120);
  chart.show({
    x: {label: "periods", low: 0, high: 2},
    y: {label: "", low: -0.2, high: 1.2},
    lines: [
      {name: "sawtooth", xs, ys: xs.map((x) => (x % 1 < 1e-9 ? NaN : x % 1)), colour: SERIES[5], dash: "3 3"},
      {
        name: `${terms} ${terms === 1 ? "term" : "terms"}`,
        xs,
        ys: xs.map((x) => sawtoothSum(x, terms)),
        colour: SERIES[1],
      },
      {
        name: "one wave of the matrix",
        xs,
        ys: xs.map((x) => 0.5 - Math.sin(2 * Math.PI * x) / 2),
        colour: SERIES[0],
        dash: "8 3",
      },
    ],
  });
}
