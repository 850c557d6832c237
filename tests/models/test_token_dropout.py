"""Token dropout: masked tokens are left out, and the others scaled by their share in the text."""

import pytest
import torch

from ordinate import Geometry
from ordinate.models.encoder import Encoder
from ordinate.models.encoder_shape import EncoderShape
from ordinate.models.token_dropout import with_token_dropout

MASK = 5


def build(**choices):
    given = {"vocabulary": 11, "width": 16, "layers": 2, "heads": 4, "mask_token": MASK, "head": "none"} | choices
    return Encoder(EncoderShape(**given)).double().eval()


def ids(*shape):
    return torch.randint(0, 11, shape, generator=torch.Generator().manual_seed(0))


def test_the_factor_is_that_of_a_loop_over_texts():
    text, x = ids(3, 9), torch.randn(3, 9, 4, dtype=torch.float64)
    text[:, ::3] = MASK
    lengths = [4, 2, 3]
    for where, pieces in (
        (Geometry.full(9), [slice(0, 9)]),
        (Geometry.packed(lengths, causal=False), [slice(0, 4), slice(4, 6), slice(6, 9)]),
        (Geometry.padded(torch.arange(9).expand(3, -1) >= 3, causal=False), [slice(3, 9)]),
    ):
        out = with_token_dropout(x, text == MASK, where)
        for row in range(3):
            for piece in pieces:
                share = sum(token == MASK for token in text[row, piece].tolist()) / len(text[row, piece])
                for place in range(9)[piece]:
                    kept = 0.0 if text[row, place] == MASK else 0.88 / (1 - share)
                    torch.testing.assert_close(out[row, place], kept * x[row, place], atol=1e-14, rtol=1e-12)


@torch.no_grad()
def test_texts_padded_and_packed_are_those_alone():
    model, lengths = build(scheme="rope"), [7, 3]
    texts = [ids(1, length) for length in lengths]
    texts[0][0, 2] = texts[1][0, 0] = MASK
    alone = [model(text)[0] for text in texts]
    real = torch.arange(7) < torch.tensor(lengths)[:, None]
    together = torch.cat([texts[0], torch.nn.functional.pad(texts[1], (0, 4), value=MASK)])
    padded = model(together, Geometry.padded(real, causal=False))
    packed = model(torch.cat(texts, 1), Geometry.packed(lengths, causal=False))[0].split(lengths)
    for row in range(2):
        assert torch.allclose(padded[row, : lengths[row]], alone[row], atol=1e-12)
        assert torch.allclose(packed[row], alone[row], atol=1e-12)
    # a mutant: the share of the whole row
    whole = with_token_dropout(torch.ones(1, 10, 1), torch.cat(texts, 1) == MASK, Geometry.full(10))
    parts = with_token_dropout(torch.ones(1, 10, 1), torch.cat(texts, 1) == MASK, Geometry.packed(lengths))
    assert (whole - parts).abs().max() > 0.01


def test_a_text_of_masked_tokens_only_has_finite_numbers_and_gradients():
    x = torch.randn(1, 3, 4, requires_grad=True)
    out = with_token_dropout(x, torch.ones(1, 3, dtype=torch.bool), Geometry.full(3))
    out.sum().backward()
    assert (out == 0).all()
    assert (x.grad == 0).all()


def test_the_mask_token_is_a_number(untyped):
    with pytest.raises(TypeError, match=r"mask_token must be a whole number; got 1.5"):
        EncoderShape(vocabulary=11, width=16, layers=1, heads=2, mask_token=1.5)
