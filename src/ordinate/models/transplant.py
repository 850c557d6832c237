"""Exchange the positional schemes of a model that is made, and trained, already."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

import torch
from torch import Tensor, nn

from ordinate.checks import need
from ordinate.composition import Composition
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.line import with_schemes
from ordinate.models.shape import Shape
from ordinate.models.trunk import Layers
from ordinate.recipe import Recipe
from ordinate.scheme import Scheme
from ordinate.schemes.learned import Learned

Model = TypeVar("Model", bound=Layers | EncoderDecoder)


@dataclass(frozen=True, eq=False)
class Transplant(Generic[Model]):
    """A model with another positional scheme, and what became of the parameters of the schemes.

    Args:
        model: the model; the one it was made of is as it was.
        kept: names of parameters that the new scheme took over from the old one.
        resized: names of tables that were stretched or squeezed to the new length.
        born: names of parameters drawn anew: they have learned nothing yet.
        dropped: names of parameters of the old scheme that have no place in the new one.
    """

    model: Model
    kept: tuple[str, ...]
    resized: tuple[str, ...]
    born: tuple[str, ...]
    dropped: tuple[str, ...]


def transplant(
    model: Model,
    scheme: str,
    *,
    sides: Sequence[str] | None = None,
    max_length: int | None = None,
    seed: int = 0,
) -> Transplant[Model]:
    """The same model with another positional scheme: every weight outside of the schemes is kept, bit by bit.

        rope:spectrum=yarn        stretched for longer texts
        none                      no positions; the causal mask is left
        rope,rope,rope,none       a plan for the layers, as `Recipe.read` has it

    Plain options of a scheme that the model has already stay where the line leaves them open. A spectrum is given
    anew: its trained length, where left open, is the longest input of the model so far, its factor the new over the
    old one. Parameters of a scheme that stays are taken over, learned tables resized; new ones are drawn.

    Args:
        model: the model; it is not changed.
        scheme: the line of schemes.
        sides: where it is exchanged in an encoder-decoder: `encoder`, `decoder`, `cross`, or several; None: wherever
            one text is read, in the encoder and the decoder. Other models have one side.
        max_length: the longest input of the new model; None: as before [tokens].
        seed: of the parameters that are drawn.

    Raises:
        TypeError: not a model of ours.
        ValueError: an unknown side, scheme, spectrum or option (the nearest is named), a scheme that the mixers do
            not honour, or one that needs other weights than the model has.
    Source: Chen et al. 2023, Extending Context Window of Large Language Models via Positional Interpolation,
        https://arxiv.org/abs/2306.15595; for learned tables Dosovitskiy et al. 2021, section 3.2,
        https://arxiv.org/abs/2010.11929.
    """
    if not isinstance(model, Layers | EncoderDecoder):
        raise TypeError(f"schemes are exchanged in a model of ours; got {type(model).__name__}; load one")
    shape = with_schemes(model.shape, scheme, sides=sides, max_length=max_length)
    return transplant_to(model, shape, seed=seed)


def transplant_to(model: Model, shape: Shape, *, seed: int = 0) -> Transplant[Model]:
    """The same model with the schemes of this shape, which is otherwise its own.

    Args:
        model: the model; it is not changed.
        shape: as `with_schemes` gives it.
        seed: of the parameters that are drawn.

    Raises:
        ValueError: a scheme that the mixers do not honour, or one that needs other weights than the model has.
    """
    other, recipes = _made(model, shape, seed)
    places = tuple(f"{side.place}." for side in shape.sides.values())
    _check_weights(model, other, places, ", ".join(repr(side.shape.scheme) for side in shape.sides.values()))
    drawn: dict[str, Tensor] = {}
    heirs = _Heirs({}, {}, set())
    for side, (before, recipe) in zip(shape.sides.values(), recipes, strict=True):
        schemes = nn.ModuleList(recipe.schemes).to(next(model.parameters()))
        drawn |= {f"{side.place}.{name}": tensor.detach() for name, tensor in schemes.state_dict().items()}
        for pair in dict.fromkeys(zip(before.layers, recipe.layers, strict=True)):
            old, new = (f"{side.place}.{index}" for index in pair)
            left = dict(_leaves(cast(Scheme, model.get_submodule(old)), old))
            heirs.take_over(left, dict(_leaves(recipe.schemes[pair[1]], new)))
        other.set_submodule(side.place, schemes)
    had = model.state_dict()
    state = {name: tensor.detach().clone() for name, tensor in had.items() if not name.startswith(places)}
    other.load_state_dict(state | drawn | heirs.kept | heirs.resized, assign=True)
    learns = {name: parameter.requires_grad for name, parameter in model.named_parameters() if name in state}
    for name, parameter in other.named_parameters():
        parameter.requires_grad_(learns.get(name, True))
    born = tuple(name for name in drawn if name not in heirs.kept and name not in heirs.resized)
    dropped = tuple(name for name in had if name not in state and name not in heirs.used)
    return Transplant(other.train(model.training), tuple(heirs.kept), tuple(heirs.resized), born, dropped)


def _made(model: Model, shape: Shape, seed: int) -> tuple[Model, list[tuple[Recipe, Recipe]]]:
    """A model of this shape without numbers, and the schemes of each side, before, likewise, and now."""
    with torch.random.fork_rng(devices=[]):
        with torch.device("meta"):
            other = type(model)(shape)  # type: ignore[arg-type]
            before = [side.shape.make_schemes() for side in model.shape.sides.values()]
        torch.manual_seed(seed)
        return other, [
            (old, side.shape.make_schemes()) for old, side in zip(before, shape.sides.values(), strict=True)
        ]


def _check_weights(model: nn.Module, other: nn.Module, places: tuple[str, ...], lines: str) -> None:
    """Raise unless the weights outside of the schemes serve both."""
    has, wants = ({name: tuple(x.shape) for name, x in one.state_dict().items()} for one in (model, other))
    unlike = [
        name for name in has.keys() | wants.keys() if not name.startswith(places) and has.get(name) != wants.get(name)
    ]
    need(
        not unlike,
        "a scheme is exchanged where all other weights fit the new one",
        f"{lines} needs another {', '.join(sorted(unlike)[:3])}",
        "choose a scheme that appends no columns, and leave max_length where a mixer has tables for it",
    )


@dataclass(frozen=True)
class _Heirs:
    """Parameters of new schemes that old ones of their kind serve on with: as they are, and resized; and the old."""

    kept: dict[str, Tensor]
    resized: dict[str, Tensor]
    used: set[str]

    def take_over(self, left: dict[str, Scheme], schemes: dict[str, Scheme]) -> None:
        """Add those of these schemes, each by its name in a model; of those left, each serves once."""
        for name, new in schemes.items():
            found = next((place for place, old in left.items() if type(old) is type(new)), None)
            taken = self.kept | self.resized
            if found is None or any(f"{name}.{part}" in taken for part, _ in new.named_parameters()):
                continue
            old = left.pop(found)
            fit = old.resized(new.max_length or 0) if isinstance(old, Learned) and _other(old, new) else old
            if not _other(fit, new):
                into = self.kept if fit is old else self.resized
                into.update({f"{name}.{part}": x.detach().clone() for part, x in fit.named_parameters()})
                self.used.update(f"{found}.{part}" for part, _ in old.named_parameters())


def _other(old: Scheme, new: Scheme) -> bool:
    """Whether the parameters have other names or sizes."""
    return [(name, x.shape) for name, x in old.named_parameters()] != [
        (name, x.shape) for name, x in new.named_parameters()
    ]


def _leaves(scheme: Scheme, name: str) -> Iterator[tuple[str, Scheme]]:
    """The schemes that it is made of, by their names in a model."""
    if not isinstance(scheme, Composition):
        yield name, scheme
        return
    for place, part in enumerate(scheme.members):
        yield from _leaves(part, f"{name}.parts.{place}")
