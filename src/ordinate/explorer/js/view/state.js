/** What a panel shows, kept in the fragment of the address so that a view can be sent to somebody. */

const LONGEST = 1024;
const PAUSE = 300;

/** A value read from text by its field: {kind: "number", low, high, step} | "flag" | "choice" (among) | "text" (most).
 * What does not fit is clamped, or becomes the initial value. */
export function readValue(field, text) {
  if (field.kind === "number") {
    const number = Number(text);
    if (text === "" || !Number.isFinite(number)) return field.initial;
    const whole = field.low + Math.round((number - field.low) / field.step) * field.step;
    // steps of a tenth are no whole numbers of binary digits, and would fill the address with them
    return Number(Math.min(field.high, Math.max(field.low, whole)).toFixed(6));
  }
  if (field.kind === "flag") return text === "1" ? true : text === "0" ? false : field.initial;
  if (field.kind === "choice") return field.among.includes(text) ? text : field.initial;
  return text.slice(0, field.most ?? LONGEST);
}

/** Value as it stands in the address. */
export function writeValue(field, value) {
  return field.kind === "flag" ? (value ? "1" : "0") : String(value);
}

/** The state of one panel. */
export class State {
  constructor(panel, fields, initial = {}) {
    this.panel = panel;
    this.fields = fields;
    this.values = {};
    for (const [name, field] of Object.entries(fields)) {
      this.values[name] = name in initial ? readValue(field, initial[name]) : field.initial;
    }
    this.listeners = [];
  }

  get(name) {
    return this.values[name];
  }

  /** Set values; listeners hear of it if one has changed. */
  set(values) {
    let changed = false;
    for (const [name, value] of Object.entries(values)) {
      const next = readValue(this.fields[name], writeValue(this.fields[name], value));
      changed ||= next !== this.values[name];
      this.values[name] = next;
    }
    if (changed) for (const listener of this.listeners) listener();
  }

  on(listener) {
    this.listeners.push(listener);
  }

  /** Back to the first view. */
  reset() {
    this.set(this.initials());
  }

  /** Values of the first view. */
  initials() {
    return Object.fromEntries(Object.entries(this.fields).map(([name, field]) => [name, field.initial]));
  }

  /** Those of some values that have a field. */
  known(values) {
    return Object.fromEntries(Object.entries(values).filter(([name]) => Object.hasOwn(this.fields, name)));
  }

  /** The fragment of the address: the panel, and what differs from the first view. */
  fragment() {
    const words = new URLSearchParams({panel: this.panel});
    for (const [name, field] of Object.entries(this.fields)) {
      if (this.values[name] !== field.initial) words.set(name, writeValue(field, this.values[name]));
    }
    return `#${words}`;
  }
}

/** The panel and the values in a fragment; unknown names are ignored later. */
export function readFragment(fragment) {
  const words = Object.fromEntries(new URLSearchParams(fragment.replace(/^#/, "")));
  const {panel = "", ...values} = words;
  return {panel, values};
}

let waiting = null;

/** Write a state into the address, not more often than browsers allow. */
export function remember(state) {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    try {
      history.replaceState(null, "", state.fragment());
    } catch {
      // a browser may refuse frequent changes; the next one succeeds
    }
  }, PAUSE);
}

/** Forget an address that waits to be written. */
export function forget() {
  clearTimeout(waiting);
}
