/** Scores of attention heads with weights in closed form, before the softmax, row-major (n, n). */
import {softmax} from "./arrays.js";
import {frequencies} from "./sinusoids.js";

/** Sum over pairs of cos w_m (i - j - offset): what sinusoids on the tokens or rotations of a constant give. */
export function offsetScores(n, {width, base, offset, strength}) {
  const rates = frequencies(width, base);
  const by = Float64Array.from(
    {length: 2 * n - 1},
    (_, at) => rates.reduce((sum, rate) => sum + Math.cos(rate * (at - n + 1 - offset)), 0) * strength,
  );
  return filled(n, (i, j) => by[i - j + n - 1]);
}

/** p_0 . p_j: every query is the first row of the sinusoidal matrix. */
export function firstScores(n, {width, base, strength}) {
  const rates = frequencies(width, base);
  const by = Float64Array.from(
    {length: n},
    (_, j) => rates.reduce((sum, rate) => sum + Math.cos(rate * j), 0) * strength,
  );
  return filled(n, (i, j) => by[j]);
}

/** A bias of `strength` at one offset. */
export function offsetBiasScores(n, {offset, strength}) {
  return filled(n, (i, j) => (i - j === offset ? strength : 0));
}

/** A bias that changes linearly with the distance: rising, it points at the first token; falling, at the nearest. */
export function linearBiasScores(n, {slope}) {
  return filled(n, (i, j) => slope * (i - j));
}

/** Attention pattern of scores under a causal mask; what is hidden is NaN. */
export function causalPattern(scores, n) {
  const pattern = new Float64Array(n * n).fill(NaN);
  for (let i = 0; i < n; i++) softmax(scores, pattern, i * n, i + 1);
  return pattern;
}

/** Mean attention of the queries from `first` on to the key that `target(i)` names. */
export function meanMass(pattern, n, first, target) {
  let sum = 0;
  for (let i = first; i < n; i++) sum += pattern[i * n + target(i)];
  return sum / (n - first);
}

/** Mean distance of what the last query attends to. */
export function meanDistance(pattern, n) {
  let sum = 0;
  for (let j = 0; j < n; j++) sum += pattern[(n - 1) * n + j] * (n - 1 - j);
  return sum;
}

function filled(n, score) {
  const scores = new Float64Array(n * n);
  for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) scores[i * n + j] = score(i, j);
  return scores;
}
