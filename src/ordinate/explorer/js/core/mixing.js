/** Token and position in one vector, and how well each is read back. */

/** Rows of a table (n, width) less their mean, divided so that the mean square norm is 1. */
export function unitRows(table, n, width) {
  const rows = Float64Array.from(table.subarray(0, n * width)),
    means = new Float64Array(width);
  for (let i = 0; i < n * width; i++) means[i % width] += rows[i] / n;
  let norm = 0;
  for (let i = 0; i < n * width; i++) {
    rows[i] -= means[i % width];
    norm += rows[i] ** 2 / n;
  }
  return rows.map((value) => value / Math.sqrt(norm));
}

/** The first principal direction of centred rows, by power iteration. */
export function firstDirection(rows, n, width) {
  let direction = Float64Array.from({length: width}, (_, c) => Math.sin(c + 1));
  for (let step = 0; step < 50; step++) {
    const next = new Float64Array(width);
    for (let r = 0; r < n; r++) {
      let along = 0;
      for (let c = 0; c < width; c++) along += rows[r * width + c] * direction[c];
      for (let c = 0; c < width; c++) next[c] += along * rows[r * width + c];
    }
    const norm = Math.hypot(...next);
    direction = next.map((value) => value / norm);
  }
  return direction;
}

/** Share of all pairs (token, position) whose part is the nearest one to the sum; `part` is 0 for tokens, 1 for positions. */
export function readBack(tokens, places, counts, width, part) {
  const [own, other] = part ? [places, tokens] : [tokens, places],
    [many, others] = part ? [counts[1], counts[0]] : counts;
  const half = Float64Array.from({length: many}, (_, r) => product(own, r, own, r, width) / 2);
  const inner = (a, countA, b, countB) =>
    Float64Array.from({length: countA * countB}, (_, at) =>
      product(a, Math.floor(at / countB), b, at % countB, width),
    );
  const ownOwn = inner(own, many, own, many),
    otherOwn = inner(other, others, own, many);
  let right = 0;
  for (let r = 0; r < many; r++) {
    for (let s = 0; s < others; s++) {
      let best = 0,
        top = -Infinity;
      for (let c = 0; c < many; c++) {
        // |x - own_c|² is least where x . own_c - |own_c|² / 2 is largest
        const score = ownOwn[r * many + c] + otherOwn[s * many + c] - half[c];
        if (score > top) [top, best] = [score, c];
      }
      right += best === r;
    }
  }
  return right / (many * others);
}

/** Number of rows that some linear function prefers to all others: here the row itself as that function. */
export function reachable(rows, n, width) {
  let count = 0;
  for (let r = 0; r < n; r++) {
    let best = 0,
      top = -Infinity;
    for (let s = 0; s < n; s++) {
      const score = product(rows, r, rows, s, width);
      if (score > top) [top, best] = [score, s];
    }
    count += best === r;
  }
  return count;
}

function product(a, i, b, j, width) {
  let sum = 0;
  for (let c = 0; c < width; c++) sum += a[i * width + c] * b[j * width + c];
  return sum;
}
