/** A plain table: the first cell of each row names it. */
import {element} from "./dom.js";

/** A table: {node, show}. `show(rows)`: each is a list of cells, texts or elements. `style`: the class of the table. */
export function plainTable(caption, head, {style = "plain"} = {}) {
  const body = element("tbody"),
    titles = head.map((name) => (name ? element("th", {scope: "col"}, name) : element("td")));
  const node = element(
    "table",
    {class: style},
    element("caption", {}, caption),
    element("thead", {}, element("tr", {}, titles)),
    body,
  );
  const row = ([first, ...cells]) =>
    element(
      "tr",
      {},
      element("th", {scope: "row"}, first),
      cells.map((cell) => element("td", {}, cell)),
    );
  return {node, show: (rows) => body.replaceChildren(...rows.map(row))};
}
