/** Q, K and V: from X through three matrices to one row of attention, and what happens if they are exchanged. */
import {mergedMatrix, mergedProduct, symmetricShare} from "../core/merge.js";
import {run} from "../core/model.js";
import {lossByPosition, mean} from "../core/text.js";
import {encode, tokenLabel, tokenName} from "../core/tokens.js";
import {barTable} from "../view/bars.js";
import {choice, controls, slider, textField} from "../view/controls.js";
import {element, focusedIn, shortNumber} from "../view/dom.js";
import {heatmap, largest} from "../view/heatmap.js";
import {decoderField, titles} from "../view/menus.js";

const MOST = 32;
const CHANGES = {
  trained: ["nothing", {}],
  tied: ["K := Q (one matrix for both)", {queriesKeys: (q) => [q, q]}],
  swapped: ["Q and K exchanged", {queriesKeys: (q, k) => [k, q]}],
  keysAsValues: ["V := K", {values: (k) => k}],
  outside: ["scale behind the softmax", {scale: "outside"}],
  unscaled: ["no scale", {scale: "none"}],
};
const SOURCES = {
  self: [
    "self-attention",
    "Q, K and V are made of the same tokens: n queries meet n keys, and under a causal mask query i sees keys 0 to i.",
  ],
  cached: [
    "with a cache",
    "Only the newest token makes a query; its key and value join those kept from before. The last row of attention is the same to the last digit.",
  ],
  cross: [
    "cross-attention",
    "Queries are made of the text that is being written, keys and values of the text that is read: the same three matrices, two inputs. Positions of one text say nothing about places in the other.",
  ],
};

export function fields(entries) {
  return {
    text: {kind: "text", initial: "def area(width, height):", most: MOST},
    model: decoderField(entries, "rope", {own: true}),
    layer: {kind: "number", initial: 1, low: 1, high: Math.max(...entries.map((entry) => entry.layers)), step: 1},
    head: {kind: "number", initial: 4, low: 1, high: Math.max(...entries.map((entry) => entry.heads)), step: 1},
    query: {kind: "number", initial: 20, low: 0, high: MOST - 1, step: 1},
    key: {kind: "number", initial: 19, low: 0, high: MOST - 1, step: 1},
    change: {kind: "choice", initial: "tied", among: Object.keys(CHANGES)},
    source: {kind: "choice", initial: "self", among: Object.keys(SOURCES)},
  };
}

const choices = (part) => Object.fromEntries(Object.entries(part).map(([key, [title]]) => [key, title]));

export function render({state, el, tools}) {
  const parts = {
    later: 0,
    bytes: element("div", {class: "bytes", role: "group", "aria-label": "The query: choose a token"}),
    input: heatmap("X, normalised: a row for each token, a column for each of the model’s channels", {
      wide: true,
      pick: (row) => state.set({query: row}),
    }),
    maps: ["Q = X W_Q, after RoPE if any", "K = X W_K, likewise", "V = X W_V"].map((title) =>
      heatmap(title, {wide: true, pick: (row) => state.set({query: row})}),
    ),
    row: barTable("One row of attention", ["key", "q·k/√d + bias", "share"]),
    sum: element("div", {class: "formula"}),
    channels: element("tbody"),
    effect: element("dl", {class: "facts"}),
    merged: element("p", {class: "note"}),
    source: element("p", {class: "note"}),
  };
  const table = (caption, head, body) =>
    element(
      "div",
      {class: "scroll", tabindex: "0", role: "region", "aria-label": caption},
      element(
        "table",
        {class: "bars"},
        element("caption", {}, caption),
        element(
          "thead",
          {},
          element(
            "tr",
            {},
            head.map((one) => element("th", {scope: "col"}, one)),
          ),
        ),
        body,
      ),
    );
  el.append(
    controls(
      textField(state, "text", "Text"),
      choice(state, "model", "Model", titles(tools.entries)),
      choice(state, "change", "Change, in all layers and heads", choices(CHANGES)),
      element("span", {class: "tag"}, "ablation"),
    ),
    parts.effect,
    element("h3", {}, "From X to one row of attention"),
    controls(slider(state, "layer", "Layer"), slider(state, "head", "Head")),
    element(
      "p",
      {class: "note"},
      "Choose the token whose query is shown, then a key. All numbers are those of the trained model.",
    ),
    parts.bytes,
    parts.input.node,
    element(
      "div",
      {class: "three"},
      parts.maps.map((map) => map.node),
    ),
    element(
      "div",
      {class: "two"},
      parts.row.node,
      element(
        "div",
        {},
        parts.sum,
        table("The inner product, channel by channel", ["channel", "q", "k", "q × k"], parts.channels),
      ),
    ),
    element("h3", {}, "Can W_Q and W_K be merged?"),
    parts.merged,
    element("h3", {}, "Where do they come from?"),
    controls(choice(state, "source", "Kind of attention", choices(SOURCES))),
    parts.source,
  );
  return () => draw(state, tools, parts);
}

function draw(state, tools, parts) {
  const model = tools.model(state.get("model")),
    ids = encode(model, state.get("text"), MOST),
    n = ids.length;
  const label = (p) => tokenLabel(model, ids[p]),
    names = ids.map((id) => tokenName(model, id));
  if (n < 2) return;
  const layer = Math.min(state.get("layer"), model.layers) - 1,
    head = Math.min(state.get("head"), model.heads) - 1;
  const query = Math.min(state.get("query"), n - 1),
    key = Math.min(state.get("key"), query),
    size = model.head_width;
  // with fewer key heads than query heads, several share one
  const group = Math.floor((head * model.kv_heads) / model.heads);
  const trace = run(model, ids),
    stages = trace.layers[layer];
  drawTokens(
    parts.bytes,
    names,
    ids.map((_, p) => label(p)),
    {query, key},
    state,
  );
  const limit = largest(stages.input);
  // tokens of several letters have no room beside a row
  const rowTexts = model.tokens ? [] : names;
  parts.input.show({
    rows: n,
    rowTexts,
    columns: model.width,
    values: stages.input,
    low: -limit,
    high: limit,
    ramp: "signed",
    names: (i, j) => `“${label(i)}” (${i}), column ${j}`,
  });
  ["q", "k", "v"].forEach((part, at) => {
    const one = part === "q" ? head : group,
      values = stages[part].subarray(one * n * size, (one + 1) * n * size),
      top = largest(values);
    parts.maps[at].show({
      rows: n,
      rowTexts,
      columns: size,
      values,
      low: -top,
      high: top,
      ramp: "signed",
      names: (i, j) => `${part} of “${label(i)}” (${i}), channel ${j}`,
    });
  });
  drawRow(parts.row, stages, names, {head, query, key, n}, state);
  const place = {layer, head, group, query, key, n, size, scale: model.score_scales[layer]};
  drawProduct(parts, stages, place, names);
  clearTimeout(parts.later);
  // what needs two more passes waits for the picture
  parts.later = setTimeout(() => drawEffect(parts.effect, model, ids, state, tools), 60);
  drawMerged(parts.merged, model, stages, place);
  parts.source.textContent =
    SOURCES[state.get("source")][1] + (state.get("source") === "cached" ? ` ${cacheCheck(model, ids, trace)}` : "");
}

function drawTokens(host, names, labels, {query, key}, state) {
  const focused = focusedIn(host);
  host.replaceChildren(
    ...names.map((name, p) =>
      element(
        "button",
        {
          type: "button",
          "aria-pressed": String(p === query),
          "aria-label": `${labels[p]}, position ${p}${p === key ? ", the key" : ""}`,
          on: {click: () => state.set({query: p})},
        },
        name,
      ),
    ),
  );
  if (focused) host.children[query].focus();
}

function drawRow(table, {scores, pattern}, names, {head, query, key, n}, state) {
  const from = (head * n + query) * n,
    focused = focusedIn(table.node);
  table.show(
    names.slice(0, query + 1).map((name, j) => {
      const pick = element(
        "button",
        {
          type: "button",
          class: "quiet",
          "aria-pressed": String(j === key),
          "aria-label": `key ${name}, position ${j}`,
          on: {click: () => state.set({key: j})},
        },
        `${name} ${j}`,
      );
      return {
        name: pick,
        share: pattern[from + j],
        cells: [shortNumber(scores[from + j]), `${(100 * pattern[from + j]).toFixed(1)} %`],
      };
    }),
  );
  // the rows are new; the key that was chosen by keyboard keeps the focus
  if (focused) table.node.querySelector("[aria-pressed=true]").focus();
}

function drawProduct(parts, {q, k, scores, pattern}, {head, group, query, key, n, size, scale}, names) {
  const one = (head * n + query) * size,
    other = (group * n + key) * size;
  const products = Array.from({length: size}, (_, c) => q[one + c] * k[other + c]),
    sum = products.reduce((total, part) => total + part, 0);
  const score = scores[(head * n + query) * n + key],
    bias = score - sum * scale;
  const added = Math.abs(bias) > 1e-9 ? ` ${bias < 0 ? "−" : "+"} bias ${shortNumber(Math.abs(bias))}` : "";
  parts.sum.textContent = `query “${names[query]}” (${query}), key “${names[key]}” (${key})\nq·k = ${shortNumber(sum)},  × ${shortNumber(scale)}${added} = ${shortNumber(score)}\nsoftmax over ${query + 1} keys: ${(100 * pattern[(head * n + query) * n + key]).toFixed(1)} %`;
  parts.channels.replaceChildren(
    ...products.map((product, c) =>
      element(
        "tr",
        {},
        element("th", {scope: "row"}, String(c)),
        element("td", {}, shortNumber(q[one + c])),
        element("td", {}, shortNumber(k[other + c])),
        element("td", {}, shortNumber(product)),
      ),
    ),
  );
}

function drawEffect(host, model, ids, state, tools) {
  const [title, changes] = CHANGES[state.get("change")];
  if (changes.queriesKeys && model.kv_heads !== model.heads) {
    host.replaceChildren(
      element(
        "div",
        {},
        element("dt", {}, title),
        element(
          "dd",
          {},
          `does not apply: this model has ${model.heads} query heads and ${model.kv_heads} key heads`,
        ),
      ),
    );
    return;
  }
  const loss = (how) => mean(lossByPosition(run(model, ids, {...how, keep: false}).logits, ids, model.vocabulary));
  const [before, after] = [loss({}), loss(changes)];
  const fact = (label, value) => element("div", {}, element("dt", {}, label), element("dd", {class: "big"}, value)),
    unit = model.tokens ? "bits/token" : "bits/byte";
  host.replaceChildren(
    fact("loss on this text, as trained", `${shortNumber(before)} ${unit}`),
    fact(title, `${shortNumber(after)} ${unit}`),
  );
  tools.say(
    `With ${title} the loss on this text changes from ${shortNumber(before)} to ${shortNumber(after)} ${unit}.`,
  );
}

function drawMerged(host, model, stages, {layer, head, group, query, key, n, size}) {
  const merged = mergedMatrix(model, layer, head),
    product = mergedProduct(merged, stages.input, model.width, query, key);
  let direct = 0;
  for (let c = 0; c < size; c++)
    direct += stages.q[(head * n + query) * size + c] * stages.k[(group * n + key) * size + c];
  const same = Math.abs(product - direct) < 1e-9 * Math.max(1, Math.abs(direct));
  const numbers = `M has ${(model.width ** 2).toLocaleString("en")} numbers, W_Q and W_K together ${(2 * model.width * size).toLocaleString("en")}; ${Math.round(100 * symmetricShare(merged, model.width))} % of its squared norm is symmetric.`;
  host.textContent = same
    ? `Merged: with M = W_Q W_Kᵀ, x M xᵀ = ${shortNumber(product)}, the same as q·k. ${numbers}`
    : `Merged: x M xᵀ = ${shortNumber(product)}, but q·k = ${shortNumber(direct)}: ${between(model)}. ${numbers}`;
}

/** What keeps one matrix from standing for W_Q and W_K. */
function between(model) {
  if (model.scheme === "rope")
    return "a rotation by the offset lies between W_Q and W_K, so that no single M does for all offsets";
  return "the model adds a bias to queries and keys, or normalises them, and M stands for the two matrices alone";
}

/** The last row computed from the text without its last byte, and that byte. */
function cacheCheck(model, ids, trace) {
  const short = run(model, ids.slice(0, -1)),
    size = model.head_width,
    n = ids.length;
  let gap = 0;
  for (let head = 0; head < model.kv_heads; head++) {
    for (let i = 0; i < (n - 1) * size; i++) {
      gap = Math.max(
        gap,
        Math.abs(short.layers.at(-1).k[head * (n - 1) * size + i] - trace.layers.at(-1).k[head * n * size + i]),
      );
    }
  }
  return `Here the keys of the last layer before and after the last byte came differ by ${shortNumber(gap)} at most.`;
}
