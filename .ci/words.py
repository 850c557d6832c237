"""Reject words outside the vocabulary of docs/conventions.md: `python .ci/words.py`.

A short list of words that the project once used privately, each with the usual term. Docstrings, comments and strings
of the source are read, and the pages; identifiers are not.
"""

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BANNED = {
    r"born|birth": "initialised",
    r"whereabouts": "position, residual stream",
    r"gazes?|gazing": "attention pattern",
    r"the less the farther": "decay with distance",
    r"tells? apart|told apart": "distinguish",
    r"set aside": "held out",
    r"likeliest": "most probable",
    r"secrecy": "privacy",
    r"whoever": "the caller, the user",
    r"untold": "not reported",
    r"makings": "shared modules",
    r"goes? on where": "resumes",
    r"out of sight": "not observable",
    r"said again": "repeated",
    r"taken apart": "decomposed",
    r"asks? nothing of": "does not use",
    r"at birth": "at initialisation",
    r"standings?": "progress",
    r"forgetful": "mutant",
}
WORDS = "|".join(f"(?P<w{n}>{word})" for n, word in enumerate(BANNED))
PATTERN = re.compile(rf"\b(?:{WORDS})\b", re.IGNORECASE)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a page; of a source file the strings and comments."""
    content = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        # code in a page is not its language
        yield from enumerate((re.sub(r"`[^`]*`", "", line) for line in content.splitlines()), 1)
        return
    kinds = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type in kinds:
            yield from enumerate(token.string.splitlines(), token.start[0])


def main() -> int:
    """Print every use of a banned word, with the usual term; 1 if there is one."""
    folders = {"src": ("*.py", "*.jinja"), "docs": ("*.md",), "benchmarks": ("*.py",), ".ci": ("*.py",)}
    paths = [p for folder, kinds in folders.items() for kind in kinds for p in sorted((ROOT / folder).rglob(kind))]
    paths += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    found = 0
    for path in paths:
        if path == Path(__file__).resolve():
            continue
        for number, line in texts(path):
            for match in PATTERN.finditer(line):
                term = list(BANNED.values())[int((match.lastgroup or "w0")[1:])]
                print(f"{path.relative_to(ROOT)}:{number}: {match[0]!r} is not in the vocabulary; write: {term}")
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
