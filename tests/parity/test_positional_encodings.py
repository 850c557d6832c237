import pytest
import torch

from ordinate import Concatenated, Sinusoidal

pe = pytest.importorskip("positional_encodings.torch_encodings")
POSITIONS = torch.arange(50)[None, :, None]
FLOAT32 = {"within": 1e-5, "because": "their angles are in float32"}


@pytest.mark.parametrize("width", [2, 7, 8, 33, 64])
def test_the_waves_are_theirs(width, record):
    x = torch.zeros(1, 50, width)
    odd = "truncate" if width % 2 else None
    record(
        Sinusoidal(width=width, odd=odd).embed(x, POSITIONS),
        pe.PositionalEncoding1D(width)(x),
        scheme="sinusoidal" + (":odd=truncate" if odd else ""),
        oracle=pe.PositionalEncoding1D,
        what="table",
        **FLOAT32,
    )


def test_appended_waves_are_theirs(record):
    x = torch.randn(2, 50, 24)
    record(
        Concatenated(width=32, columns=8).embed(x, POSITIONS),
        torch.cat([x, pe.PositionalEncoding1D(8)(x[..., :8])], -1),
        scheme="concatenated:columns=8",
        oracle=pe.PositionalEncoding1D,
        what="tokens",
        after="their table is appended to the tokens",
        **FLOAT32,
    )
