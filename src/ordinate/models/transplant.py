"""Exchange the positional scheme of a model that is made, and trained, already."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast, get_args

import torch
from torch import Tensor, nn

from ordinate import catalog
from ordinate.checks import need, need_positive
from ordinate.composition import Composition
from ordinate.models.shape import Shape
from ordinate.models.trunk import Layers
from ordinate.recipe import Recipe
from ordinate.scheme import Scheme
from ordinate.schemes.learned import Learned
from ordinate.spectrum import Spectrum

Model = TypeVar("Model", bound=Layers)
_SCHEMES = "schemes."


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


def transplant(model: Model, scheme: str, *, max_length: int | None = None, seed: int = 0) -> Transplant[Model]:
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
        max_length: the longest input of the new model; None: as before [tokens].
        seed: of the parameters that are drawn.

    Raises:
        TypeError: not a model of ours.
        ValueError: an unknown scheme, spectrum or option (the nearest is named), a scheme that the mixers do not
            honour, or one that needs other weights than the model has.
    Source: Chen et al. 2023, Extending Context Window of Large Language Models via Positional Interpolation,
        https://arxiv.org/abs/2306.15595; for learned tables Dosovitskiy et al. 2021, section 3.2,
        https://arxiv.org/abs/2010.11929.
    """
    if not isinstance(model, Layers):
        raise TypeError(
            f"schemes are exchanged in a Decoder, Encoder or Vision; got {type(model).__name__}; load one"
        )
    need_positive("max_length", 1 if max_length is None else max_length)
    line = completed(scheme, model.shape, max_length)
    shape = replace(model.shape, scheme=line, max_length=max_length or model.shape.max_length)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        with torch.device("meta"):
            other = type(model)(shape)  # type: ignore[call-arg]
        schemes = nn.ModuleList(shape.make_schemes().schemes).to(next(model.parameters()))
    _check_weights(model, other, scheme)
    other.schemes = schemes
    kept, resized, dropped = _taken_over(model, schemes, other.scheme_of_layer)
    state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items() if not _of_schemes(name)}
    given = {f"{_SCHEMES}{name}": tensor.detach() for name, tensor in schemes.state_dict().items()}
    other.load_state_dict(state | given | kept | resized, assign=True)
    learns = {name: parameter.requires_grad for name, parameter in model.named_parameters() if name in state}
    for name, parameter in other.named_parameters():
        parameter.requires_grad_(learns.get(name, True))
    born = tuple(name for name in given if name not in kept and name not in resized)
    return Transplant(other.train(model.training), tuple(kept), tuple(resized), born, dropped)


def completed(line: str, shape: Shape, max_length: int | None = None) -> str:
    """The line, with what it leaves open as a model of this shape has it.

    Args:
        line: the new line of schemes.
        shape: of the model so far.
        max_length: the longest input from now on; None: as before [tokens].
    """
    old = Recipe.entries(shape.scheme)

    def complete(text: str, layer: int) -> str:
        name, given = catalog.parse(text)
        kind = catalog.load("ordinate.schemes", Scheme, name)
        known = catalog.options(kind)
        before: dict[str, Any] = {}
        for part in Recipe.singles(old[layer % len(old)]):
            other, had = catalog.parse(part)
            if other == name:
                before = {key: value for key, value in had.items() if not _is_spectrum(known[key].annotation)}
        spectra = {
            key: _spectrum(value, shape.max_length, max_length)
            for key, value in given.items()
            if key in known and _is_spectrum(known[key].annotation)
        }
        return _written(name, before | given | spectra)

    return Recipe.rewritten(line, complete)


def _spectrum(given: Any, trained: int, longest: int | None) -> dict[str, Any]:
    """The numbers of a spectrum, with the lengths of the model where they are left open."""
    numbers = dict(given) if isinstance(given, dict) else {"name": given}
    known = catalog.options(catalog.load("ordinate.spectra", Spectrum, numbers["name"]))
    if "trained_length" in known:
        numbers.setdefault("trained_length", trained)
    try:
        Spectrum.read(numbers)
    except ValueError:
        if longest is None or "factor" not in known or "factor" in numbers:
            raise
        # some stretch by a factor that they are told, others find it themselves
        numbers["factor"] = longest / trained
    return numbers


def _is_spectrum(annotation: Any) -> bool:
    return Spectrum in (annotation, *get_args(annotation))


def _written(name: str, options: dict[str, Any]) -> str:
    said = []
    for key, value in options.items():
        inner = dict(value) if isinstance(value, dict) else {"name": value}
        said.append(f"{key}={inner.pop('name')}")
        said += [f"{key}.{part}={number}" for part, number in inner.items()]
    return f"{name}:{','.join(said)}" if said else name


def _of_schemes(name: str) -> bool:
    return name.startswith(_SCHEMES)


def _check_weights(model: Layers, other: Layers, scheme: str) -> None:
    """Raise unless the weights outside of the schemes serve both."""
    has, wants = ({name: tuple(x.shape) for name, x in one.state_dict().items()} for one in (model, other))
    unlike = [
        name for name in has.keys() | wants.keys() if not _of_schemes(name) and has.get(name) != wants.get(name)
    ]
    need(
        not unlike,
        "a scheme is exchanged where all other weights fit the new one",
        f"{scheme!r} needs another {', '.join(sorted(unlike)[:3])}",
        "choose a scheme that appends no columns, and leave max_length where a mixer has tables for it",
    )


def _taken_over(
    model: Layers, schemes: nn.ModuleList, of_layer: list[int]
) -> tuple[dict[str, Tensor], dict[str, Tensor], tuple[str, ...]]:
    """Parameters of old schemes that new ones of their kind serve on with: as they are, and resized; and the rest."""
    kept: dict[str, Tensor] = {}
    resized: dict[str, Tensor] = {}
    used: set[str] = set()
    for before, after in dict.fromkeys(zip(model.scheme_of_layer, of_layer, strict=True)):
        left = dict(_leaves(cast(Scheme, model.schemes[before]), f"{_SCHEMES}{before}"))
        for name, new in _leaves(cast(Scheme, schemes[after]), f"{_SCHEMES}{after}"):
            found = next((place for place, old in left.items() if type(old) is type(new)), None)
            if found is None or any(f"{name}.{part}" in kept | resized for part, _ in new.named_parameters()):
                continue
            old = left.pop(found)
            fit = old.resized(new.max_length or 0) if isinstance(old, Learned) and _other(old, new) else old
            if not _other(fit, new):
                place = kept if fit is old else resized
                place.update({f"{name}.{part}": x.detach().clone() for part, x in fit.named_parameters()})
                used |= {f"{found}.{part}" for part, _ in old.named_parameters()}
    dropped = (name for name in model.state_dict() if _of_schemes(name) and name not in used)
    return kept, resized, tuple(dropped)


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
