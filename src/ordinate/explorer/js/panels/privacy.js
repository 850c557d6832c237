/** Secret? Permute the rows, compute, undo it: the same result. Then read the rows. */
import {relativeChange} from "../core/arrays.js";
import {readVectors} from "../core/attack.js";
import {run} from "../core/model.js";
import {randomOrder} from "../core/random.js";
import {encode, tokenLabel, tokenName} from "../core/tokens.js";
import {button, choice, controls, flag, textField} from "../view/controls.js";
import {element, shortNumber} from "../view/dom.js";
import {decoderField, titles} from "../view/menus.js";

const MOST = 40;

export function fields(entries) {
  return {
    text: {kind: "text", initial: "password = 'tr0ub4dor'", most: MOST},
    model: decoderField(entries, "learned", {own: true}),
    seed: {kind: "number", initial: 1, low: 1, high: 9999, step: 1},
    positions: {kind: "flag", initial: true},
    mask: {kind: "flag", initial: true},
  };
}

export function render({state, el, tools}) {
  const rows = {
    plain: tokensRow("Your text"),
    sent: tokensRow("What the server computes with: rows in random order"),
    read: tokensRow("What an attacker reads from those rows"),
  };
  const undone = element("dl", {class: "facts"}),
    attack = element("dl", {class: "facts"}),
    note = element("p", {class: "note"});
  el.append(
    controls(
      textField(state, "text", "Text"),
      choice(state, "model", "Model", titles(tools.entries)),
      button("Another order", () => state.set({seed: (state.get("seed") % 9999) + 1})),
    ),
    controls(
      flag(state, "positions", "Positions travel with their tokens"),
      flag(state, "mask", "So does the causal mask"),
    ),
    rows.plain.node,
    rows.sent.node,
    undone,
    element("h3", {}, "The attack"),
    element(
      "p",
      {class: "note"},
      "It knows the weights, as everybody does of a published model, and compares each row with every token at every position. No learning, no key.",
    ),
    rows.read.node,
    attack,
    note,
  );
  return () => draw(state, tools, {rows, undone, attack, note});
}

function tokensRow(title) {
  const host = element("div", {class: "bytes"});
  return {
    node: element("div", {}, element("p", {class: "note"}, title), host),
    show: (model, ids, right = null) => {
      host.replaceChildren(
        ...ids.map((id, p) =>
          element(
            "span",
            {class: right && !right[p] ? "wrong" : null, title: tokenLabel(model, id)},
            tokenName(model, id),
          ),
        ),
      );
    },
  };
}

function draw(state, tools, {rows, undone, attack, note}) {
  const model = tools.model(state.get("model")),
    ids = encode(model, state.get("text"), MOST),
    n = ids.length;
  if (!n) return;
  const order = randomOrder(n, state.get("seed")),
    sent = order.map((p) => ids[p]);
  const changes = {places: state.get("positions") ? order : null, maskPlaces: state.get("mask") ? order : null};
  const plain = run(model, ids),
    moved = run(model, sent, changes);
  const gap = Math.max(
    ...order.map((p, row) =>
      relativeChange(moved.final, row * model.width, plain.final, p * model.width, model.width),
    ),
  );
  const found = readVectors(model, moved.embedding, n),
    added = found[0].place !== null;
  const tokens = found.filter(({id}, row) => id === sent[row]).length,
    places = found.filter(({place}, row) => place === order[row]).length;
  rows.plain.show(model, ids);
  rows.sent.show(model, sent);
  const fact = (name, value) => element("div", {}, element("dt", {}, name), element("dd", {class: "big"}, value));
  undone.replaceChildren(
    fact(
      "change of the output, order undone",
      gap < 1e-9 ? "0, to the last digits" : `${shortNumber(gap)} of its norm`,
    ),
  );
  const read = added ? [...found].sort((a, b) => a.place - b.place) : found;
  const right = added ? read.map(({id, place}) => id === ids[place]) : read.map(({id}, row) => id === sent[row]);
  rows.read.show(
    model,
    read.map(({id}) => id),
    right,
  );
  attack.replaceChildren(
    fact("tokens read", `${tokens} of ${n}`),
    fact("places read", added ? `${places} of ${n}` : "none needed, none given"),
  );
  note.textContent = added
    ? "Rows carry their positions, so that the text is put back in order."
    : "This scheme adds nothing to the rows, so that their order is not in them; the tokens are. From deeper layers, where position has come in, order can be read too.";
  tools.say(`${tokens} of ${n} tokens are read.`);
}
