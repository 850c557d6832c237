import pytest
import torch
from torch import nn

from ordinate import Geometry, SequenceMixer, Unmarked
from ordinate.mixer import State
from ordinate.sequence_mixer import Rows


class Watching(SequenceMixer):
    """Gives back its tokens doubled, and keeps what it was given."""

    honours = frozenset()
    equivariant = True

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.marked = nn.Linear(width, 1)

    def mix(self, x, at, real, state):
        self.given = x, at, real, state
        return 2 * x, State()


def mixed(where, x, state=None):
    mixer = Watching(width=x.shape[2])
    y, _ = mixer(x, Unmarked().at(where), state)
    return y, *mixer.given


def test_one_text_a_row_goes_through_as_it_is():
    x = torch.randn(2, 5, 4)
    y, seen, at, real, _ = mixed(Geometry.causal(5), x)
    assert seen is x
    assert real is None
    assert at.where.plain_causal
    assert torch.equal(y, 2 * x)


@pytest.mark.parametrize("left", [True, False])
def test_padding_stands_before_the_tokens_and_is_zero(left):
    real = torch.ones(3, 5).bool()
    real[1, :2], real[2, :] = False, False
    real = real if left else real.flip(1)
    x = torch.randn(3, 5, 4).masked_fill(~real[..., None], float("nan"))
    y, seen, at, laid, _ = mixed(Geometry.padded(real), x)
    assert laid.tolist() == [[True] * 5, [False, False, True, True, True], [False] * 5]
    assert torch.equal(seen[1, 2:], x[1][real[1]])
    assert torch.equal(seen[~laid], torch.zeros(7, 4))
    assert at.where.q_pos[1, 2:, 0].tolist() == [0, 1, 2]
    assert torch.equal(y[real], 2 * x[real])
    assert torch.equal(y[~real], torch.zeros(7, 4))


def test_documents_become_rows_of_their_own():
    x = torch.randn(2, 6, 4)
    document = torch.tensor([[0, 0, 0, 1, 1, -1], [7, 3, 7, 3, 3, 3]])
    where = Geometry(*2 * (torch.arange(6)[None, :, None],), True, 0, None, document, document)
    y, seen, _, laid, _ = mixed(where, x)
    assert torch.equal(y, 2 * x.masked_fill((document < 0)[..., None], 0))
    assert laid.sum(1).tolist() == [3, 2, 4, 2]
    assert torch.equal(seen[2][laid[2]], x[1, [1, 3, 4, 5]])
    assert Rows.of(document).newest.tolist() == [1, 2]


def test_a_memory_is_taken_of_the_newest_document():
    rows = Rows.of(torch.tensor([[0, 0, 1], [0, -1, -1]]))
    assert rows.newest.tolist() == [1, 2]
    # the padding of the second example goes with its only document
    assert rows.spread(torch.tensor([[5, 6, 7], [8, 9, 9]])).tolist() == [[0, 5, 6], [0, 0, 7], [0, 0, 8]]


def padded(*rows):
    return Geometry.padded(torch.tensor(rows).bool())


@pytest.mark.parametrize(
    ("where", "state", "match"),
    [
        (Geometry.causal(3, window=2), None, "Watching has no window; got a geometry with window=2"),
        (Geometry.causal(3, cached=2), None, "in neither; got 2 in the geometry and no state"),
        (Geometry.causal(3), State(), "in neither; got 0 in the geometry and a state"),
        (Geometry.cross(3, 4), None, "mixes the tokens of one sequence; got a geometry of 3 queries, 4 keys"),
        (padded([1, 1, 0]).after(padded([1, 1, 1])), State(), "all of them real; got padding or another document"),
        (Geometry.packed([1, 2]).after(Geometry.packed([3])), State(), "got padding or another document"),
    ],
)
def test_a_geometry_that_it_cannot_serve_is_refused(where, state, match):
    with pytest.raises(ValueError, match=match):
        mixed(where, torch.randn(1, 3, 4), state)


def test_rows_that_have_read_nothing_may_begin_late():
    first = padded([0, 0], [1, 1])
    second = padded([0, 1], [1, 1]).after(first)
    x = torch.randn(2, 2, 4)
    y, _, _, laid, _ = mixed(second, x, State())
    assert laid.tolist() == [[False, True], [True, True]]
    assert torch.equal(y, 2 * x * laid[..., None])


def test_no_tokens_and_no_rows_are_well():
    for x in (torch.randn(2, 0, 4), torch.randn(0, 3, 4)):
        where = Geometry.padded(torch.ones(x.shape[:2]).bool())
        assert mixed(where, x)[0].shape == x.shape


def test_texts_are_laid_out_once_for_all_layers(monkeypatch):
    made = []
    lay_out = Rows.of
    monkeypatch.setattr(Rows, "of", lambda document: made.append(1) or lay_out(document))
    mixer, at = Watching(width=4), Unmarked().at(Geometry.packed([2, 3]))
    for layer in range(3):
        x = torch.randn(2, 5, 4)
        assert torch.equal(mixer(x, at)[0], 2 * x), layer
    assert len(made) == 1
    # another batch has rows of its own
    mixer(torch.randn(1, 5, 4), at)
    assert len(made) == 2
