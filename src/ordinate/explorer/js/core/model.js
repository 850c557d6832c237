/** Forward pass of a decoder or encoder in float64, every stage kept. */
import {dot, geluAll, linear, rmsNorm, softmax} from "./arrays.js";
import {addedPositions, offsetBiases, rotate, rotations} from "./positions.js";

/** What may differ from the trained model; each is an ablation, except `scaling`.
 *
 * causal: which keys a query sees; by default those of a decoder. skip: factor of the residual stream beside each
 * branch. position: false leaves the scheme out. places: the positions of the rows, by default 0, 1, 2 ...; maskPlaces:
 * those by which the causal mask is laid. queriesKeys: changes q and k before they meet (see panels/qkv.js); values:
 * changes v. scale: "inside" the softmax, "outside" or "none". keep: whether the stages of each layer are kept. */
const TRAINED = {causal: null, skip: 1, position: true, places: null, maskPlaces: null, scaling: {name: "none"}, queriesKeys: null, values: null, scale: "inside", keep: true};

/** Run a model on byte ids: {n, embedding, layers: [{input, q, k, v, scores, pattern, z, residual}], final, logits}.
 * q and k are those after RoPE; q, k, v, z are (heads, n, head width), scores and pattern (heads, n, n). */
export function run(model, ids, changes = {}) {
  const how = {...TRAINED, ...changes}, n = ids.length, {width, tensors} = model;
  how.causal ??= model.kind === "decoder";
  how.places ??= ids.map((_, p) => p);
  how.maskPlaces ??= ids.map((_, p) => p);
  let x = embed(model, ids, how);
  const trace = {n, embedding: x, layers: []};
  const at = how.position
    ? {turn: rotations(model, n, how.scaling), bias: offsetBiases(model, n)}
    : {turn: null, bias: null};
  for (let layer = 0; layer < model.layers; layer++) {
    const stages = attention(model, layer, x, n, at, how);
    x = addTo(x, linear(stages.joined, n, tensors[`blocks.${layer}.mixer.out.weight`].data, width, width), how.skip);
    x = addTo(x, feedForward(model, layer, x, n), how.skip);
    trace.layers.push(how.keep ? {...stages, residual: x} : {residual: x});
  }
  trace.final = rmsNorm(x, n, width, tensors["norm.weight"].data, model.eps);
  if (model.kind === "decoder") trace.logits = linear(trace.final, n, tensors["tokens.weight"].data, model.vocabulary, width);
  return trace;
}

/** Next-byte logits (n, vocabulary) that a decoder would give if it ended after this layer (a logit lens). */
export function earlyLogits(model, trace, layer) {
  const {width, tensors} = model;
  const final = rmsNorm(trace.layers[layer].residual, trace.n, width, tensors["norm.weight"].data, model.eps);
  return linear(final, trace.n, tensors["tokens.weight"].data, model.vocabulary, width);
}

/** Token embeddings, with position embeddings if the scheme adds them. */
function embed(model, ids, {position, places}) {
  const {width} = model, table = model.tensors["tokens.weight"].data, x = new Float64Array(ids.length * width);
  const added = position ? addedPositions(model, ids.length) : null;
  ids.forEach((id, row) => {
    const place = places[row] * width;
    for (let c = 0; c < width; c++) x[row * width + c] = table[id * width + c] * model.scale + (added ? added[place + c] : 0);
  });
  return x;
}

function addTo(x, branch, skip) {
  for (let i = 0; i < x.length; i++) branch[i] += skip * x[i];
  return branch;
}

function feedForward(model, layer, x, n) {
  const {width, tensors, eps} = model, at = `blocks.${layer}.feedforward`;
  const wide = tensors[`${at}.widen.weight`], narrow = tensors[`${at}.narrow.weight`];
  const input = rmsNorm(x, n, width, tensors[`${at}_norm.weight`].data, eps);
  return linear(geluAll(linear(input, n, wide.data, wide.rows, width)), n, narrow.data, width, wide.rows);
}

/** (n, columns) from a column on to (heads, n, head width). */
function splitHeads(x, n, columns, first, heads, headWidth) {
  const out = new Float64Array(heads * n * headWidth);
  for (let head = 0; head < heads; head++) {
    for (let p = 0; p < n; p++) {
      const from = p * columns + first + head * headWidth;
      out.set(x.subarray(from, from + headWidth), (head * n + p) * headWidth);
    }
  }
  return out;
}

function attention(model, layer, x, n, at, how) {
  const {width, heads, tensors, eps} = model, headWidth = width / heads, mixer = `blocks.${layer}.mixer`;
  const input = rmsNorm(x, n, width, tensors[`${mixer}_norm.weight`].data, eps);
  const all = linear(input, n, tensors[`${mixer}.project.weight`].data, 3 * width, width);
  let [q, k, v] = [0, 1, 2].map((part) => splitHeads(all, n, 3 * width, part * width, heads, headWidth));
  if (how.queriesKeys) [q, k] = how.queriesKeys(q, k);
  if (how.values) v = how.values(k, v);
  if (at.turn) [q, k] = [rotate(q.slice(), how.places, headWidth, at.turn), rotate(k.slice(), how.places, headWidth, at.turn)];
  const scores = new Float64Array(heads * n * n), pattern = new Float64Array(heads * n * n);
  const z = new Float64Array(heads * n * headWidth), joined = new Float64Array(n * width);
  const inside = how.scale === "inside" ? headWidth ** -0.5 : 1, outside = how.scale === "outside" ? headWidth ** -0.5 : 1;
  for (let head = 0; head < heads; head++) {
    for (let i = 0; i < n; i++) {
      const row = (head * n + i) * n, query = (head * n + i) * headWidth;
      for (let j = 0; j < n; j++) {
        if (how.causal && how.maskPlaces[j] > how.maskPlaces[i]) {
          scores[row + j] = -Infinity;
          continue;
        }
        const bias = at.bias ? at.bias[head][Math.abs(how.places[i] - how.places[j])] : 0;
        scores[row + j] = dot(q, query, k, (head * n + j) * headWidth, headWidth) * inside + bias;
      }
      softmax(scores, pattern, row, n);
      mix(pattern, row, n, v, head * n * headWidth, z, query, headWidth, outside);
      joined.set(z.subarray(query, query + headWidth), i * width + head * headWidth);
    }
  }
  return {input, q, k, v, scores, pattern, z, joined};
}

/** One output row: the values weighted by the attention pattern. */
function mix(pattern, row, n, v, from, z, to, headWidth, outside) {
  for (let j = 0; j < n; j++) {
    const weight = pattern[row + j] * outside, value = from + j * headWidth;
    if (weight === 0) continue;
    for (let c = 0; c < headWidth; c++) z[to + c] += weight * v[value + c];
  }
}
