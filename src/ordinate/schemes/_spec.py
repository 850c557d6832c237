"""Specification of a model's positional schemes as a string, such as `rope:theta=5e5,learned+alibi`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ordinate.core import catalog
from ordinate.core.checks import need, shown
from ordinate.core.tensors import build_module
from ordinate.schemes._composition import HeadGroups, Sum
from ordinate.schemes._scheme import Scheme

_FOLDER = "ordinate.schemes"
# `,`, `/` and `+` separate only before a letter; before a digit they belong to an option value (1e+5)
_LAYERS = re.compile(r",(?=[a-z]\w*(?:[:+/,]|$))")
_HEADS = re.compile(r"/(?=[a-z])")
_PARTS = re.compile(r"\+(?=[a-z])")


@dataclass(frozen=True, eq=False)
class SchemeSpec:
    """Schemes built from a specification string, for a model of given sizes.

    Args:
        schemes: the distinct scheme instances.
        scheme_of_layer: for each layer, the index of its scheme.
    """

    schemes: list[Scheme]
    scheme_of_layer: list[int]

    @classmethod
    def build(cls, text: str, sizes: Mapping[str, Any]) -> "SchemeSpec":
        """Build the schemes of a specification string.

            rope                     one scheme
            rope:theta=5e5           with an option; further options after commas
            learned+alibi            sum of two schemes
            rope/none                one for the first half of the heads, one for the second
            rope,rope,rope,none      one for each layer; repeated if there are more layers

        Schemes are initialised under a forked random number generator, so that later random numbers do not depend on
        the specification.

        Args:
            text: the specification.
            sizes: model sizes, passed to schemes by parameter name; must include `layers`, `heads` and `kv_heads`.

        Raises:
            ValueError: an unknown scheme or option, layers or heads that cannot be split evenly, or a scheme listed
                for a later layer that acts before the first layer.
        """
        entries, count = cls.split_layers(text), int(sizes["layers"])
        need(
            count % len(entries) == 0,
            "the number of schemes in a per-layer list must divide the number of layers",
            f"got {len(entries)} entries for {count} layers",
            f"list {count} schemes, or a number that divides it; separate schemes to compare by spaces, not commas",
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
    def split_layers(text: str) -> list[str]:
        """Split a specification into its per-layer entries."""
        return _LAYERS.split(text)

    @staticmethod
    def split_schemes(entry: str) -> list[str]:
        """Split the entry of one layer into its single schemes, with their options."""
        return [single for part in _PARTS.split(entry) for single in _HEADS.split(part)]

    @classmethod
    def map_schemes(cls, text: str, rewrite: Callable[[str, int], str]) -> str:
        """Replace each single scheme of a specification by `rewrite(scheme, index of its entry)`."""
        return ",".join(
            "+".join(
                "/".join(rewrite(single, layer) for single in _HEADS.split(part)) for part in _PARTS.split(entry)
            )
            for layer, entry in enumerate(cls.split_layers(text))
        )


def _entry(text: str, sizes: Mapping[str, Any]) -> Scheme:
    """Build the scheme of one layer."""
    parts = [_part(part, sizes) for part in _PARTS.split(text)]
    return parts[0] if len(parts) == 1 else Sum(*parts)


def _part(text: str, sizes: Mapping[str, Any]) -> Scheme:
    """Build one scheme, or one for each group of heads."""
    groups = _HEADS.split(text)
    if len(groups) == 1:
        return _single(text, sizes)
    shares = {name: sizes[name] and max(1, sizes[name] // len(groups)) for name in ("heads", "kv_heads")}
    return HeadGroups(*(_single(group, {**sizes, **shares}) for group in groups), heads=sizes["heads"])


def _later(text: str, first: str, sizes: Mapping[str, Any]) -> Scheme:
    """Build the scheme of a later layer, without what acts before the first only (`remap_positions`, `embed`)."""
    scheme = _entry(text, sizes)
    if not {"remap_positions", "embed"} & set(scheme.hooks):
        return scheme
    kept = []
    for name in _PARTS.split(text):
        part = _part(name, sizes)
        once = {"remap_positions", "embed"} & set(part.hooks)
        need(
            not once or name in _PARTS.split(first),
            "a scheme that acts on token embeddings or positions must be listed for the first layer",
            f"got {name!r} for a later layer only",
            f"write {name}+{first} for the first layer",
        )
        if set(part.hooks) - {"remap_positions", "embed"} or not once:
            kept.append(part)
    return kept[0] if len(kept) == 1 else Sum(*kept)


def _single(text: str, sizes: Mapping[str, Any]) -> Scheme:
    name, options = catalog.parse(text)
    kind = catalog.load(_FOLDER, Scheme, name)
    bound = catalog.bind(kind, options, sizes)
    return build_module(lambda: kind(**bound), options, f"the scheme {shown(text)}")
