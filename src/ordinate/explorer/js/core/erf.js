/** Error function in double precision; JavaScript has none, and formulas of seven digits would fail the comparison
 * with PyTorch. Taylor series about the nearest of many points, whose coefficients are computed once. */

const FAR = 6;
const STEP = 1 / 64;
const TERMS = 9;
const COEFFICIENTS = coefficients();

/** erf at a point by 2/sqrt(pi) exp(-x²) sum of 2^n x^(2n+1) / (1 3 5 .. (2n+1)): all terms have one sign. */
function series(x) {
  let term = x,
    sum = x;
  for (let n = 1; Math.abs(term) > 1e-18 * Math.abs(sum); n++) {
    term *= (2 * x * x) / (2 * n + 1);
    sum += term;
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

/** Taylor coefficients at 0, 1/64, ... 6: those of g = erf' follow from g' = -2 x g. */
function coefficients() {
  const points = FAR / STEP + 1,
    found = new Float64Array(points * TERMS);
  for (let p = 0; p < points; p++) {
    const x = p * STEP;
    let before = 0,
      g = (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x);
    found[p * TERMS] = series(x);
    for (let n = 0; n < TERMS - 1; n++) {
      found[p * TERMS + n + 1] = g / (n + 1);
      [before, g] = [g, (-2 * (x * g + before)) / (n + 1)];
    }
  }
  return found;
}

/** erf(x). */
export function erf(x) {
  const size = Math.abs(x);
  if (!(size < FAR)) return Math.sign(x);
  const point = Math.round(size / STEP),
    gap = size - point * STEP;
  let sum = 0;
  for (let at = (point + 1) * TERMS - 1; at >= point * TERMS; at--) sum = sum * gap + COEFFICIENTS[at];
  return x < 0 ? -sum : sum;
}

/** Exact GELU: x Phi(x), PyTorch's default. */
export function gelu(x) {
  return 0.5 * x * (1 + erf(x * Math.SQRT1_2));
}
