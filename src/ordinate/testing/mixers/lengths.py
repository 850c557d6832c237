"""Any length, whatever the chunks that a mixer works in."""

from ordinate.geometry import Geometry
from ordinate.testing.case import MAX_LENGTH
from ordinate.testing.closeness import assert_same
from ordinate.testing.mixer import MixerCase

LONGEST = 61


def a_shorter_text_is_the_beginning_of_a_longer_one(case: MixerCase) -> None:
    """In the causal form, at lengths that no chunk divides."""
    case.need(case.kind.causal, "it has no causal form")
    case.need(case.mixer().exact_causal, "it says that its causal form lets something through")
    x = case.tokens(1, LONGEST)
    whole = case.mixed(x, Geometry.causal(LONGEST))
    for tokens in (1, 2, 3, 7, 16, 33, 60):
        assert_same(case.mixed(x[:, :tokens], Geometry.causal(tokens)), whole[:, :tokens], f"{tokens} tokens")


def one_token_and_none_are_served(case: MixerCase) -> None:
    """And an empty batch: the shapes fit and the numbers are finite."""
    for batch, tokens in ((2, 1), (2, 0), (0, 3)):
        for where in case.geometries(tokens):
            out = case.mixed(case.tokens(batch, tokens), where)
            assert out.shape[:2] == (batch, tokens), f"{batch} rows of {tokens} tokens give {tuple(out.shape)}"
            assert out.isfinite().all(), f"{batch} rows of {tokens} tokens are not finite"


def a_text_beyond_its_length_is_refused(case: MixerCase) -> None:
    """By a ValueError that names the length; without one, it is served."""
    limit, tokens = case.mixer().max_length, MAX_LENGTH + 1
    for where in case.geometries(tokens):
        said, finite = None, True
        try:
            finite = bool(case.mixed(case.tokens(1, tokens), where).isfinite().all())
        except ValueError as error:
            said = str(error)
        if limit is None or limit >= tokens:
            assert said is None, f"it declares max_length {limit}, and refuses {tokens} tokens: {said}"
            assert finite, f"{tokens} tokens are not finite"
        else:
            assert said is not None, f"it takes {tokens} tokens, max_length {limit}"
            assert str(limit) in said, f"it refuses {tokens} tokens without naming {limit}: {said}"
