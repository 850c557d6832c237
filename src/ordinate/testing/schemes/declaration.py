"""What a scheme says about itself."""

import inspect
import re

from ordinate.geometry import Geometry
from ordinate.testing.case import WIDTH, Case, marks
from ordinate.testing.check import InapplicableError
from ordinate.testing.tolerance import assert_as_close


def its_docstring_says_what_it_is_where_it_enters_and_where_it_comes_from(case: Case) -> None:
    """A first line for a newcomer, the formula, then Enters at, Source and Departs."""
    text = inspect.getdoc(case.kind) if case.kind.__doc__ else None
    assert text, "it has no docstring"
    lines = text.splitlines()
    assert lines[0].strip().endswith("."), f"its first line is no sentence: {lines[0]!r}"
    for part in ("Enters at:", "Source:", "Departs:"):
        assert part in text, f"its docstring does not say {part!r}"
    before = lines[: next(place for place, line in enumerate(lines) if "Enters at:" in line)]
    formula = any(line.startswith("    ") and line.strip() for line in before)
    assert formula, "its docstring has no formula: a line indented by four, above 'Enters at:'"


def its_citation_is_one_bibtex_entry(case: Case) -> None:
    """Braces that close, and at least a title and a year."""
    entry = case.kind.citation.strip()
    assert re.match(r"@\w+\{[\w:-]+,", entry), f"its citation is no BibTeX entry: {entry[:40]!r}"
    assert entry.count("{") == entry.count("}"), "the braces of its citation do not close"
    for field in ("title", "year"):
        assert re.search(rf"\b{field}\s*=", entry), f"its citation has no {field}"


def it_declares_its_properties(case: Case) -> None:
    """Axes, shift invariance, the longest input and the columns it claims."""
    scheme = case.scheme()
    assert isinstance(getattr(scheme, "shift_invariant", None), bool), "it does not declare shift_invariant"
    assert scheme.axes, "it serves no number of position axes"
    assert all(axes >= 1 for axes in scheme.axes), f"it declares position axes {scheme.axes}"
    assert scheme.max_length is None or scheme.max_length > 0, f"it declares max_length {scheme.max_length}"
    assert 0 <= scheme.claims < WIDTH, f"it claims {scheme.claims} of {WIDTH} columns"


def its_options_are_keywords(case: Case) -> None:
    """A model binds its sizes to them by name."""
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(case.kind).parameters.values()
    others = [parameter.name for parameter in parameters if parameter.kind in by_place]
    assert not others, f"its constructor takes {', '.join(others)} by place; put a * before them"


def its_state_holds_parameters_only(case: Case) -> None:
    """A buffer would be rounded by `.half()`, lost by a meta device, and saved with every model."""
    scheme = case.scheme()
    buffers = [name for name, _ in scheme.named_buffers()]
    assert not buffers, f"it holds buffers: {', '.join(buffers)}"
    names = sorted(name for name, _ in scheme.named_parameters())
    assert sorted(scheme.state_dict()) == names, f"its state dict holds {sorted(scheme.state_dict())}"


def one_seed_gives_one_scheme(case: Case) -> None:
    """Whatever it draws at birth comes from PyTorch's generator."""
    first, second = case.scheme(), case.scheme()
    for (name, one), other in zip(first.named_parameters(), second.parameters(), strict=True):
        assert one.equal(other), f"{name} differs between two instances from one seed"


def embed_appends_the_columns_it_claims(case: Case) -> None:
    """The token columns come first, so that an output head can read them back."""
    case.need_hook("embed")
    scheme = case.scheme()
    out = marks(scheme, case.place(Geometry.causal(5)))["embed"]
    assert out.shape == (1, 5, WIDTH), f"embed gives {tuple(out.shape)}, expected {(1, 5, WIDTH)}"
    if not scheme.claims:
        raise InapplicableError("it claims no columns")
    x = case.vectors(1, 5)
    assert_as_close(out[..., : x.shape[-1]], x, x, what="the token columns")
