import torch

from ordinate.measures.presenting import Sample, carried, sample, shuffled, undone
from ordinate.testing.plain import Plain, texts


def test_patches_change_places_and_class_tokens_do_not():
    images = torch.arange(2.0)[:, None, None, None] * 100 + torch.arange(16.0).reshape(1, 1, 4, 4)
    held = Sample(None, images, 0, (2, 2), prefix=1)
    order = torch.tensor([[3, 0, 1, 2]] * 2)
    given = held.given(slice(0, 2), order, positions=True)
    want = torch.tensor([[10, 11, 0, 1], [14, 15, 4, 5], [2, 3, 8, 9], [6, 7, 12, 13]]) + 100
    assert torch.equal(given.images[1, 0], want.float())
    assert given.positions.tolist() == [[0, 4, 1, 2, 3]] * 2


def test_tokens_are_shuffled_inside_their_windows_and_put_back():
    held = Sample(texts(5, 11).ids, None, 1, None)
    order = shuffled(held, 4, torch.Generator().manual_seed(0))
    assert (order[:, 0] == 0).all()
    for start in (1, 5, 9):
        assert order[:, start : start + 4].sort(1).values.tolist() == [list(range(start, min(11, start + 4)))] * 5
    x = torch.randn(5, 11, 3)
    moved = x.gather(1, order[..., None].expand_as(x))
    torch.testing.assert_close(undone(moved, order), x)


def test_each_token_takes_along_what_it_saw():
    order = torch.tensor([[2, 0, 1]])
    assert carried(Plain().facts, order)[0].tolist() == [
        [True, True, True],
        [False, True, False],
        [False, True, True],
    ]
    assert carried(Plain(causal=False).facts, order) is None


def test_a_costly_model_reads_less_of_the_same():
    facts, material = Plain().facts, texts(64, 200)
    whole = sample(facts, material, 1)
    less = sample(facts, material, 1, budget=1e6)
    assert (whole.texts, whole.length) == (64, 200)
    assert (less.texts, less.length) < (64, 200)
    assert torch.equal(less.ids, material.ids[: less.texts, : less.length])
