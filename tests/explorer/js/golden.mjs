// Numbers of the library and the models of the page: GOLDEN names a file that tests/explorer/conftest.py has written.
import assert from "node:assert/strict";
import {readFileSync} from "node:fs";
import {inflate, readModel} from "../../../src/ordinate/explorer/js/core/weights.js";

export const golden = JSON.parse(readFileSync(process.env.GOLDEN, "utf8"));
const bytes = await inflate(golden.weights);
export const models = new Map(golden.entries.map((entry) => [entry.name, readModel(entry, bytes)]));
export const TOLERANCE = 1e-6;

/** Fails with the place of the largest difference, relative to the largest number. */
export function near(found, wanted, what, tolerance = 1e-9) {
  assert.equal(found.length, wanted.length, what);
  let scale = 1;
  for (const value of wanted) scale = Math.max(scale, Math.abs(value ?? 0));
  wanted.forEach((value, i) => {
    if (value === null) assert.ok(!Number.isFinite(found[i]), `${what}[${i}] is hidden`);
    else assert.ok(Math.abs(found[i] - value) <= tolerance * scale, `${what}[${i}]: ${found[i]}, not ${value}`);
  });
}
