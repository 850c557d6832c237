"""Docstring, citation and declared properties of a scheme."""

import inspect
import re

from ordinate.core.geometry import Geometry
from ordinate.testing.case import WIDTH, SchemeCase, hook_outputs
from ordinate.testing.check import InapplicableError
from ordinate.testing.tolerance import assert_as_close


def docstring_has_a_summary_a_formula_and_a_source(case: SchemeCase) -> None:
    """A summary line, the formula, then Enters at, Source and Departs."""
    text = inspect.getdoc(case.kind) if case.kind.__doc__ else None
    assert text, "it has no docstring"
    lines = text.splitlines()
    assert lines[0].strip().endswith("."), f"its summary line does not end with a period: {lines[0]!r}"
    for part in ("Enters at:", "Source:", "Departs:"):
        assert part in text, f"its docstring has no section {part!r}"
    before = lines[: next(place for place, line in enumerate(lines) if "Enters at:" in line)]
    formula = any(line.startswith("    ") and line.strip() for line in before)
    assert formula, "its docstring has no formula: a line indented by four, above 'Enters at:'"


def citation_is_one_bibtex_entry(case: SchemeCase) -> None:
    """With balanced braces, and at least a title and a year."""
    entry = case.kind.citation.strip()
    assert re.match(r"@\w+\{[\w:-]+,", entry), f"its citation is not a BibTeX entry: {entry[:40]!r}"
    assert entry.count("{") == entry.count("}"), "the braces of its citation are not balanced"
    for field in ("title", "year"):
        assert re.search(rf"\b{field}\s*=", entry), f"its citation has no {field}"


def properties_are_declared(case: SchemeCase) -> None:
    """Position axes, shift invariance, maximum length and appended columns, with valid values."""
    scheme = case.scheme()
    assert isinstance(getattr(scheme, "shift_invariant", None), bool), "it does not declare shift_invariant"
    assert scheme.axes, "it declares no supported number of position axes"
    assert all(axes >= 1 for axes in scheme.axes), f"it declares position axes {scheme.axes}"
    assert scheme.max_length is None or scheme.max_length > 0, f"it declares max_length {scheme.max_length}"
    assert 0 <= scheme.appended_width < WIDTH, f"it appends {scheme.appended_width} of {WIDTH} columns"


def options_are_keyword_only(case: SchemeCase) -> None:
    """Because a model binds its sizes by name."""
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(case.kind).parameters.values()
    others = [parameter.name for parameter in parameters if parameter.kind in by_place]
    assert not others, f"its constructor takes {', '.join(others)} as positional arguments; put a * before them"


def the_state_dict_has_parameters_only(case: SchemeCase) -> None:
    """A buffer would be rounded by `.half()`, lost on the meta device, and saved in every checkpoint."""
    scheme = case.scheme()
    buffers = [name for name, _ in scheme.named_buffers()]
    assert not buffers, f"it has buffers: {', '.join(buffers)}"
    names = sorted(name for name, _ in scheme.named_parameters())
    assert sorted(scheme.state_dict()) == names, f"its state dict has {sorted(scheme.state_dict())}"


def parameters_have_an_axis(case: SchemeCase) -> None:
    """PyTorch cannot shard a parameter without one (FSDP2): a number has the shape (1,)."""
    scalars = [name for name, parameter in case.scheme().named_parameters() if not parameter.ndim]
    assert not scalars, f"it has parameters without axes: {', '.join(scalars)}"


def initialisation_is_reproducible(case: SchemeCase) -> None:
    """Random initial values come from PyTorch's default generator, so one seed gives equal parameters."""
    first, second = case.scheme(), case.scheme()
    for (name, one), other in zip(first.named_parameters(), second.parameters(), strict=True):
        assert one.equal(other), f"{name} differs between two instances with the same seed"


def embed_appends_the_declared_columns(case: SchemeCase) -> None:
    """After the token columns, which are unchanged, so that an output head can use them."""
    case.skip_unless_hook("embed")
    scheme = case.scheme()
    out = hook_outputs(scheme, case.with_axes(Geometry.causal(5)))["embed"]
    assert out.shape == (1, 5, WIDTH), f"embed gives {tuple(out.shape)}, expected {(1, 5, WIDTH)}"
    if not scheme.appended_width:
        raise InapplicableError("it appends no columns")
    x = case.embeddings(1, 5)
    assert_as_close(out[..., : x.shape[-1]], x, x, what="the token columns")
