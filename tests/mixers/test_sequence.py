import pytest
import torch
from torch import nn

from ordinate import Geometry
from ordinate.core import catalog
from ordinate.mixers import SequenceMixer
from ordinate.mixers._mixer import Mixer, MixerState
from ordinate.mixers._sequence import UnpackedDocuments
from ordinate.schemes import NoPosition
from ordinate.testing.mixer import MixerCase


class Watching(SequenceMixer):
    """Returns its tokens doubled, and records its inputs."""

    supported_hooks = frozenset()
    permutation_equivariant = True

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.marked = nn.Linear(width, 1)

    def mix_sequences(self, x, at, real, state):
        self.given = x, at, real, state
        return 2 * x, MixerState()


def mixed(where, x, state=None):
    mixer = Watching(width=x.shape[2])
    y, _ = mixer(x, NoPosition().at(where), state)
    return y, *mixer.given


def test_one_document_per_row_passes_unchanged():
    x = torch.randn(2, 5, 4)
    y, seen, at, real, _ = mixed(Geometry.causal(5), x)
    assert seen is x
    assert real is None
    assert at.where.is_plain_causal
    assert torch.equal(y, 2 * x)


@pytest.mark.parametrize("left", [True, False])
def test_padding_is_moved_before_the_tokens_and_zeroed(left):
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


def test_documents_become_separate_rows():
    x = torch.randn(2, 6, 4)
    document = torch.tensor([[0, 0, 0, 1, 1, -1], [7, 3, 7, 3, 3, 3]])
    where = Geometry(*2 * (torch.arange(6)[None, :, None],), True, 0, None, document, document)
    y, seen, _, laid, _ = mixed(where, x)
    assert torch.equal(y, 2 * x.masked_fill((document < 0)[..., None], 0))
    assert laid.sum(1).tolist() == [3, 2, 4, 2]
    assert torch.equal(seen[2][laid[2]], x[1, [1, 3, 4, 5]])
    assert UnpackedDocuments.from_documents(document).last_row.tolist() == [1, 2]


def test_the_state_is_that_of_the_last_document():
    rows = UnpackedDocuments.from_documents(torch.tensor([[0, 0, 1], [0, -1, -1]]))
    assert rows.last_row.tolist() == [1, 2]
    # the padding of the second example belongs to its only document
    assert rows.unpack(torch.tensor([[5, 6, 7], [8, 9, 9]])).tolist() == [[0, 5, 6], [0, 0, 7], [0, 0, 8]]


def assert_same_rows(rows, document):
    """The same as found by reading all documents."""
    found = UnpackedDocuments.from_documents(document)
    assert torch.equal(rows.real, found.real)
    assert torch.equal(rows.packed_to_row, found.packed_to_row)
    assert torch.equal(rows.last_row, found.last_row)
    x = torch.randn(*document.shape, 3)
    assert torch.equal(rows.unpack(x), found.unpack(x))
    assert torch.equal(rows.pack(rows.unpack(x)), x.masked_fill((document < 0)[..., None], 0))


@pytest.mark.parametrize("lengths", [[1], [7], [2, 3], [3, 2], [1, 1, 1], [4, 1, 6, 2]])
@pytest.mark.parametrize("batch", [1, 3])
def test_documents_of_known_sizes_are_unpacked_without_reading_them(lengths, batch):
    where = Geometry.packed(lengths)
    document = where.q_document.expand(batch, -1)
    assert_same_rows(UnpackedDocuments.from_sizes(document, *where.packed_sizes), document)


@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_padded_rows_are_unpacked_without_reading_them(tokens):
    kept = [
        [begin <= place < end for place in range(tokens)] for begin in range(tokens + 1) for end in range(tokens + 1)
    ]
    real = torch.tensor([row for row in kept if row[0] or row[-1] or not any(row)])
    assert_same_rows(UnpackedDocuments.from_padding(real), real.long() - 1)


def test_sizes_of_packed_documents_hold_for_the_whole_geometry_only():
    where = Geometry.packed([2, 3])
    assert where.packed_sizes == where.block(slice(0, 5)).packed_sizes == (2, 3)
    others = (where.block(slice(1, None)), where.block(slice(None), slice(0, 4)), where.next_tokens(5))
    past = Geometry.causal(5).with_past(where), where.with_past(Geometry.causal(5))
    assert [one.packed_sizes for one in (*others, *past, Geometry.causal(5))] == [None] * 6


def padded(*rows):
    return Geometry.padded(torch.tensor(rows).bool())


@pytest.mark.parametrize(
    ("where", "state", "match"),
    [
        (
            Geometry.causal(3, window=2),
            None,
            "Watching does not support a sliding window; got a geometry with window=2",
        ),
        (
            Geometry.causal(3, cached=2),
            None,
            "if the geometry has past tokens; got 2 past tokens in the geometry and no state",
        ),
        (
            Geometry.causal(3),
            MixerState(),
            "if the geometry has past tokens; got 0 past tokens in the geometry and a state",
        ),
        (
            Geometry.cross(3, 4),
            None,
            "needs queries that are the last keys of one sequence; got a geometry of 3 queries, 4 keys",
        ),
        (
            padded([1, 1, 0]).with_past(padded([1, 1, 1])),
            MixerState(),
            "last document of the past; got padding or the start of another",
        ),
        (
            Geometry.packed([1, 2]).with_past(Geometry.packed([3])),
            MixerState(),
            "got padding or the start of another document",
        ),
    ],
)
def test_unsupported_geometries_raise_an_error(where, state, match):
    with pytest.raises(ValueError, match=match):
        mixed(where, torch.randn(1, 3, 4), state)


def test_rows_without_tokens_may_begin_late():
    first = padded([0, 0], [1, 1])
    second = padded([0, 1], [1, 1]).with_past(first)
    x = torch.randn(2, 2, 4)
    y, _, _, laid, _ = mixed(second, x, MixerState())
    assert laid.tolist() == [[False, True], [True, True]]
    assert torch.equal(y, 2 * x * laid[..., None])


def test_empty_inputs_are_supported():
    for x in (torch.randn(2, 0, 4), torch.randn(0, 3, 4)):
        where = Geometry.padded(torch.ones(x.shape[:2]).bool())
        assert mixed(where, x)[0].shape == x.shape


def test_documents_are_unpacked_once_for_all_layers(monkeypatch):
    made = []
    lay_out = UnpackedDocuments.from_sizes
    monkeypatch.setattr(UnpackedDocuments, "from_sizes", lambda *given: made.append(1) or lay_out(*given))
    mixer, at = Watching(width=4), NoPosition().at(Geometry.packed([2, 3]))
    for layer in range(3):
        x = torch.randn(2, 5, 4)
        assert torch.equal(mixer(x, at)[0], 2 * x), layer
    assert len(made) == 1
    # another batch is unpacked separately
    mixer(torch.randn(1, 5, 4), at)
    assert len(made) == 2


@pytest.mark.parametrize("name", ["linear", "block_linformer", "reformer", "rwkv7", "s4d", "gru"])
def test_nan_reaches_later_tokens_of_its_row_through_the_state_and_no_earlier_ones(name):
    case = MixerCase(catalog.load("ordinate.mixers", Mixer, name))
    mixer, scheme, x = case.mixer(), case.scheme(), case.tokens(2, 9)
    plain = case.output(x, Geometry.causal(9))
    x[0, 3] = float("nan")
    first, state = mixer(x[:, :5], scheme.at(Geometry.causal(5)))
    rest, _ = mixer(x[:, 5:], scheme.at(Geometry.causal(4, cached=5)), state)
    out = torch.cat([first, rest], 1)
    torch.testing.assert_close(out[0, :3], plain[0, :3])
    torch.testing.assert_close(out[1], plain[1])
    assert out[0, 3:].isnan().all()


@pytest.mark.parametrize(
    "name", ["linear", "performer", "retnet", "gla", "block_linformer", "deltanet", "path", "h3"]
)
def test_a_finite_token_whose_products_overflow_spoils_no_earlier_one(name):
    case = MixerCase(catalog.load("ordinate.mixers", Mixer, name))
    x, found = case.tokens(3, 9, torch.float16), []
    loud = x.clone()
    loud[0, 4] = loud[1, 7] = 6e4
    for given in (x, loud):
        leaf = given.clone().requires_grad_()
        out = case.output(leaf, Geometry.causal(9))
        past = out[0, :4], out[1, :7], out[2]
        (slope,) = torch.autograd.grad(sum(part.float().square().sum() for part in past), leaf)
        found.append([*(part.detach() for part in past), slope[0, :4], slope[1, :7], slope[2]])
        assert out.isfinite().all() == (given is x)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one, rtol=2e-2, atol=2e-2)


def test_nan_in_one_document_leaves_the_others_as_they_were():
    case = MixerCase(catalog.load("ordinate.mixers", Mixer, "linear"))
    x, where = case.tokens(1, 9), Geometry.packed([4, 5])
    plain = case.output(x, where)
    x[0, 2] = float("nan")
    out = case.output(x, where)
    torch.testing.assert_close(out[0, 4:], plain[0, 4:])
    torch.testing.assert_close(out[0, :2], plain[0, :2])
    assert out[0, 2:4].isnan().all()
