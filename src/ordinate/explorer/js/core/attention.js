/** Multi-head attention of a layer; rows before `first` are those of an earlier pass. */
import {dot, rmsNorm, softmax} from "./arrays.js";
import {affine} from "./layers.js";
import {rotate} from "./positions.js";

/** Stages of attention on the normalised input of the rows from `first` on: {q, k, v, scores, pattern, z, joined};
 * `joined` has those rows only, (n - first, heads * head width). `earlier`: the stages of an earlier pass, or null. */
export function attention(model, layer, input, {n, first}, at, how, earlier) {
  const {heads, kv_heads: groups, head_width: size} = model,
    rows = n - first,
    {q, k, v} = projections(model, layer, input, how.places.slice(first), at.turn, how);
  const whole = (name, x, count) => withEarlier(x, earlier?.[name], count, {n, first}, size);
  const stages = {
    q: whole("q", q, heads),
    k: whole("k", k, groups),
    v: whole("v", v, groups),
    scores: new Float64Array(heads * n * n).fill(-Infinity),
    pattern: new Float64Array(heads * n * n),
    z: whole("z", new Float64Array(heads * rows * size), heads),
  };
  if (earlier) for (const name of ["scores", "pattern"]) copyRows(stages[name], earlier[name], heads, n, first);
  const joined = new Float64Array(rows * heads * size);
  for (let head = 0; head < heads; head++) {
    attendHead(model, layer, stages, {head, n, keys: n, first}, at, how);
    for (let i = first; i < n; i++) {
      const from = (head * n + i) * size;
      joined.set(stages.z.subarray(from, from + size), ((i - first) * heads + head) * size);
    }
  }
  return {...stages, joined};
}

/** Queries, keys and values of the rows of a normalised input, (heads, rows, head width) each: changed, then rotated
 * by `turn`, each row by its place; null: not rotated. */
export function projections(model, layer, input, places, turn, how) {
  const {heads, kv_heads: groups, head_width: size} = model,
    mixer = `blocks.${layer}.mixer`,
    rows = places.length;
  const all = affine(model, input, rows, `${mixer}.project`),
    columns = (heads + 2 * groups) * size;
  const part = (from, count) => splitHeads(all, rows, columns, from * size, count, size);
  let [q, k, v] = [part(0, heads), part(heads, groups), part(heads + groups, groups)];
  [q, k] = [
    ["q", q],
    ["k", k],
  ].map(([name, x]) => normed(model, `${mixer}.${name}_norm`, x, size));
  if (how.queriesKeys) [q, k] = how.queriesKeys(q, k);
  if (how.values) v = how.values(k, v);
  if (turn) [q, k] = [q, k].map((x) => rotate(x.slice(), places, size, turn));
  return {q, k, v};
}

/** One head: the rows from `first` on of scores (heads, n, keys), pattern and z. */
export function attendHead(model, layer, {q, k, v, scores, pattern, z}, {head, n, keys, first}, at, how) {
  const {heads, head_width: size} = model,
    group = Math.floor((head * model.kv_heads) / heads) * keys * size,
    window = how.window ?? model.windows[layer] ?? Infinity,
    keyPlaces = how.keyPlaces ?? how.places;
  const scale = model.score_scales[layer],
    inside = how.scale === "inside" ? scale : 1,
    outside = how.scale === "outside" ? scale : 1;
  for (let i = first; i < n; i++) {
    const row = (head * n + i) * keys,
      query = (head * n + i) * size;
    for (let j = 0; j < keys; j++) {
      if (hidden(how, i, j, window)) continue;
      const bias = at.bias ? at.bias[head][Math.abs(how.places[i] - keyPlaces[j])] : 0;
      scores[row + j] = dot(q, query, k, group + j * size, size) * inside + bias;
    }
    softmax(scores, pattern, row, keys);
    mix(pattern, row, keys, v, group, z, query, size, outside);
  }
}

/** Whether a causal mask or a sliding window hides key j from query i. */
function hidden({causal, maskPlaces}, i, j, window) {
  if (!causal && window === Infinity) return false;
  const back = maskPlaces[i] - maskPlaces[j];
  return (causal && back < 0) || Math.abs(back) >= window;
}

/** One output row: the values weighted by the attention pattern. */
function mix(pattern, row, n, v, from, z, to, size, outside) {
  for (let j = 0; j < n; j++) {
    const weight = pattern[row + j] * outside,
      value = from + j * size;
    if (weight === 0) continue;
    for (let c = 0; c < size; c++) z[to + c] += weight * v[value + c];
  }
}

/** (n, columns) from a column on to (heads, n, head width). */
function splitHeads(x, n, columns, first, heads, size) {
  const out = new Float64Array(heads * n * size);
  for (let head = 0; head < heads; head++) {
    for (let p = 0; p < n; p++) {
      const from = p * columns + first + head * size;
      out.set(x.subarray(from, from + size), (head * n + p) * size);
    }
  }
  return out;
}

/** RMS norm of each head's queries or keys, if the model has one. */
function normed(model, name, x, size) {
  const gain = model.tensors[`${name}.weight`]?.data;
  return gain ? rmsNorm(x, x.length / size, size, gain, model.qk_eps) : x;
}

/** (heads, n - first, size) behind the rows before `first` of an earlier pass, (heads, rows, size). */
function withEarlier(x, earlier, heads, {n, first}, size) {
  if (!first) return x;
  const out = new Float64Array(heads * n * size),
    rows = earlier.length / heads / size;
  for (let head = 0; head < heads; head++) {
    out.set(earlier.subarray(head * rows * size, (head * rows + first) * size), head * n * size);
    out.set(x.subarray(head * (n - first) * size, (head + 1) * (n - first) * size), (head * n + first) * size);
  }
  return out;
}

/** Copy what the queries before `first` see, (heads, rows, rows), of a causal decoder. */
function copyRows(out, earlier, heads, n, first) {
  const rows = Math.sqrt(earlier.length / heads);
  for (let head = 0; head < heads; head++) {
    for (let i = 0; i < first; i++) {
      const from = (head * rows + i) * rows;
      out.set(earlier.subarray(from, from + i + 1), (head * n + i) * n);
    }
  }
}
