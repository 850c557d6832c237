// Numbers of the page beside those of the library: GOLDEN names a file that tests/explorer/conftest.py has written.
import assert from "node:assert/strict";
import test from "node:test";
import {
  alibiSlopes,
  fireShare,
  kerpleLog,
  kerplePower,
  t5Bucket,
} from "../../../src/ordinate/explorer/js/core/biases.js";
import {erf} from "../../../src/ordinate/explorer/js/core/erf.js";
import {firstScores, offsetScores} from "../../../src/ordinate/explorer/js/core/handmade.js";
import {explainedShare} from "../../../src/ordinate/explorer/js/core/jobs.js";
import {mergedMatrix, mergedProduct} from "../../../src/ordinate/explorer/js/core/merge.js";
import {run} from "../../../src/ordinate/explorer/js/core/model.js";
import {remembering} from "../../../src/ordinate/explorer/js/core/prefix.js";
import {sinusoids} from "../../../src/ordinate/explorer/js/core/sinusoids.js";
import {scaledRates} from "../../../src/ordinate/explorer/js/core/spectra.js";
import {toBytes} from "../../../src/ordinate/explorer/js/core/text.js";
import {encode, tokenName} from "../../../src/ordinate/explorer/js/core/tokens.js";
import {TOLERANCE, golden, models, near} from "./golden.mjs";

const {formulas} = golden;

for (const [name, texts] of Object.entries(golden.models)) {
  test(`every stage of ${name} is PyTorch's`, () => {
    for (const wanted of texts) {
      const trace = run(models.get(name), wanted.ids),
        what = `${name}, ${wanted.ids.length} bytes`;
      near(trace.embedding, wanted.embedding, `${what}: embedding`, TOLERANCE);
      wanted.layers.forEach((layer, depth) => {
        const mine = trace.layers[depth];
        for (const [stage, key] of [
          ["q", "q"],
          ["k", "k"],
          ["v", "v"],
          ["scores", "attn_scores"],
          ["pattern", "pattern"],
          ["z", "z"],
          ["residual", "residual"],
        ]) {
          near(mine[stage], layer[key], `${what}: ${stage} of layer ${depth}`, TOLERANCE);
        }
      });
      if (wanted.logits) near(trace.logits, wanted.logits, `${what}: logits`, TOLERANCE);
      if (wanted.final) near(trace.final, wanted.final, `${what}: final`, TOLERANCE);
    }
  });
}

test("a wrong forward pass fails the comparison", () => {
  const [wanted] = golden.models.rope,
    model = models.get("rope");
  for (const changes of [
    {causal: false},
    {skip: 1.001},
    {position: false},
    {scale: "none"},
    {queriesKeys: (q, k) => [k, q]},
    {scaling: {name: "linear", factor: 1.01}},
  ]) {
    assert.throws(() => near(run(model, wanted.ids, changes).logits, wanted.logits, "logits", TOLERANCE));
  }
  const wrong = {
    llama: [{kv_heads: 1}, {eps: 1e-3}, {feedforward: "geglu"}],
    mistral: [{windows: [6, 6]}, {windows: [null, null]}],
    qwen3: [{qk_eps: 1e-2}, {feedforward: "geglu_tanh"}],
    gpt2: [{score_scales: [0.288, 0.288]}, {norm: "rms"}, {feedforward: "gelu"}],
    gpt_neox: [{norm_position: "pre"}],
    gptj: [{norm_position: "pre"}],
    bloom: [{options: {flattest: 8.1}}],
    mpt: [{scale: 2}],
  };
  for (const [name, mutants] of Object.entries(wrong)) {
    for (const mutant of mutants) {
      const [text] = golden.models[name];
      assert.throws(
        () => near(run({...models.get(name), ...mutant}, text.ids).logits, text.logits, "logits", TOLERANCE),
        `${name} ${JSON.stringify(mutant)}`,
      );
    }
  }
  for (const [name, change] of [
    ["llama", {rates: [1, 0.1, 0.01]}],
    ["gptj", {layout: "half"}],
  ]) {
    const [text] = golden.models[name],
      one = models.get(name);
    assert.throws(
      () =>
        near(run({...one, options: {...one.options, ...change}}, text.ids).logits, text.logits, "logits", TOLERANCE),
      name,
    );
  }
  const [biased] = golden.models.alibi,
    changed = {...models.get("alibi"), options: {flattest: 8.1}};
  assert.throws(() => near(run(changed, biased.ids).logits, biased.logits, "logits", TOLERANCE));
});

test("an edited text, computed from the edit on, has the bits of the whole pass", () => {
  for (const name of ["none", "learned", "rope", "t5", "mistral", "gptj", "bloom"]) {
    const model = models.get(name),
      runs = remembering(3),
      whole = toBytes("return self.name");
    for (const text of [
      "return self.name",
      "return self.nmae",
      "return self.nmae2",
      "return",
      "x",
      "return other",
      "return",
    ]) {
      const ids = toBytes(text),
        found = runs(model, ids);
      assert.deepEqual(found, run(model, ids), `${name}: ${text}`);
      assert.equal(runs(model, ids), found);
    }
    assert.notDeepEqual(
      run(model, toBytes("return self.nmae"), {}, run(model, whole, {skip: 0.5})),
      run(model, toBytes("return self.nmae")),
    );
    assert.deepEqual(runs(model, whole, {causal: false}), run(model, whole, {causal: false}));
    assert.deepEqual(
      runs(model, toBytes("return self.nbme"), {causal: false}),
      run(model, toBytes("return self.nbme"), {causal: false}),
    );
  }
});

for (const [kind, {facts, texts}] of Object.entries(golden.tokenizers)) {
  test(`tokens of a tokenizer of the form ${kind}`, () => {
    for (const [text, ids] of texts) assert.deepEqual(encode({tokens: facts}, text, Infinity), ids, text);
    const [text, ids] = texts[0],
      start = Number(facts.first !== null);
    assert.equal(
      ids
        .slice(start)
        .map((id) => facts.texts[id])
        .join("")
        .trim(),
      text,
    );
    assert.ok(tokenName({tokens: facts}, ids.at(-1)).length > 0);
  });
}

test("sinusoids, for odd widths too", () => {
  for (const [width, wanted] of Object.entries(formulas.sinusoids))
    near(sinusoids(9, Number(width), 100), wanted, `width ${width}`);
});

test("slopes of ALiBi, also where heads are no power of two", () => {
  for (const [heads, wanted] of Object.entries(formulas.slopes))
    near(alibiSlopes(Number(heads)), wanted, `${heads} heads`);
});

test("buckets of T5", () => {
  assert.deepEqual(
    formulas.buckets.map((_, far) => t5Bucket(far)),
    formulas.buckets,
  );
});

test("scaled rotations", () => {
  for (const [name, wanted] of Object.entries(formulas.rates)) {
    near(scaledRates(name, {width: 24, theta: 10000, factor: 4, trained: 128}).rates, wanted, name);
  }
  assert.ok(
    Math.abs(scaledRates("yarn", {width: 24, theta: 10000, factor: 4, trained: 128}).magnitude - formulas.magnitude) <
      1e-12,
  );
});

test("KERPLE and FIRE", () => {
  for (const [form, bias] of [
    ["log", kerpleLog],
    ["power", kerplePower],
  ]) {
    const {p, a, bias: wanted} = formulas.kerple[form];
    near(
      wanted.map((_, far) => bias(far, p, a)),
      wanted,
      form,
    );
  }
  for (const {query, far, share} of formulas.fire)
    near(
      far.map((one) => fireShare(one, query, Math.fround(0.1))),
      share,
      `query ${query}`,
    );
});

test("the error function", () => {
  near(
    formulas.erf.map(([x]) => erf(x)),
    formulas.erf.map(([, y]) => y),
    "erf",
    1e-14,
  );
});

test("heads in closed form", () => {
  near(offsetScores(20, {width: 16, base: 10000, offset: 2, strength: 4}), formulas.heads.offset, "sinusoids");
  near(offsetScores(20, {width: 16, base: 10000, offset: 2, strength: 4}), formulas.heads.rope, "rotation", 1e-6);
  near(firstScores(20, {width: 16, base: 10000, strength: 0.5}), formulas.heads.first, "first token");
});

test("the share of position", () => {
  const {x, rows, width, share} = formulas.share;
  near(
    [
      explainedShare(
        x.map((one) => Float64Array.from(one)),
        rows,
        width,
      ),
    ],
    [share],
    "share",
  );
});

test("W_Q and W_K merge where no rotation lies between", () => {
  const ids = toBytes("abc de");
  for (const [name, same] of [
    ["none", true],
    ["alibi", true],
    ["rope", false],
  ]) {
    const model = models.get(name),
      stages = run(model, ids).layers[1],
      size = model.head_width,
      merged = mergedMatrix(model, 1, 2);
    let direct = 0;
    for (let c = 0; c < size; c++) direct += stages.q[(2 * 6 + 5) * size + c] * stages.k[(2 * 6 + 3) * size + c];
    assert.equal(Math.abs(mergedProduct(merged, stages.input, model.width, 5, 3) - direct) < 1e-9, same, name);
  }
});
