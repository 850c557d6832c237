/** The maps of the panel Q, K and V: the rows that all is made of, queries, keys, values, and the attention pattern. */
import {matrices} from "../core/changes.js";
import {heatmap, largest} from "../view/heatmap.js";

const PARTS = ["q", "k", "v"];

/** The maps: {input, source, parts, pattern, show}. `pick` hears of a query, a key, or both: {query, key}. */
export function attentionMaps(pick) {
  const rows = {of: (row) => row},
    wide = (what) => ({wide: true, pick: (row) => pick({[what]: rows.of(row)})});
  const maps = {
    input: heatmap("X", wide("query")),
    source: heatmap("Y", wide("key")),
    parts: PARTS.map((part) => heatmap(part.toUpperCase(), wide(part === "q" ? "query" : "key"))),
    pattern: heatmap("Attention pattern", {pick: (i, j) => pick({query: i, key: j})}),
  };
  return {...maps, show: (view) => showAll(maps, rows, view)};
}

function showAll({input, source, parts, pattern}, rows, view) {
  const {kind, model, n} = view,
    crossed = kind === "cross";
  rows.of = kind === "cached" ? (row) => (row > n - 1 ? n - 1 : row) : (row) => row;
  const what = "normalised: a row for each token, a column for each of the model’s channels";
  showRows(input, view, {title: `X, ${what}`, values: view.input, columns: model.width, name: "X"});
  source.node.hidden = !crossed;
  if (crossed)
    showRows(source, view, {
      title: `Y, the second text, ${what}`,
      values: view.source,
      columns: model.width,
      name: "Y",
      ofKeys: true,
    });
  PARTS.forEach((part, at) => showPart(parts[at], part, view));
  showPattern(pattern, view);
}

/** Queries, keys or values of the head. */
function showPart(map, part, view) {
  const {kind, model, change, n, keys, size, stages} = view,
    asks = part === "q",
    [one, rows] = asks ? [view.head, n] : [view.group, keys];
  const from = kind === "cross" && !asks ? "Y" : "X",
    turned = model.scheme === "rope" && part !== "v" ? ", rotated" : "",
    kept = kind !== "cached" ? "" : asks ? ": one row" : `: ${n - 1} from the cache, one new`;
  showRows(map, view, {
    title: `${part.toUpperCase()} = ${from} W_${matrices(change)[part].toUpperCase()}${turned}${kept}`,
    values: stages[part].subarray(one * rows * size, (one + 1) * rows * size),
    columns: size,
    name: part,
    ofKeys: !asks,
  });
}

/** A map with a row for each token, of queries or of keys. */
function showRows(map, view, {title, values, columns, name, ofKeys = false}) {
  const {names, labels} = ofKeys ? view.keyTokens : view.queries,
    limit = largest(values),
    cached = view.kind === "cached",
    first = cached ? view.n - 1 : 0;
  const origin = (i) => (!cached ? "" : i < first ? ", from the cache" : ", computed now");
  const data = {
    title,
    rows: names.length,
    // tokens of several letters have no room beside a row
    rowTexts: view.model.tokens ? [] : names,
    marked: ofKeys ? view.key : view.query,
    columns,
    values,
    low: -limit,
    high: limit,
    ramp: "signed",
    names: (i, j) => `${name} of “${labels[i]}” (${i}), channel ${j}${i < first && !ofKeys ? "" : origin(i)}`,
    blank: () => "not computed",
  };
  map.show(cached ? parted(data, first) : data);
}

/** A map with an empty row above row `at`: what a cache has, or what is not there, above it; what is new below. */
function parted({rows, rowTexts, marked, columns, values, names, ...data}, at) {
  const spread = new Float64Array((rows + 1) * columns).fill(NaN),
    own = (i) => (i > at ? i - 1 : i);
  spread.set(values.subarray(0, at * columns));
  spread.set(values.subarray(at * columns), (at + 1) * columns);
  return {
    ...data,
    rows: rows + 1,
    rowTexts: rowTexts.length ? [...rowTexts.slice(0, at), "", ...rowTexts.slice(at)] : [],
    marked: marked >= at ? marked + 1 : marked,
    columns,
    values: spread,
    names: (i, j) => (i === at ? "the tokens before above, the new one below" : names(own(i), j)),
  };
}

/** All queries, or with a cache the one that is computed. */
function showPattern(map, {kind, model, head, n, keys, first, query, queries, keyTokens, stages}) {
  const from = (head * n + first) * keys;
  map.show({
    title:
      kind === "cached"
        ? "Attention pattern: the one row of the new token"
        : "Attention pattern: a row for each query, a column for each key",
    rows: n - first,
    columns: keys,
    values: stages.pattern
      .map((share, i) => (Number.isFinite(stages.scores[i]) ? share : NaN))
      .subarray(from, (head + 1) * n * keys),
    rowTexts: model.tokens ? [] : queries.names.slice(first),
    columnTexts: model.tokens ? [] : keyTokens.names,
    marked: query - first,
    names: (i, j) => `“${queries.labels[i + first]}” (${i + first}) attends to “${keyTokens.labels[j]}” (${j})`,
  });
}
