import pytest
import torch

from ordinate import Geometry, attend
from ordinate.mixers import Softmax
from ordinate.mixers._mixer import KVCache
from ordinate.mixers._projections import AttentionOptions
from ordinate.schemes import Alibi, Rope


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
