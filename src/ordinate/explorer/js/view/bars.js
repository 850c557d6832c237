/** Bars in a table: a name, a bar, and numbers. */
import {element} from "./dom.js";

/** A table of bars: {node, show}. `head` names the columns; that of the bars has none. `show(rows, head)`: each row is
 * {name, label, share, cells}, share the length of the bar, 0 to 1; `name` may be an element; another head may come. */
export function barTable(caption, head) {
  const body = element("tbody"),
    titles = element("tr");
  const name = ([first, ...rest]) =>
    titles.replaceChildren(
      element("th", {scope: "col"}, first),
      element("td"),
      ...rest.map((one) => element("th", {scope: "col"}, one)),
    );
  name(head);
  const node = element("table", {class: "bars"}, element("caption", {}, caption), element("thead", {}, titles), body);
  const show = (rows, other = head) => {
    name(other);
    body.replaceChildren(...rows.map(barRow));
  };
  return {node, show};
}

function barRow({name, label, share, cells}) {
  const bar = element("span", {class: "bar"});
  bar.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
  return element(
    "tr",
    {},
    element("th", {scope: "row", "aria-label": label}, name),
    element("td", {class: "track", "aria-hidden": "true"}, bar),
    cells.map((text) => element("td", {}, text)),
  );
}
