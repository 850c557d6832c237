/** What each positional scheme adds to a model's forward pass. */
import {alibiSlopes, t5Bucket} from "./biases.js";
import {sinusoids} from "./sinusoids.js";
import {scaledRates} from "./spectra.js";

/** Position embeddings (n, width) that are added to the token embeddings; null: the scheme adds none. */
export function addedPositions(model, n) {
  const {width, options} = model;
  if (model.scheme === "sinusoidal") return sinusoids(n, width, options.theta).map((value) => value * options.scale);
  if (model.scheme !== "learned") return null;
  const table = model.tensors["schemes.0.table"];
  if (n > table.rows) throw new RangeError(`the model reads at most ${table.rows} bytes; got ${n}`);
  return table.data.subarray(0, n * width);
}

/** Bias on the scores of each head by offset (query minus key): heads arrays of n numbers; null: none. */
export function offsetBiases(model, n) {
  if (model.scheme === "alibi") {
    return alibiSlopes(model.heads, model.options.flattest).map((slope) =>
      Float64Array.from({length: n}, (_, far) => -slope * far),
    );
  }
  if (model.scheme !== "t5") return null;
  const {data} = model.tensors["schemes.0.table"],
    {buckets, max_distance: most} = model.options;
  return Array.from({length: model.heads}, (_, head) =>
    Float64Array.from({length: n}, (_empty, far) => data[t5Bucket(far, buckets, most) * model.heads + head]),
  );
}

/** Rotation by RoPE: {cos, sin} of n positions and all pairs, times the magnitude of a scaling; null: none.
 * `scaling`: {name, factor, trained}; "none" are the rates that the model was trained with. */
export function rotations(model, n, scaling = {name: "none"}) {
  if (model.scheme !== "rope") return null;
  const {theta, rotary_dim: width, layout, rates: own, magnitude: trained} = model.options;
  const {rates, magnitude} =
    scaling.name === "none"
      ? {rates: own, magnitude: trained}
      : scaledRates(scaling.name, {width, theta, ...scaling});
  const pairs = rates.length,
    cos = new Float64Array(n * pairs),
    sin = new Float64Array(n * pairs);
  for (let p = 0; p < n; p++) {
    for (let m = 0; m < pairs; m++) {
      cos[p * pairs + m] = magnitude * Math.cos(p * rates[m]);
      sin[p * pairs + m] = magnitude * Math.sin(p * rates[m]);
    }
  }
  return {cos, sin, pairs, layout};
}

/** Rotate x (heads, n, head width) in place, each row by its position; pairs are m and m + half of the rotated
 * channels, or 2m and 2m + 1 where they are interleaved. */
export function rotate(x, places, headWidth, {cos, sin, pairs, layout}) {
  const [step, other] = layout === "interleaved" ? [2, 1] : [1, pairs];
  for (let row = 0; row * headWidth < x.length; row++) {
    const p = places[row % places.length],
      from = row * headWidth;
    for (let m = 0; m < pairs; m++) {
      const at = from + step * m,
        a = x[at],
        b = x[at + other],
        c = cos[p * pairs + m],
        s = sin[p * pairs + m];
      x[at] = a * c - b * s;
      x[at + other] = b * c + a * s;
    }
  }
  return x;
}
