import pytest
import torch

from ordinate import Geometry, attend
from ordinate.core.geometry import PADDING
from ordinate.core.tensors import need_device, need_mask, need_same_batch, need_tensor, need_vectors
from ordinate.schemes import Alibi, Learned, NoPosition, Rope, Sinusoidal

pytestmark = pytest.mark.usefixtures("untyped")
POS = torch.arange(3)[None, :, None]
DOCUMENT = torch.zeros(1, 3, dtype=torch.long)
X = torch.randn(2, 4, 3, 8)


def test_matching_inputs_raise_nothing():
    need_tensor("x", X)
    need_vectors("x", X, "batch, heads, tokens, channels")
    need_mask("real", torch.ones(2, 3).bool(), "batch, tokens")
    need_same_batch("x", X, "y", X[:1])
    need_device("x", X, "y", POS)


@pytest.mark.parametrize(
    ("build", "kind", "match"),
    [
        (lambda: need_tensor("x", [1.0]), TypeError, "x must be a tensor; got list; convert it with torch.as_tensor"),
        (
            lambda: need_vectors("x", X, "batch, tokens"),
            ValueError,
            r"x needs the axes \(batch, tokens\); got \(2, 4",
        ),
        (lambda: need_vectors("x", POS, "b, n, w"), ValueError, "x needs floating-point numbers; got torch.int64"),
        (
            lambda: need_mask("real", POS, "b, n, w"),
            ValueError,
            "real must be a boolean mask, True at tokens; got torch.int64",
        ),
        (lambda: need_mask("real", POS > 0, "b, n"), ValueError, r"real needs the axes \(b, n\); got \(1, 3, 1\)"),
        (
            lambda: need_same_batch("x", X, "y", X.repeat(2, 1, 1, 1)),
            ValueError,
            "x and y need the same batch size.*got 2 and 4",
        ),
        (
            lambda: need_device("x", X, "y", X.to("meta")),
            ValueError,
            "x and y must be on one device; got cpu and meta",
        ),
        (lambda: Geometry(None, POS), TypeError, "q_pos must be a tensor; got NoneType"),
        (lambda: Geometry(POS, POS.to("meta")), ValueError, "q_pos and k_pos must be on one device"),
        (lambda: Geometry.from_positions([0, 1]), TypeError, "q_pos must be a tensor; got list"),
        (
            lambda: Geometry(POS.expand(2, 3, 1), POS.expand(3, 3, 1)),
            ValueError,
            "q_pos and k_pos need the same batch size, or 1; got 2 and 3",
        ),
        (lambda: Geometry(POS, POS, q_document=1, k_document=1), TypeError, "q_document must be a tensor; got int"),
        (
            lambda: Geometry(POS, POS, q_document=DOCUMENT > 0, k_document=DOCUMENT),
            ValueError,
            "document ids must be int32 or int64; got torch.bool; number documents from 0, -1 is padding",
        ),
        (
            lambda: Geometry(POS, POS, q_document=DOCUMENT, k_document=DOCUMENT[0]),
            ValueError,
            r"k_document needs the axes \(batch, tokens\); got \(3,\)",
        ),
        (
            lambda: Geometry(POS, POS, q_document=DOCUMENT.expand(2, 3), k_document=DOCUMENT.expand(3, 3)),
            ValueError,
            "q_document and k_document need the same batch size",
        ),
        (lambda: Geometry.causal(-1), ValueError, "tokens must not be negative; got -1; give how many there are"),
        (lambda: Geometry.causal(2.0), TypeError, "tokens must be a whole number; got 2.0"),
        (lambda: Geometry.causal(2, cached=None), TypeError, "cached must be a whole number; got None"),
        (lambda: Geometry.full(-2), ValueError, "tokens must not be negative; got -2"),
        (lambda: Geometry.cross(3, "4"), TypeError, "keys must be a whole number; got '4'"),
        (
            lambda: Geometry.cross(3, 4, real=torch.ones(1, 4)),
            ValueError,
            "real must be a boolean mask, True at tokens",
        ),
        (lambda: Geometry.packed([2, 0.5]), TypeError, "document 1 must be a whole number; got 0.5"),
        (lambda: Geometry.packed(5), TypeError, "document lengths must be a list; got int; give a list"),
        (lambda: Geometry.grid(2, -1), ValueError, "axis 1 must not be negative; got -1"),
        (lambda: Geometry.grid(), ValueError, "a grid needs at least one axis; got none"),
        (lambda: Geometry.causal(3, window=1.5), TypeError, "window must be a whole number; got 1.5"),
        (
            lambda: Geometry.padded(torch.ones(3).bool()),
            ValueError,
            r"real needs the axes \(batch, tokens\); got \(3,\)",
        ),
    ],
)
def test_inputs_that_do_not_match_raise_an_error(build, kind, match):
    with pytest.raises(kind, match=match):
        build()


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int16, torch.float16, torch.bfloat16, torch.complex64]
)
def test_positions_of_inexact_dtypes_raise_an_error(dtype):
    with pytest.raises(
        ValueError,
        match=rf"positions must be int32, int64, float32 or float64, since .*; got {dtype} for q_pos; use int64",
    ):
        Geometry.from_positions(POS.to(dtype))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32, torch.float64])
def test_positions_of_exact_dtypes_are_accepted(dtype):
    # differences of int32 may exceed int32
    wide = torch.int64 if dtype == torch.int32 else dtype
    assert Geometry.from_positions(POS.to(dtype)).offset.dtype == wide


def test_document_ids_for_each_token_are_accepted():
    assert not Geometry(POS, POS, q_document=DOCUMENT, k_document=DOCUMENT + PADDING).visible.any()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nonfinite_positions_raise_an_error(bad):
    where = Geometry.from_positions(torch.tensor([[[0.0], [bad]]]))
    with pytest.raises(ValueError, match="NoPosition takes finite positions; got NaN or infinity; give each"):
        NoPosition().at(where)


@pytest.mark.parametrize("far", [1e300, -1e300, 2.0**63])
def test_positions_whose_differences_are_no_numbers_raise_an_error(far):
    where = Geometry.from_positions(torch.tensor([[[0.0], [far]]], dtype=torch.float64))
    with pytest.raises(ValueError, match=r"takes positions from -2\^62 to 2\^62; got positions beyond; subtract a"):
        NoPosition().at(where)
    NoPosition().at(Geometry.from_positions(torch.tensor([[[-(2.0**62)], [2.0**62]]])))


def test_positions_are_checked_once_where_queries_and_keys_share_them(monkeypatch):
    checked = []
    monkeypatch.setattr(NoPosition, "check_positions", lambda self, pos: checked.append(pos))
    shared, cached = Geometry.causal(3), Geometry.causal(3, cached=2)
    NoPosition().at(shared)
    assert [id(pos) for pos in checked] == [id(shared.q_pos)]
    NoPosition().at(cached)
    assert [pos.shape[1] for pos in checked[1:]] == [3, 5]


def test_keys_with_positions_of_their_own_are_checked_too():
    where = Geometry(POS, POS + 2, is_causal=True)
    with pytest.raises(ValueError, match="got 2 to 4; build it with max_length=5 or more"):
        Learned(width=8, max_length=4).at(where)


def test_a_scheme_stands_at_a_geometry():
    with pytest.raises(TypeError, match="a scheme is bound to a Geometry; got int; build one"):
        Alibi(heads=4).at(3)


def test_a_negative_position_suggests_to_count_from_0():
    with pytest.raises(ValueError, match="got -2 to 0; count from 0"):
        Learned(width=8, max_length=4).at(Geometry.from_positions(POS - 2))


@pytest.mark.parametrize(
    ("mark", "match"),
    [
        (lambda: Sinusoidal(width=8).at(Geometry.causal(3)).embed(None), "x must be a tensor; got NoneType"),
        (
            lambda: Sinusoidal(width=8).at(Geometry.causal(3)).embed(X),
            r"x needs the axes \(batch, tokens, width\)",
        ),
        (
            lambda: Sinusoidal(width=6).at(Geometry.causal(3)).embed(X[:, 0]),
            "this Sinusoidal was built for width 6; got 8 in x; build one for 8",
        ),
        (
            lambda: Rope(head_width=8).at(Geometry.causal(4)).encode(X, X),
            r"q must have as many tokens as the geometry; got 3 in \(2, 4, 3, 8\) for 4; check the order of its axes",
        ),
        (
            lambda: Rope(head_width=8).at(Geometry.padded(torch.ones(3, 3).bool())).encode(X, X),
            "q must have the batch size of the geometry; got 2 for 3; build the geometry for this batch",
        ),
        (
            lambda: Rope(head_width=8).at(Geometry.causal(3)).encode(X, X.to("meta")),
            "k and the geometry must be on one device; got meta and cpu",
        ),
        (
            lambda: Rope(head_width=4).at(Geometry.causal(3)).encode(X, X),
            "this Rope was built for head_width 4; got 8 in q; build one for 8",
        ),
        (
            lambda: Alibi(heads=2).at(Geometry.causal(3)).encode(X, X),
            "this Alibi was built for heads 2; got 4 in q; build one for 4",
        ),
        (
            lambda: attend(X, X, X, Alibi(heads=2).at(Geometry.causal(3))),
            "this Alibi was built for heads 2; got 4 in q; build one for 4",
        ),
        (lambda: attend(X, X, X, None), "attention needs a scheme at a geometry; got NoneType; pass scheme.at"),
    ],
)
def test_inputs_that_do_not_match_a_scheme_raise_an_error(mark, match):
    with pytest.raises((ValueError, TypeError), match=match):
        mark()
