/** Error function in double precision; JavaScript has none, and formulas of seven digits would fail the comparison
 * with PyTorch. Series for small arguments, continued fraction for large ones. */

const SMALL = 2.5;
const SERIES_TERMS = 60;
const FRACTION_TERMS = 80;

/** erf(x): Maclaurin series of exp(x²) erf(x) below 2.5, Lentz's continued fraction of erfc above it. */
export function erf(x) {
  const size = Math.abs(x);
  if (size > 6) return Math.sign(x);
  if (size < SMALL) {
    // 2/sqrt(pi) exp(-x²) sum of 2^n x^(2n+1) / (1 3 5 .. (2n+1)): all terms positive, so that nothing cancels
    let term = x, sum = x;
    for (let n = 1; n < SERIES_TERMS; n++) {
      term *= 2 * x * x / (2 * n + 1);
      sum += term;
      if (Math.abs(term) < 1e-17 * Math.abs(sum)) break;
    }
    return 2 / Math.sqrt(Math.PI) * Math.exp(-x * x) * sum;
  }
  let fraction = 0;
  for (let n = FRACTION_TERMS; n > 0; n--) fraction = n / 2 / (size + fraction);
  return Math.sign(x) * (1 - Math.exp(-size * size) / (Math.sqrt(Math.PI) * (size + fraction)));
}

/** Exact GELU: x Phi(x), PyTorch's default. */
export function gelu(x) {
  return 0.5 * x * (1 + erf(x * Math.SQRT1_2));
}
