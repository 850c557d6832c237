"""All sequence lengths, including those that are no multiple of an internal chunk size."""

import torch

from ordinate.core.geometry import Geometry
from ordinate.testing.assert_close import assert_equal_up_to_order
from ordinate.testing.case import MAX_LENGTH
from ordinate.testing.mixer import MixerCase

LONGEST = 61


def outputs_for_a_prefix_are_a_prefix_of_the_outputs(case: MixerCase) -> None:
    """In the causal form, the output for a prefix equals the prefix of the output, at odd lengths."""
    case.skip_unless(case.kind.causal, "it has no causal form")
    case.skip_unless(case.mixer().strictly_causal, "it declares that its causal form leaks")
    x = case.tokens(1, LONGEST)
    whole = case.output(x, Geometry.causal(LONGEST))
    for tokens in (1, 2, 3, 7, 16, 33, 60):
        assert_equal_up_to_order(
            case.output(x[:, :tokens], Geometry.causal(tokens)), whole[:, :tokens], f"{tokens} tokens"
        )


def meta_tensors_have_the_right_shape(case: MixerCase) -> None:
    """Tensors without values, on the meta device, pass through in every form, as for planning memory."""
    mixer, scheme = case.mixer().to("meta"), case.scheme().to("meta")
    with torch.device("meta"):
        for where in case.geometries(17):
            out = mixer(case.tokens(2, 17), scheme.at(where))[0]
            assert out.is_meta, f"the output is on {out.device}"
            assert out.shape == (2, 17, mixer.width), f"the output has the shape {tuple(out.shape)}"


def one_token_and_none_are_supported(case: MixerCase) -> None:
    """One token, no tokens and an empty batch give finite outputs of the right shape."""
    for batch, tokens in ((2, 1), (2, 0), (0, 3)):
        for where in case.geometries(tokens):
            out = case.output(case.tokens(batch, tokens), where)
            assert out.shape[:2] == (batch, tokens), f"{batch} rows of {tokens} tokens give {tuple(out.shape)}"
            assert out.isfinite().all(), f"{batch} rows of {tokens} tokens are not finite"


def tokens_beyond_max_length_are_rejected(case: MixerCase) -> None:
    """More tokens than max_length raise a ValueError that names it; without max_length all lengths are supported."""
    limit, tokens = case.mixer().max_length, MAX_LENGTH + 1
    for where in case.geometries(tokens):
        message, finite = None, True
        try:
            finite = bool(case.output(case.tokens(1, tokens), where).isfinite().all())
        except ValueError as error:
            message = str(error)
        if limit is None or limit >= tokens:
            assert message is None, f"it declares max_length {limit}, but rejects {tokens} tokens: {message}"
            assert finite, f"{tokens} tokens are not finite"
        else:
            assert message is not None, f"it accepts {tokens} tokens, max_length {limit}"
            assert str(limit) in message, f"its error for {tokens} tokens does not name {limit}: {message}"
