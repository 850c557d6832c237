/** The last token of a text by a KV cache: what is computed, what is read, and what a pass without the cache costs. */
import {run} from "./model.js";

/** Run the last token alone, with the keys and values that an earlier run has of all tokens before it. Everything else
 * of the earlier run is NaN here, so that no other number of it can be used. */
export function cachedStep(model, ids, before, changes = {}) {
  return run(model, ids, changes, onlyKeysAndValues(before));
}

/** An earlier run of which only keys and values are known. */
function onlyKeysAndValues(trace) {
  const unknown = (x) => new Float64Array(x.length).fill(NaN);
  const layers = trace.layers.map(({k, v, ...others}) => ({
    ...Object.fromEntries(Object.entries(others).map(([name, x]) => [name, unknown(x)])),
    k,
    v,
  }));
  const {ids, n, embedding, final, logits} = trace;
  return {ids, n, embedding: unknown(embedding), layers, final: unknown(final), logits: unknown(logits)};
}

/** Numbers of the last row, of all stages and layers, in two runs of a text: {compared, different}, by their bits. */
export function compareLastRows(one, other) {
  const rows = (trace) => [
    ...["embedding", "final", "logits"].map((name) => lastRow(trace[name], 1, trace.n)),
    ...trace.layers.flatMap(({k, v, q, scores, pattern, z, input, residual}) => {
      const heads = Math.round(scores.length / trace.n ** 2);
      return [
        k,
        v,
        ...[q, scores, pattern, z].map((x) => lastRow(x, heads, trace.n)),
        ...[input, residual].map((x) => lastRow(x, 1, trace.n)),
      ];
    }),
  ];
  const [mine, theirs] = [rows(one), rows(other)].map((parts) => parts.flatMap((part) => Array.from(part)));
  return {compared: mine.length, different: mine.filter((value, i) => !Object.is(value, theirs[i])).length};
}

/** The last of n rows of each head, of x (heads, n, columns). */
function lastRow(x, heads, n) {
  const size = x.length / heads / n;
  return Array.from({length: heads * size}, (_, i) => x[(Math.floor(i / size) * n + n - 1) * size + (i % size)]);
}

/** Multiplications in the matrix products of the rows from `first` on of a causal decoder, all layers together:
 * {projections, attention, output, feedforward, logits, total}. Scores are those that the mask leaves. */
export function multiplications(model, n, first = 0) {
  const {layers, heads, head_width: size, vocabulary, width} = model,
    rows = n - first,
    counts = {projections: 0, attention: 0, output: 0, feedforward: 0, logits: rows * vocabulary * width};
  const each = (name) => model.tensors[`${name}.weight`].rows * model.tensors[`${name}.weight`].columns * rows;
  for (let layer = 0; layer < layers; layer++) {
    const block = `blocks.${layer}`,
      window = model.windows[layer] ?? Infinity;
    counts.projections += each(`${block}.mixer.project`);
    counts.output += each(`${block}.mixer.out`);
    counts.feedforward += each(`${block}.feedforward.widen`) + each(`${block}.feedforward.narrow`);
    for (let i = first; i < n; i++) counts.attention += 2 * heads * size * Math.min(i + 1, window);
  }
  return {...counts, total: Object.values(counts).reduce((sum, count) => sum + count, 0)};
}

/** Numbers that a cache has of so many tokens: keys and values of all layers. */
export function cachedNumbers({layers, kv_heads: heads, head_width: size}, tokens) {
  return 2 * layers * heads * size * tokens;
}
