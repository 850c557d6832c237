/** Changes of Q, K and V of a trained model, by name: `how` as in `run`, and of which matrices each is then made. */

export const CHANGES = {
  trained: {title: "nothing", how: {}},
  tied: {title: "K := Q (one matrix for both)", how: {queriesKeys: (q) => [q, q]}, k: "q"},
  swapped: {title: "Q and K exchanged", how: {queriesKeys: (q, k) => [k, q]}, q: "k", k: "q"},
  keysAsValues: {title: "V := K", how: {values: (k) => k}, v: "k"},
  outside: {title: "scale behind the softmax", how: {scale: "outside"}},
  unscaled: {title: "no scale", how: {scale: "none"}},
};

/** The matrices that queries, keys and values are made by: {q, k, v}, each "q", "k" or "v". */
export function matrices(change) {
  const {q = "q", k = "k", v = "v"} = CHANGES[change];
  return {q, k, v};
}

/** Whether a change can be made: queries and keys are exchanged only where there are as many heads of both. */
export function applies(change, model) {
  return !CHANGES[change].how.queriesKeys || model.kv_heads === model.heads;
}
