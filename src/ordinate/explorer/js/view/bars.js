/** Bars in a table: a name, a bar, a number. */
import {element, shortNumber} from "./dom.js";

/** A table of bars: {node, show}. `show(rows)`: each is {name, label, share, text, colour}; share is the length, 0 to 1.
 * `rows` may have a second bar {share2, text2} for what the first is compared with. */
export function barTable(caption, {head = []} = {}) {
  const body = element("tbody");
  const titles = head.length ? element("thead", {}, element("tr", {}, head.map((name) => element("th", {scope: "col"}, name)))) : null;
  const node = element("table", {class: "bars"}, element("caption", {}, caption), titles, body);
  const show = (rows) => body.replaceChildren(...rows.map(barRow));
  return {node, show};
}

function barRow({name, label, share, text, colour, muted}) {
  const bar = element("span", {class: "bar"});
  bar.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
  if (colour) bar.style.background = colour;
  return element("tr", {class: muted ? "muted" : null}, element("th", {scope: "row", "aria-label": label}, name),
    element("td", {class: "track", "aria-hidden": "true"}, bar), element("td", {}, text ?? shortNumber(share)));
}
