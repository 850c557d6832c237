"""Layers that share parameters."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from ordinate.core.checks import need


def check_owners(name: str, owners: Sequence[int], layers: int) -> None:
    """Raise unless these say for each layer which layer's it has: its own, or those of an earlier one.

    Args:
        name: name of the option: of parameters, or of keys and values.
        owners: the number of that layer, for each layer; (): each has its own.
        layers: number of layers.

    Raises:
        ValueError: other numbers, or an earlier layer that has none of its own.
    """
    known = all(0 <= owner <= layer and owners[owner] == owner for layer, owner in enumerate(owners[:layers]))
    need(
        not owners or (len(owners) == layers and known),
        f"{name} has for each of {layers} layers its own number, or that of an earlier layer that has its own",
        f"got {tuple(owners)}",
        f"{(0,) * layers} shares those of the first; leave it out to share none",
    )


class SharedLayers(nn.ModuleList):
    """Layers of which some have the parameters of others: a parameter that layers share is one tensor.

    Each layer is a module of its own, with its own buffers, so that hooks see it alone. `state_dict` has shared
    parameters once, under the name of the layer that they are of, and `load_state_dict` reads such a dictionary.

    Args:
        layers: the layers.
        owners: for each layer, the number of the layer whose parameters it has; (): each has its own.

    Raises:
        ValueError: layers that would share parameters, and have others.
    Source: Dehghani et al. 2019, Universal Transformers, https://arxiv.org/abs/1807.03819; Lan et al. 2020, ALBERT,
        section 3.1, https://arxiv.org/abs/1909.11942.
    """

    def __init__(self, layers: Iterable[nn.Module] = (), owners: Sequence[int] = ()) -> None:
        super().__init__(layers)
        self.owners = tuple(owners)
        self._left_out: list[tuple[str, str]] = []
        for layer, owner in self._others:
            mine, theirs = ({name: x.shape for name, x in _parameters(self[one]).items()} for one in (layer, owner))
            unlike = sorted(name for name in mine | theirs if mine.get(name) != theirs.get(name))
            must, came = "layers that share parameters have the same ones", f"layers {owner} and {layer} differ in"
            need(
                not unlike,
                must,
                f"{came} {', '.join(unlike[:3])}",
                "give them the same mixer, norms and feed-forward",
            )
            self._tie([(f"{layer}.{name}", f"{owner}.{name}") for name in mine])
        self.register_state_dict_post_hook(_leave_out)
        self.register_load_state_dict_pre_hook(_give_shared)
        self.register_load_state_dict_post_hook(_tie_again)

    def shared(self) -> list[tuple[str, str]]:
        """Return the names of the parameters that are those of another layer, with the names that they have there."""
        found = []
        for layer, owner in self._others:
            theirs = _parameters(self[owner])
            found += [
                (f"{layer}.{name}", f"{owner}.{name}")
                for name, parameter in _parameters(self[layer]).items()
                if theirs.get(name) is parameter
            ]
        return found

    @property
    def _others(self) -> list[tuple[int, int]]:
        """The layers with parameters of another one, and that one."""
        return [(layer, owner) for layer, owner in enumerate(self.owners) if layer != owner]

    def _tie(self, names: Iterable[tuple[str, str]]) -> None:
        for name, owner in names:
            place, _, leaf = name.rpartition(".")
            setattr(self.get_submodule(place), leaf, self.get_parameter(owner))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "SharedLayers":
        names = self.shared()
        super()._apply(fn, recurse)
        # a new parameter may have taken the place of each, as in `to_empty`
        self._tie(names)
        return self


def _parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    return dict(module.named_parameters(remove_duplicate=False))


def _leave_out(layers: SharedLayers, state: dict[str, Any], prefix: str, metadata: Mapping[str, Any]) -> None:
    for name, _ in layers.shared():
        state.pop(f"{prefix}{name}", None)


def _give_shared(layers: SharedLayers, state: dict[str, Any], prefix: str, *others: Any) -> None:
    left_out = [(name, owner) for name, owner in layers.shared() if f"{prefix}{name}" not in state]
    layers._left_out = left_out
    for name, owner in left_out:
        if f"{prefix}{owner}" in state:
            state[f"{prefix}{name}"] = state[f"{prefix}{owner}"]


def _tie_again(layers: SharedLayers, incompatible: Any) -> None:
    # with `assign`, new parameters have taken the places of the old ones
    layers._tie(layers._left_out)
    layers._left_out = []
