"""Griffe extension: render the sections of our docstrings (`DataSource:`, `Departs:` ...) as paragraphs."""

import re

import griffe

WORDS = re.compile(r"(Enters at|Source|Departs|Must|Should|May): (.*)")
SECTIONS = re.compile(r"(Args|Raises):$")


def spaced(text: str) -> str:
    """Convert a docstring to the form that the parser of Google's style expects."""
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
        """Handle each class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = spaced(obj.docstring.value)
