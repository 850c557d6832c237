import pytest
import torch

from ordinate import Geometry
from ordinate.mixers import Softmax
from ordinate.mixers.block_linformer import BlockLinformer
from ordinate.schemes import NoPosition, Rope

MARKS = {"none": NoPosition(), "rope": Rope(head_width=4)}


def made(**options):
    return BlockLinformer(**{"width": 8, "heads": 2, "block": 4, "summaries": 2} | options).double()


def by_the_formula(mixer, x, at):
    """Reference implementation, token by token and head by head."""
    q, k, v = (part.unflatten(-1, (-1, 4)).transpose(1, 2) for part in mixer.project(x).split(mixer.widths, -1))
    q, k = at.encode(q, k).pair
    k, v = (part.repeat_interleave(2 // part.shape[1], 1) for part in (k, v))
    size, outs = mixer.summarise.shape[1], []
    for i in range(x.shape[1]):
        begin = i - i % size
        keys, values = (
            torch.cat(
                [*(mixer.summarise @ y[:, :, s : s + size] for s in range(0, begin, size)), y[:, :, begin : i + 1]], 2
            )
            for y in (k, v)
        )
        outs.append(torch.softmax(q[:, :, i : i + 1] @ keys.mT / 2, -1) @ values)
    return mixer.out(torch.cat(outs, 2).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("scheme", list(MARKS))
@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("tokens", [1, 3, 4, 5, 14])
def test_it_is_the_formula(tokens, kv_heads, scheme):
    mixer, x = made(kv_heads=kv_heads), torch.randn(2, tokens, 8, dtype=torch.float64, requires_grad=True)
    at = MARKS[scheme].at(Geometry.causal(tokens))
    outs = mixer(x, at)[0], by_the_formula(mixer, x, at)
    torch.testing.assert_close(*outs, atol=1e-12, rtol=1e-12)
    leaves = [x, *mixer.parameters()]
    gradients = (torch.autograd.grad(y.sin().sum(), leaves, allow_unused=True, materialize_grads=True) for y in outs)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("scheme", list(MARKS))
def test_a_summary_of_each_token_is_attention_itself(scheme):
    mixer, softmax = made(summaries=4), Softmax(width=8, heads=2).double()
    with torch.no_grad():
        mixer.summarise.copy_(torch.eye(4))
    softmax.load_state_dict({"project.weight": mixer.project.weight, "out.weight": mixer.out.weight})
    x, at = torch.randn(2, 14, 8, dtype=torch.float64), MARKS[scheme].at(Geometry.causal(14))
    torch.testing.assert_close(mixer(x, at)[0], softmax(x, at)[0], atol=1e-13, rtol=1e-13)


@pytest.mark.parametrize("sizes", [[1] * 14, [3, 1, 8, 2], [4, 4, 6], [9, 5]])
def test_decoding_continues_from_the_state(sizes):
    mixer, scheme = made(kv_heads=1), Rope(head_width=4)
    x = torch.randn(2, 14, 8, dtype=torch.float64)
    whole, _ = mixer(x, scheme.at(Geometry.causal(14)))
    state, outs, begin = None, [], 0
    for size in sizes:
        at = scheme.at(Geometry.causal(size, cached=begin))
        y, state = mixer(x[:, begin : begin + size], at, state)
        outs.append(y)
        begin += size
    torch.testing.assert_close(torch.cat(outs, 1), whole, atol=1e-12, rtol=1e-12)
    assert state.summary_k.shape[2] == 2 * (14 // 4)


def test_rows_of_a_batch_may_be_at_other_places_in_their_blocks():
    mixer, scheme = made(), Rope(head_width=4)
    x = torch.randn(3, 12, 8, dtype=torch.float64)
    lengths = torch.tensor([6, 3, 1])
    real = torch.arange(6) >= 6 - lengths[:, None]
    where = Geometry.padded(real)
    y, state = mixer(x[:, :6], scheme.at(where))
    outs = [y]
    for begin in range(6, 12):
        new = where.next_tokens(1)
        where = new.with_past(where)
        y, state = mixer(x[:, begin : begin + 1], scheme.at(where), state)
        outs.append(y)
    y = torch.cat(outs, 1)
    for row, length in enumerate(lengths.tolist()):
        alone, _ = mixer(x[row : row + 1, 6 - length :], scheme.at(Geometry.causal(6 + length)))
        torch.testing.assert_close(y[row : row + 1, 6 - length :], alone, atol=1e-12, rtol=1e-12)


def test_nothing_of_a_later_token_reaches_an_earlier_one():
    mixer, x = made(), torch.randn(1, 14, 8, dtype=torch.float64, requires_grad=True)
    y, _ = mixer(x, Rope(head_width=4).at(Geometry.causal(14)))
    for token in (2, 3, 9):
        (gradient,) = torch.autograd.grad(y[:, token].sin().sum(), x, retain_graph=True)
        assert (gradient[:, token + 1 :] == 0).all()
        assert (gradient[:, : token + 1] != 0).any(-1).all()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"summaries": 5}, "summaries must not exceed block; got block 4, summaries 5"),
        ({"block": 0}, "block must be above zero"),
        ({"summaries": 0}, "summaries must be above zero"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        made(**options)
