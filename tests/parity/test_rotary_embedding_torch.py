import pytest
import torch

from ordinate import Geometry, Rope

ret = pytest.importorskip("rotary_embedding_torch")
FLOAT32 = {"within": 1e-5, "because": "their rates are in float32"}


def test_a_rotation_in_interleaved_layout_is_theirs(record):
    q, k = torch.randn(2, 1, 2, 50, 32).double()
    theirs = ret.RotaryEmbedding(32, cache_if_possible=False).double()
    ours = Rope(head_width=32, layout="interleaved").at(Geometry.causal(50)).encode(q, k)
    record(
        torch.stack(ours),
        torch.stack([theirs.rotate_queries_or_keys(x) for x in (q, k)]),
        scheme="rope:layout=interleaved",
        oracle=theirs.rotate_queries_or_keys,
        what="queries and keys",
        **FLOAT32,
    )


def test_a_rotation_is_theirs_to_float64_at_our_rates(record):
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


def test_a_new_query_and_cached_keys_are_theirs(record):
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
