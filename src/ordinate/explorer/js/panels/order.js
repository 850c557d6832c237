/** Order: letters and words change places; what does the last byte notice, layer by layer? */
import {relativeChange} from "../core/arrays.js";
import {earlyLogits, run} from "../core/model.js";
import {remembering} from "../core/prefix.js";
import {toBytes, topTokens} from "../core/text.js";
import {encode, tokenLabel, tokenName} from "../core/tokens.js";
import {barTable} from "../view/bars.js";
import {SCHEMES} from "../view/colours.js";
import {button, choice, controls, flag, slider, textField} from "../view/controls.js";
import {element, focusedIn, shortNumber} from "../view/dom.js";
import {heatmap, largest} from "../view/heatmap.js";
import {decoderField, decoders, titles} from "../view/menus.js";

const MOST = 48;
// tokens whose names fit beside a map
const LABELLED = 32;
// of a scale of differences
const LEAST = 0.01;
// next tokens of each model
const SHOWN = 6;
const READ_SO =
  "Without positions one layer sees the letters before the last as a set: swap two of them, and nothing changes, not even the last digit. " +
  "From the second layer on it sees vectors that each depend on another set, since under the causal mask the second letter sees two letters and the third three. " +
  "With any position scheme the first layer notices already.";

export function fields(entries) {
  const layers = Math.max(...entries.map((entry) => entry.layers));
  return {
    text: {kind: "text", initial: "return self.name", most: MOST},
    moved: {kind: "text", initial: "return self.nmae", most: MOST},
    left: decoderField(entries, "none"),
    right: decoderField(entries, "rope", {own: true}),
    depth: {kind: "number", initial: 3, low: 1, high: layers, step: 1},
    head: {kind: "number", initial: 1, low: 1, high: Math.max(...entries.map((entry) => entry.heads)), step: 1},
    mask: {kind: "flag", initial: true},
    skip: {kind: "flag", initial: true},
    position: {kind: "flag", initial: true},
  };
}

/** Tokens of the text and of the rearranged text; if these are others, the two before the last of the text change places. */
export function bothTexts(model, text, moved) {
  const ids = encode(model, text, MOST),
    other = encode(model, moved, MOST);
  const same = ids.length === other.length && [...ids].sort().join() === [...other].sort().join();
  return {ids, other: same ? other : swapLastTwo(ids), same};
}

/** The two bytes before the last one, exchanged. */
export function swapLastTwo(ids) {
  const n = ids.length;
  if (n < 3) return [...ids];
  return [...ids.slice(0, n - 3), ids[n - 2], ids[n - 3], ids[n - 1]];
}

/** How much the last vector changes after each layer, relative to its norm. */
export function lastChanges(model, ids, other, runs = run) {
  const [one, two] = [runs(model, ids), runs(model, other)],
    at = (ids.length - 1) * model.width;
  return one.layers.map((layer, depth) =>
    relativeChange(two.layers[depth].residual, at, layer.residual, at, model.width),
  );
}

export function render({state, el, tools}) {
  const parts = {
    runs: remembering(),
    turn: 0,
    words: element("div", {class: "chips", role: "group", "aria-label": "Words: choose one, then move it"}),
    sides: [comparison(), comparison()],
    table: changeTable(),
    encoder: element("p", {class: "note"}),
  };
  const names = titles(tools.entries);
  el.append(
    controls(textField(state, "text", "Text"), textField(state, "moved", "The same letters in another order")),
    controls(
      button("Swap two letters", () => state.set({moved: textOf(swapLastTwo(toBytes(state.get("text"), MOST)))})),
      button("Swap two letters far back", () =>
        state.set({moved: textOf(swapFarBack(toBytes(state.get("text"), MOST)))}),
      ),
      button("Same order", () => state.set({moved: state.get("text")})),
    ),
    parts.words,
    element(
      "div",
      {class: "two"},
      parts.table.node,
      element("div", {}, element("p", {class: "note"}, READ_SO), parts.encoder),
    ),
    controls(
      choice(state, "left", "Model", names),
      choice(state, "right", "Compared with", names),
      slider(state, "depth", "After layer"),
      slider(state, "head", "Head"),
    ),
    controls(
      flag(state, "mask", "Causal mask", {ablation: true}),
      flag(state, "skip", "Skip connections", {ablation: true}),
      flag(state, "position", "Position", {ablation: true}),
    ),
    element(
      "div",
      {class: "two"},
      parts.sides.map((one) => one.node),
    ),
  );
  let picked = -1;
  return () => {
    picked = drawWords(parts.words, state, picked, (index) => {
      picked = index;
    });
    draw(state, tools, parts);
  };
}

function swapFarBack(ids) {
  return ids.length < 4 ? [...ids] : [ids[1], ids[0], ...ids.slice(2)];
}

function textOf(ids) {
  return new TextDecoder().decode(Uint8Array.from(ids));
}

/** Words of the rearranged text as chips: drag them, or choose one and move it by buttons or Alt and arrow keys. */
function drawWords(host, state, picked, pick) {
  const words = state.get("moved").split(" "),
    many = words.length > 1;
  // what replaces the focused button takes its focus
  const focused = focusedIn(host)?.textContent ?? null;
  const chosen = picked >= 0 && picked < words.length ? picked : -1;
  const moveTo = (from, to) => {
    if (to < 0 || to >= words.length || from === to) return;
    const next = [...words];
    next.splice(to, 0, ...next.splice(from, 1));
    pick(to);
    state.set({moved: next.join(" ")});
  };
  const chips = words.map((word, index) => {
    const chip = button(
      word || "␣",
      () => {
        pick(chosen === index ? -1 : index);
        drawWords(host, state, chosen === index ? -1 : index, pick);
      },
      {class: "chip", "aria-pressed": String(chosen === index), disabled: !many},
    );
    chip.addEventListener("keydown", (event) => {
      const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
      if (!event.altKey || !step) return;
      event.preventDefault();
      moveTo(index, index + step);
    });
    dragged(chip, host, (to) => moveTo(index, to));
    return chip;
  });
  const tools =
    chosen < 0
      ? []
      : [
          button("←", () => moveTo(chosen, chosen - 1), {
            class: "chip move",
            "aria-label": "Move the word to the left",
          }),
          button("→", () => moveTo(chosen, chosen + 1), {
            class: "chip move",
            "aria-label": "Move the word to the right",
          }),
        ];
  host.replaceChildren(...chips, ...tools);
  if (focused !== null) (tools.find((one) => one.textContent === focused) ?? chips[chosen] ?? chips[0]).focus();
  return chosen;
}

/** Call `drop(index)` with the place of the chip above which a dragged one is released. */
function dragged(chip, host, drop) {
  chip.addEventListener("pointerdown", (event) => {
    const start = event.clientX;
    const release = (up) => {
      removeEventListener("pointerup", release);
      if (Math.abs(up.clientX - start) < 12) return;
      const chips = [...host.querySelectorAll(".chip:not(.move)")];
      const target = chips.findIndex((one) => up.clientX < one.getBoundingClientRect().right);
      drop(target < 0 ? chips.length - 1 : target);
    };
    addEventListener("pointerup", release);
  });
}

function changeTable() {
  const body = element("tbody"),
    head = element("tr");
  const node = element(
    "div",
    {class: "scroll"},
    element(
      "table",
      {class: "plain"},
      element("caption", {}, "Change of the last token’s vector by the new order, relative to its norm; no ablation"),
      element("thead", {}, head),
      body,
    ),
  );
  return {
    node,
    show: (rows, layers) => {
      head.replaceChildren(
        element("th", {scope: "col"}, "trained with"),
        ...Array.from({length: layers}, (_, depth) => element("th", {scope: "col"}, `layer ${depth + 1}`)),
      );
      body.replaceChildren(
        ...rows.map(({name, title, changes}) =>
          element(
            "tr",
            {},
            element("th", {scope: "row"}, swatch(name), title),
            Array.from({length: layers}, (_, depth) =>
              element(
                "td",
                {class: changes[depth] < 1e-9 ? "zero" : null},
                depth < changes.length ? shownChange(changes[depth]) : "–",
              ),
            ),
          ),
        ),
      );
    },
  };
}

/** Rounding of double precision is no change. */
function shownChange(change) {
  return change < 1e-9 ? "0" : shortNumber(change);
}

function swatch(name) {
  const dot = element("span", {class: "swatch", "aria-hidden": "true"});
  dot.style.background = SCHEMES[name]?.colour ?? "var(--accent)";
  return dot;
}

function comparison() {
  const title = element("h3"),
    map = heatmap("Attention in the new order: rows attend to columns"),
    gap = heatmap("What the new order changes: after minus before, place by place"),
    bars = barTable("Most probable next tokens; bars: after the rearranged text", ["token", "text", "rearranged"]);
  return {node: element("section", {class: "side"}, title, map.node, gap.node, bars.node), title, map, gap, bars};
}

function drawSide(side, model, title, {ids, other}, state, changes, runs) {
  const depth = Math.min(state.get("depth"), model.layers) - 1,
    head = Math.min(state.get("head"), model.heads) - 1,
    n = ids.length;
  const [plain, moved] = [runs(model, ids, changes), runs(model, other, changes)];
  side.title.textContent = title;
  const [was, values] = [plain, moved].map((trace) =>
    visible(trace.layers[depth].pattern, head, n, changes.causal !== false),
  );
  const said = (id) => tokenLabel(model, id),
    about = (i, j) => `“${said(other[i])}” (${i}) attends to “${said(other[j])}” (${j})`;
  // texts of several letters would run into each other
  const texts = n <= LABELLED && !model.tokens ? other.map((id) => tokenName(model, id)) : [];
  side.map.show({rows: n, columns: n, values, rowTexts: texts, columnTexts: texts, names: about});
  const change = values.map((value, i) => value - was[i]),
    limit = Math.max(largest(change), LEAST);
  side.gap.show({
    rows: n,
    columns: n,
    values: change,
    low: -limit,
    high: limit,
    ramp: "signed",
    rowTexts: texts,
    columnTexts: texts,
    names: (i, j) => `${about(i, j)}, change`,
  });
  const [before, after] = [plain, moved].map((trace) =>
    topTokens(earlyLogits(model, trace, depth), n - 1, model.vocabulary, model.vocabulary),
  );
  const shares = new Map(before.map(({id, share}) => [id, share]));
  side.bars.show(
    after.slice(0, SHOWN).map(({id, share}) => ({
      name: tokenName(model, id),
      label: said(id),
      share,
      cells: [percent(shares.get(id)), percent(share)],
    })),
  );
}

/** Pattern of one head, (n, n); what a causal mask hides is NaN. */
function visible(pattern, head, n, causal) {
  return pattern
    .slice(head * n * n, (head + 1) * n * n)
    .map((share, i) => (causal && i % n > Math.floor(i / n) ? NaN : share));
}

function percent(share) {
  return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

function draw(state, tools, parts) {
  const texts = (model) => bothTexts(model, state.get("text"), state.get("moved"));
  if (toBytes(state.get("text"), MOST).length < 3) {
    tools.say("Three letters or more are needed.");
    parts.encoder.textContent = "Write three letters or more.";
    return;
  }
  const causal = state.get("mask"),
    skip = state.get("skip") ? 1 : 0,
    position = state.get("position");
  const changes = causal && skip && position ? {} : {causal, skip, position};
  [state.get("left"), state.get("right")].forEach((name, i) => {
    const {title} = tools.entries.find((entry) => entry.name === name);
    drawSide(parts.sides[i], tools.model(name), title, texts(tools.model(name)), state, changes, parts.runs);
  });
  drawTable(tools, parts, texts);
}

/** The table of all models, one after another, so that the maps above never wait for it. */
function drawTable(tools, parts, texts) {
  const names = decoders(tools.entries),
    layers = Math.max(...tools.entries.map((entry) => entry.layers)),
    mine = ++parts.turn;
  const shown = titles(tools.entries),
    rows = names.map((name) => ({name, title: shown[name], changes: []}));
  const next = (at) => {
    // another text has come
    if (mine !== parts.turn) return;
    if (at < names.length) {
      const model = tools.model(names[at]),
        {ids, other} = texts(model);
      rows[at].changes = lastChanges(model, ids, other, parts.runs);
      parts.table.show(rows, layers);
      setTimeout(() => next(at + 1), 0);
      return;
    }
    parts.encoder.textContent = encoderLine(tools, texts);
    const none = rows.find(({name}) => name === "none");
    if (none)
      tools.say(
        `Without positions the last vector changes by ${shownChange(none.changes[0])} after layer 1, and by ${shownChange(none.changes.at(-1))} after the last.`,
      );
  };
  setTimeout(() => next(0), 0);
}

/** In an encoder without positions and mask, outputs move with their tokens. */
function encoderLine(tools, texts) {
  const entry = tools.entries.find(({kind}) => kind === "encoder");
  if (!entry) return "";
  const model = tools.model(entry.name),
    {ids, other, same} = texts(model),
    [one, two] = [run(model, ids), run(model, other)];
  // each byte of the rearranged text is paired with one of the same kind in the text
  const free = new Map();
  ids.forEach((id, p) => free.set(id, [...(free.get(id) ?? []), p]));
  const gaps = other.map((id, p) =>
    relativeChange(two.final, p * model.width, one.final, free.get(id).shift() * model.width, model.width),
  );
  let note = same
    ? ""
    : " The second text has other letters: in its place the two letters before the last are swapped.";
  if (ids.at(-1) !== other.at(-1))
    note += " The two texts end with different letters, which the table compares: keep the last one in its place.";
  return `An encoder without positions and without a mask: every output moves with its token and changes by ${shownChange(Math.max(...gaps))}.${note}`;
}
