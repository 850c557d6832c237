"""What a mixer says about itself."""

import inspect

from ordinate.mixer import HOOKS
from ordinate.testing.mixer import MixerCase


def its_docstring_says_what_it_is_and_where_it_comes_from(case: MixerCase) -> None:
    """A first line for a newcomer, the formula, then Source and Departs."""
    text = inspect.getdoc(case.kind) if case.kind.__doc__ else None
    assert text, "it has no docstring"
    lines = text.splitlines()
    assert lines[0].strip().endswith("."), f"its first line is no sentence: {lines[0]!r}"
    for part in ("Source:", "Departs:"):
        assert part in text, f"its docstring does not say {part!r}"
    assert any(line.startswith("    ") and line.strip() for line in lines), "its docstring has no indented formula"


def it_declares_its_properties(case: MixerCase) -> None:
    """The hooks that it honours, whether it is equivariant, its forms, and a usual scheme that it honours."""
    kind = case.kind
    unknown = sorted(set(getattr(kind, "honours", {"nothing"})) - HOOKS)
    assert not unknown, f"it declares to honour {', '.join(unknown)}, which no scheme has"
    assert isinstance(getattr(kind, "equivariant", None), bool), "it does not declare equivariant"
    assert kind.causal or kind.bidirectional, "it declares no form at all"
    kind.check_scheme(case.scheme())


def its_options_are_keywords(case: MixerCase) -> None:
    """A model binds its sizes to them by name."""
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(case.kind).parameters.values()
    others = [parameter.name for parameter in parameters if parameter.kind in by_place]
    assert not others, f"its constructor takes {', '.join(others)} by place; put a * before them"


def one_seed_gives_one_mixer(case: MixerCase) -> None:
    """Whatever it draws at birth comes from PyTorch's generator."""
    first, second = case.mixer(), case.mixer()
    for (name, one), other in zip(first.named_parameters(), second.parameters(), strict=True):
        assert one.equal(other), f"{name} differs between two instances from one seed"


def tokens_of_another_width_are_refused(case: MixerCase) -> None:
    """By a ValueError that names both widths."""
    (where, *_) = case.geometries(3)
    said = None
    try:
        case.mixed(case.tokens(1, 3)[..., :31], where)
    except ValueError as error:
        said = str(error)
    assert said is not None, "it mixes 31 columns, made for 32"
    assert "31" in said, f"it refuses 31 columns without naming them: {said}"
