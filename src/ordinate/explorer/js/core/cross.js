/** A trained self-attention layer applied to two texts: queries of one, keys and values of the other. */
import {attendHead, projections} from "./attention.js";
import {offsetBiases, rotations} from "./positions.js";

/** Stages of cross-attention from the normalised inputs (n, width) and (m, width) of a layer, those of both texts:
 * {q, k, v, scores, pattern, z}; scores and pattern are (heads, n, m). No mask and no window; the positions of both
 * texts count from 0, and biases are those of the distance |i - j|. `changes`: queriesKeys, values and scale, see
 * `run`. */
export function crossAttention(model, layer, input, source, changes = {}) {
  const {heads, head_width: size, width} = model,
    [n, keys] = [input.length / width, source.length / width],
    [places, keyPlaces] = [n, keys].map((rows) => Array.from({length: rows}, (_, p) => p)),
    how = {scale: "inside", ...changes, causal: false, window: Infinity, places, keyPlaces};
  const most = Math.max(n, keys),
    at = {turn: rotations(model, most), bias: offsetBiases(model, most)};
  const {q} = projections(model, layer, input, places, at.turn, how),
    {k, v} = projections(model, layer, source, keyPlaces, at.turn, how);
  const stages = {
    q,
    k,
    v,
    scores: new Float64Array(heads * n * keys),
    pattern: new Float64Array(heads * n * keys),
    z: new Float64Array(heads * n * size),
  };
  for (let head = 0; head < heads; head++) attendHead(model, layer, stages, {head, n, keys, first: 0}, at, how);
  return stages;
}
