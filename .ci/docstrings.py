"""Show our docstrings as they are meant: each of their parts a paragraph of its own."""

import re

import griffe

WORDS = re.compile(r"(Enters at|Source|Departs|Must|Should|May): (.*)")
SECTIONS = re.compile(r"(Args|Raises):$")


def spaced(text: str) -> str:
    """The same docstring in the form that the reader of Google's style knows."""
    lines: list[str] = []
    inside = False
    for line in text.replace(" Departs: ", "\nDeparts: ").splitlines():
        word = WORDS.match(line)
        if word or SECTIONS.match(line):
            lines.append("")
        inside = bool(word) or (inside and line.startswith(" "))
        if word:
            line = f"**{word[1]}:** {word[2]}"
        lines.append(line.strip() if inside else line)
    return "\n".join(lines)


class Docstrings(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Called for each class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = spaced(obj.docstring.value)
