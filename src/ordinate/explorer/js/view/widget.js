/** A panel as a widget of a notebook, in the form of anywidget: `render({model, el})` returns what ends it. */
import {element} from "./dom.js";
import {Supplies, nameUnknown, openPanel} from "./host.js";

/** Show a panel in an element. `model` has get, set, on, off and save_changes; its `view` is an object of values by the name
 * of their control, which follows what is moved, and moves what it is set to. `data`: as `Supplies`, and about, style. */
export function mount(name, panel, {model, el, data}) {
  const root = element("div"),
    inside = root.attachShadow({mode: "open"}),
    supplies = new Supplies(data);
  const stage = element("div", {class: "stage", "aria-busy": "true"}),
    said = element("p", {class: "said", role: "status"}),
    {about} = data;
  inside.append(
    element("style", {}, data.style),
    element(
      "article",
      {class: "alone", "aria-label": about.question},
      element("h2", {}, about.question),
      element("p", {class: "answer"}, element("strong", {}, `${about.word}.`), ` ${about.text}`),
      element(
        "p",
        {class: "source"},
        "Measured: ",
        element("code", {}, about.source),
        " · More: ",
        element("code", {}, `docs/${about.page}`),
      ),
      stage,
      said,
    ),
  );
  el.append(root);
  const given = model?.get("view") ?? {},
    words = Object.fromEntries(Object.entries(given).map(([key, value]) => [key, word(value)]));
  const state = openPanel(name, panel, {
    stage,
    said,
    values: words,
    supplies,
    changed: () => {
      model?.set("view", {...state.values});
      model?.save_changes();
    },
  });
  nameUnknown(state, given, stage);
  const follow = () => state.set(state.known(model.get("view") ?? {}));
  model?.on("change:view", follow);
  return () => {
    model?.off?.("change:view", follow);
    supplies.close();
    root.remove();
  };
}

/** A value as it stands in an address. */
function word(value) {
  return value === true ? "1" : value === false ? "0" : String(value);
}
