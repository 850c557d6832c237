/** Long computations, run in a worker: each takes models and arguments and returns plain data. */
import {lossByPosition} from "./text.js";
import {run} from "./model.js";

/** Loss of each byte of a text [bits], read by one model; `scaling` as in `run`. */
export function readText({model, ids, scaling}) {
  const {logits} = run(model, ids, {scaling, keep: false});
  return lossByPosition(logits, ids, model.vocabulary);
}

/** Share of the variance between vectors that is common to all texts at a position, after each layer, bias-corrected:
 * analysis of variance of one factor. Texts are rows of byte ids of one length. */
export function positionShares({model, texts, changes}) {
  const streams = texts.map((ids) => {
    const trace = run(model, ids, {...changes, keep: false});
    return [trace.embedding, ...trace.layers.map((layer) => layer.residual)];
  });
  return streams[0].map((_, depth) => explainedShare(streams.map((layers) => layers[depth]), texts[0].length, model.width));
}

/** Share of variance explained by the row, of several matrices (rows, width): (S_p - S_e) / (S_p - S_e + R S_e) with
 * S_p, S_e the mean squares between and within rows and R the number of matrices. The first row is left out: many
 * models treat the first token apart. */
export function explainedShare(matrices, rows, width) {
  const count = matrices.length, used = rows - 1;
  let between = 0, within = 0;
  for (let c = 0; c < width; c++) {
    let grand = 0;
    const means = new Float64Array(rows);
    for (let p = 1; p < rows; p++) {
      for (const x of matrices) means[p] += x[p * width + c] / count;
      grand += means[p] / used;
    }
    for (let p = 1; p < rows; p++) {
      between += count * (means[p] - grand) ** 2;
      for (const x of matrices) within += (x[p * width + c] - means[p]) ** 2;
    }
  }
  const position = between / (used - 1), rest = within / (used * (count - 1));
  const variance = (position - rest) / count;
  return variance / (variance + rest);
}

export const JOBS = {readText, positionShares};
