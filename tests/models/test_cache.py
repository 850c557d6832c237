import pytest
import torch

from ordinate import Cache, Decoder, Geometry, Shape
from ordinate.attention.kv_buffer import KVBuffer
from ordinate.mixers._mixer import KVCache

SMALL = {"vocabulary": 11, "width": 16, "layers": 2, "heads": 4}


def ids(*shape):
    return torch.randint(0, 11, shape)


def test_an_empty_cache_holds_nothing_and_starts_at_zero():
    cache = Cache()
    assert len(cache) == 0
    assert cache.next_geometry(3).q_pos[0, :, 0].tolist() == [0, 1, 2]


def test_it_grows_by_each_piece():
    model, cache = Decoder(Shape(**SMALL)).eval(), Cache()
    for tokens, total in ((3, 3), (0, 3), (1, 4), (2, 6)):
        model(ids(2, tokens), cache=cache)
        assert len(cache) == total
        assert cache.states[0].k.shape[2] == total
        assert cache.where.k_pos[0, :, 0].tolist() == list(range(total))


def test_reading_nothing_first_changes_nothing():
    model, cache, text = Decoder(Shape(**SMALL)).eval(), Cache(), ids(1, 4)
    model(text[:, :0], cache=cache)
    assert torch.equal(model(text, cache=cache), model(text))


def test_a_failed_step_leaves_the_cache_as_it_was():
    model, cache = Decoder(Shape(scheme="learned", max_length=4, **SMALL)).eval(), Cache()
    model(ids(1, 4), cache=cache)
    with pytest.raises(ValueError, match=r"Learned serves positions 0 to 3 \(max_length 4\); got 4 to 4"):
        model(ids(1, 1), cache=cache)
    assert len(cache) == 4
    assert cache.states[0].k.shape[2] == 4


def test_a_cache_of_another_model_is_refused():
    cache = Cache()
    Decoder(Shape(**SMALL))(ids(1, 3), cache=cache)
    other = Decoder(Shape(**(SMALL | {"layers": 3})))
    with pytest.raises(ValueError, match="a cache must have one state for each layer; got 2 for 3 layers"):
        other(ids(1, 1), cache=cache)


def test_a_cache_of_another_batch_is_refused():
    model, cache = Decoder(Shape(**SMALL)), Cache()
    model(ids(2, 3), cache=cache)
    with pytest.raises(ValueError, match="need the same batch size, heads and head width"):
        model(ids(1, 1), cache=cache)


def test_place_puts_what_is_remembered_before():
    cache = Cache(where=Geometry.causal(3))
    seen = cache.with_past(cache.next_geometry(2))
    assert torch.equal(seen.visible, Geometry.causal(2, cached=3).visible)
    assert torch.equal(seen.q_pos, Geometry.causal(2, cached=3).q_pos)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_keys_and_values_grow_as_if_they_were_copied(mode):
    states = KVCache(torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5))
    k, v = states.k, states.v
    with mode():
        for tokens in (1, 1, 3, 40, 1, 0, 1):
            new = torch.randn(2, 2, 3, tokens, 5).unbind(0)
            states = states.append(*new)
            k, v = torch.cat([k, new[0]], 2), torch.cat([v, new[1]], 2)
            assert torch.equal(states.k, k)
            assert torch.equal(states.v, v)


@pytest.mark.parametrize("scheme", ["rope", "rope:layout=interleaved", "rope:rotary_dim=2", "xpos", "none", "pope"])
def test_keys_encoded_into_the_cache_are_those_that_are_copied_there(scheme, monkeypatch):
    model, text, places, written = Decoder(Shape(scheme=scheme, **SMALL)).eval(), ids(2, 70), [], []
    reserve, write = KVBuffer.reserve, KVBuffer.write
    with torch.no_grad():
        usual = model(text)
        monkeypatch.setattr(KVBuffer, "reserve", lambda *given: places.append(reserve(*given)) or places[-1])
        monkeypatch.setattr(KVBuffer, "write", lambda self, k, *v: written.append(k) or write(self, k, *v))
        cache = Cache()
        made = [model(part, cache=cache) for part in text.split([20, 1, 1, 3, 0, 1, 40, 4], 1)]
    assert torch.allclose(torch.cat(made, 1), usual, atol=1e-5)
    found = [place for place in places if place is not None]
    # keys of pope have twice the channels of those that are projected
    assert len(found) == (0 if scheme == "pope" else 10)
    assert all(any(k is place for k in written) for place in found)


def test_memory_of_a_cache_is_reserved_only_where_append_would_write():
    state = KVCache(torch.randn(2, 3, 4, 6), torch.randn(2, 3, 4, 6))
    k, v = torch.randn(2, 2, 3, 1, 6)
    with torch.no_grad():
        assert state.reserve(k) is None
        longer = state.append(k, v)
        assert longer.reserve(k).data_ptr() == longer.buffer.k[:, :, 5:].data_ptr()
        assert longer.reserve(k).shape == k.shape
        others = k.double(), k[..., :5], k[:1], k.expand(-1, -1, 100, -1)
        assert [longer.reserve(other) for other in others] == 4 * [None]
        # another continuation has been written behind it
        longer.append(k, v)
        assert longer.reserve(k) is None
    with torch.enable_grad():
        assert longer.append(k, v).reserve(k) is None


def test_reserved_memory_that_something_else_was_appended_to_is_written():
    state = KVCache(torch.randn(1, 2, 4, 6), torch.randn(1, 2, 4, 6))
    k, v, other = torch.randn(3, 1, 2, 1, 6)
    with torch.no_grad():
        state = state.append(k, v)
        place = state.reserve(other).copy_(other)
        assert state.append(k, v).k[:, :, -1:].equal(k)
        assert not place.equal(other)
        state = state.append(k, v)
        state.reserve(other).copy_(other)
        # memory reserved later is other memory
        state.reserve(other)
        assert state.append(other, v).k[:, :, -1:].equal(other)


def test_a_token_more_is_no_copy_of_what_is_there():
    states = KVCache(torch.randn(1, 2, 60, 4), torch.randn(1, 2, 60, 4))
    one = torch.randn(1, 2, 1, 4)
    with torch.no_grad():
        first = states.append(one, one)
        places = set()
        for _ in range(20):
            first = first.append(one, one)
            places.add(first.k.data_ptr())
    assert len(places) == 1


def test_two_continuations_of_one_cache_do_not_overwrite_each_other():
    with torch.no_grad():
        one = torch.randn(1, 2, 1, 4)
        states = KVCache(torch.randn(1, 2, 6, 4), torch.randn(1, 2, 6, 4)).append(one, one)
        first, second = states.append(one + 1, one), states.append(one + 2, one)
        assert torch.equal(first.k[:, :, -1:], one + 1)
        assert torch.equal(second.k[:, :, -1:], one + 2)
        assert torch.equal(first.append(one, one).k[:, :, 7:8], one + 1)
        taken = first.select_rows(torch.tensor([0, 0]))
        assert taken.buffer is None
        assert taken.k.shape == (2, 2, 8, 4)


def test_a_cache_from_inference_mode_can_be_continued_outside_of_it():
    with torch.inference_mode():
        one = torch.randn(1, 2, 1, 4)
        states = KVCache(one, one).append(one, one)
    with torch.no_grad():
        assert states.append(one, one).k.shape[2] == 3


def test_a_memory_measures_its_longest_key_once():
    k, v = torch.randn(2, 2, 3, 50, 4)
    with torch.no_grad():
        states = KVCache(k, v).append(k[:, :, :1], v[:, :, :1])
        assert torch.equal(states.max_key_norm(), k.norm(dim=-1).amax(-1))
        # what was measured is not looked at again
        states.k[:, :, 0] = 1e3
        long = torch.full((2, 3, 1, 4), 5.0)
        states = states.append(long, long)
        assert (states.max_key_norm() == 10.0).all()
        assert KVCache(k, v).max_key_norm is None


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("which", ["k", "v"])
@pytest.mark.parametrize("type", [torch.float32, torch.bfloat16, torch.float16])
def test_a_memory_knows_of_numbers_that_are_not_finite(type, which, wrong):
    new = {name: torch.randn(2, 3, 4, 5).to(type) for name in ("k", "v")}
    with torch.no_grad():
        states = KVCache(*torch.randn(2, 2, 3, 6, 5).to(type)).append(**new)
        assert states.max_key_norm().isfinite().all()
        new[which][1, 2, 3, 4] = wrong
        found = states.append(**new).max_key_norm().isfinite()
    assert not found[1, 2]
    assert found.sum() == 5
