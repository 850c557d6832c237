/** The parts of a layer that act on each token alone: norms, linear maps with their biases, the feed-forward network. */
import {layerNorm, linear, rmsNorm} from "./arrays.js";
import {gelu} from "./erf.js";

/** Functions of a feed-forward network; those of a gated one are applied to its first half. */
const BENDS = {
  gelu,
  gelu_tanh: geluTanh,
  relu: (x) => Math.max(x, 0),
  silu,
  swiglu: silu,
  geglu: gelu,
  geglu_tanh: geluTanh,
};
const GATED = ["swiglu", "geglu", "geglu_tanh"];

function silu(x) {
  return x / (1 + Math.exp(-x));
}

/** GELU in its tanh approximation, as in GPT-2. */
function geluTanh(x) {
  return 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
}

/** x W^T + b of the linear map of this name, for x (n, columns of W). */
export function affine(model, x, n, name) {
  const {data, rows, columns} = model.tensors[`${name}.weight`],
    y = linear(x, n, data, rows, columns);
  const bias = model.tensors[`${name}.bias`]?.data;
  if (bias) for (let i = 0; i < y.length; i++) y[i] += bias[i % rows];
  return y;
}

/** The norm of this name, of each row of x (n, width); one that the model lacks changes nothing. */
export function norm(model, x, n, name) {
  const gain = model.tensors[`${name}.weight`]?.data,
    bias = model.tensors[`${name}.bias`]?.data;
  if (!gain) return x;
  return model.norm === "layer"
    ? layerNorm(x, n, model.width, gain, bias, model.eps)
    : rmsNorm(x, n, model.width, gain, model.eps);
}

/** The feed-forward network of a layer, on its normalised input (n, width). */
export function feedForward(model, layer, input, n) {
  const at = `blocks.${layer}.feedforward`,
    bend = BENDS[model.feedforward],
    wide = affine(model, input, n, `${at}.widen`);
  return affine(model, GATED.includes(model.feedforward) ? gated(wide, n, bend) : wide.map(bend), n, `${at}.narrow`);
}

/** f(first half) * second half of each row. */
function gated(wide, n, bend) {
  const hidden = wide.length / n / 2,
    inner = new Float64Array(n * hidden);
  for (let row = 0; row < n; row++) {
    for (let i = 0; i < hidden; i++)
      inner[row * hidden + i] = bend(wide[2 * row * hidden + i]) * wide[(2 * row + 1) * hidden + i];
  }
  return inner;
}
