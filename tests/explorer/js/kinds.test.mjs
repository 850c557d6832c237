// Self-attention, cross-attention and a cache beside the library: GOLDEN names a file of tests/explorer/conftest.py.
import assert from "node:assert/strict";
import test from "node:test";
import {
  cachedNumbers,
  cachedStep,
  compareLastRows,
  multiplications,
} from "../../../src/ordinate/explorer/js/core/cached.js";
import {CHANGES, applies} from "../../../src/ordinate/explorer/js/core/changes.js";
import {crossAttention} from "../../../src/ordinate/explorer/js/core/cross.js";
import {layerStages} from "../../../src/ordinate/explorer/js/core/kinds.js";
import {mergedMatrix, mergedProduct} from "../../../src/ordinate/explorer/js/core/merge.js";
import {run} from "../../../src/ordinate/explorer/js/core/model.js";
import {remembering} from "../../../src/ordinate/explorer/js/core/prefix.js";
import {toBytes} from "../../../src/ordinate/explorer/js/core/text.js";
import {TOLERANCE, near as compare, golden, models} from "./golden.mjs";

const STAGES = ["q", "k", "v", "scores", "pattern", "z"];

const near = (found, wanted, what) => compare(found, wanted, what, TOLERANCE);

/** Stages of a layer of cross-attention with a change, as the panel has them. */
function crossed(name, layer, change = "trained") {
  const {ids, other} = golden.kinds[name],
    model = models.get(name);
  return layerStages("cross", {model, layer, change, ids, other}, (read) => run(model, read, CHANGES[change].how));
}

test("every decoder of the page is compared", () => {
  const decoders = golden.entries.filter(({kind}) => kind === "decoder").map(({name}) => name);
  assert.deepEqual(Object.keys(golden.kinds), decoders);
  assert.ok(decoders.length > 12);
});

for (const [name, wanted] of Object.entries(golden.kinds)) {
  test(`cross-attention of ${name} is the library's`, () => {
    wanted.cross.forEach((layer, depth) => {
      const {stages} = crossed(name, depth);
      for (const stage of STAGES) near(stages[stage], layer[stage], `${name}: ${stage} of layer ${depth}`);
    });
  });

  test(`a step of ${name} with a cache is the library's, and has the bits of the whole pass`, () => {
    const model = models.get(name),
      before = run(model, wanted.ids.slice(0, -1)),
      step = cachedStep(model, wanted.ids, before),
      whole = run(model, wanted.ids);
    wanted.cached.kept.forEach(({k, v}, layer) => {
      near(before.layers[layer].k, k, `${name}: keys of layer ${layer}`);
      near(before.layers[layer].v, v, `${name}: values of layer ${layer}`);
    });
    near(step.logits.slice(-model.vocabulary), wanted.cached.logits, `${name}: logits`);
    const {compared, different} = compareLastRows(step, whole);
    assert.ok(compared > 1000);
    assert.equal(different, 0);
    // nothing else of the earlier run can have been used
    assert.ok(step.layers[0].q.slice(0, model.head_width).every(Number.isNaN));
  });

  test(`changes of ${name} are the library's with changed weights`, () => {
    const model = models.get(name);
    for (const [change, {logits, cross}] of Object.entries(wanted.changes)) {
      assert.ok(applies(change, model));
      near(run(model, wanted.ids, CHANGES[change].how).logits, logits, `${name}, ${change}`);
      const {stages} = crossed(name, model.layers - 1, change);
      for (const stage of STAGES) {
        // the page has the scale behind the softmax in z, the changed weights in the output projection
        const factor = change === "outside" && stage === "z" ? wanted.scale : 1;
        near(
          stages[stage].map((value) => value / factor),
          cross[stage],
          `${name}, ${change}: ${stage}`,
        );
      }
    }
  });
}

test("multiplications are those that PyTorch counts, and a whole pass is the sum of its steps", () => {
  for (const [name, {ids, cached}] of Object.entries(golden.kinds)) {
    const model = models.get(name),
      steps = ids.map((_, p) => multiplications(model, p + 1, p).total);
    assert.equal(
      multiplications(model, ids.length).total,
      steps.reduce((sum, count) => sum + count, 0),
    );
    // over one key the library has nothing to multiply, and it does not leave out products beyond a window
    if (model.windows.every((window) => window === null))
      assert.deepEqual(steps.slice(1), cached.multiplications.slice(1), name);
    const kept = cached.kept.reduce((sum, {k, v}) => sum + k.length + v.length, 0);
    assert.equal(cachedNumbers(model, ids.length - 1), kept, name);
  }
});

test("a wrong cache or a wrong kind of attention fails the comparison", () => {
  const {ids, other, cross} = golden.kinds.rope,
    model = models.get("rope"),
    whole = run(model, ids);
  const wrong = run(model, [...ids.slice(0, 3), 65, ...ids.slice(4, -1)]);
  assert.ok(compareLastRows(cachedStep(model, ids, {...wrong, ids: ids.slice(0, -1)}), whole).different > 0);
  const [x, y] = [run(model, ids), run(model, other)].map((trace) => trace.layers[1].input);
  near(crossAttention(model, 1, x, y).pattern, cross[1].pattern, "pattern");
  for (const [source, changes] of [
    [x, {}],
    [y, {scale: "none"}],
    [y, {queriesKeys: (q, k) => [k, q]}],
  ])
    assert.throws(() => near(crossAttention(model, 1, x, source, changes).pattern, cross[1].pattern, "pattern"));
});

test("W_Q and W_K merge across two texts, and where they are exchanged or the same", () => {
  const model = models.get("alibi"),
    size = model.head_width;
  for (const [change, parts] of [
    ["trained", ["q", "k"]],
    ["tied", ["q", "q"]],
    ["swapped", ["k", "q"]],
  ]) {
    const {stages, input, source, n, keys} = crossed("alibi", 1, change),
      merged = mergedMatrix(model, 1, 2, parts);
    let direct = 0;
    for (let c = 0; c < size; c++) direct += stages.q[(2 * n + 5) * size + c] * stages.k[(2 * keys + 12) * size + c];
    assert.ok(Math.abs(mergedProduct(merged, input, model.width, 5, 12, source) - direct) < 1e-9, change);
  }
});

test("runs with a change of all are kept apart from others", () => {
  const model = models.get("none"),
    ids = toBytes("return x"),
    runs = remembering(3, CHANGES.tied.how);
  assert.deepEqual(runs(model, ids), run(model, ids, CHANGES.tied.how));
  assert.deepEqual(runs(model, toBytes("return y")), run(model, toBytes("return y"), CHANGES.tied.how));
  assert.equal(runs(model, ids), runs(model, ids));
});
