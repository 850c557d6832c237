import pytest
import torch

from ordinate import Cache, Decoder, Geometry, Shape

SMALL = {"vocabulary": 11, "width": 16, "layers": 2, "heads": 4}


def ids(*shape):
    return torch.randint(0, 11, shape)


def test_an_empty_cache_holds_nothing_and_starts_at_zero():
    cache = Cache()
    assert len(cache) == 0
    assert cache.following(3).q_pos[0, :, 0].tolist() == [0, 1, 2]


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
    with pytest.raises(ValueError, match="a cache holds one memory for each layer; got 2 for 3 layers"):
        other(ids(1, 1), cache=cache)


def test_a_cache_of_another_batch_is_refused():
    model, cache = Decoder(Shape(**SMALL)), Cache()
    model(ids(2, 3), cache=cache)
    with pytest.raises(ValueError, match="need one batch and the same heads"):
        model(ids(1, 1), cache=cache)


def test_place_puts_what_is_remembered_before():
    cache = Cache(where=Geometry.causal(3))
    seen = cache.place(cache.following(2))
    assert torch.equal(seen.visible, Geometry.causal(2, cached=3).visible)
    assert torch.equal(seen.q_pos, Geometry.causal(2, cached=3).q_pos)
