/** Long computations, run in a worker: each takes models and arguments, tells the share that is done, and returns plain data. */
import {dot} from "./arrays.js";
import {run} from "./model.js";
import {lossByPosition} from "./text.js";

/** Loss of each byte of a text [bits], read by one model; `scaling` as in `run`. */
export function readText({model, ids, scaling}, progress = null) {
  const {logits} = run(model, ids, {scaling, keep: false, progress});
  return lossByPosition(logits, ids, model.vocabulary);
}

/** Share of the variance between vectors that is common to all texts at a position, after each layer, bias-corrected:
 * analysis of variance of one factor. Texts are rows of byte ids of one length. */
export function positionShares({model, texts, changes}, progress = null) {
  const streams = texts.map((ids, text) => {
    const trace = run(model, ids, {...changes, keep: false});
    progress?.((text + 1) / texts.length);
    return [trace.embedding, ...trace.layers.map((layer) => layer.residual)];
  });
  return streams[0].map((_, depth) =>
    explainedShare(
      streams.map((layers) => layers[depth]),
      texts[0].length,
      model.width,
    ),
  );
}

/** Share of position in the variance of several matrices (rows, width), a ratio of means over pairs of texts, as
 * `position_share` of the library: vectors without position information give 0 on average. The first row is left out,
 * since models treat the first token unlike others. */
export function explainedShare(matrices, rows, width) {
  const places = rows - 1,
    count = matrices.length;
  const {moving, means} = centred(
    matrices.map((x) => x.subarray(width)),
    places,
    width,
  );
  const alike = (i, j) => dot(moving[i], 0, moving[j], 0, places * width) / (places - 1);
  const apart = (i, j) => dot(means[i], 0, means[j], 0, width);
  const own = moving.map((_, i) => alike(i, i)),
    sizes = means.map((_, i) => apart(i, i));
  let part = 0,
    whole = 0;
  for (let i = 0; i < count; i++) {
    for (let j = 0; j < i; j++) {
      const common = alike(i, j),
        both = (own[i] + own[j]) / 2;
      part += common;
      whole += both - (both - common) / places + (sizes[i] + sizes[j]) / 2 - apart(i, j);
    }
  }
  return part / whole;
}

/** Matrices less the mean of all rows of all: their own means, and what is left without them. */
function centred(matrices, rows, width) {
  const all = new Float64Array(width);
  for (const x of matrices) for (let i = 0; i < rows * width; i++) all[i % width] += x[i] / rows / matrices.length;
  const means = matrices.map((x) => {
    const mean = new Float64Array(width);
    for (let i = 0; i < rows * width; i++) mean[i % width] += (x[i] - all[i % width]) / rows;
    return mean;
  });
  const moving = matrices.map((x, text) =>
    Float64Array.from({length: rows * width}, (_, i) => x[i] - all[i % width] - means[text][i % width]),
  );
  return {moving, means};
}

export const JOBS = {readText, positionShares};
