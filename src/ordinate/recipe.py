"""The positional schemes of a model, written in one line."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ordinate import catalog
from ordinate.checks import need
from ordinate.composition import Heads, Sum
from ordinate.scheme import Scheme

_FOLDER = "ordinate.schemes"
# a sign splits where a name follows it; in front of a number it belongs to an option (1e+5)
_LAYERS = re.compile(r",(?=[a-z]\w*(?:[:+/,]|$))")
_HEADS = re.compile(r"/(?=[a-z])")
_PARTS = re.compile(r"\+(?=[a-z])")


@dataclass(frozen=True, eq=False)
class Recipe:
    """What a line of schemes comes to in a model of certain sizes.

    Args:
        schemes: the schemes, each once.
        layers: for each layer, which of them serves it.
    """

    schemes: list[Scheme]
    layers: list[int]

    @classmethod
    def read(cls, text: str, sizes: Mapping[str, Any]) -> "Recipe":
        """Build the schemes that a line names.

            rope                     one scheme
            rope:theta=5e5           with an option; further ones follow after commas
            learned+alibi            two at once
            rope/none                the first half of the heads, and the second
            rope,rope,rope,none      a layer each, again from the first one on when there are more layers

        The random numbers that schemes are born with are drawn aside: what is drawn next is the same whatever the
        line says.

        Args:
            text: the line.
            sizes: what schemes may ask for by name; `layers`, `heads` and `kv_heads` among them.

        Raises:
            ValueError: an unknown scheme or option, layers or heads that cannot be shared out, or a later layer that
                would mark the tokens.
        """
        entries, count = cls.entries(text), int(sizes["layers"])
        need(
            count % len(entries) == 0,
            "a plan for the layers must fit them a whole number of times",
            f"got {len(entries)} entries for {count} layers",
            f"name {count}, or a number that divides it; what is to be compared stands apart, without a comma",
        )
        schemes: list[Scheme] = []
        layers: list[int] = []
        shared: dict[str, int] = {}
        with torch.random.fork_rng(devices=[]):
            for layer in range(count):
                entry = entries[layer % len(entries)]
                if entry not in shared:
                    shared[entry] = len(schemes)
                    schemes.append(_entry(entry, sizes) if not layer else _later(entry, entries[0], sizes))
                layers.append(shared[entry])
                if schemes[shared[entry]].per_layer:
                    del shared[entry]
        return cls(schemes, layers)

    @staticmethod
    def entries(text: str) -> list[str]:
        """What a line says of each layer."""
        return _LAYERS.split(text)

    @staticmethod
    def singles(entry: str) -> list[str]:
        """The schemes that the entry of a layer is made of, with their options."""
        return [single for part in _PARTS.split(entry) for single in _HEADS.split(part)]

    @classmethod
    def rewritten(cls, text: str, rewrite: Callable[[str, int], str]) -> str:
        """The line with each scheme written anew; `rewrite` is told it and the number of its entry."""
        return ",".join(
            "+".join(
                "/".join(rewrite(single, layer) for single in _HEADS.split(part)) for part in _PARTS.split(entry)
            )
            for layer, entry in enumerate(cls.entries(text))
        )


def _entry(text: str, sizes: Mapping[str, Any]) -> Scheme:
    """The scheme of one layer."""
    parts = [_part(part, sizes) for part in _PARTS.split(text)]
    return parts[0] if len(parts) == 1 else Sum(*parts)


def _part(text: str, sizes: Mapping[str, Any]) -> Scheme:
    """One scheme, or one for each group of heads."""
    groups = _HEADS.split(text)
    if len(groups) == 1:
        return _single(text, sizes)
    shares = {name: sizes[name] and max(1, sizes[name] // len(groups)) for name in ("heads", "kv_heads")}
    return Heads(*(_single(group, {**sizes, **shares}) for group in groups), heads=sizes["heads"])


def _later(text: str, first: str, sizes: Mapping[str, Any]) -> Scheme:
    """The scheme of a layer after the first, without what acts once, before the first layer."""
    scheme = _entry(text, sizes)
    if not {"place", "embed"} & set(scheme.hooks):
        return scheme
    kept = []
    for name in _PARTS.split(text):
        part = _part(name, sizes)
        once = {"place", "embed"} & set(part.hooks)
        need(
            not once or name in _PARTS.split(first),
            "what marks or moves the tokens acts before the first layer",
            f"got {name!r} in a later one",
            f"write {name}+{first} for the first layer",
        )
        if set(part.hooks) - {"place", "embed"} or not once:
            kept.append(part)
    return kept[0] if len(kept) == 1 else Sum(*kept)


def _single(text: str, sizes: Mapping[str, Any]) -> Scheme:
    name, options = catalog.parse(text)
    kind = catalog.load(_FOLDER, Scheme, name)
    return kind(**catalog.bind(kind, options, sizes))
