/** Labelled controls that follow a state: slider, menu, checkbox, text field. */
import {element, uniqueId} from "./dom.js";

/** A slider with its value. `format` says the value in words, with its unit. */
export function slider(state, name, label, format = String) {
  const {low, high, step} = state.fields[name],
    id = uniqueId(name);
  const shown = element("output", {for: id, "aria-live": "off"});
  const input = element("input", {
    type: "range",
    id,
    min: low,
    max: high,
    step,
    on: {input: () => state.set({[name]: Number(input.value)})},
  });
  follow(state, () => {
    input.value = state.get(name);
    shown.textContent = format(state.get(name));
    input.setAttribute("aria-valuetext", format(state.get(name)));
  });
  return element("div", {class: "control"}, element("label", {for: id}, label), input, shown);
}

/** A menu; `titles` maps values to what is shown. */
export function choice(state, name, label, titles = {}) {
  const id = uniqueId(name),
    {among} = state.fields[name];
  const options = among.map((value) => element("option", {value}, titles[value] ?? value));
  const input = element("select", {id, on: {change: () => state.set({[name]: input.value})}}, options);
  follow(state, () => {
    input.value = state.get(name);
  });
  return element("div", {class: "control"}, element("label", {for: id}, label), input);
}

/** A checkbox. `ablation`: without it a part of a trained model is missing, which is then said beside it. */
export function flag(state, name, label, {ablation = false} = {}) {
  const id = uniqueId(name);
  const input = element("input", {type: "checkbox", id, on: {change: () => state.set({[name]: input.checked})}});
  const note = ablation ? element("span", {class: "tag"}, "ablation") : null;
  follow(state, () => {
    input.checked = state.get(name);
    if (note) note.hidden = input.checked;
  });
  return element("div", {class: "control check"}, input, element("label", {for: id}, label, note));
}

/** A text field; `most` bytes are read. */
export function textField(state, name, label) {
  const id = uniqueId(name);
  const input = element("input", {
    type: "text",
    id,
    maxlength: state.fields[name].most,
    spellcheck: "false",
    autocomplete: "off",
    on: {input: () => state.set({[name]: input.value})},
  });
  follow(state, () => {
    if (input.value !== state.get(name)) input.value = state.get(name);
  });
  return element("div", {class: "control wide"}, element("label", {for: id}, label), input);
}

/** A button. */
export function button(label, act, attributes = {}) {
  return element("button", {type: "button", ...attributes, on: {click: act}}, label);
}

/** A row of controls. */
export function controls(...parts) {
  return element("div", {class: "controls"}, parts);
}

function follow(state, show) {
  state.on(show);
  show();
}
