"""Replace the positional scheme of a trained model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

import torch
from torch import Tensor, nn

from ordinate.core.checks import need
from ordinate.models.backbone import LayerStack
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.scheme_defaults import replace_schemes
from ordinate.models.shape import Shape
from ordinate.schemes._composition import Composition
from ordinate.schemes._scheme import Scheme
from ordinate.schemes._spec import LayerSchemes, SchemeForm
from ordinate.schemes.learned import Learned

Model = TypeVar("Model", bound=LayerStack | EncoderDecoder)


@dataclass(frozen=True, eq=False)
class Transplant(Generic[Model]):
    """Result of `transplant`: the new model, and what happened to the parameters of the schemes.

    Args:
        model: new model; the original is unchanged.
        kept: names of parameters taken over from the old scheme.
        resized: names of tables interpolated to the new length.
        initialised: names of newly initialised, untrained parameters.
        dropped: names of parameters of the old scheme that the new one does not use.
    """

    model: Model
    kept: tuple[str, ...]
    resized: tuple[str, ...]
    initialised: tuple[str, ...]
    dropped: tuple[str, ...]


def transplant(
    model: Model,
    scheme: SchemeForm,
    *,
    locations: Sequence[str] | None = None,
    max_length: int | None = None,
    seed: int = 0,
) -> Transplant[Model]:
    """Replace the positional scheme of a model; all weights outside of the schemes are kept bit for bit.

        rope:spectrum=yarn        RoPE with YaRN scaling, for longer inputs
        none                      no positions (NoPE) besides the causal mask
        rope,rope,rope,none       schemes cycled over the layers, see `SchemeSpec`

    Options of a scheme that the model has already are kept unless the specification sets them. A spectrum is always
    set anew; if left out, its trained length is the old `max_length`, its factor the new over the old one. Parameters
    of a scheme of the same kind are taken over, learned tables resized; new parameters are initialised.

    Args:
        model: model; it is not changed.
        scheme: schemes: a text, an instance, a class, or a list of these, see `SchemeSpec`.
        locations: where to replace the scheme of an encoder-decoder: `encoder`, `decoder`, `cross`, or several; None:
            in the self-attention of encoder and decoder. Other models have one side.
        max_length: maximum input length of the new model; None: unchanged [tokens].
        seed: seed of newly initialised parameters.

    Raises:
        TypeError: not an Ordinate model.
        ValueError: an unknown side, scheme, spectrum or option (the nearest is suggested), a scheme that the mixers
            do not support, or one that needs other weights than the model has.
    Source: Chen et al. 2023, Extending Context Window of Large Language Models via Positional Interpolation,
        https://arxiv.org/abs/2306.15595; for learned tables Dosovitskiy et al. 2021, section 3.2,
        https://arxiv.org/abs/2010.11929.
    """
    if not isinstance(model, LayerStack | EncoderDecoder):
        raise TypeError(f"transplant needs an Ordinate model; got {type(model).__name__}; load one")
    shape = replace_schemes(model.shape, scheme, locations=locations, max_length=max_length)
    return transplant_to(model, shape, seed=seed)


def transplant_to(model: Model, shape: Shape, *, seed: int = 0) -> Transplant[Model]:
    """Replace the schemes of a model by those of a shape that is otherwise equal to its own.

    Args:
        model: model; it is not changed.
        shape: new hyperparameters, from `replace_schemes`.
        seed: seed of newly initialised parameters.

    Raises:
        ValueError: a scheme that the mixers do not support, or one that needs other weights than the model has.
    """
    other, recipes = _built(model, shape, seed)
    places = tuple(f"{side.module_path}." for side in shape.scheme_locations.values())
    _check_weights(
        model, other, places, ", ".join(repr(side.shape.scheme) for side in shape.scheme_locations.values())
    )
    drawn: dict[str, Tensor] = {}
    taken_over = _TakenOver({}, {}, set())
    for side, (before, recipe) in zip(shape.scheme_locations.values(), recipes, strict=True):
        schemes = nn.ModuleList(recipe.schemes).to(next(model.parameters()))
        drawn |= {f"{side.module_path}.{name}": tensor.detach() for name, tensor in schemes.state_dict().items()}
        for pair in dict.fromkeys(zip(before.scheme_of_layer, recipe.scheme_of_layer, strict=True)):
            old, new = (f"{side.module_path}.{index}" for index in pair)
            left = dict(_leaves(cast(Scheme, model.get_submodule(old)), old))
            taken_over.add(left, dict(_leaves(recipe.schemes[pair[1]], new)))
        other.set_submodule(side.module_path, schemes)
    had = model.state_dict()
    state = {name: tensor.detach().clone() for name, tensor in had.items() if not name.startswith(places)}
    other.load_state_dict(state | drawn | taken_over.kept | taken_over.resized, assign=True)
    learns = {name: parameter.requires_grad for name, parameter in model.named_parameters() if name in state}
    for name, parameter in other.named_parameters():
        parameter.requires_grad_(learns.get(name, True))
    born = tuple(name for name in drawn if name not in taken_over.kept and name not in taken_over.resized)
    dropped = tuple(name for name in had if name not in state and name not in taken_over.used)
    return Transplant(other.train(model.training), tuple(taken_over.kept), tuple(taken_over.resized), born, dropped)


def _built(model: Model, shape: Shape, seed: int) -> tuple[Model, list[tuple[LayerSchemes, LayerSchemes]]]:
    """Build the new model and the old schemes on the meta device, and the new schemes with values, for each side."""
    with torch.random.fork_rng(devices=[]):
        with torch.device("meta"):
            other = type(model)(shape)  # type: ignore[arg-type]
            before = [side.shape.make_schemes() for side in model.shape.scheme_locations.values()]
        torch.manual_seed(seed)
        return other, [
            (old, side.shape.make_schemes())
            for old, side in zip(before, shape.scheme_locations.values(), strict=True)
        ]


def _check_weights(model: nn.Module, other: nn.Module, places: tuple[str, ...], lines: str) -> None:
    """Raise unless all weights outside of the schemes have the same names and shapes in both models."""
    has, wants = ({name: tuple(x.shape) for name, x in one.state_dict().items()} for one in (model, other))
    unlike = [
        name for name in has.keys() | wants.keys() if not name.startswith(places) and has.get(name) != wants.get(name)
    ]
    need(
        not unlike,
        "a new scheme must leave the names and shapes of all other weights unchanged",
        f"{lines} needs another {', '.join(sorted(unlike)[:3])}",
        "choose a scheme that appends no columns, and leave max_length where a mixer has tables for it",
    )


@dataclass(frozen=True)
class _TakenOver:
    """Scheme parameters taken over from the old model: unchanged, resized, and the old names that were used."""

    kept: dict[str, Tensor]
    resized: dict[str, Tensor]
    used: set[str]

    def add(self, left: dict[str, Scheme], schemes: dict[str, Scheme]) -> None:
        """Match new schemes with old ones of the same class, by name; each old scheme is used once."""
        for name, new in schemes.items():
            found = next((place for place, old in left.items() if type(old) is type(new)), None)
            taken = self.kept | self.resized
            if found is None or any(f"{name}.{part}" in taken for part, _ in new.named_parameters()):
                continue
            old = left.pop(found)
            fitted = old.resized(new.max_length or 0) if isinstance(old, Learned) and _differ(old, new) else old
            if not _differ(fitted, new):
                into = self.kept if fitted is old else self.resized
                into.update({f"{name}.{part}": x.detach().clone() for part, x in fitted.named_parameters()})
                self.used.update(f"{found}.{part}" for part, _ in old.named_parameters())


def _differ(old: Scheme, new: Scheme) -> bool:
    """Whether the parameters differ in names or shapes."""
    return [(name, x.shape) for name, x in old.named_parameters()] != [
        (name, x.shape) for name, x in new.named_parameters()
    ]


def _leaves(scheme: Scheme, name: str) -> Iterator[tuple[str, Scheme]]:
    """Yield the elementary schemes of a (composed) scheme, with their module paths."""
    if not isinstance(scheme, Composition):
        yield name, scheme
        return
    for place, part in enumerate(scheme.members):
        yield from _leaves(part, f"{name}.parts.{place}")
