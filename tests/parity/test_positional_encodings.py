import pytest
import torch

from ordinate import Geometry
from ordinate.schemes import Concatenated, Sinusoidal
from ordinate.schemes.grid import Grid

pe = pytest.importorskip("positional_encodings.torch_encodings")
POSITIONS = torch.arange(50)[None, :, None]
FLOAT32 = {"within": 1e-5, "because": "their angles are in float32"}


@pytest.mark.parametrize("width", [2, 7, 8, 33, 64])
def test_sinusoids_match(width, record):
    x = torch.zeros(1, 50, width)
    odd = "truncate" if width % 2 else None
    record(
        Sinusoidal(width=width, odd_width=odd).embed(x, POSITIONS),
        pe.PositionalEncoding1D(width)(x),
        scheme="sinusoidal" + (":odd=truncate" if odd else ""),
        oracle=pe.PositionalEncoding1D,
        what="table",
        **FLOAT32,
    )


def test_concatenated_position_columns_match(record):
    x = torch.randn(2, 50, 24)
    record(
        Concatenated(width=32, position_width=8).embed(x, POSITIONS),
        torch.cat([x, pe.PositionalEncoding1D(8)(x[..., :8])], -1),
        scheme="concatenated:position_width=8",
        oracle=pe.PositionalEncoding1D,
        what="tokens",
        after="their table is appended to the tokens",
        **FLOAT32,
    )


# 3 axes share 8 columns in ours; theirs omits the last axis
@pytest.mark.parametrize(
    ("sizes", "width"),
    [((3, 5), 8), ((3, 5), 12), ((3, 5), 30), ((3, 5), 64), ((2, 3, 4), 12), ((2, 3, 4), 30), ((2, 3, 4), 64)],
)
def test_grid_sinusoids_match(sizes, width, record):
    kind = {2: pe.PositionalEncoding2D, 3: pe.PositionalEncoding3D}[len(sizes)]
    where, uneven = Geometry.grid(*sizes), width % (2 * len(sizes)) > 0
    record(
        Grid(width=width, remainder="truncate" if uneven else None).embed(
            torch.zeros(1, where.shape[0], width), where.q_pos
        )[0],
        kind(width)(torch.zeros(1, *sizes, width))[0].flatten(0, -2),
        scheme="grid" + (":rest=truncate" if uneven else ""),
        oracle=kind,
        what=f"table of {len(sizes)} axes",
        **FLOAT32,
    )
