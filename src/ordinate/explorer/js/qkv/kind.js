/** The kinds of attention in the panel Q, K and V: what each is, how much is computed, and what a cache saves. */
import {cachedNumbers, compareLastRows, multiplications} from "../core/cached.js";
import {CHANGES} from "../core/changes.js";
import {run} from "../core/model.js";
import {element} from "../view/dom.js";
import {plainTable} from "../view/table.js";

export const KINDS = {
  self: [
    "self-attention",
    "Q, K and V are made of the same tokens: n queries meet n keys, and under a causal mask query i sees keys 0 to i.",
  ],
  cross: [
    "cross-attention",
    "Queries are made of the first text, keys and values of the second, by the same three matrices; no causal mask; positions of both texts count from 0. The models of this page have no cross-attention of their own: this is the self-attention of the chosen layer, applied to two texts. It shows the arithmetic, not what a model trained with cross-attention does.",
  ],
  cached: [
    "with a cache",
    "The last token asks. Its query, key and value are computed; the keys and values of the tokens before it are read from the cache, where an earlier step has put them. Nothing else of those tokens is needed.",
  ],
};
const STEPS = {
  projections: "Q, K and V",
  attention: "scores, sum of share × v",
  output: "output projection",
  feedforward: "feed-forward network",
  logits: "logits",
  total: "all",
};
const whole = (number) => number.toLocaleString("en");

/** What is said of a kind: {note, facts, costs, show, check}. `check` compares a step with a cache with the whole pass,
 * and returns what it has found, in a sentence. */
export function kindFacts() {
  const tag = element("span", {class: "tag"}, "construction, not trained"),
    text = element("span"),
    note = element("p", {class: "note"}, text, " ", tag),
    facts = element("dl", {class: "facts"}),
    costs = plainTable("Multiplications for the last token, all layers", ["", "whole text again", "with the cache"], {
      style: "plain narrow",
    }),
    bits = element("p", {class: "note"});
  const box = element("div", {}, costs.node, bits),
    parts = {tag, text, facts, costs, bits, box};
  return {note, facts, costs: box, show: (view) => show(parts, view), check: (view) => check(bits, view)};
}

function show({tag, text, facts, costs, bits, box}, view) {
  const {kind, missing} = view;
  text.textContent = missing ?? KINDS[kind][1];
  tag.hidden = kind !== "cross";
  box.hidden = kind !== "cached" || Boolean(missing);
  facts.hidden = Boolean(missing);
  if (missing) return;
  const {head, n, keys, first, stages} = view;
  const scores = stages.scores
    .subarray((head * n + first) * keys, (head + 1) * n * keys)
    .filter(Number.isFinite).length;
  const fact = (label, value) => element("div", {}, element("dt", {}, label), element("dd", {}, value));
  facts.replaceChildren(
    fact("queries", first ? "1, computed now" : String(n)),
    fact("keys and values", first ? `${keys}: ${first} read, 1 computed now` : String(keys)),
    fact("scores of a head", `${scores}${kind === "self" ? ", under the causal mask" : ""}`),
  );
  if (box.hidden) return;
  const [again, step] = [multiplications(view.model, n), multiplications(view.model, n, n - 1)];
  costs.show(Object.entries(STEPS).map(([name, title]) => [title, whole(again[name]), whole(step[name])]));
  bits.textContent = readText(view);
}

/** How many numbers are read. */
function readText({model, n}) {
  const {layers, kv_heads: heads, head_width: size} = model;
  return `Read from the cache: ${whole(cachedNumbers(model, n - 1))} numbers (keys and values, ${layers} layers, ${heads} heads, ${n - 1} tokens, ${size} channels).`;
}

/** The whole pass, computed anew, beside the step with the cache. */
function check(bits, view) {
  const {model, change, queries, trace} = view,
    {compared, different} = compareLastRows(trace, run(model, queries.ids, CHANGES[change].how));
  const found = different
    ? `${different} of ${whole(compared)} numbers differ from those of the whole pass.`
    : `The whole pass gives the same ${whole(compared)} numbers of the last row (all stages, all layers, the logits) and of the cache, to the last bit.`;
  bits.textContent = `${readText(view)} ${found}`;
  return found;
}
