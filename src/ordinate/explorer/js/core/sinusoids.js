/** Sinusoidal position embeddings (Vaswani et al. 2017, section 3.5), for any width. */

/** Angular frequencies w_m = base^(-2m / width) [radians a token]; an odd width ends with half a pair. */
export function frequencies(width, base) {
  return Array.from({length: Math.ceil(width / 2)}, (_, m) => base ** ((-2 * m) / width));
}

/** The matrix P, row-major (length, width): P[p, 2m] = sin(p w_m), P[p, 2m+1] = cos(p w_m). */
export function sinusoids(length, width, base) {
  const rates = frequencies(width, base),
    table = new Float64Array(length * width);
  for (let p = 0; p < length; p++) {
    for (let i = 0; i < width; i++) {
      const angle = p * rates[i >> 1];
      table[p * width + i] = i % 2 ? Math.cos(angle) : Math.sin(angle);
    }
  }
  return table;
}

/** Euclidean distance between all rows of a table (length, width), row-major (length, length). */
export function rowDistances(table, length, width) {
  const far = new Float64Array(length * length);
  for (let i = 0; i < length; i++) {
    for (let j = 0; j < i; j++) {
      let sum = 0;
      for (let c = 0; c < width; c++) sum += (table[i * width + c] - table[j * width + c]) ** 2;
      far[i * length + j] = far[j * length + i] = Math.sqrt(sum);
    }
  }
  return far;
}

/** The two rows that lie closest: {distance, offset, row, other}. */
export function closestPair(far, length) {
  let best = {distance: Infinity, offset: 0, row: 0, other: 0};
  for (let i = 0; i < length; i++) {
    for (let j = 0; j < i; j++) {
      // rounding alone must not choose between pairs of one offset
      if (far[i * length + j] < best.distance - 1e-9)
        best = {distance: far[i * length + j], offset: i - j, row: i, other: j};
    }
  }
  return best;
}

/** Partial sum of the Fourier series of a sawtooth of period 1: 1/2 - sum over k of sin(2 pi k x) / (pi k). */
export function sawtoothSum(x, terms) {
  let sum = 0.5;
  for (let k = 1; k <= terms; k++) sum -= Math.sin(2 * Math.PI * k * x) / (Math.PI * k);
  return sum;
}
