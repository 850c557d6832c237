import pytest
import torch

from ordinate import Geometry
from ordinate.schemes import Rope
from ordinate.schemes.axial import Axial
from ordinate.schemes.spectra.linear import Linear
from ordinate.schemes.spectra.ntk import Ntk
from ordinate.schemes.xpos import Xpos

ret = pytest.importorskip("rotary_embedding_torch")
FLOAT32 = {"within": 1e-5, "because": "their rates are in float32"}


def test_rotation_in_interleaved_layout_matches(record):
    q, k = torch.randn(2, 1, 2, 50, 32).double()
    theirs = ret.RotaryEmbedding(32, cache_if_possible=False).double()
    ours = Rope(head_width=32, layout="interleaved").at(Geometry.causal(50)).encode(q, k).pair
    record(
        torch.stack(ours),
        torch.stack([theirs.rotate_queries_or_keys(x) for x in (q, k)]),
        scheme="rope:layout=interleaved",
        oracle=theirs.rotate_queries_or_keys,
        what="queries and keys",
        **FLOAT32,
    )


def test_rotation_matches_to_float64_at_our_rates(record):
    q, pos = torch.randn(1, 2, 50, 32).double(), torch.arange(1000, 1050)[None, :, None]
    rates = torch.tensor([10_000 ** (-2 * m / 32) for m in range(16)], dtype=torch.float64)
    theirs = ret.RotaryEmbedding(32, custom_freqs=rates, cache_if_possible=False).double()
    record(
        Rope(head_width=32, layout="interleaved").encode_query(q, pos),
        theirs.rotate_queries_or_keys(q, offset=1000),
        scheme="rope:layout=interleaved",
        oracle=theirs.rotate_queries_or_keys,
        what="queries, in float64",
        after="theirs is given our rates as `custom_freqs`",
    )


def test_a_new_query_with_cached_keys_matches(record):
    q, k = torch.randn(1, 2, 1, 32).double(), torch.randn(1, 2, 50, 32).double()
    theirs = ret.RotaryEmbedding(32, cache_if_possible=False).double()
    where, scheme = Geometry.causal(1, cached=49), Rope(head_width=32, layout="interleaved")
    ours = scheme.encode_query(q, where.q_pos), scheme.encode_key(k, where.k_pos)
    record(
        torch.cat(ours, 2),
        torch.cat(theirs.rotate_queries_with_cached_keys(q, k), 2),
        scheme="rope:layout=interleaved",
        oracle=theirs.rotate_queries_with_cached_keys,
        what="one query and the cached keys",
        **FLOAT32,
    )


@pytest.mark.parametrize(
    ("spacing", "options"), [("lang", {}), ("pixel", {"max_frequency": 10.0, "grid_size": (3, 4)})]
)
def test_axial_rotation_matches(spacing, options, record):
    q, pos = torch.randn(1, 2, 12, 32), Geometry.grid(3, 4).q_pos
    theirs = ret.RotaryEmbedding(dim=16, freqs_for=spacing)
    record(
        Axial(head_width=32, spacing=spacing, layout="interleaved", **options).encode_query(q, pos),
        ret.apply_rotary_emb(theirs.get_axial_freqs(3, 4).reshape(12, 32), q),
        scheme=f"axial:spacing={spacing},layout=interleaved",
        oracle=theirs.get_axial_freqs,
        what="queries of patches",
        **FLOAT32,
    )


@pytest.mark.parametrize(
    ("spectrum", "options"),
    [(Linear(factor=4.0), {"interpolate_factor": 4.0}), (Ntk(factor=4.0), {"theta_rescale_factor": 4.0})],
)
def test_scaled_rates_match(spectrum, options, record):
    q, pos = torch.randn(1, 2, 50, 32).double(), torch.arange(50)[None, :, None]
    theirs = ret.RotaryEmbedding(32, cache_if_possible=False, **options).double()
    record(
        Rope(head_width=32, layout="interleaved", spectrum=spectrum).encode_query(q, pos),
        theirs.rotate_queries_or_keys(q),
        scheme=f"rope:spectrum={spectrum.rope_type},layout=interleaved",
        oracle=theirs.rotate_queries_or_keys,
        what="queries",
        after=f"their `{next(iter(options))}` is our factor",
        **FLOAT32,
    )


@pytest.mark.parametrize("tokens", [7, 100])
def test_xpos_matches_with_the_same_centre(tokens, record):
    q, k = torch.randn(2, 1, 2, tokens, 32).double()
    theirs = ret.RotaryEmbedding(32, use_xpos=True, cache_if_possible=False).double()
    scheme = Xpos(head_width=32, centre=tokens // 2, layout="interleaved")
    record(
        torch.stack(scheme.at(Geometry.causal(tokens)).encode(q, k).pair),
        torch.stack(theirs.rotate_queries_and_keys(q, k)),
        scheme="xpos:layout=interleaved",
        oracle=theirs.rotate_queries_and_keys,
        what="queries and keys",
        after="our centre is the middle of their call",
        **FLOAT32,
    )
