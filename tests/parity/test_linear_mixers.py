"""Mixers of linear cost compared with those of public packages, where theirs are correct."""

import pytest
import torch

from ordinate import Geometry
from ordinate.mixers.linear import LinearAttention
from ordinate.mixers.linformer import Linformer
from ordinate.mixers.performer import Performer
from ordinate.schemes import NoPosition


def heads_of(mixer, x):
    return [part.unflatten(-1, (2, -1)).transpose(1, 2) for part in mixer.project(x).chunk(3, -1)]


def test_causal_linear_attention_matches():
    naive = pytest.importorskip("fla.ops.linear_attn.naive")
    mixer, x = LinearAttention(width=32, heads=2), torch.randn(2, 192, 32)
    q, k, v = heads_of(mixer, x)
    q, k = (torch.nn.functional.elu(part) + 1 for part in (q, k))
    # their layout is (batch, tokens, heads, channels), and tokens come in chunks of 64
    y = naive.naive_chunk_linear_attn(*(part.transpose(1, 2) for part in (q, k, v)), scale=1.0, normalize=True)
    ours, _ = mixer(x, NoPosition().at(Geometry.causal(192)))
    torch.testing.assert_close(ours, mixer.out(y.flatten(2)), atol=1e-5, rtol=1e-5)


def test_positive_random_features_without_epsilon_match():
    theirs = pytest.importorskip("performer_pytorch.performer_pytorch")
    mixer, x = Performer(width=32, heads=2, kernel="positive", features=48).double().eval(), torch.randn(2, 50, 32)
    x = x.double()
    q, k, v = heads_of(mixer, x)
    q, k = (
        theirs.softmax_kernel(part, projection_matrix=mixer.directions, is_query=asks, eps=0.0)
        for part, asks in ((q, True), (k, False))
    )
    y = theirs.linear_attention(q, k, v)
    ours, _ = mixer(x, NoPosition().at(Geometry.full(50)))
    torch.testing.assert_close(ours, mixer.out(y.transpose(1, 2).flatten(2)), atol=1e-12, rtol=1e-12)


def test_linformer_without_biases_matches_summaries_before_or_after_the_projection():
    package = pytest.importorskip("linformer")
    theirs = package.LinformerSelfAttention(32, 40, k=8, heads=2).double()
    mixer, x = Linformer(width=32, heads=2, max_length=40, summaries=8).double(), torch.randn(2, 40, 32).double()
    with torch.no_grad():
        mixer.summarise.copy_(theirs.proj_k.T)
        theirs.proj_v.copy_(theirs.proj_k)
        mixer.query.weight.copy_(theirs.to_q.weight)
        mixer.key_value.weight.copy_(torch.cat([theirs.to_k.weight, theirs.to_v.weight]))
        mixer.out.weight.copy_(theirs.to_out.weight)
        theirs.to_out.bias.zero_()
    ours, _ = mixer(x, NoPosition().at(Geometry.full(40)))
    torch.testing.assert_close(ours, theirs(x), atol=1e-12, rtol=1e-12)
