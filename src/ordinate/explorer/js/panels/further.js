/** Further: loss by position of all decoders beyond their trained length, and rotations scaled for it. */
import {mean, toBytes} from "../core/text.js";
import {encode, lossByByte} from "../core/tokens.js";
import {SCHEMES} from "../view/colours.js";
import {button, choice, controls, slider} from "../view/controls.js";
import {element, shortNumber} from "../view/dom.js";
import {lineChart} from "../view/lines.js";
import {decoderField, titles} from "../view/menus.js";

const SCALINGS = {none: "none", linear: "linear (interpolation)", ntk: "NTK-aware", yarn: "YaRN", llama3: "Llama 3"};
const LENGTHS = [64, 128, 256, 512, 1024];
// of the models of the package [bytes], and of a user's model whose files do not tell [tokens]
const TRAINED = 128;
// bytes in each point of the curve
const STEP = 32;

export function fields(entries) {
  return {
    length: {kind: "number", initial: 3, low: 0, high: LENGTHS.length - 1, step: 1},
    model: decoderField(entries, "rope", {own: true}),
    scaling: {kind: "choice", initial: "ntk", among: Object.keys(SCALINGS)},
    factor: {kind: "number", initial: 4, low: 1, high: 16, step: 1},
  };
}

export function render({state, el, tools}) {
  const chart = lineChart("Loss of each byte by its position, held-out text", {height: 340}),
    table = lengthTable(tools);
  const live = {
    chart: lineChart("Read now, in this page", {height: 300}),
    status: element("p", {class: "note", role: "status"}),
    busy: false,
    curves: new Map(),
  };
  const text = tools.measured.text;
  el.append(
    chart.node,
    table,
    element("h3", {}, "Read it now"),
    element(
      "p",
      {class: "note"},
      "A file that no model was trained on, ",
      element("code", {}, text.name),
      ", is read byte by byte. Scaling changes the rotations of the trained model, without training; it has an effect on RoPE only.",
    ),
    controls(
      choice(state, "model", "Model", titles(tools.entries)),
      slider(state, "length", "Length", (i) => `${LENGTHS[i]} bytes`),
      choice(state, "scaling", "Scaling", SCALINGS),
      slider(state, "factor", "Factor", (factor) => `${factor}×`),
      button("Read", () => read(state, tools, live)),
      button("Clear", () => {
        live.curves.clear();
        showLive(live);
      }),
    ),
    live.status,
    live.chart.node,
  );
  showLive(live);
  drawMeasured(chart, tools);
  read(state, tools, live);
  return () => {};
}

/** The models whose losses were measured, also those that the page has no room for. */
function measuredNames(models) {
  return Object.keys(models).filter((name) => models[name].lengths);
}

function drawMeasured(chart, tools) {
  const {models} = tools.measured,
    names = measuredNames(models);
  const lines = names.map((name) => ({
    name,
    xs: models[name].positions.map((p) => p + STEP / 2),
    ys: models[name].bits_by_position,
    ...SCHEMES[name],
  }));
  const last = (name) => shortNumber(models[name].bits_by_position.at(-1));
  chart.show({
    lines,
    x: {label: "position [bytes]", low: 0, high: 1024},
    y: {label: "bits per byte", low: 1, high: 6},
    marks: [{at: TRAINED, name: "trained length"}],
    said: `At the end of 1024 bytes: ${names.map((name) => `${name} ${last(name)}`).join(", ")}.`,
  });
}

/** Losses by length; on a narrow screen each model is a card, its rows named by `data-label` (page.css), and roles keep
 * it a table for screen readers. */
function lengthTable(tools) {
  const {models} = tools.measured,
    names = measuredNames(models),
    lengths = models[names[0]].lengths.map(({length}) => `${length} bytes`);
  const head = ["trained with", ...lengths].map((name) => element("th", {scope: "col", role: "columnheader"}, name));
  const cell = ({bits_per_byte: bits, interval}, at) =>
    element(
      "td",
      {role: "cell", data: {label: lengths[at]}},
      `${bits.toFixed(2)} [${interval.map((end) => end.toFixed(2)).join(", ")}]`,
    );
  const row = (name) =>
    element(
      "tr",
      {role: "row"},
      element("th", {scope: "row", role: "rowheader"}, name),
      models[name].lengths.map(cell),
    );
  return element(
    "table",
    {class: "plain cards", role: "table"},
    element("caption", {}, "Bits per byte on held-out text, 95 % interval"),
    element("thead", {role: "rowgroup"}, element("tr", {role: "row"}, head)),
    element("tbody", {role: "rowgroup"}, names.map(row)),
  );
}

/** Read the text by the worker, and add its curve. */
async function read(state, tools, live) {
  if (live.busy) return;
  const name = state.get("model"),
    model = tools.model(name),
    factor = state.get("factor"),
    rotated = model.scheme === "rope";
  const scaling = rotated
    ? {name: state.get("scaling"), factor, trained: model.trained_length ?? TRAINED}
    : {name: "none"};
  const runs = rotated && scaling.name !== "none" ? [{name: "none"}, scaling] : [scaling];
  const part = toBytes(tools.measured.text.content, LENGTHS[state.get("length")]),
    ids = encode(model, new TextDecoder().decode(Uint8Array.from(part)), Infinity);
  const {title, own} = tools.entries.find((entry) => entry.name === name),
    // a trained length of tokens is no place in bytes
    mark = model.tokens ? null : (model.trained_length ?? (own ? null : TRAINED)),
    assumed = own && !model.trained_length && ["yarn", "llama3"].includes(scaling.name);
  live.busy = true;
  try {
    for (const one of runs) {
      const label = one.name === "none" ? title : `${title}, ${SCALINGS[one.name]} ${factor}×`;
      const told = (share) => {
        live.status.textContent = `Reading ${part.length} bytes with ${label} … ${Math.round(100 * share)} %`;
      };
      told(0);
      const start = performance.now(),
        bits = lossByByte(model, ids, await tools.compute("readText", {model, ids, scaling: one}, told));
      live.curves.set(label, {bits, scheme: model.scheme, scaled: one.name !== "none", mark});
      live.status.textContent = `${label}: ${shortNumber(mean(bits))} bits per byte over ${part.length} bytes, read in ${Math.round(performance.now() - start)} ms.${assumed ? ` Its files do not tell the trained length; ${TRAINED} tokens are assumed.` : ""}`;
      showLive(live);
    }
  } catch (error) {
    live.status.textContent = `It cannot be read: ${error.message}. Choose a shorter length.`;
  } finally {
    live.busy = false;
  }
}

function showLive({chart, curves}) {
  const lines = [...curves].map(([name, {bits, scheme, scaled, mark}]) => ({
    name,
    mark,
    ...smoothed(bits),
    ...SCHEMES[scheme],
    ...(scaled ? {colour: "var(--scheme-t5)"} : {}),
  }));
  chart.node.hidden = !lines.length;
  if (!lines.length) return;
  const marks = new Set(lines.filter(({xs, mark}) => mark && xs.at(-1) > mark).map(({mark}) => mark));
  chart.show({
    lines,
    x: {label: "position [bytes]", low: 0, high: Math.max(...lines.map((line) => line.xs.at(-1))) + STEP / 2},
    y: {label: "bits per byte", low: 0},
    marks: [...marks].map((at) => ({at, name: marks.size > 1 ? `trained length ${at}` : "trained length"})),
  });
}

/** Means of stretches of bytes. */
function smoothed(bits) {
  const xs = [],
    ys = [];
  for (let from = 0; from < bits.length; from += STEP) {
    const part = bits.slice(from, from + STEP);
    xs.push(from + part.length / 2);
    ys.push(mean(part));
  }
  return {xs, ys};
}
