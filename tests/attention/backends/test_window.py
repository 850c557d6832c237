import math

import pytest
import torch

from ordinate import Geometry, attend, explain
from ordinate.attention.backends import window
from ordinate.ops import blocks
from ordinate.schemes import T5, Alibi, NoPosition, Shaw
from ordinate.testing.backend import assert_agrees, random_qkv

TYPES = [torch.float64, torch.float32, torch.bfloat16]


def t5() -> T5:
    scheme = T5(heads=4)
    torch.nn.init.normal_(scheme.table)
    return scheme


def padded(left: bool) -> Geometry:
    lengths, place = torch.tensor([[23], [12]]), torch.arange(23)
    return Geometry.padded(place >= 23 - lengths if left else place < lengths, window=4)


SCHEMES = {"none": NoPosition, "alibi": lambda: Alibi(heads=4), "t5": t5}
GEOMETRIES = {
    "causal": lambda: Geometry.causal(23, window=5),
    "two sides": lambda: Geometry.full(23, window=4),
    "itself alone": lambda: Geometry.causal(23, window=1),
    "cached": lambda: Geometry.causal(23, cached=7, window=5),
    "cached in plenty": lambda: Geometry.causal(23, cached=40, window=6),
    "packed": lambda: Geometry.packed([3, 1, 12, 7], window=4),
    "packed, two sides": lambda: Geometry.packed([3, 1, 12, 7], causal=False, window=3),
    "left": lambda: padded(True),
    "right": lambda: padded(False),
}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    # blocks smaller than the sequences
    monkeypatch.setattr(blocks, "WINDOW_ROWS", 2)


@pytest.mark.covering(1)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SCHEMES)
def test_it_agrees_with_the_reference_forward_and_backward(name, geometry, type):
    where = GEOMETRIES[geometry]()
    assert_agrees("window", SCHEMES[name](), where, *random_qkv(where, dtype=type))


@pytest.mark.covering(1)
@pytest.mark.parametrize("rows", [1, 2, 3, 5])
@pytest.mark.parametrize("wide", [1, 2, 3, 6, 7])
@pytest.mark.parametrize("tokens", [63, 64, 65])
def test_it_agrees_for_any_sizes_of_windows_and_blocks(tokens, wide, rows, monkeypatch):
    monkeypatch.setattr(blocks, "WINDOW_ROWS", rows)
    for where in (Geometry.causal(tokens, window=wide), Geometry.full(tokens, window=wide)):
        assert_agrees("window", t5(), where, *random_qkv(where, batch=1, dtype=torch.float64))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_groups_of_heads_share_keys_and_their_gradients(kv_heads):
    where = Geometry.causal(23, window=4)
    assert_agrees("window", t5(), where, *random_qkv(where, kv_heads=kv_heads, dtype=torch.float64))


def test_a_mask_of_the_wrong_block_is_detected(monkeypatch):
    whole = window._Blocking.__init__

    def shifted(self, where):
        whole(self, where)
        self.key -= 1

    where = Geometry.causal(23, cached=9, window=4)
    monkeypatch.setattr(window._Blocking, "__init__", shifted)
    with pytest.raises(AssertionError, match="off by"):
        assert_agrees("window", NoPosition(), where, *random_qkv(where, dtype=torch.float64))


@pytest.mark.parametrize(
    ("scheme", "where", "says"),
    [
        (NoPosition(), Geometry.causal(30), "there is no window"),
        (NoPosition(), Geometry.causal(30, window=20), "the window hides less than half of the sequence"),
        (NoPosition(), Geometry.causal(3, window=2), "the window hides less than half of the sequence"),
        (NoPosition(), Geometry.causal(2, cached=40, window=2), "the window hides less than half of the sequence"),
        (
            Alibi(heads=4),
            Geometry.from_positions(torch.rand(1, 30, 1), window=2),
            "the bias depends on more than the offset in memory order",
        ),
        (Shaw(head_width=8), Geometry.causal(30, window=2), "depends on more than the offset"),
    ],
)
def test_unsupported_calls_are_rejected_with_a_reason(scheme, where, says):
    q, k, v = random_qkv(where, batch=1, dtype=torch.float32)
    with pytest.raises(ValueError, match=says):
        attend(q, k, v, scheme.at(where), backend="window")


def test_nonfinite_numbers_are_rejected():
    where = Geometry.causal(30, window=2)
    q, k, v = (x.detach() for x in random_qkv(where, dtype=torch.float32))
    k[0, 0, 0, 0] = float("nan")
    assert explain(q, k, v, t5().at(where)).unsupported["window"] == "q, k or v contains NaN or infinity"


def test_without_a_bias_positions_may_be_arbitrary():
    where = Geometry.from_positions(torch.rand(2, 30, 1), window=3)
    assert_agrees("window", NoPosition(), where, *random_qkv(where, dtype=torch.float64))


@pytest.mark.extended
def test_dropout_keeps_the_mean():
    where = Geometry.causal(40, window=4)
    q, k, v = (x.detach() for x in random_qkv(where, batch=1, dtype=torch.float64))
    at, count = NoPosition().at(where), 300
    draws = torch.stack([attend(q, k, v, at, dropout=0.3, backend="window") for _ in range(count)])
    error = (draws.mean(0) - attend(q, k, v, at, backend="reference")).abs()
    assert bool((error < 6 * draws.std(0) / math.sqrt(count) + 1e-12).all())
    assert bool((draws.std(0) > 0).any())


def test_windows_are_supported_inside_torch_compile(monkeypatch):
    where = Geometry.causal(40, window=4)
    inputs, at = random_qkv(where, dtype=torch.float32), t5().at(where)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert explain(*inputs, at).backend == "window"
    assert explain(*inputs, t5().at(Geometry.causal(40))).backend == "sdpa"


def test_memory_grows_with_the_tokens_and_not_with_their_square(monkeypatch):
    monkeypatch.setattr(blocks, "WINDOW_ROWS", 64)
    held = []
    for tokens in (8192, 16384):
        q = torch.zeros(1, 4, tokens, 16)
        at = Alibi(heads=4).at(Geometry.causal(tokens, window=256))
        held.append(explain(q, q, q, at, backend="window").workspace_bytes)
    # the mask of a block does not grow, and blocks of one sequence are views of its keys and values
    assert 1.7 < held[1] / held[0] <= 2.0
    # at most three times the keys and values of blocks, and a mask of one block
    assert held[1] < 3 * 2 * 4 * 4 * 16384 * 16 + 4 * 4 * 128 * 384 + 1
