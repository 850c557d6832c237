/** A panel in its place: its state, the models that it runs, what is said to screen readers, and errors. */
import {inflate, readModel} from "../core/weights.js";
import {Workshop} from "../core/worker.js";
import {button} from "./controls.js";
import {element} from "./dom.js";
import {State} from "./state.js";

const SAY_AFTER = 600;

/** What all panels of a page share. `entries`, `weights`: as packed; `measured`: numbers of results; `code`: a script
 * that serves jobs in a worker. */
export class Supplies {
  constructor({entries, weights, measured, code}) {
    Object.assign(this, {entries, weights, measured, code});
    this.models = new Map();
    this.workshop = null;
  }

  /** Unpack the weights, once. */
  unpack() {
    return (this.bytes ??= inflate(this.weights).then((bytes) => {
      this.unpacked = bytes;
    }));
  }

  /** A model by name, its weights decoded once. */
  model(name) {
    if (!this.models.has(name)) {
      this.models.set(
        name,
        readModel(
          this.entries.find((entry) => entry.name === name),
          this.unpacked,
        ),
      );
    }
    return this.models.get(name);
  }

  /** The result of a long computation, later; `progress` hears of the share that is done. */
  compute(job, given, progress) {
    return (this.workshop ??= new Workshop(this.code)).run(job, given, progress);
  }

  /** End the worker. */
  close() {
    this.workshop?.close();
  }
}

/** Show a panel: `fields` and `render` of its module, `stage` the element that it fills, `said` its live region,
 * `values` of the first view; `changed(state)` hears of each change. Returns its state at once. */
export function openPanel(name, {fields, render}, {stage, said, values, supplies, changed}) {
  const state = new State(name, fields(supplies.entries), values);
  fill(state, render, {stage, said, supplies, changed});
  return state;
}

async function fill(state, render, {stage, said, supplies, changed}) {
  try {
    await supplies.unpack();
  } catch (error) {
    stage.removeAttribute("aria-busy");
    stage.append(
      failed(`The models cannot be unpacked: ${error.message}. Chrome 80, Firefox 113 and Safari 16.4 or newer can.`),
    );
    return;
  }
  const draw = render({state, el: stage, tools: tools(supplies, said)});
  const live = () => {
    try {
      draw();
      stage.removeAttribute("aria-busy");
    } catch (error) {
      stage.replaceChildren(
        failed(
          `This view cannot be computed: ${error.message}. Open it anew from the list of questions, and reload the page.`,
        ),
      );
      throw error;
    }
  };
  let asked = false;
  state.on(() => {
    changed(state);
    if (asked) return;
    asked = true;
    // one drawing a frame, whatever has changed
    requestAnimationFrame(() => {
      asked = false;
      live();
    });
  });
  stage.after(
    element(
      "p",
      {class: "tail"},
      button("Back to the first view", () => state.reset(), {class: "quiet"}),
    ),
  );
  live();
  stage.dataset.ready = "1";
}

/** What a panel may use besides its state. */
function tools(supplies, said) {
  let timer = null;
  return {
    entries: supplies.entries,
    measured: supplies.measured,
    model: (name) => supplies.model(name),
    compute: (job, given, progress) => supplies.compute(job, given, progress),
    say: (text) => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        said.textContent = text;
      }, SAY_AFTER);
    },
  };
}

/** Say above a panel which of the values that it was given have no control. */
export function nameUnknown(state, values, stage) {
  const unknown = Object.keys(values).filter((key) => !Object.hasOwn(state.fields, key));
  if (unknown.length)
    stage.before(
      failed(`${state.panel} has no control ${unknown.join(", ")}; it has ${Object.keys(state.fields).join(", ")}.`),
    );
}

/** A message in place of a view. */
export function failed(text) {
  return element("p", {class: "failed", role: "alert"}, text);
}
