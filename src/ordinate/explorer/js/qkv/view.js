/** What the panel Q, K and V shows now: one head of one layer, a query and a key, from its state. */
import {CHANGES, applies} from "../core/changes.js";
import {keysSeen, layerStages} from "../core/kinds.js";
import {remembering} from "../core/prefix.js";
import {encode, tokenLabel, tokenName} from "../core/tokens.js";

/** Most tokens of a text. */
export const MOST = 32;

/** Runs that are kept, of each change its own. */
export function keptRuns() {
  return Object.fromEntries(Object.entries(CHANGES).map(([name, {how}]) => [name, remembering(6, how)]));
}

/** The view: the model, both texts as `queries` and `other` {ids, names, labels}, that of the keys as `keyTokens`,
 * layer, head, its group of keys, query and key, the number `seen` of keys that the query may see, what `layerStages`
 * returns, and as `plain` the same without the change; or {missing}, which says what is to be typed. */
export function currentView(state, tools, runs) {
  const model = tools.model(state.get("model")),
    kind = state.get("source"),
    queries = tokens(model, state.get("text")),
    other = tokens(model, state.get("other"));
  if (queries.ids.length < 2) return {kind, missing: "Type a text of at least two tokens."};
  if (kind === "cross" && !other.ids.length)
    return {kind, missing: "Type a second text, of which keys and values are made."};
  const layer = Math.min(state.get("layer"), model.layers) - 1,
    head = Math.min(state.get("head"), model.heads) - 1,
    wanted = state.get("numbers") === "changed" ? state.get("change") : "trained",
    change = applies(wanted, model) ? wanted : "trained";
  const made = (name) => {
    const given = {model, layer, change: name, ids: queries.ids, other: other.ids};
    return layerStages(kind, given, (ids) => runs[name](model, ids));
  };
  const shown = made(change),
    {n} = shown,
    query = kind === "cached" ? n - 1 : Math.min(state.get("query"), n - 1),
    seen = keysSeen(kind, query, shown.keys);
  return {
    model,
    kind,
    change,
    queries,
    other,
    keyTokens: kind === "cross" ? other : queries,
    layer,
    head,
    // with fewer key heads than query heads, several share one
    group: Math.floor((head * model.kv_heads) / model.heads),
    size: model.head_width,
    query,
    key: Math.min(state.get("key"), seen - 1),
    seen,
    ...shown,
    plain: change === "trained" ? shown : made("trained"),
  };
}

/** A text as tokens: their ids, their short names, and their names for screen readers. */
function tokens(model, text) {
  const ids = encode(model, text, MOST);
  return {ids, names: ids.map((id) => tokenName(model, id)), labels: ids.map((id) => tokenLabel(model, id))};
}
