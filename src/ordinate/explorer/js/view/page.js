/** The frame of the page: which panel is shown, and its state in the address. */
import {Supplies, nameUnknown, openPanel} from "./host.js";
import {forget, readFragment, remember} from "./state.js";

/** Start the page. `panels`: {name: {fields, render}}. */
export function start(panels) {
  const page = new Page(panels);
  addEventListener("hashchange", () => page.follow(location.hash));
  // a page within another one, as in a notebook, has no address
  page.follow(location.hash || document.body.dataset.view || "");
}

class Page {
  constructor(panels) {
    this.panels = panels;
    this.names = Object.keys(panels);
    this.shown = {};
    const text = (id) => document.getElementById(id).textContent;
    this.supplies = new Supplies({
      entries: JSON.parse(text("models")),
      measured: JSON.parse(text("measured")),
      weights: text("weights"),
      code: text("code"),
    });
  }

  /** Show the panel of a fragment. */
  follow(fragment) {
    const {panel, values} = readFragment(fragment),
      name = this.names.includes(panel) ? panel : this.names[0];
    // a link within the page, such as the one to its main part
    if (!panel && this.supplies.unpacked) return;
    forget();
    for (const other of this.names) {
      document.getElementById(`panel-${other}`).hidden = other !== name;
      const link = document.getElementById(`link-${other}`);
      if (other === name) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = `${document.getElementById(`link-${name}`).dataset.title} · Ordinate`;
    if (this.shown[name]) this.shown[name].set({...this.shown[name].initials(), ...this.shown[name].known(values)});
    else this.open(name, values);
  }

  /** Render a panel for the first time. */
  open(name, values) {
    const stage = document.querySelector(`#panel-${name} .stage`),
      said = document.querySelector(`#panel-${name} .said`);
    this.shown[name] = openPanel(name, this.panels[name], {
      stage,
      said,
      values,
      supplies: this.supplies,
      changed: remember,
    });
    // an address may be of another version, what is written in a notebook should be right
    if (document.body.dataset.view && !location.hash) nameUnknown(this.shown[name], values, stage);
  }
}
