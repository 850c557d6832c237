/** Reading permuted vectors back: what entered the first layer is a token's vector, plus a position's if the scheme adds one. */
import {norm} from "./layers.js";
import {addedPositions} from "./positions.js";

/** The nearest candidate to each row of x (n, width): {id, place} for each; place is null if the scheme adds nothing. */
export function readVectors(model, x, n) {
  const {width, vocabulary, scale, tensors} = model,
    table = tensors["tokens.weight"].data,
    added = addedPositions(model, n);
  const found = [],
    candidate = new Float64Array(width);
  const best = Array.from({length: n}, () => Infinity);
  for (let id = 0; id < vocabulary; id++) {
    for (let place = 0; place < (added ? n : 1); place++) {
      for (let c = 0; c < width; c++)
        candidate[c] = table[id * width + c] * scale + (added ? added[place * width + c] : 0);
      const entered = norm(model, candidate, 1, "embedding_norm");
      for (let row = 0; row < n; row++) {
        const gap = distanceWithin(x, row * width, entered, width, best[row]);
        if (gap < best[row]) {
          best[row] = gap;
          found[row] = {id, place: added ? place : null};
        }
      }
    }
  }
  return found;
}

/** Squared distance, given up once it exceeds a limit. */
function distanceWithin(x, from, y, size, limit) {
  let sum = 0;
  for (let c = 0; c < size && sum < limit; c++) sum += (x[from + c] - y[c]) ** 2;
  return sum;
}
