/** W_Q and W_K of a head as one matrix. */
import {dot} from "./arrays.js";

/** M = W_Q^T W_K of a head, row-major (width, width): x_i M x_j = q_i . k_j where nothing lies between the two.
 * `parts`: the matrices of queries and of keys, "q" or "k", where these are exchanged or the same. */
export function mergedMatrix(model, layer, head, parts = ["q", "k"]) {
  const {width, heads, head_width: size, tensors} = model,
    {data} = tensors[`blocks.${layer}.mixer.project.weight`];
  const keyHead = heads + Math.floor((head * model.kv_heads) / heads),
    [one, other] = parts.map((part) => (part === "q" ? head : keyHead));
  const merged = new Float64Array(width * width);
  for (let c = 0; c < size; c++) {
    const q = (one * size + c) * width,
      k = (other * size + c) * width;
    for (let i = 0; i < width; i++) {
      for (let j = 0; j < width; j++) merged[i * width + j] += data[q + i] * data[k + j];
    }
  }
  return merged;
}

/** x_i M y_j of one pair of tokens, from the normalised input (n, width) of a layer; `source`: the rows y that keys are
 * made of, by default those of the queries. */
export function mergedProduct(merged, input, width, i, j, source = input) {
  let sum = 0;
  for (let row = 0; row < width; row++)
    sum += input[i * width + row] * dot(merged, row * width, source, j * width, width);
  return sum;
}

/** Share of |M|² that is symmetric: (1 + tr(M M) / |M|²) / 2. */
export function symmetricShare(merged, width) {
  let trace = 0,
    norm = 0;
  for (let i = 0; i < width; i++) {
    for (let j = 0; j < width; j++) {
      trace += merged[i * width + j] * merged[j * width + i];
      norm += merged[i * width + j] ** 2;
    }
  }
  return (1 + trace / norm) / 2;
}
