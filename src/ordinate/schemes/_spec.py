"""Specification of a model's positional schemes, such as `rope:theta=5e5,learned+alibi`."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ordinate.core import catalog
from ordinate.core.checks import need, shown
from ordinate.core.member_spec import MemberSpec, made_from
from ordinate.core.tensors import build_module
from ordinate.schemes._composition import HeadGroups, Sum
from ordinate.schemes._scheme import Scheme

SchemeForm = str | Scheme | type[Scheme] | Sequence[str | Scheme | type[Scheme]]
"""What is taken for the schemes of a model: see `SchemeSpec`."""
# `/` and `+` separate only before a name; before a digit they belong to an option value (1e+5)
_HEADS = re.compile(r"/(?=[A-Za-z_])")
_PARTS = re.compile(r"\+(?=[A-Za-z_])")


@dataclass(frozen=True, eq=False)
class LayerSchemes:
    """Schemes of the layers of a model.

    Args:
        schemes: the distinct scheme instances.
        scheme_of_layer: for each layer, the index of its scheme.
    """

    schemes: list[Scheme]
    scheme_of_layer: list[int]


class SchemeSpec(MemberSpec):
    """Specification of the schemes of a model.

        rope                         one scheme
        rope:theta=5e5               with an option; further options after commas
        learned+alibi                sum of two schemes
        rope/none                    one for the first half of the heads, one for the second
        rope,rope,rope,none          one for each layer; repeated if there are more layers
        my_schemes:Spiral:turns=3    a class of the module `my_schemes`, with an option
        Spiral(turns=3)              an instance, each model gets a copy; or the class itself
        [Rope(...), "none"]          a list with one for each layer

    The names are those of `ordinate list`; packages that are installed can add to them by entry points in the group
    `ordinate.schemes`.
    """

    kind = Scheme
    package = "ordinate.schemes"

    @classmethod
    def text_of(cls, given: Any, sizes: Mapping[str, Any]) -> str:
        """Return the text of an instance or a class; that of a sum or of head groups names their parts."""
        if isinstance(given, Sum):
            return "+".join(cls.text_of(part, sizes) for part in given.members)
        if isinstance(given, HeadGroups):
            share = {name: sizes.get(name) and sizes[name] // len(given.members) for name in ("heads", "kv_heads")}
            return "/".join(cls.text_of(part, {**sizes, **share}) for part in given.members)
        return super().text_of(given, sizes)

    def build(self, sizes: Mapping[str, Any]) -> LayerSchemes:
        """Build the schemes.

        They are initialised under a forked random number generator, so that later random numbers do not depend on the
        specification.

        Args:
            sizes: model sizes, passed to schemes by parameter name; must include `layers`, `heads` and `kv_heads`.

        Raises:
            ValueError: an unknown scheme or option, layers or heads that cannot be split evenly, or a scheme listed
                for a later layer that acts before the first layer.
        """
        entries, count = self.entries, int(sizes["layers"])
        need(
            count % len(entries) == 0,
            "the number of schemes in a per-layer list must divide the number of layers",
            f"got {len(entries)} entries for {count} layers",
            f"list {count} schemes, or a number that divides it; separate schemes to compare by spaces, not commas",
        )
        schemes: list[Scheme] = []
        layers: list[int] = []
        shared: dict[Any, int] = {}
        with torch.random.fork_rng(devices=[]):
            for layer in range(count):
                entry, template = entries[layer % len(entries)], self.template(layer)
                key = entry, id(template)
                if key not in shared:
                    shared[key] = len(schemes)
                    made = None if template is None else _made(template, layer, sizes)
                    schemes.append(made or (_entry(entry, sizes) if not layer else _later(entry, entries[0], sizes)))
                layers.append(shared[key])
                if schemes[shared[key]].per_layer:
                    del shared[key]
        return LayerSchemes(schemes, layers)

    def split_schemes(self, layer: int) -> list[str]:
        """Return the single schemes of the entry of a layer, with their options."""
        entry = self.entries[layer % len(self.entries)]
        return [single for part in _PARTS.split(entry) for single in _HEADS.split(part)]

    def map_schemes(self, rewrite: Callable[[str, int], str]) -> "SchemeSpec":
        """Replace each single scheme by `rewrite(scheme, index of its entry)`."""
        return SchemeSpec(
            ",".join(
                "+".join(
                    "/".join(rewrite(single, layer) for single in _HEADS.split(part)) for part in _PARTS.split(entry)
                )
                for layer, entry in enumerate(self.entries)
            )
        )


def _made(template: Any, layer: int, sizes: Mapping[str, Any]) -> Scheme:
    scheme: Scheme = made_from(template, sizes)
    early = sorted({"remap_positions", "embed"} & set(scheme.hooks)) if layer else []
    need(
        not early,
        "a scheme that acts on token embeddings or positions must be listed for the first layer",
        f"got an instance of {type(scheme).__name__} for layer {layer + 1}, which uses {', '.join(early)}",
        "list it first, or give it as text",
    )
    return scheme


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
    kind = SchemeSpec.class_named(name)
    bound = catalog.bind(kind, options, sizes)
    return build_module(lambda: kind(**bound), options, f"the scheme {shown(text)}")
