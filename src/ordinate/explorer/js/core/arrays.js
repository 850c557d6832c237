/** Linear algebra on row-major Float64Array matrices. */

/** y = x W^T for x (n, inner) and W (outer, inner): four outputs at a time, so that each number of x is read less often. */
export function linear(x, n, weight, outer, inner) {
  const y = new Float64Array(n * outer),
    whole = outer - (outer % 4);
  for (let row = 0; row < n; row++) {
    const from = row * inner,
      to = row * outer;
    for (let out = 0; out < whole; out += 4) {
      let a = 0,
        b = 0,
        c = 0,
        d = 0;
      const w0 = out * inner,
        w1 = w0 + inner,
        w2 = w1 + inner,
        w3 = w2 + inner;
      for (let i = 0; i < inner; i++) {
        const value = x[from + i];
        a += value * weight[w0 + i];
        b += value * weight[w1 + i];
        c += value * weight[w2 + i];
        d += value * weight[w3 + i];
      }
      y[to + out] = a;
      y[to + out + 1] = b;
      y[to + out + 2] = c;
      y[to + out + 3] = d;
    }
    for (let out = whole; out < outer; out++) y[to + out] = dot(x, from, weight, out * inner, inner);
  }
  return y;
}

/** Inner product of two stretches of `size` numbers. */
export function dot(a, from, b, to, size) {
  let sum = 0;
  for (let i = 0; i < size; i++) sum += a[from + i] * b[to + i];
  return sum;
}

/** RMSNorm of each row of x (n, width): x / sqrt(mean(x²) + eps) * gain. */
export function rmsNorm(x, n, width, gain, eps) {
  const y = new Float64Array(n * width);
  for (let row = 0; row < n; row++) {
    const from = row * width,
      over = 1 / Math.sqrt(dot(x, from, x, from, width) / width + eps);
    for (let i = 0; i < width; i++) y[from + i] = x[from + i] * over * gain[i];
  }
  return y;
}

/** LayerNorm of each row of x (n, width): (x - mean) / sqrt(variance + eps) * gain + bias; no bias: undefined. */
export function layerNorm(x, n, width, gain, bias, eps) {
  const y = new Float64Array(n * width);
  for (let row = 0; row < n; row++) {
    const from = row * width;
    let mean = 0,
      variance = 0;
    for (let i = 0; i < width; i++) mean += x[from + i] / width;
    for (let i = 0; i < width; i++) variance += (x[from + i] - mean) ** 2 / width;
    const over = 1 / Math.sqrt(variance + eps);
    for (let i = 0; i < width; i++) y[from + i] = (x[from + i] - mean) * over * gain[i] + (bias ? bias[i] : 0);
  }
  return y;
}

/** Softmax of `size` numbers from `from` on, written to `out` at the same place; -Infinity is allowed. */
export function softmax(x, out, from, size) {
  let top = -Infinity,
    sum = 0;
  for (let i = 0; i < size; i++) top = Math.max(top, x[from + i]);
  for (let i = 0; i < size; i++) sum += out[from + i] = Math.exp(x[from + i] - top);
  for (let i = 0; i < size; i++) out[from + i] /= sum;
}

/** -log softmax(x)[index] of `size` numbers from `from` on, in nats. */
export function surprisal(x, from, size, index) {
  let top = -Infinity,
    sum = 0;
  for (let i = 0; i < size; i++) top = Math.max(top, x[from + i]);
  for (let i = 0; i < size; i++) sum += Math.exp(x[from + i] - top);
  return Math.log(sum) + top - x[from + index];
}

/** |a - b| / |b| of two stretches of numbers: how much a vector has changed, relative to its own norm. */
export function relativeChange(a, from, b, to, size) {
  let gap = 0,
    norm = 0;
  for (let i = 0; i < size; i++) {
    gap += (a[from + i] - b[to + i]) ** 2;
    norm += b[to + i] ** 2;
  }
  return Math.sqrt(gap / norm);
}
