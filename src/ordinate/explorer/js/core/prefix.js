/** Runs that remember: a text that was read is not read again, and of an edited one only what comes after the edit. */
import {run, sharedRows} from "./model.js";

/** `run` that keeps its latest results. Under a causal mask a row depends on those before it alone, so that two texts
 * have the same numbers up to the first token in which they differ; these are copied from the kept run that shares
 * most. Changes that are functions, or that move rows, are not kept, unless they are those of all runs, `fixed`. */
export function remembering(most = 48, fixed = {}) {
  const kept = new Map();
  return (model, ids, changes = {}) => {
    const {causal = null, skip = 1, position = true, ...others} = changes;
    if (Object.keys(others).length) return run(model, ids, {...fixed, ...changes});
    const way = `${model.name} ${causal} ${skip} ${position}`,
      key = `${way} ${ids}`;
    if (!kept.has(key)) {
      const nearest = model.kind === "decoder" && causal !== false ? nearestRun(kept, way, ids) : null;
      if (kept.size >= most) kept.delete(kept.keys().next().value);
      kept.set(key, {way, trace: run(model, ids, {...fixed, ...changes}, nearest)});
    }
    return kept.get(key).trace;
  };
}

/** The kept run of the same model and changes whose text begins like this one for longest; null: none does. */
function nearestRun(kept, way, ids) {
  let best = null,
    longest = 0;
  for (const {way: other, trace} of kept.values()) {
    const shared = other === way ? sharedRows(trace.ids, ids) : 0;
    if (shared > longest) [best, longest] = [trace, shared];
  }
  return best;
}
