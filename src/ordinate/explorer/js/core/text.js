/** Texts as bytes, and bytes as something that can be read. */
import {surprisal, softmax} from "./arrays.js";

/** Bytes of a text in UTF-8, at most `most`, never half a character. */
export function toBytes(text, most = 64) {
  const bytes = new TextEncoder().encode(text);
  let end = Math.min(bytes.length, most);
  while (end < bytes.length && (bytes[end] & 0xc0) === 0x80) end--;
  return Array.from(bytes.subarray(0, end));
}

/** A byte as a short visible text. */
export function byteName(byte) {
  if (byte === 32) return "␣";
  if (byte === 10) return "⏎";
  if (byte === 9) return "⇥";
  return byte > 32 && byte < 127 ? String.fromCharCode(byte) : byte.toString(16).padStart(2, "0");
}

/** A byte in words, for screen readers. */
export function byteLabel(byte) {
  return {32: "space", 10: "new line", 9: "tab"}[byte] ?? byteName(byte);
}

/** The `count` most probable next tokens after row `row` of logits: [{id, share}]. */
export function topTokens(logits, row, vocabulary, count) {
  const shares = new Float64Array(vocabulary);
  softmax(logits.subarray(row * vocabulary, (row + 1) * vocabulary), shares, 0, vocabulary);
  return Array.from(shares, (share, id) => ({id, share}))
    .sort((a, b) => b.share - a.share)
    .slice(0, count);
}

/** Loss of each token after the first given those before it [bits], length n - 1. */
export function lossByPosition(logits, ids, vocabulary) {
  return Float64Array.from(
    {length: ids.length - 1},
    (_, p) => surprisal(logits, p * vocabulary, vocabulary, ids[p + 1]) / Math.LN2,
  );
}

/** Mean of numbers. */
export function mean(numbers) {
  return numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
}
