/** Menus of models, shared by panels. */

/** The decoders of the page, in the order of its list. */
export function decoders(entries) {
  return entries.filter((entry) => entry.kind === "decoder").map((entry) => entry.name);
}

/** Title of each model by its name. */
export function titles(entries) {
  return Object.fromEntries(entries.map((entry) => [entry.name, entry.title]));
}

/** A choice among decoders: `wanted` first, unless somebody's own model is there and `own` is asked for, or the page
 * has no room for `wanted` beside it. */
export function decoderField(entries, wanted, {own = false} = {}) {
  const among = decoders(entries),
    mine = entries.find((entry) => entry.own)?.name;
  return {kind: "choice", among, initial: mine && (own || !among.includes(wanted)) ? mine : wanted};
}
