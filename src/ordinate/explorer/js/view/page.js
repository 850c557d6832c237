/** The frame of the page: which panel is shown, its state, the models, what is said to screen readers. */
import {inflate, readModel} from "../core/weights.js";
import {Workshop} from "../core/worker.js";
import {button} from "./controls.js";
import {element} from "./dom.js";
import {State, forget, readFragment, remember} from "./state.js";

const SAY_AFTER = 600;

/** Start the page. `panels`: {name: {fields, render}}. */
export function start(panels) {
  const page = new Page(panels);
  addEventListener("hashchange", () => page.follow(location.hash));
  page.follow(location.hash);
}

class Page {
  constructor(panels) {
    this.panels = panels;
    this.names = Object.keys(panels);
    this.shown = {};
    this.entries = readJson("models");
    this.measured = readJson("measured");
    this.models = new Map();
    this.bytes = null;
    this.workshop = null;
  }

  /** Show the panel of a fragment. */
  follow(fragment) {
    const {panel, values} = readFragment(fragment), name = this.names.includes(panel) ? panel : this.names[0];
    // a link within the page, such as the one to its main part
    if (!panel && this.unpacked) return;
    forget();
    for (const other of this.names) {
      document.getElementById(`panel-${other}`).hidden = other !== name;
      const link = document.getElementById(`link-${other}`);
      if (other === name) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = `${document.getElementById(`link-${name}`).dataset.title} · Ordinate`;
    if (this.shown[name]) this.shown[name].set({...initials(this.shown[name]), ...known(this.shown[name], values)});
    else this.open(name, values);
  }

  /** Render a panel for the first time. */
  async open(name, values) {
    const {fields, render} = this.panels[name], host = document.querySelector(`#panel-${name} .stage`);
    const state = this.shown[name] = new State(name, fields(this.entries), values);
    this.bytes ??= inflate(document.getElementById("weights").textContent);
    try {
      this.unpacked = await this.bytes;
    } catch (error) {
      host.removeAttribute("aria-busy");
      host.append(failed(`The models cannot be unpacked: ${error.message}. Chrome 80, Firefox 113 and Safari 16.4 or newer can.`));
      return;
    }
    const draw = render({state, el: host, tools: this.tools(name)});
    const live = () => {
      try {
        draw();
        host.removeAttribute("aria-busy");
      } catch (error) {
        host.replaceChildren(failed(`This view cannot be computed: ${error.message}. Open it anew from the list of questions, and reload the page.`));
        throw error;
      }
    };
    let asked = false;
    state.on(() => {
      remember(state);
      if (asked) return;
      asked = true;
      // one drawing a frame, whatever has changed
      requestAnimationFrame(() => {
        asked = false;
        live();
      });
    });
    host.after(element("p", {class: "tail"}, button("Back to the first view", () => state.reset(), {class: "quiet"})));
    live();
    host.dataset.ready = "1";
  }

  /** What a panel may use besides its state. */
  tools(name) {
    const line = document.querySelector(`#panel-${name} .said`);
    let timer = null;
    return {
      entries: this.entries,
      measured: this.measured,
      model: (which) => this.model(which),
      compute: (job, given) => (this.workshop ??= new Workshop(document.getElementById("code").textContent)).run(job, given),
      say: (text) => {
        clearTimeout(timer);
        timer = setTimeout(() => { line.textContent = text; }, SAY_AFTER);
      },
    };
  }

  /** A model by name, its weights decoded once. */
  model(name) {
    if (!this.models.has(name)) {
      this.models.set(name, readModel(this.entries.find((entry) => entry.name === name), this.unpacked));
    }
    return this.models.get(name);
  }
}

function failed(text) {
  return element("p", {class: "failed", role: "alert"}, text);
}

function readJson(id) {
  return JSON.parse(document.getElementById(id).textContent);
}

function initials(state) {
  return Object.fromEntries(Object.entries(state.fields).map(([name, field]) => [name, field.initial]));
}

function known(state, values) {
  return Object.fromEntries(Object.entries(values).filter(([name]) => Object.hasOwn(state.fields, name)));
}
