/** Heads made by hand: a relation, and what it is built from. */
import {
  causalPattern,
  firstScores,
  linearBiasScores,
  meanDistance,
  meanMass,
  offsetBiasScores,
  offsetScores,
} from "../core/handmade.js";
import {SERIES} from "../view/colours.js";
import {choice, controls, slider} from "../view/controls.js";
import {element, shortNumber} from "../view/dom.js";
import {heatmap} from "../view/heatmap.js";
import {lineChart} from "../view/lines.js";

const N = 64;
// the first queries have no key at larger offsets
const FROM = 16;
const RELATIONS = {offset: "k to the left", first: "the first token", near: "nearby, decaying with distance"};
const MEANS = {sinusoids: "sinusoids on the tokens", rotation: "rotation (RoPE)", bias: "a bias on the scores"};
const LARGE = 8;

export function fields() {
  return {
    relation: {kind: "choice", initial: "offset", among: Object.keys(RELATIONS)},
    means: {kind: "choice", initial: "sinusoids", among: Object.keys(MEANS)},
    offset: {kind: "number", initial: 2, low: 0, high: 16, step: 1},
    strength: {kind: "number", initial: 4, low: 0.25, high: 8, step: 0.25},
    width: {kind: "number", initial: 64, low: 4, high: 128, step: 2},
    row: {kind: "number", initial: 40, low: 0, high: N - 1, step: 1},
  };
}

/** Recipe of a relation by a means: {scores, formula, verdict}. */
export function recipe(relation, means, given) {
  const {offset, strength} = given,
    waves = {...given, base: 10000};
  const build = {
    "offset sinusoids": () => [
      offsetScores(N, waves),
      `W_Q = strength · R(${offset}),  W_K = I\nscore(i, j) = strength · Σ cos ω(i − j − ${offset})`,
      "Works. A shift by k rotates each pair of columns by the same angle everywhere: one constant matrix.",
    ],
    "offset rotation": () => [
      offsetScores(N, waves),
      `q = strength · R(−${offset}) 1,  k = 1, both constant\nscore(i, j) = strength · Σ cos ω(i − j − ${offset})`,
      "Works, and needs nothing from the tokens: constant biases suffice, since RoPE turns them.",
    ],
    "offset bias": () => [
      offsetBiasScores(N, {offset, strength: LARGE * strength}),
      `b(i, j) = ${shortNumber(LARGE * strength)} if i − j = ${offset}, else 0`,
      "Works with a table, such as T5’s within its single-distance buckets. A slope as in ALiBi cannot: its largest bias is at distance 0.",
    ],
    "first sinusoids": () => [
      firstScores(N, waves),
      "q = strength · p₀ for every query,  W_K = I\nscore(i, j) = strength · p₀ · pⱼ",
      "Works. All rows have the same norm, so that p₀ · p₀ is the largest product.",
    ],
    "first rotation": () => [
      offsetScores(N, {...waves, offset: 3 * offset}),
      `The best constant vectors aim at one offset, here ${3 * offset}\nscore(i, j) = strength · Σ cos ω(i − j − ${3 * offset})`,
      "Fails. Scores depend on i − j alone, and the first token is at another offset from every query. Models under RoPE need a mark in the first token itself.",
    ],
    "first bias": () => [
      linearBiasScores(N, {slope: strength}),
      `b(i, j) = ${shortNumber(strength)} · (i − j)`,
      "Works with a bias that grows with distance, which ALiBi’s slopes, all negative, cannot give.",
    ],
    "near sinusoids": () => [
      offsetScores(N, {...waves, offset: 0}),
      "W_Q = strength · I,  W_K = I\nscore(i, j) = strength · Σ cos ω(i − j)",
      "Roughly. The sum falls at first, but not steadily: waves return.",
    ],
    "near rotation": () => [
      offsetScores(N, {...waves, offset: 0}),
      "q = strength · 1,  k = 1\nscore(i, j) = strength · Σ cos ω(i − j)",
      "Roughly. The sum falls at first, but not steadily: rotations return.",
    ],
    "near bias": () => [
      linearBiasScores(N, {slope: -strength / LARGE}),
      `b(i, j) = −${shortNumber(strength / LARGE)} · (i − j)`,
      "Works by construction: this is ALiBi. The slope m gives a mean distance of e⁻ᵐ / (1 − e⁻ᵐ).",
    ],
  }[`${relation} ${means}`]();
  return {scores: build[0], formula: build[1], verdict: build[2]};
}

export function render({state, el, tools}) {
  const formula = element("div", {class: "formula"}),
    verdict = element("p"),
    facts = element("dl", {class: "facts"});
  const map = heatmap("Attention: rows attend to columns", {pick: (row) => state.set({row})}),
    profile = lineChart("One row of it");
  el.append(
    controls(choice(state, "relation", "Attend to", RELATIONS), choice(state, "means", "By", MEANS)),
    controls(
      slider(state, "offset", "k", (k) => `${k} tokens`),
      slider(state, "strength", "Strength", String),
      slider(state, "width", "Width of P or head"),
      slider(state, "row", "Query"),
    ),
    formula,
    verdict,
    facts,
    element("div", {class: "two"}, map.node, profile.node),
  );
  return () => {
    const [relation, offset, width, row] = ["relation", "offset", "width", "row"].map((name) => state.get(name));
    const {
      scores,
      formula: text,
      verdict: said,
    } = recipe(relation, state.get("means"), {offset, width, strength: state.get("strength")});
    const pattern = causalPattern(scores, N);
    formula.textContent = text;
    verdict.textContent = said;
    const goal = {offset: (i) => i - offset, first: () => 0, near: (i) => i}[relation];
    const mass = meanMass(pattern, N, FROM, goal),
      where = {
        offset: `attention ${offset} to the left`,
        first: "attention to the first token",
        near: "attention to the token itself",
      }[relation];
    const fact = (name, value) => element("div", {}, element("dt", {}, name), element("dd", {class: "big"}, value));
    facts.replaceChildren(
      fact(where, `${(100 * mass).toFixed(1)} %`),
      fact("mean distance, last query", `${shortNumber(meanDistance(pattern, N))} tokens`),
    );
    map.show({rows: N, columns: N, values: pattern, names: (i, j) => `query ${i}, key ${j}, ${i - j} back`});
    const xs = Array.from({length: row + 1}, (_, j) => j);
    profile.show({
      x: {label: "key", low: 0, high: N - 1},
      y: {label: "share of attention", low: 0, high: 1},
      said: `Query ${row}.`,
      lines: [{name: `query ${row}`, xs, ys: xs.map((j) => pattern[row * N + j]), colour: SERIES[0]}],
      marks: goal(row) >= 0 ? [{at: goal(row), name: "target"}] : [],
    });
    tools.say(`${(100 * mass).toFixed(0)} percent of ${where}.`);
  };
}
