/** Biases on the attention scores by distance: ALiBi, T5, KERPLE, FIRE. */

/** ALiBi's slopes (Press et al. 2022): 2^(-8h/H) for a power of two; else every other slope of the next one is added. */
export function alibiSlopes(heads, flattest = 8) {
  const power = 2 ** Math.floor(Math.log2(heads));
  const first = Array.from({length: power}, (_, h) => 2 ** ((-flattest * (h + 1)) / power));
  const between = Array.from({length: power}, (_, h) => 2 ** (((-flattest / 2) * (2 * h + 1)) / power));
  return [...first, ...between.slice(0, heads - power)];
}

/** T5's bucket of an offset (query minus key, 0 or more) under a causal mask (Raffel et al. 2020). */
export function t5Bucket(offset, buckets = 32, maxDistance = 128) {
  const exact = buckets / 2;
  if (offset < exact) return Math.max(offset, 0);
  const grown = (Math.log(offset / exact) / Math.log(maxDistance / exact)) * (buckets - exact);
  // at a bucket edge the logarithm is a whole number, which rounding can leave just below it
  return Math.min(exact + Math.floor(grown + 1e-9), buckets - 1);
}

/** KERPLE, logarithmic (Chi et al. 2022): -p log(1 + a d). */
export function kerpleLog(distance, p, a) {
  return -p * Math.log1p(a * distance);
}

/** KERPLE, power: -a d^p. */
export function kerplePower(distance, p, a) {
  return distance ? -a * distance ** p : 0;
}

/** The number FIRE's network reads (Li et al. 2024): log(c d + 1) / log(c max(query, threshold) + 1), 0 to 1. */
export function fireShare(distance, query, c = 0.1, threshold = 512) {
  return Math.log1p(c * distance) / (Math.log1p(c * Math.max(query, threshold)) + 1e-6);
}
