/** Self-attention, cross-attention and attention with a cache: the stages of one layer, and what they are made of. */
import {cachedStep} from "./cached.js";
import {CHANGES} from "./changes.js";
import {crossAttention} from "./cross.js";

/** One layer of a decoder: {stages, input, source, n, keys, first, trace}. `stages` as in core/attention.js, with n
 * queries and `keys` keys; `input` (n, width) and `source` (keys, width) are the rows that queries and keys are made
 * of; rows before `first` are not computed, but their keys and values read; `trace` is the run of the text, null in
 * cross-attention. `run(ids)` runs the model with the change. */
export function layerStages(kind, {model, layer, change, ids, other}, run) {
  const trace = run(ids),
    n = ids.length,
    {input} = trace.layers[layer];
  if (kind === "cross") {
    const source = run(other).layers[layer].input,
      stages = crossAttention(model, layer, input, source, CHANGES[change].how);
    return {stages, input, source, n, keys: other.length, first: 0, trace: null};
  }
  if (kind === "self") return {stages: trace.layers[layer], input, source: input, n, keys: n, first: 0, trace};
  const step = cachedStep(model, ids, run(ids.slice(0, -1)), CHANGES[change].how);
  return {
    stages: step.layers[layer],
    input: step.layers[layer].input,
    source: input,
    n,
    keys: n,
    first: n - 1,
    trace: step,
  };
}

/** Number of keys that a query may see: all of another text, in its own text those up to itself. */
export function keysSeen(kind, query, keys) {
  return kind === "cross" ? keys : query + 1;
}
