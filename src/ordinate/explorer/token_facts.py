"""The tokenizer of a model as the page reads it: byte-pair encodings as `core/tokens.js` has them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ordinate.core.checks import need, shown
from ordinate.data.tokenizer import FILE, load_tokenizer
from ordinate.data.tokenizers.bpe import Bpe
from ordinate.data.tokenizers.bytes import Bytes
from ordinate.data.tokenizers.published import Published

# one for each byte
BYTES = 256
SPACE = "▁"
REMEDY = "give a model that reads bytes, or such a tokenizer"
# a tokenizer for which the space before words is a letter, as transformers writes that of Llama
LLAMA_NORMALIZER = [
    {"type": "Prepend", "prepend": SPACE},
    {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
]
# options of the encoding that change its tokens, and what they must be
PLAIN = {"dropout": (None, 0.0), "continuing_subword_prefix": (None, ""), "end_of_word_suffix": (None, "")}
PLAIN |= {"ignore_merges": (None, False)}


def read_token_facts(folder: Path, vocabulary: int) -> dict[str, Any] | None:
    """Return what the page must know of the tokenizer in a folder; None: the model reads bytes.

    Args:
        folder: of the model.
        vocabulary: tokens of the model.

    Raises:
        ValueError: no tokenizer for a vocabulary that is not bytes, or one that the page does not have.
    """
    if not (folder / FILE).is_file():
        must, came = f"a model of other tokens than {BYTES} bytes needs its {FILE}", f"{folder} has none"
        need(vocabulary == BYTES, must, f"{came}, and the model {vocabulary} tokens", "copy it there")
        return None
    tokenizer = load_tokenizer(folder)
    if isinstance(tokenizer, Bytes):
        return None
    must = "the explorer reads byte-pair encodings"
    need(isinstance(tokenizer, Bpe | Published), must, f"got tokenizer {tokenizer.kind}", REMEDY)
    facts = encoding_facts(tokenizer.state())
    must = "a tokenizer must have tokens of its model only"
    need(len(facts["texts"]) <= vocabulary, must, f"got {len(facts['texts'])} for {vocabulary}", "copy both again")
    return {**facts, "first": tokenizer.prefix_token}


def encoding_facts(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the encoding of a tokenizer.json: letters, merges, and the text of each token.

    Raises:
        ValueError: the part of the file that the page does not have.
    """
    model = state["model"]
    for name, plain in {"type": ("BPE",), **PLAIN}.items():
        must = f"the explorer reads tokenizers with model.{name}={plain[0]!r}"
        need(model.get(name) in plain, must, f"got {shown(model.get(name))}", REMEDY)
    form, by_name = _form(state), dict(model["vocab"])
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    merges = [by_name[part] for left, right in pairs for part in (left, right, left + right)]
    by_name |= {added["content"]: added["id"] for added in state.get("added_tokens", [])}
    special = {added["id"] for added in state.get("added_tokens", []) if added["special"]}
    names = {token: name for name, token in by_name.items()}
    size = max(names) + 1
    texts = [_text(names.get(token, ""), form["bytes"], token in special) for token in range(size)]
    return {
        **form,
        "merges": merges,
        "texts": [text.decode("utf-8", "replace") for text, _ in texts],
        "lengths": [length for _, length in texts],
        "letters": _letters(by_name, form["bytes"]),
        "fallback": [by_name.get(f"<0x{byte:02X}>", -1) for byte in range(BYTES)] if model["byte_fallback"] else None,
        "unknown": by_name.get(model["unk_token"], -1) if model.get("unk_token") else -1,
    }


def _form(state: Mapping[str, Any]) -> dict[str, Any]:
    """How a text is cut into words, and whether their letters are bytes."""
    normalizer, before = state.get("normalizer"), state.get("pre_tokenizer")
    steps = (normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]) if normalizer else []
    if steps == LLAMA_NORMALIZER and before is None:
        return {"bytes": False, "words": "none", "prefix": True}
    must = "the explorer reads tokenizers without normalizer, or with that of Llama"
    need(not steps, must, f"got normalizer {[step['type'] for step in steps]}", REMEDY)
    before = before or {"type": None}
    kind = before["type"]
    must = "the explorer reads tokenizers with pre_tokenizer ByteLevel or Metaspace"
    need(kind in ("ByteLevel", "Metaspace"), must, f"got {kind}", REMEDY)
    if kind == "ByteLevel":
        words = "gpt2" if before.get("use_regex", True) else "none"
        return {"bytes": True, "words": words, "prefix": before["add_prefix_space"]}
    own = before["replacement"] == SPACE
    need(own, f"Metaspace of a tokenizer must replace spaces by {SPACE}", f"got {before['replacement']}", REMEDY)
    prefix = before.get("prepend_scheme", "always") != "never"
    return {"bytes": False, "words": "spaces" if before.get("split", True) else "none", "prefix": prefix}


def _letters(by_name: Mapping[str, int], in_bytes: bool) -> dict[str, int] | list[int]:
    """Token of each byte, or of each character that has one."""
    if in_bytes:
        return [by_name.get(letter, -1) for letter in BYTE_LETTERS]
    return {name: token for name, token in by_name.items() if len(name) == 1}


def _text(name: str, in_bytes: bool, special: bool) -> tuple[bytes, int]:
    """Text of a token, and how many bytes of a text it stands for."""
    if special:
        return name.encode(), 0
    if in_bytes:
        found = bytes(LETTER_BYTES[letter] for letter in name if letter in LETTER_BYTES)
        return found, len(found)
    if len(name) == len("<0x00>") and name.startswith("<0x") and name.endswith(">"):
        return bytes([int(name[3:5], 16)]), 1
    text = name.replace(SPACE, " ").encode()
    return text, len(text)


def _byte_letters() -> list[str]:
    """The character that stands for each byte in byte-level encodings (GPT-2): itself where it is visible."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    rest = [byte for byte in range(BYTES) if byte not in visible]
    return [chr(byte) if byte in visible else chr(BYTES + rest.index(byte)) for byte in range(BYTES)]


BYTE_LETTERS = _byte_letters()
LETTER_BYTES = {letter: byte for byte, letter in enumerate(BYTE_LETTERS)}
