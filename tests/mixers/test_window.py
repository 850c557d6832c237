from unittest import mock

import pytest
import torch

from ordinate import Decoder, Geometry, Shape
from ordinate.mixers import _projections
from ordinate.mixers.softmax import Softmax
from ordinate.mixers.window import Window
from ordinate.models.cache import Cache
from ordinate.schemes import Alibi, NoPosition, Rope


@pytest.mark.parametrize("window", [1, 3, 8, 9, 20])
@pytest.mark.parametrize("scheme", [NoPosition(), Rope(head_width=6), Alibi(heads=4)])
def test_it_is_usual_attention_at_a_geometry_with_a_window(scheme, window):
    mixer, usual = (
        Window(width=24, heads=4, kv_heads=2, window=window).double(),
        Softmax(width=24, heads=4, kv_heads=2),
    )
    usual.double().load_state_dict(mixer.state_dict())
    x = torch.randn(2, 9, 24, dtype=torch.float64, requires_grad=True)
    real = torch.tensor([[True] * 9, [False] * 3 + [True] * 6])
    makes = (
        lambda window=None: Geometry.causal(9, window=window),
        lambda window=None: Geometry.full(9, window=window),
        lambda window=None: Geometry.packed([4, 5], window=window),
        lambda window=None: Geometry.padded(real, window=window),
    )
    for make in makes:
        results = []
        for attention, where in ((mixer, make()), (usual, make(window=window))):
            y, _ = attention(x, scheme.at(where))
            results.append((y, *torch.autograd.grad(y.square().sum(), [x, *attention.parameters()])))
        for mine, theirs in zip(*results, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("theirs", [2, 6])
def test_of_two_windows_the_narrower_counts(theirs):
    mixer, x = Window(width=8, heads=2, window=4).double(), torch.randn(1, 9, 8, dtype=torch.float64)
    narrow = Window(width=8, heads=2, window=min(4, theirs)).double()
    narrow.load_state_dict(mixer.state_dict())
    y, _ = mixer(x, NoPosition().at(Geometry.causal(9, window=theirs)))
    torch.testing.assert_close(y, narrow(x, NoPosition().at(Geometry.causal(9)))[0], rtol=0, atol=1e-13)


@pytest.mark.parametrize("window", [1, 2, 5])
@pytest.mark.parametrize("scheme", [Rope(head_width=4), Alibi(heads=2)])
def test_it_remembers_no_more_than_it_sees(window, scheme):
    mixer, x = Window(width=8, heads=2, window=window).double(), torch.randn(2, 23, 8, dtype=torch.float64)
    whole, _ = mixer(x, scheme.at(Geometry.causal(23)))
    state, parts, begin = None, [], 0
    for piece in x.split([4, 1, 9, 1, 1, 7], 1):
        y, state = mixer(piece, scheme.at(Geometry.causal(piece.shape[1], cached=begin)), state)
        parts.append(y)
        begin += piece.shape[1]
        assert state.k.shape[2] == state.v.shape[2] == min(window - 1, begin)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)


def test_what_is_forgotten_is_given_back():
    mixer = Window(width=8, heads=2, window=5)
    _, state = mixer(torch.randn(1, 1000, 8), NoPosition().at(Geometry.causal(1000)))
    assert state.k.untyped_storage().nbytes() == 4 * 4 * 8


def test_a_window_wider_than_the_text_needs_no_mask():
    mixer = Window(width=8, heads=2)
    with mock.patch.object(_projections, "attend_encoded", side_effect=_projections.attend_encoded) as spy:
        mixer(torch.randn(1, 256, 8), NoPosition().at(Geometry.causal(256)))
        mixer(torch.randn(1, 257, 8), NoPosition().at(Geometry.causal(257)))
    assert [call.args[2].where.window for call in spy.call_args_list] == [None, 256]


def test_a_decoder_writes_the_same_with_a_short_memory():
    torch.manual_seed(0)
    model = Decoder(Shape(vocabulary=11, width=16, heads=2, layers=2, mixer="window:window=4")).eval()
    ids = torch.randint(11, (2, 30))
    with torch.no_grad():
        whole, cache = model(ids), Cache()
        parts = [model(part, cache=cache) for part in ids.split([9, 1, 1, 12, 7], 1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    assert {state.k.shape[2] for state in cache.states} == {3}


def test_it_is_that_of_local_attention():
    oracle = pytest.importorskip("local_attention").LocalAttention(
        window_size=4, causal=True, look_backward=1, exact_windowsize=True, use_rotary_pos_emb=False, autopad=True
    )
    mixer = Window(width=24, heads=4, window=5)
    q, k, v = torch.randn(3, 2, 4, 30, 6).unbind()
    # their window counts the tokens before one, ours that one too
    ours = mixer.attention(q, k, v, NoPosition().at(Geometry.causal(30)))
    torch.testing.assert_close(ours, oracle(q, k, v), rtol=0, atol=1e-6)


def test_a_window_holds_the_token_itself_at_least():
    with pytest.raises(ValueError, match="a window holds at least the token itself; got 0; give 1 or more"):
        Window(width=8, heads=2, window=0)
