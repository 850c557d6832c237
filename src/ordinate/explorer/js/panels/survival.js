/** Does it survive? The share of the residual stream that position explains, layer by layer. */
import {randomOrder} from "../core/random.js";
import {encode} from "../core/tokens.js";
import {SCHEMES, SERIES} from "../view/colours.js";
import {choice, controls, flag, slider} from "../view/controls.js";
import {element, shortNumber} from "../view/dom.js";
import {lineChart} from "../view/lines.js";
import {decoders, titles} from "../view/menus.js";

const TEXTS = 16;
const LENGTH = 32;
const SUBJECTS = {minilm: "MiniLM, an encoder of 6 layers", rope: "a decoder with RoPE, 3 layers"};
// shares below it are drawn there; corrected for chance, they may be negative
const LEAST = 0.001;
const DASHES = ["", "", "2 3", "8 3", "5 2 1 2", "10 2", "3 3", "1 3"];

export function fields() {
  return {
    skip: {kind: "number", initial: 1, low: 0, high: 2, step: 0.1},
    mask: {kind: "flag", initial: true},
    subject: {kind: "choice", initial: "minilm", among: Object.keys(SUBJECTS)},
  };
}

export function render({state, el, tools}) {
  const live = lineChart(
      `Variance explained by position, in the models of this page; below ${LEAST} drawn at ${LEAST}`,
    ),
    status = element("p", {class: "note", role: "status"}),
    lab = lineChart("Variance explained by position, measured by the probe");
  const cache = new Map();
  const turn = {asked: 0},
    tag = element("span", {class: "tag"}, "ablation");
  el.append(
    element(
      "p",
      {class: "note"},
      `${TEXTS} texts of ${LENGTH} bytes, their bytes in random order, so that only position can be common to a place. `,
      element("strong", {}, "Skip connection"),
      " is the factor of the residual stream beside every branch: 1 is the model as trained.",
    ),
    controls(
      slider(state, "skip", "Skip connection", (skip) => `× ${skip.toFixed(1)}`),
      flag(state, "mask", "Causal mask"),
      tag,
    ),
    live.node,
    status,
    element("h3", {}, "Measured, with other texts and models"),
    controls(choice(state, "subject", "Model", SUBJECTS)),
    lab.node,
  );
  return () => {
    tag.hidden = state.get("mask") && Math.abs(state.get("skip") - 1) < 0.01;
    drawLab(lab, tools, state.get("subject"));
    drawLive(state, tools, {live, status, cache, turn});
  };
}

/** Texts of the tokens of one text in random order; of long tokens there are fewer texts. */
function shuffledTexts(model, content) {
  const ids = encode(model, content, TEXTS * LENGTH),
    order = randomOrder(ids.length, 7),
    mixed = order.map((p) => ids[p]);
  return Array.from({length: Math.floor(ids.length / LENGTH)}, (_, row) =>
    mixed.slice(row * LENGTH, (row + 1) * LENGTH),
  );
}

function drawLab(chart, tools, subject) {
  const [, found] = Object.entries(tools.measured.charts).find(([name]) => name.includes(`/${subject}/`));
  chart.show({
    x: {label: found.x, low: 0, high: Math.max(...found.lines[0].x)},
    y: {label: found.y, low: Math.min(0, ...found.lines.flatMap((line) => line.y))},
    lines: found.lines.map(({name, x, y}, i) => ({
      name,
      xs: x,
      ys: y,
      colour: SERIES[i % SERIES.length],
      dash: DASHES[i],
    })),
  });
}

async function drawLive(state, tools, {live, status, cache, turn}) {
  const mine = ++turn.asked,
    changes = {skip: state.get("skip"), causal: state.get("mask")};
  const lines = [],
    shown = titles(tools.entries);
  for (const name of decoders(tools.entries)) {
    const key = `${name} ${changes.skip.toFixed(1)} ${changes.causal}`;
    if (!cache.has(key)) {
      const told = (share) => {
        if (mine === turn.asked) status.textContent = `Running ${shown[name]} … ${Math.round(100 * share)} %`;
      };
      told(0);
      const model = tools.model(name),
        texts = shuffledTexts(model, tools.measured.text.content);
      cache.set(key, await tools.compute("positionShares", {model, texts, changes}, told));
    }
    // the controls have moved on
    if (mine !== turn.asked) return;
    const shares = cache.get(key);
    lines.push({
      name: shown[name],
      xs: shares.map((_, depth) => depth),
      last: shares.at(-1),
      ys: shares.map((share) => Math.max(share, LEAST)),
      ...(SCHEMES[name] ?? {colour: "var(--accent)"}),
    });
    live.show({
      lines,
      x: {label: "after layer", low: 0, high: Math.max(...lines.map(({xs}) => xs.at(-1)))},
      y: {label: "share of the variance", low: LEAST, high: 1, log: true},
    });
  }
  status.textContent = `After the last layer: ${lines.map(({name, last}) => `${name} ${shortNumber(last)}`).join(", ")}.`;
}
