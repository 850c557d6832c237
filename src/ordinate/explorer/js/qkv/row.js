/** One row of attention in the panel Q, K and V: its keys, one inner product channel by channel, and its output. */
import {dot} from "../core/arrays.js";
import {CHANGES} from "../core/changes.js";
import {barTable} from "../view/bars.js";
import {element, focusedIn, shortNumber} from "../view/dom.js";
import {plainTable} from "../view/table.js";

/** The row: {keys, formula, products, outputs, show}. `pick` hears of a key: {key}. */
export function attentionRow(pick) {
  const keys = barTable("One row of attention", ["key", "score", "share"]),
    formula = element("div", {class: "formula"}),
    style = {style: "bars summed"},
    products = plainTable("The inner product, channel by channel", ["channel", "q", "k", "q × k"], style),
    outputs = plainTable("The output, channel by channel", ["channel", "v", "share × v", "all keys"], {
      style: "bars",
    });
  const show = (view) => {
    showKeys(keys, view, pick);
    showProduct(formula, view);
    showChannels(products, outputs, view);
  };
  return {keys: keys.node, formula, products: products.node, outputs: outputs.node, show};
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;
const scoreText = (score) => (Number.isFinite(score) ? shortNumber(score) : "hidden");

function showKeys(table, view, pick) {
  const {kind, change, head, n, keys, query, key, seen, first, stages, plain, keyTokens} = view,
    from = (head * n + query) * keys,
    focused = focusedIn(table.node),
    cached = kind === "cached",
    changed = change !== "trained";
  const rows = keyTokens.names.slice(0, seen).map((name, j) => {
    const picked = {
      type: "button",
      class: "quiet",
      "aria-pressed": String(j === key),
      on: {click: () => pick({key: j})},
    };
    const cells = [scoreText(stages.scores[from + j]), percent(stages.pattern[from + j])];
    if (cached) cells.unshift(j < first ? "cache" : "new");
    if (changed) cells.push(percent(plain.stages.pattern[from + j]));
    return {
      name: element("button", {...picked, "aria-label": `key ${name}, position ${j}`}, `${name} ${j}`),
      share: stages.pattern[from + j],
      cells,
    };
  });
  table.show(rows, ["key", ...(cached ? ["k, v"] : []), "score", "share", ...(changed ? ["as trained"] : [])]);
  // the rows are new; the key that was chosen by keyboard keeps the focus
  if (focused) table.node.querySelector("[aria-pressed=true]").focus();
}

/** The factors of the scores and of the output of a layer. */
function factors({model, layer, change}) {
  const scale = model.score_scales[layer],
    where = CHANGES[change].how.scale ?? "inside";
  return {scale: where === "inside" ? scale : 1, behind: where === "outside" ? scale : 1};
}

/** Where the row, the query, the key and its value are among the stages. */
function places({head, group, query, key, n, keys, size}) {
  return {
    one: (head * n + query) * size,
    other: (group * keys + key) * size,
    at: (head * n + query) * keys + key,
  };
}

function showProduct(formula, view) {
  const {query, key, size, seen, stages, queries, keyTokens} = view,
    {q, k, scores, pattern} = stages,
    {one, other, at} = places(view),
    {scale, behind} = factors(view);
  const sum = dot(q, one, k, other, size),
    bias = scores[at] - sum * scale;
  const added =
      Number.isFinite(bias) && Math.abs(bias) > 1e-9
        ? ` ${bias < 0 ? "−" : "+"} bias ${shortNumber(Math.abs(bias))}`
        : "",
    scaled = `${scale === 1 ? "" : ` × ${shortNumber(scale)}`}${added}`;
  formula.textContent = [
    `query “${queries.names[query]}” (${query}), key “${keyTokens.names[key]}” (${key})`,
    `score: q·k = ${shortNumber(sum)}${scaled && `, ${scaled} = ${scoreText(scores[at])}`}`,
    `share: softmax over ${seen} key${seen > 1 ? "s" : ""} = ${percent(pattern[at])}`,
    `output: sum of share × v over all keys${behind === 1 ? "" : `, × ${shortNumber(behind)}`}`,
  ].join("\n");
}

function showChannels(products, outputs, view) {
  const {size, stages} = view,
    {q, k, v, z, pattern} = stages,
    {one, other, at} = places(view),
    share = pattern[at] * factors(view).behind;
  const rows = (numbers) => Array.from({length: size}, (_, c) => [String(c), ...numbers(c).map(shortNumber)]);
  products.show([
    ...rows((c) => [q[one + c], k[other + c], q[one + c] * k[other + c]]),
    ["sum", "", "", shortNumber(dot(q, one, k, other, size))],
  ]);
  outputs.show(rows((c) => [v[other + c], share * v[other + c], z[one + c]]));
}
