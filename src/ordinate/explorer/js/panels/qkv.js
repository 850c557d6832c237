/** Q, K and V: from X through three matrices to one row of attention, and what happens if they are exchanged. */
import {CHANGES, applies, matrices} from "../core/changes.js";
import {mergedMatrix, mergedProduct, symmetricShare} from "../core/merge.js";
import {lossByPosition, mean} from "../core/text.js";
import {KINDS, kindFacts} from "../qkv/kind.js";
import {attentionMaps} from "../qkv/maps.js";
import {attentionRow} from "../qkv/row.js";
import {MOST, currentView, keptRuns} from "../qkv/view.js";
import {choice, controls, slider, textField} from "../view/controls.js";
import {element, focusedIn, shortNumber} from "../view/dom.js";
import {decoderField, titles} from "../view/menus.js";

const NUMBERS = {trained: "as trained", changed: "with the change"};

export function fields(entries) {
  return {
    text: {kind: "text", initial: "def area(width, height):", most: MOST},
    other: {kind: "text", initial: "area = width * height", most: MOST},
    model: decoderField(entries, "rope", {own: true}),
    layer: {kind: "number", initial: 1, low: 1, high: Math.max(...entries.map((entry) => entry.layers)), step: 1},
    head: {kind: "number", initial: 4, low: 1, high: Math.max(...entries.map((entry) => entry.heads)), step: 1},
    query: {kind: "number", initial: 20, low: 0, high: MOST - 1, step: 1},
    key: {kind: "number", initial: 19, low: 0, high: MOST - 1, step: 1},
    change: {kind: "choice", initial: "tied", among: Object.keys(CHANGES)},
    numbers: {kind: "choice", initial: "trained", among: Object.keys(NUMBERS)},
    source: {kind: "choice", initial: "self", among: Object.keys(KINDS)},
  };
}

export function render({state, el, tools}) {
  // with a cache the last token asks, whatever row is picked
  const pick = ({query, ...places}) =>
    state.set(query === undefined || state.get("source") === "cached" ? places : {query, ...places});
  const parts = {
    later: 0,
    runs: keptRuns(),
    kind: kindFacts(),
    maps: attentionMaps(pick),
    row: attentionRow(pick),
    other: textField(state, "other", "Second text: keys and values are made of it"),
    shown: element("p", {class: "note"}),
    queries: element("div", {class: "bytes", role: "group"}),
    keys: element("div", {class: "bytes", role: "group", "aria-label": "The key: choose a token of the second text"}),
    effect: element("dl", {class: "facts"}),
    merged: element("p", {class: "note"}),
  };
  const changeTitles = Object.fromEntries(Object.entries(CHANGES).map(([name, {title}]) => [name, title])),
    kindTitles = Object.fromEntries(Object.entries(KINDS).map(([name, [title]]) => [name, title]));
  el.append(
    controls(
      textField(state, "text", "Text"),
      choice(state, "model", "Model", titles(tools.entries)),
      choice(state, "change", "Change, in all layers and heads", changeTitles),
      element("span", {class: "tag"}, "ablation"),
    ),
    parts.effect,
    element("h3", {}, "From X to one row of attention"),
    controls(
      choice(state, "source", "Kind of attention", kindTitles),
      choice(state, "numbers", "Numbers", NUMBERS),
      slider(state, "layer", "Layer"),
      slider(state, "head", "Head"),
      parts.other,
    ),
    parts.kind.note,
    parts.kind.facts,
    parts.kind.costs,
    parts.shown,
    parts.queries,
    parts.keys,
    ...layout(parts),
    element("h3", {}, "Can W_Q and W_K be merged?"),
    parts.merged,
  );
  return () => draw(state, tools, parts);
}

/** Maps and tables, in their columns. */
function layout({maps, row}) {
  const three = maps.parts.map((map) => map.node),
    side = (...nodes) => element("div", {class: "side"}, nodes);
  return [
    maps.input.node,
    maps.source.node,
    element("div", {class: "three"}, three),
    element("div", {class: "tables"}, side(row.keys), side(row.formula, maps.pattern.node)),
    element("div", {class: "tables"}, side(row.products), side(row.outputs)),
  ];
}

function draw(state, tools, parts) {
  const view = currentView(state, tools, parts.runs),
    {kind, model, other} = view,
    change = state.get("change");
  clearTimeout(parts.later);
  parts.other.hidden = kind !== "cross";
  parts.kind.show(view);
  if (view.missing) return;
  drawTexts(parts, view, state);
  parts.maps.show(view);
  parts.row.show(view);
  drawMerged(parts, view);
  // what needs more passes waits for the picture
  parts.later = setTimeout(() => {
    const said = [drawEffect(parts, view, state)];
    if (kind === "cached") said.push(parts.kind.check(view));
    tools.say(said.join(" "));
    // the second text is read before somebody asks for it
    if (other.ids.length)
      for (const name of ["trained", change]) if (applies(name, model)) parts.runs[name](model, other.ids);
  }, 60);
}

/** Both texts as buttons, and what they choose. */
function drawTexts({shown, queries, keys}, view, state) {
  const cached = view.kind === "cached",
    what = view.change === "trained" ? "those of the trained model" : `those with ${CHANGES[view.change].title}`;
  const ask = cached ? "Choose a key; the last token asks." : "Choose the token whose query is shown, then a key.";
  shown.textContent = `${ask} All numbers are ${what}.`;
  queries.setAttribute("aria-label", cached ? "The key: choose a token" : "The query: choose a token");
  if (cached) drawTokens(queries, view.keyTokens, view.key, (key) => state.set({key}));
  else drawTokens(queries, view.queries, view.query, (query) => state.set({query}));
  keys.hidden = view.kind !== "cross";
  if (!keys.hidden) drawTokens(keys, view.keyTokens, view.key, (key) => state.set({key}));
}

function drawTokens(host, {names, labels}, chosen, pick) {
  const focused = focusedIn(host);
  host.replaceChildren(
    ...names.map((name, p) =>
      element(
        "button",
        {
          type: "button",
          "aria-pressed": String(p === chosen),
          "aria-label": `${labels[p]}, position ${p}`,
          on: {click: () => pick(p)},
        },
        name,
      ),
    ),
  );
  if (focused) host.children[chosen].focus();
}

/** What the change costs on the text, in self-attention of all layers; returns it in a sentence. */
function drawEffect({effect, runs}, {model, queries: {ids}}, state) {
  const change = state.get("change"),
    {title} = CHANGES[change];
  const fact = (label, value, style = "big") =>
    element("div", {}, element("dt", {}, label), element("dd", {class: style}, value));
  if (!applies(change, model)) {
    const why = `does not apply: this model has ${model.heads} query heads and ${model.kv_heads} key heads`;
    effect.replaceChildren(fact(title, why, null));
    return `${title} ${why}.`;
  }
  const loss = (name) => shortNumber(mean(lossByPosition(runs[name](model, ids).logits, ids, model.vocabulary))),
    unit = model.tokens ? "bits/token" : "bits/byte",
    [before, after] = [loss("trained"), loss(change)];
  effect.replaceChildren(fact("loss on this text, as trained", `${before} ${unit}`), fact(title, `${after} ${unit}`));
  return `With ${title} the loss on this text changes from ${before} to ${after} ${unit}.`;
}

function drawMerged({merged: host, runs}, view) {
  const {model, kind, change, layer, head, group, query, key, n, keys, size, stages, source, queries} = view,
    {q, k} = matrices(change),
    merged = mergedMatrix(model, layer, head, [q, k]),
    // with a cache X of the tokens before is not there any more; that of the whole pass is
    input = kind === "cached" ? runs[change](model, queries.ids).layers[layer].input : view.input,
    product = mergedProduct(merged, input, model.width, query, key, source);
  let direct = 0;
  for (let c = 0; c < size; c++)
    direct += stages.q[(head * n + query) * size + c] * stages.k[(group * keys + key) * size + c];
  const same = Math.abs(product - direct) < 1e-9 * Math.max(1, Math.abs(direct)),
    other = kind === "cross" ? "y" : "x",
    made = `M = W_${q.toUpperCase()} W_${k.toUpperCase()}ᵀ, x M ${other}ᵀ = ${shortNumber(product)}`;
  const numbers = `M has ${(model.width ** 2).toLocaleString("en")} numbers, W_Q and W_K together ${(2 * model.width * size).toLocaleString("en")}; ${Math.round(100 * symmetricShare(merged, model.width))} % of its squared norm is symmetric.`;
  const found = same
    ? `Merged: with ${made}, the same as q·k. ${numbers}`
    : `Merged: with ${made}, but q·k = ${shortNumber(direct)}: ${between(model)}. ${numbers}`;
  const kept = `With M a cache would keep rows of X, ${model.width} numbers a token, in place of keys, ${model.kv_heads} × ${size}.`;
  host.textContent = kind === "cached" ? `${found} ${kept}` : found;
}

/** What keeps one matrix from standing for W_Q and W_K. */
function between(model) {
  if (model.scheme === "rope")
    return "a rotation by the offset lies between W_Q and W_K, so that no single M does for all offsets";
  return "the model adds a bias to queries and keys, or normalises them, and M stands for the two matrices alone";
}
