/** Forward pass of a decoder or encoder in float64, every stage kept. */
import {linear} from "./arrays.js";
import {attention} from "./attention.js";
import {affine, feedForward, norm} from "./layers.js";
import {addedPositions, offsetBiases, rotations} from "./positions.js";

/** What may differ from the trained model; each is an ablation, except `scaling`.
 *
 * causal: which keys a query sees; by default those of a decoder. skip: factor of the residual stream beside each
 * branch. position: false leaves the scheme out. places: the positions of the rows, by default 0, 1, 2 ...; maskPlaces:
 * those by which the causal mask is laid. queriesKeys: changes q and k before they meet (see panels/qkv.js); values:
 * changes v. scale: "inside" the softmax, "outside" or "none". keep: whether the stages of each layer are kept. progress: hears of the share of the layers
 * that are done. */
const TRAINED = {
  causal: null,
  skip: 1,
  position: true,
  places: null,
  maskPlaces: null,
  scaling: {name: "none"},
  queriesKeys: null,
  values: null,
  scale: "inside",
  keep: true,
  progress: null,
};

/** Run a model on token ids: {ids, n, embedding, layers: [{input, q, k, v, scores, pattern, z, residual}], final, logits}.
 * q and k are those after RoPE; q, z are (heads, n, head width), k, v (key heads, n, head width), scores and pattern
 * (heads, n, n). `earlier`: what an earlier run of the same model with the same changes returned; under a causal mask
 * the tokens that both begin with are not computed again, see core/prefix.js. */
export function run(model, ids, changes = {}, earlier = null) {
  const how = {...TRAINED, ...changes},
    n = ids.length;
  how.causal ??= model.kind === "decoder";
  how.places ??= ids.map((_, p) => p);
  how.maskPlaces ??= ids.map((_, p) => p);
  const rows = {n, first: earlier ? sharedRows(earlier.ids, ids) : 0},
    joined = (x, before) => joinRows(x, before, rows);
  let x = norm(model, embed(model, ids, how, rows), n - rows.first, "embedding_norm");
  const trace = {ids, n, embedding: joined(x, earlier?.embedding), layers: []};
  const at = how.position
    ? {turn: rotations(model, n, how.scaling), bias: offsetBiases(model, n)}
    : {turn: null, bias: null};
  for (let layer = 0; layer < model.layers; layer++) {
    const before = earlier?.layers[layer],
      {stages, input, out} = runLayer(model, layer, x, rows, at, how, before);
    x = out;
    const residual = joined(x, before?.residual);
    trace.layers.push(how.keep ? {...stages, input: joined(input, before?.input), residual} : {residual});
    how.progress?.((layer + 1) / model.layers);
  }
  const final = norm(model, x, n - rows.first, "norm");
  trace.final = joined(final, earlier?.final);
  if (model.kind === "decoder") trace.logits = joined(head(model, final, n - rows.first), earlier?.logits);
  return trace;
}

/** The rows from `first` on behind those of an earlier pass. */
function joinRows(now, before, {n, first}) {
  if (!first) return now;
  const size = now.length / (n - first),
    whole = new Float64Array(n * size);
  whole.set(before.subarray(0, first * size));
  whole.set(now, first * size);
  return whole;
}

/** Number of leading ids that two texts share, less than the whole second text, whose last row is always computed. */
export function sharedRows(one, other) {
  let count = 0;
  while (count < one.length && count < other.length - 1 && one[count] === other[count]) count++;
  return count;
}

/** Next-token logits (n, vocabulary) that a decoder would give if it ended after this layer (a logit lens). */
export function earlyLogits(model, trace, layer) {
  return head(model, norm(model, trace.layers[layer].residual, trace.n, "norm"), trace.n);
}

/** One layer on the rows from `first` on: pre-norm, or both branches beside each other on one or two norms. */
function runLayer(model, layer, x, rows, at, how, earlier) {
  const block = `blocks.${layer}`,
    {first} = rows,
    n = rows.n - first;
  const input = norm(model, x, n, `${block}.mixer_norm`),
    {joined, ...stages} = attention(model, layer, input, rows, at, how, first ? earlier : null);
  const mixed = addTo(x, affine(model, joined, n, `${block}.mixer.out`), how.skip);
  if (model.norm_position === "pre") {
    return {
      stages,
      input,
      out: addTo(mixed, feedForward(model, layer, norm(model, mixed, n, `${block}.feedforward_norm`), n), how.skip),
    };
  }
  const read = model.norm_position === "shared" ? input : norm(model, x, n, `${block}.feedforward_norm`);
  return {stages, input, out: addTo(mixed, feedForward(model, layer, read, n), 1)};
}

function head(model, x, n) {
  if (model.tensors["head.weight"]) return affine(model, x, n, "head");
  return linear(x, n, model.tensors["tokens.weight"].data, model.vocabulary, model.width);
}

/** Token embeddings of the rows from `first` on, with position embeddings if the scheme adds them. */
function embed(model, ids, {position, places}, {n, first}) {
  const {width} = model,
    table = model.tensors["tokens.weight"].data,
    x = new Float64Array((n - first) * width);
  const added = position ? addedPositions(model, n) : null;
  for (let row = first; row < n; row++) {
    const place = places[row] * width,
      to = (row - first) * width;
    for (let c = 0; c < width; c++)
      x[to + c] = table[ids[row] * width + c] * model.scale + (added ? added[place + c] : 0);
  }
  return x;
}

function addTo(x, branch, skip) {
  for (let i = 0; i < x.length; i++) branch[i] += skip * x[i];
  return branch;
}
