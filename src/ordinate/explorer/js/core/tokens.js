/** Texts as tokens of a model, and tokens as something that can be read. A model without tokenizer reads bytes. */
import {byteLabel, byteName, toBytes} from "./text.js";

// how GPT-2 cuts a text into words
const WORDS = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;
const SPACE = "▁";

/** Token ids of a text, at most `most`. */
export function encode(model, text, most = 64) {
  const {tokens} = model;
  if (!tokens) return toBytes(text, most);
  if (!text) return [];
  const ids = [
    ...(tokens.first === null ? [] : [tokens.first]),
    ...wordsOf(tokens, text).flatMap((word) => merged(tokens, lettersOf(tokens, word))),
  ];
  return ids.slice(0, most);
}

/** A token as a short visible text. */
export function tokenName(model, id) {
  if (!model.tokens) return byteName(id);
  const text = model.tokens.texts[id];
  return text
    ? Array.from(text, (letter) => (letter < "\u007f" ? byteName(letter.charCodeAt(0)) : letter)).join("")
    : `#${id}`;
}

/** A token in words, for screen readers. */
export function tokenLabel(model, id) {
  return model.tokens ? tokenName(model, id) : byteLabel(id);
}

/** Loss of each byte that tokens stand for, from the loss of each token after the first: shared by its bytes equally. */
export function lossByByte(model, ids, losses) {
  if (!model.tokens) return losses;
  return Float64Array.from(
    Array.from(losses).flatMap((loss, p) => {
      const length = model.tokens.lengths[ids[p + 1]];
      return Array.from({length}, () => loss / length);
    }),
  );
}

function wordsOf({words, prefix, bytes}, text) {
  if (bytes) {
    const whole = prefix && !text.startsWith(" ") ? ` ${text}` : text;
    return words === "gpt2" ? whole.match(WORDS) : [whole];
  }
  const spaced = text.replaceAll(" ", SPACE),
    whole = prefix && !(words === "spaces" && spaced.startsWith(SPACE)) ? SPACE + spaced : spaced;
  return words === "spaces" ? whole.split(new RegExp(`(?=${SPACE})`, "u")) : [whole];
}

/** Tokens of the letters of a word: of its bytes, or of its characters, those without a token as bytes. */
function lettersOf({bytes, letters, fallback, unknown}, word) {
  if (bytes)
    return toBytes(word, Infinity)
      .map((byte) => letters[byte])
      .filter((id) => id >= 0);
  return Array.from(word).flatMap((letter) => {
    if (Object.hasOwn(letters, letter)) return [letters[letter]];
    const parts = fallback ? toBytes(letter, Infinity).map((byte) => fallback[byte]) : [-1];
    return parts.every((id) => id >= 0) ? parts : unknown >= 0 ? [unknown] : [];
  });
}

/** Byte-pair encoding (Sennrich et al. 2016): join the pair that was joined first in training, until there is none. */
function merged(tokens, letters) {
  const ids = [...letters];
  for (;;) {
    let best = Infinity,
      at = -1;
    for (let i = 0; i + 1 < ids.length; i++) {
      const rank = ranks(tokens).get(`${ids[i]} ${ids[i + 1]}`) ?? Infinity;
      if (rank < best) [best, at] = [rank, i];
    }
    if (at < 0) return ids;
    ids.splice(at, 2, tokens.merges[3 * best + 2]);
  }
}

/** Rank of each pair, made once for a tokenizer. */
function ranks(tokens) {
  if (!tokens.ranks) {
    tokens.ranks = new Map();
    for (let rank = 0; 3 * rank < tokens.merges.length; rank++)
      tokens.ranks.set(`${tokens.merges[3 * rank]} ${tokens.merges[3 * rank + 1]}`, rank);
  }
  return tokens.ranks;
}
