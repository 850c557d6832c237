/** Elements of the page. Text is always text: nothing that comes from data is read as HTML. */

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; texts become text nodes. `on` holds listeners, `data` the dataset. */
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, {on = {}, data = {}, ...attributes}, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  Object.assign(node.dataset, data);
  for (const [name, listener] of Object.entries(on)) node.addEventListener(name, listener);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** The element within another one that has the focus, also inside a widget; null: none. */
export function focusedIn(host) {
  const {activeElement} = host.getRootNode();
  return host.contains(activeElement) ? activeElement : null;
}

let made = 0;

/** A name for `id`, unique in the page. */
export function uniqueId(name) {
  made += 1;
  return `${name}-${made}`;
}

/** A number with few digits: 3 significant ones, powers of ten where it is very small. */
export function shortNumber(value) {
  if (value === 0) return "0";
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size < 1e-12) return "0";
  if (size < 1e-3) return value.toExponential(0).replace("e-", "e−").replace(/^-/, "−");
  return Number(value.toPrecision(3)).toString().replace("-", "−");
}
