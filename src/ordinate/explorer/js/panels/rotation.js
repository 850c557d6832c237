/** Rotation and bias: what RoPE and its scalings, ALiBi, T5, KERPLE and FIRE make of a distance. */
import {alibiSlopes, fireShare, kerpleLog, kerplePower} from "../core/biases.js";
import {offsetBiases} from "../core/positions.js";
import {meanCosine, scaledRates} from "../core/spectra.js";
import {SCHEMES, SERIES} from "../view/colours.js";
import {button, choice, controls, slider} from "../view/controls.js";
import {element, shortNumber, svg} from "../view/dom.js";
import {heatmap} from "../view/heatmap.js";
import {lineChart} from "../view/lines.js";

const THETAS = [100, 1000, 10000, 100000, 500000, 1000000];
const WIDTHS = [16, 24, 32, 64, 128];
const SCALINGS = {none: "none", linear: "linear (interpolation)", ntk: "NTK-aware", yarn: "YaRN", llama3: "Llama 3"};
const DIALS = 8;
// rows and columns of a map, and how far biases are drawn
const CELLS = 64,
  REACH = 256;
// biases below it leave nothing after the softmax [nats]
const LOWEST = 10;
const BIASES = {
  alibi: "ALiBi",
  kerpleLog: "KERPLE, logarithmic",
  kerplePower: "KERPLE, power",
  t5: "T5, head 1 of the model",
  fire: "FIRE’s input, × −8",
};

export function fields() {
  return {
    offset: {kind: "number", initial: 64, low: 0, high: 512, step: 1},
    theta: {kind: "number", initial: 2, low: 0, high: THETAS.length - 1, step: 1},
    width: {kind: "number", initial: 3, low: 0, high: WIDTHS.length - 1, step: 1},
    scaling: {kind: "choice", initial: "yarn", among: Object.keys(SCALINGS)},
    factor: {kind: "number", initial: 8, low: 1, high: 32, step: 1},
    trained: {kind: "number", initial: 128, low: 32, high: 512, step: 32},
    slope: {kind: "number", initial: 2, low: 1, high: 8, step: 1},
    p: {kind: "number", initial: 1, low: 0.1, high: 2, step: 0.1},
    a: {kind: "number", initial: 0.5, low: 0.1, high: 1, step: 0.1},
    query: {kind: "number", initial: 512, low: 1, high: 1024, step: 1},
    map: {kind: "choice", initial: "alibi", among: Object.keys(BIASES)},
  };
}

export function render({state, el, tools}) {
  const dials = element("div", {class: "dials", role: "img"});
  const score = lineChart("Score of two equal vectors, by distance");
  const scores = heatmap("That score for every query (row) and key (column)"),
    biasMap = heatmap("The chosen bias for every query (row) and key (column)");
  const turns = lineChart("Wavelength of each pair, before and after scaling", {height: 260});
  const lengths = lineChart("Loss of the models of this page by length of the text; trained at 128 bytes", {
    height: 240,
  });
  const biases = lineChart("What is added to the score, by distance");
  const shares = lineChart("Attention by distance if only the bias counted");
  el.append(
    lengths.node,
    element("h3", {}, "Rotation"),
    element(
      "p",
      {class: "note"},
      "Each pair of channels is drawn as a clock hand: for a key ",
      element("strong", {}, "offset"),
      " tokens back it is turned by this angle. Fast pairs distinguish neighbouring tokens, slow ones near from far.",
    ),
    controls(
      slider(state, "offset", "Offset", (offset) => `${offset} tokens`),
      player(state),
    ),
    dials,
    controls(
      slider(state, "theta", "Base θ", (i) => THETAS[i].toLocaleString("en")),
      slider(state, "width", "Head width", (i) => String(WIDTHS[i])),
      choice(state, "scaling", "Scaling", SCALINGS),
      slider(state, "factor", "Factor", (factor) => `${factor}×`),
      slider(state, "trained", "Trained length", (length) => `${length} tokens`),
    ),
    element("div", {class: "two"}, score.node, scores.node),
    turns.node,
    element("h3", {}, "Bias"),
    element(
      "p",
      {class: "note"},
      "Nothing turns; a number that depends on the distance is added to the score. T5’s curve is the table of the model in this page, FIRE’s is the number that its network reads.",
    ),
    controls(
      slider(state, "slope", "ALiBi head", (head) => `${head} of 8`),
      slider(state, "p", "KERPLE p", (p) => p.toFixed(1)),
      slider(state, "a", "KERPLE a", (a) => a.toFixed(1)),
      slider(state, "query", "FIRE: position of the query", (p) => String(p)),
    ),
    element(
      "div",
      {class: "two"},
      biases.node,
      element("div", {}, controls(choice(state, "map", "Map of", BIASES)), biasMap.node),
    ),
    shares.node,
  );
  drawLengths(lengths, tools.measured.models);
  const seen = {};
  // of the two halves the one whose controls have moved
  const changed = (half, names) => {
    const before = seen[half];
    seen[half] = names.map((name) => state.get(name)).join();
    return seen[half] !== before;
  };
  return () => {
    if (changed("rotation", ["offset", "theta", "width", "scaling", "factor", "trained"]))
      drawRotation(state, {dials, score, scores, turns}, tools);
    if (changed("bias", ["slope", "p", "a", "query", "map"])) drawBiases(state, {biases, biasMap, shares}, tools);
  };
}

/** What the question is about: the measured loss of each model with a rotation or a bias, by length. */
function drawLengths(chart, models) {
  chart.show({
    x: {label: "length of the text [bytes]", low: 128, high: 1024, log: true},
    y: {label: "bits per byte", low: 1, high: 5},
    lines: ["rope", "alibi", "t5"].map((name) => ({
      name,
      xs: models[name].lengths.map(({length}) => length),
      ys: models[name].lengths.map(({bits_per_byte: bits}) => bits),
      ...SCHEMES[name],
    })),
  });
}

/** Moves the offset while it is pressed; nothing moves unasked. */
function player(state) {
  let timer = null;
  const stop = () => {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
    play.setAttribute("aria-pressed", "false");
  };
  const play = button(
    "Play",
    () => {
      if (timer) return stop();
      play.textContent = "Pause";
      play.setAttribute("aria-pressed", "true");
      timer = setInterval(() => state.set({offset: (state.get("offset") + 1) % 513}), 120);
      return undefined;
    },
    {"aria-pressed": "false"},
  );
  const step = button("Step", () => {
    stop();
    state.set({offset: (state.get("offset") + 1) % 513});
  });
  addEventListener("hashchange", stop);
  return element("div", {class: "control"}, play, step);
}

function drawRotation(state, {dials, score, scores, turns}, tools) {
  const width = WIDTHS[state.get("width")],
    theta = THETAS[state.get("theta")],
    offset = state.get("offset");
  const given = {width, theta, factor: state.get("factor"), trained: state.get("trained")};
  const name = state.get("scaling"),
    plain = scaledRates("none", given).rates,
    {rates, magnitude} = scaledRates(name, given);
  const pairs = rates.length,
    shown = Array.from({length: Math.min(DIALS, pairs)}, (_, i) =>
      Math.round((i * (pairs - 1)) / (Math.min(DIALS, pairs) - 1)),
    );
  dials.replaceChildren(...shown.map((m) => dial(m, rates[m] * offset)));
  dials.setAttribute(
    "aria-label",
    `Angles at offset ${offset}: ${shown.map((m) => `pair ${m}, ${Math.round((rates[m] * offset * 180) / Math.PI)} degrees`).join("; ")}`,
  );
  const reach = 4 * given.trained,
    xs = Array.from({length: 257}, (_, i) => (i * reach) / 256);
  const lines = [
    {
      name: "as trained",
      xs,
      ys: xs.map((far) => meanCosine(plain, far)),
      colour: SERIES[5],
      dash: name === "none" ? "" : "4 3",
    },
  ];
  if (name !== "none")
    lines.push({
      name: `${SCALINGS[name]}, ${given.factor}×`,
      xs,
      ys: xs.map((far) => magnitude ** 2 * meanCosine(rates, far)),
      colour: SCHEMES.rope.colour,
    });
  score.show({
    x: {label: "distance [tokens]", low: 0, high: reach},
    y: {label: "score"},
    lines,
    marks: [{at: given.trained, name: "trained length"}],
  });
  const by = Array.from({length: CELLS}, (_, cells) => magnitude ** 2 * meanCosine(rates, (cells * reach) / CELLS));
  drawMap(scores, reach, (far) => by[Math.round((far * CELLS) / reach)], -(magnitude ** 2), magnitude ** 2);
  const numbers = rates.map((_, m) => m),
    longest = 2 * Math.PI * Math.max(1 / rates.at(-1), 1 / plain.at(-1));
  turns.show({
    x: {label: "pair of channels", low: 0, high: pairs - 1},
    y: {label: "tokens a turn", log: true, low: 4, high: Math.max(longest, 4 * given.trained)},
    lines: [
      {
        name: "as trained",
        xs: numbers,
        ys: plain.map((rate) => (2 * Math.PI) / rate),
        colour: SERIES[5],
        dash: "4 3",
      },
      {name: "scaled", xs: numbers, ys: rates.map((rate) => (2 * Math.PI) / rate), colour: SCHEMES.rope.colour},
      {name: "trained length", xs: numbers, ys: numbers.map(() => given.trained), colour: "var(--mark)", dash: "2 4"},
    ],
  });
  tools.say(`At offset ${offset} the mean cosine is ${shortNumber(meanCosine(rates, offset))}.`);
}

function dial(m, angle) {
  const [x, y] = [Math.cos(angle) * 40, -Math.sin(angle) * 40],
    turn = angle % (2 * Math.PI);
  const picture = svg(
    "svg",
    {viewBox: "-50 -50 100 100", "aria-hidden": "true"},
    svg("circle", {r: 44}),
    svg("path", {d: `M0 0L40 0A40 40 0 ${turn > Math.PI ? 1 : 0} 0 ${x.toFixed(2)} ${y.toFixed(2)}Z`}),
    svg("line", {class: "still", x1: 0, y1: 0, x2: 40, y2: 0}),
    svg("line", {x1: 0, y1: 0, x2: x.toFixed(2), y2: y.toFixed(2)}),
  );
  const turns = angle / (2 * Math.PI);
  return element(
    "div",
    {},
    picture,
    `pair ${m}`,
    element("br"),
    turns >= 1 ? `${shortNumber(turns)} turns` : `${Math.round((angle * 180) / Math.PI)}°`,
  );
}

/** A map over positions 0 to reach of a number of distance and query. */
function drawMap(map, reach, number, low, high) {
  const step = reach / CELLS,
    values = Float64Array.from({length: CELLS * CELLS}, (_, at) => {
      const i = Math.floor(at / CELLS),
        j = at % CELLS;
      return j > i ? NaN : number((i - j) * step, i * step);
    });
  map.show({
    rows: CELLS,
    columns: CELLS,
    values,
    low,
    high,
    ramp: "signed",
    names: (i, j) => `query ${i * step}, key ${j * step}, ${(i - j) * step} back`,
  });
}

/** Each bias by distance, and by the position of the query, which FIRE reads too. */
function biasFunctions(state, tools) {
  const slope = alibiSlopes(8)[state.get("slope") - 1],
    p = state.get("p"),
    a = state.get("a"),
    table = offsetBiases(tools.model("t5"), REACH + 1)[0];
  return {
    alibi: (far) => -slope * far,
    kerpleLog: (far) => kerpleLog(far, p, a),
    kerplePower: (far) => kerplePower(far, p, a),
    t5: (far) => table[far],
    fire: (far, query) => (far <= query ? -8 * fireShare(far, query) : NaN),
  };
}

function drawBiases(state, {biases, biasMap, shares}, tools) {
  const xs = Array.from({length: REACH + 1}, (_, i) => i),
    query = state.get("query"),
    functions = biasFunctions(state, tools);
  const slope = alibiSlopes(8)[state.get("slope") - 1];
  const styles = {
    alibi: {colour: SCHEMES.alibi.colour, name: `ALiBi, slope ${shortNumber(slope)}`},
    kerpleLog: {colour: SCHEMES.rope.colour, dash: "8 3"},
    kerplePower: {colour: SCHEMES.sinusoidal.colour, dash: "2 3"},
    t5: {colour: SCHEMES.t5.colour},
    fire: {colour: SCHEMES.learned.colour, dash: "5 2 1 2"},
  };
  const lines = Object.entries(styles).map(([key, style]) => ({
    name: BIASES[key],
    xs,
    ys: xs.map((far) => functions[key](far, query)),
    ...style,
  }));
  drawMap(biasMap, REACH, functions[state.get("map")], -LOWEST, LOWEST);
  biases.show({
    x: {label: "distance [tokens]", low: 0, high: REACH},
    y: {label: "bias [nats]", low: -LOWEST, high: 2},
    lines,
  });
  shares.show({
    x: {label: "distance [tokens]", low: 0, high: 64},
    y: {label: "share of attention", low: 0},
    lines: lines.map((line) => ({...line, ys: normalised(line.ys).slice(0, 65), xs: xs.slice(0, 65)})),
  });
}

/** Softmax of a bias over all distances. */
function normalised(ys) {
  const finite = ys.filter(Number.isFinite),
    top = Math.max(...finite),
    sum = finite.reduce((total, y) => total + Math.exp(y - top), 0);
  return ys.map((y) => Math.exp(y - top) / sum);
}
