// What the page claims, and its state in the address.
import assert from "node:assert/strict";
import {readFileSync} from "node:fs";
import test from "node:test";
import {readVectors} from "../../../src/ordinate/explorer/js/core/attack.js";
import {causalPattern, meanMass} from "../../../src/ordinate/explorer/js/core/handmade.js";
import {positionShares, readText} from "../../../src/ordinate/explorer/js/core/jobs.js";
import {reachable, readBack} from "../../../src/ordinate/explorer/js/core/mixing.js";
import {run} from "../../../src/ordinate/explorer/js/core/model.js";
import {randomNumbers, randomOrder} from "../../../src/ordinate/explorer/js/core/random.js";
import {closestPair, rowDistances, sinusoids} from "../../../src/ordinate/explorer/js/core/sinusoids.js";
import {byteName, toBytes, topTokens} from "../../../src/ordinate/explorer/js/core/text.js";
import {lossByByte} from "../../../src/ordinate/explorer/js/core/tokens.js";
import {inflate, readModel} from "../../../src/ordinate/explorer/js/core/weights.js";
import {recipe} from "../../../src/ordinate/explorer/js/panels/heads.js";
import {bothTexts, lastChanges, swapLastTwo} from "../../../src/ordinate/explorer/js/panels/order.js";
import {shortNumber} from "../../../src/ordinate/explorer/js/view/dom.js";
import {aligned, placeText, ticks} from "../../../src/ordinate/explorer/js/view/lines.js";
import {State, readFragment, readValue} from "../../../src/ordinate/explorer/js/view/state.js";

const golden = JSON.parse(readFileSync(process.env.GOLDEN, "utf8"));
const bytes = await inflate(golden.weights);
const model = (name) =>
  readModel(
    golden.entries.find((entry) => entry.name === name),
    bytes,
  );

test("two letters swapped before the last: nothing at depth 1 without positions, something at depth 2", () => {
  const ids = toBytes("return x"),
    other = swapLastTwo(ids);
  const [first, second] = lastChanges(model("none"), ids, other);
  assert.ok(first < 1e-12 && second > 1e-4, `${first}, ${second}`);
  for (const name of ["sinusoidal", "learned", "rope", "alibi", "t5"])
    assert.ok(lastChanges(model(name), ids, other)[0] > 1e-3, name);
});

test("without mask and positions outputs travel with their tokens", () => {
  const encoder = model("encoder"),
    ids = toBytes("abcd"),
    [one, two] = [run(encoder, ids), run(encoder, [...ids].reverse())];
  for (let i = 0; i < 4; i++) {
    for (let c = 0; c < encoder.width; c++)
      assert.ok(Math.abs(one.final[i * encoder.width + c] - two.final[(3 - i) * encoder.width + c]) < 1e-9);
  }
});

test("permuted with positions and mask, and undone: the same output; read back by the attack", () => {
  const ids = toBytes("secret text"),
    order = randomOrder(ids.length, 3),
    sent = order.map((p) => ids[p]);
  for (const name of ["learned", "rope", "alibi", "t5", "sinusoidal"]) {
    const one = model(name),
      plain = run(one, ids),
      moved = run(one, sent, {places: order, maskPlaces: order}),
      only = run(one, sent, {places: order});
    const gap = (trace) =>
      Math.max(
        ...order.flatMap((p, row) =>
          Array.from({length: one.width}, (_, c) =>
            Math.abs(trace.final[row * one.width + c] - plain.final[p * one.width + c]),
          ),
        ),
      );
    assert.ok(gap(moved) < 1e-9, name);
    assert.ok(gap(only) > 1e-3, name);
  }
  const learned = model("learned"),
    trace = run(learned, sent, {places: order, maskPlaces: order});
  assert.deepEqual(
    readVectors(learned, trace.embedding, ids.length),
    order.map((place, row) => ({id: sent[row], place})),
  );
});

test("from width 16 on the closest rows are neighbours, at 8 they are not", () => {
  const offset = (width) => closestPair(rowDistances(sinusoids(512, width, 10000), 512, width), 512).offset;
  assert.equal(offset(4), 19);
  assert.equal(offset(8), 63);
  for (const width of [16, 17, 64, 65]) assert.equal(offset(width), 1, `width ${width}`);
});

test("a scalar lets a head single out its two ends only; sinusoids every position", () => {
  const scalar = Float64Array.from({length: 64}, (_, p) => p / 63 - 0.5);
  assert.equal(reachable(scalar, 64, 1), 2);
  assert.equal(reachable(sinusoids(64, 16, 10000), 64, 16), 64);
});

test("what does not overlap is read back, what is not there is guessed", () => {
  const tokens = Float64Array.of(1, 0, 0, 0, 1, 0),
    places = Float64Array.of(0, 0, 1, 0, 0, -1),
    nothing = new Float64Array(6);
  assert.equal(readBack(tokens, places, [2, 2], 3, 0), 1);
  assert.equal(readBack(tokens, nothing, [2, 2], 3, 1), 0.5);
});

test("handmade heads meet their targets, and rotations miss the first token", () => {
  const mass = (relation, means, target) =>
    meanMass(causalPattern(recipe(relation, means, {offset: 2, strength: 4, width: 64}).scores, 64), 64, 16, target);
  for (const means of ["sinusoids", "rotation", "bias"]) assert.ok(mass("offset", means, (i) => i - 2) > 0.97, means);
  assert.ok(mass("first", "sinusoids", () => 0) > 0.97);
  assert.ok(mass("first", "bias", () => 0) > 0.97);
  assert.ok(mass("first", "rotation", () => 0) < 0.05);
});

test("the loss of a text is that of its bytes", () => {
  const ids = toBytes("import os\n"),
    one = model("rope"),
    bits = readText({model: one, ids, scaling: {name: "none"}});
  const {logits} = run(one, ids),
    wanted = topTokens(logits, 3, 256, 256).find(({id}) => id === ids[4]).share;
  assert.equal(bits.length, ids.length - 1);
  assert.ok(Math.abs(bits[3] + Math.log2(wanted)) < 1e-9);
});

test("long work says how far it is", () => {
  const shares = [],
    one = model("rope"),
    texts = [toBytes("import os"), toBytes("import re"), toBytes("import io"), toBytes("import ab")];
  readText({model: one, ids: toBytes("import os"), scaling: {name: "none"}}, (share) => shares.push(share));
  assert.deepEqual(shares, [1 / 3, 2 / 3, 1]);
  positionShares({model: one, texts, changes: {}}, (share) => shares.push(share));
  assert.deepEqual(shares.slice(3), [0.25, 0.5, 0.75, 1]);
});

test("the loss of a token is shared by its bytes", () => {
  const one = {tokens: {lengths: [0, 3, 1]}};
  assert.deepEqual([...lossByByte(one, [0, 1, 2, 0], [6, 2, 5])], [2, 2, 2, 2]);
  assert.deepEqual(lossByByte({}, [1, 2], [5]), [5]);
});

test("texts end with whole characters", () => {
  assert.deepEqual(toBytes("aπ", 2), [97]);
  assert.deepEqual(toBytes("aπ", 3), [97, 207, 128]);
  assert.deepEqual([32, 10, 97, 200].map(byteName), ["␣", "⏎", "a", "c8"]);
});

test("a rearranged text of other letters is replaced", () => {
  assert.equal(bothTexts({}, "abcd", "bacd").same, true);
  assert.deepEqual(bothTexts({}, "abcd", "xxxx"), {ids: [97, 98, 99, 100], other: [97, 99, 98, 100], same: false});
});

test("random numbers are those of their seed", () => {
  const [one, two] = [randomNumbers(1), randomNumbers(1)];
  assert.deepEqual([one(), one()], [two(), two()]);
  assert.deepEqual([...randomOrder(9, 5)].sort(), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
  assert.notDeepEqual(randomOrder(9, 5), randomOrder(9, 6));
});

const FIELDS = {
  n: {kind: "number", initial: 3, low: 1, high: 9, step: 2},
  on: {kind: "flag", initial: true},
  way: {kind: "choice", initial: "a", among: ["a", "b"]},
  text: {kind: "text", initial: "x", most: 4},
};

test("a view is the same after a walk through the address", () => {
  const state = new State("order", FIELDS);
  assert.equal(state.fragment(), "#panel=order");
  state.set({n: 7, on: false, way: "b", text: "a&=#"});
  const {panel, values} = readFragment(state.fragment());
  assert.equal(panel, "order");
  assert.deepEqual(new State("order", FIELDS, values).values, {n: 7, on: false, way: "b", text: "a&=#"});
});

test("what an address must not say is clamped or ignored", () => {
  const {values} = readFragment("#panel=order&n=1e9&on=maybe&way=__proto__&text=123456789&other=1");
  assert.deepEqual(new State("order", FIELDS, values).values, {n: 9, on: true, way: "a", text: "1234"});
  assert.equal(readValue({kind: "number", initial: 1, low: 0, high: 2, step: 0.1}, "0.3"), 0.3);
  assert.deepEqual(
    ["", "NaN", "Infinity", "-5", "4"].map((text) => readValue(FIELDS.n, text)),
    [3, 3, 3, 1, 5],
  );
});

test("listeners hear of changes only", () => {
  const state = new State("order", FIELDS);
  let heard = 0;
  state.on(() => {
    heard += 1;
  });
  state.set({n: 3});
  state.set({n: 5, way: "b"});
  assert.equal(heard, 1);
});

test("lines with places of their own stand in one table, gaps apart from places that a line does not have", () => {
  const lines = [
    {xs: [0, 1, 2], ys: [5, NaN, 7]},
    {xs: [1, 4], ys: [8, 9]},
  ];
  assert.deepEqual(aligned(lines), [
    [0, 1, 2, 4],
    [5, null, 7, undefined],
    [undefined, 8, undefined, 9],
  ]);
  assert.deepEqual(aligned([{xs: [3, 4], ys: [1, -Infinity]}]), [
    [3, 4],
    [1, null],
  ]);
  assert.deepEqual(aligned([]), [[]]);
});

test("numbers and ticks are round", () => {
  assert.deepEqual([0, 0.123456, -2, 1e-5, 1e-15, 123456].map(shortNumber), [
    "0",
    "0.123",
    "−2",
    "1e−5",
    "0",
    "123000",
  ]);
  assert.deepEqual([1024, -1008, 0.12345].map(placeText), ["1024", "−1008", "0.123"]);
  assert.deepEqual(ticks({low: 0, high: 1}), [0, 0.2, 0.4, 0.6000000000000001, 0.8, 1]);
  assert.deepEqual(ticks({low: 4, high: 64, log: true}), [4, 8, 16, 32, 64]);
});
