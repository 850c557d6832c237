"""Specification of a model's token mixers, such as `softmax:window=64,softmax`."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ordinate.core import catalog
from ordinate.core.checks import shown
from ordinate.core.member_spec import MemberSpec, made_from
from ordinate.core.tensors import build_module
from ordinate.mixers._mixer import Mixer

MixerForm = str | Mixer[Any] | type[Mixer[Any]] | Sequence[str | Mixer[Any] | type[Mixer[Any]]]
"""What is taken for the mixers of a model: see `MixerSpec`."""


class MixerSpec(MemberSpec):
    """Specification of the mixers of a model.

        softmax                      one mixer, built anew for each layer
        performer:features=64        with an option; further options after commas
        softmax,rwkv6                one for each layer; repeated if there are more layers
        my_mixers:Fold:depth=2       a class of the module `my_mixers`, with an option
        Fold(width=64, depth=2)      an instance, each layer gets a copy; or the class itself
        [Fold(width=64), "softmax"]  a list with one for each layer

    The names are those of `ordinate list mixers`; packages that are installed can add to them by entry points in the
    group `ordinate.mixers`.
    """

    kind = Mixer
    package = "ordinate.mixers"

    def class_of(self, layer: int) -> type[Mixer[Any]]:
        """Return the class of the mixer of a layer, counted from 0."""
        template = self.template(layer)
        if template is None:
            return self.class_named(self._parsed(layer)[0])
        return cast(Any, template if isinstance(template, type) else type(template))

    def takes(self, size: str, value: Any, layer: int) -> bool:
        """Return whether the mixer of a layer has a size of the model: it has that option, with no other value.

        Args:
            size: name of the option.
            value: the model's value, which is not None.
            layer: the layer, counted from 0.
        """
        kind, template = self.class_of(layer), self.template(layer)
        if size not in catalog.options(kind):
            return False
        if template is not None:
            return isinstance(template, type) or getattr(template, "options_given", {}).get(size) == value
        return catalog.read_options(kind, self._parsed(layer)[1]).get(size, value) == value

    def key_heads(self, given: int | None, heads: int) -> int | None:
        """Return the number of key heads of the model with its default filled in, if that changes no mixer.

        Args:
            given: the number; None: not given. A mixer with heads of its own then has as many key heads as these.
            heads: query heads of the model.
        """
        layers = [layer for layer in range(len(self.entries)) if "kv_heads" in catalog.options(self.class_of(layer))]
        own = any(not self.takes("heads", heads, layer) for layer in layers)
        return heads if given is None and not own else given

    def build(self, layer: int, sizes: Mapping[str, Any]) -> Mixer[Any]:
        """Build the mixer of a layer.

        Args:
            layer: the layer, counted from 0.
            sizes: model sizes, passed to the mixer by parameter name.

        Raises:
            ValueError: an unknown mixer or option.
        """
        template = self.template(layer)
        if template is not None:
            return made_from(template, {**sizes, "layer": layer})
        name, options = self._parsed(layer)
        kind = self.class_named(name)
        bound = catalog.bind(kind, options, {**sizes, "layer": layer})
        return build_module(lambda: kind(**bound), options, f"the mixer {shown(str(self))}")

    def _parsed(self, layer: int) -> tuple[str, dict[str, Any]]:
        return catalog.parse(self.entries[layer % len(self.entries)])
