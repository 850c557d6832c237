import pytest
import torch

from ordinate import Geometry, attend
from ordinate.mixers import Softmax
from ordinate.mixers._attention_options import AttentionOptions
from ordinate.mixers._mixer import KVCache
from ordinate.schemes import Alibi, Pope, Rope


def test_it_projects_attends_and_projects_back():
    mixer = Softmax(width=8, heads=2).double()
    x, at = torch.randn(2, 5, 8, dtype=torch.float64), Alibi(heads=2).at(Geometry.causal(5))
    y, state = mixer(x, at)
    heads = [part.unflatten(-1, (2, 4)).transpose(1, 2) for part in (x @ mixer.project.weight.T).chunk(3, -1)]
    expected = attend(*heads, at, backend="reference").transpose(1, 2).flatten(2) @ mixer.out.weight.T
    assert torch.allclose(y, expected, atol=1e-13)
    assert torch.equal(state.k, heads[1])
    assert torch.equal(state.v, heads[2])


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("cut", [0, 1, 3, 6])
def test_piece_by_piece_is_the_same_as_at_once(kv_heads, cut):
    mixer, scheme = Softmax(width=16, heads=4, kv_heads=kv_heads).double(), Rope(head_width=4)
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    whole, _ = mixer(x, scheme.at(Geometry.causal(6)))
    first, state = mixer(x[:, :cut], scheme.at(Geometry.causal(cut)))
    rest, _ = mixer(x[:, cut:], scheme.at(Geometry.causal(6 - cut, cached=cut)), state)
    assert torch.allclose(torch.cat([first, rest], 1), whole, atol=1e-13)


def test_outputs_at_padding_are_zero_with_biases_too():
    mixer, real = Softmax(width=8, heads=2, variant=AttentionOptions(bias=True)), torch.ones(2, 5, dtype=torch.bool)
    real[1, :3] = False
    x = torch.randn(2, 5, 8)
    y, _ = mixer(x, Rope(head_width=4).at(Geometry.padded(real)))
    alone, _ = mixer(x[1:, 3:], Rope(head_width=4).at(Geometry.causal(2)))
    assert torch.equal(y[~real], torch.zeros(3, 8))
    torch.testing.assert_close(y[1:, 3:], alone)
    assert torch.equal(torch.autograd.grad(y.sum(), mixer.out.bias)[0], torch.full((8,), 7.0))


def test_fewer_key_heads_have_fewer_weights():
    assert Softmax(width=16, heads=4, kv_heads=1).project.weight.shape == (16 + 4 + 4, 16)


@pytest.mark.parametrize(
    ("sizes", "match"),
    [
        ({"width": 10, "heads": 4}, "heads must divide width; got width 10, heads 4; choose heads that do"),
        ({"width": 8, "heads": 4, "kv_heads": 3}, "kv_heads must divide heads; got heads 4, kv_heads 3"),
        ({"width": 8, "heads": 0}, "heads must be above zero; got 0"),
        ({"width": 8, "heads": 2, "kv_heads": 0}, "kv_heads must be above zero; got 0"),
        ({"width": 0, "heads": 1}, "width must be above zero"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, match):
    with pytest.raises(ValueError, match=match):
        Softmax(**sizes)


def test_a_memory_of_another_batch_is_refused(untyped):
    state = KVCache(torch.randn(2, 2, 3, 4), torch.randn(2, 2, 3, 4))
    new = torch.randn(1, 2, 1, 4)
    with pytest.raises(
        ValueError, match=r"need the same batch size, heads and head width; got \(2, 2, 3, 4\) and \(1, 2, 1, 4\)"
    ):
        state.append(new, new)


def after(**options):
    mixer = Softmax(width=16, heads=2, kv_heads=1, variant=AttentionOptions(qk_norm=True, **options)).double()
    for norm in (mixer.q_norm, mixer.k_norm):
        torch.nn.init.uniform_(norm.weight, 0.2, 2.0)
    return mixer


def test_qk_norm_after_normalises_encoded_queries_and_keys():
    mixer, x = after(qk_norm_after=True), torch.randn(2, 5, 16, dtype=torch.float64)
    at = Rope(head_width=8).at(Geometry.causal(5))
    y, state = mixer(x, at)
    q, k, v = mixer.project_qkv(x)
    turned = at.encode(q, k)
    q, k = (one / (one.square().mean(-1, keepdim=True) + 1e-6).sqrt() for one in (turned.q, turned.k))
    q, k = q * mixer.q_norm.weight, k * mixer.k_norm.weight
    scores = q @ k.repeat(1, 2, 1, 1).mT * 8**-0.5
    shares = scores.masked_fill(~torch.ones(5, 5, dtype=torch.bool).tril(), -torch.inf).softmax(-1)
    expected = mixer.out((shares @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(y, expected, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(state.k, k, atol=1e-12, rtol=1e-12)
    # a mutant: the norm before the rotation, whose weights it would turn
    other = after(qk_norm_after=False)
    other.load_state_dict(mixer.state_dict())
    assert (other(x, at)[0] - expected).abs().max() > 1e-3


@pytest.mark.parametrize("cut", [1, 3])
def test_qk_norm_after_is_the_same_piece_by_piece_and_across(cut):
    mixer, scheme = after(qk_norm_after=True), Rope(head_width=8)
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    where = Geometry.causal(6)
    whole, _ = mixer(x, scheme.at(where))
    _, state = mixer(x[:, :cut], scheme.at(Geometry.causal(cut)))
    rest, _ = mixer(x[:, cut:], scheme.at(Geometry.causal(6 - cut, cached=cut)), state)
    torch.testing.assert_close(rest, whole[:, cut:], atol=1e-12, rtol=1e-12)
    # attention across sequences encodes keys and queries apart
    seen = mixer.project_context(x, scheme, where.k_pos)
    torch.testing.assert_close(mixer.cross_attention(x, seen, scheme.at(where)), whole, atol=1e-12, rtol=1e-12)


def test_qk_norm_after_needs_a_norm_and_the_channels_of_a_head():
    with pytest.raises(ValueError, match="qk_norm_after has an effect only with qk_norm; got qk_norm=False"):
        AttentionOptions(qk_norm_after=True)
    wider = Pope(heads=2, kv_heads=1, head_width=8)
    must = "qk_norm_after needs a scheme without channels of its own; got 16 channels for a head_width of 8"
    with pytest.raises(ValueError, match=must):
        after(qk_norm_after=True).float()(torch.randn(1, 3, 16), wider.at(Geometry.causal(3)))


def test_encoded_values_are_rotated_as_keys_are():
    with pytest.raises(ValueError, match="encode_values needs values as wide as keys; got value_width=3; leave"):
        Softmax(width=16, heads=2, encode_values=True, variant=AttentionOptions(value_width=3))
    mixer = Softmax(width=16, heads=2, kv_heads=1, encode_values=True).double()
    x, scheme = torch.randn(2, 5, 16, dtype=torch.float64), Rope(head_width=8, layout="interleaved")
    at = scheme.at(Geometry.causal(5))
    y, state = mixer(x, at)
    q, k, v = mixer.project_qkv(x)
    turned = at.encode(q, k)
    scores = turned.q @ turned.k.repeat(1, 2, 1, 1).mT * 8**-0.5
    shares = scores.masked_fill(~torch.ones(5, 5, dtype=torch.bool).tril(), -torch.inf).softmax(-1)
    pairs = torch.view_as_complex(v.unflatten(-1, (4, 2)).contiguous())
    angles = torch.arange(5).double()[:, None] * 10_000.0 ** (-torch.arange(4).double() / 4)
    values = torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)
    torch.testing.assert_close(y, mixer.out((shares @ values).transpose(1, 2).flatten(2)), atol=1e-12, rtol=1e-12)
    # the cache has encoded values
    torch.testing.assert_close(state.v, values, atol=1e-12, rtol=1e-12)
    _, first = mixer(x[:, :2], scheme.at(Geometry.causal(2)))
    rest, _ = mixer(x[:, 2:], scheme.at(Geometry.causal(3, cached=2)), first)
    torch.testing.assert_close(rest, y[:, 2:], atol=1e-12, rtol=1e-12)
    # a mutant: values as they are
    mixer.encode_values = False
    assert (mixer(x, at)[0] - y).abs().max() > 1e-3


def test_values_are_encoded_by_schemes_that_encode_queries_and_keys_alike_and_in_self_attention():
    mixer, x = Softmax(width=16, heads=2, encode_values=True), torch.randn(1, 3, 16)
    with pytest.raises(ValueError, match=r"only a scheme that encodes queries and keys alike, .*; got Alibi"):
        mixer(x, Alibi(heads=2).at(Geometry.causal(3)))
    with pytest.raises(ValueError, match="encode_values is an option of self-attention; got it in cross-attention"):
        mixer.project_context(x, Rope(head_width=8), Geometry.causal(3).k_pos)
