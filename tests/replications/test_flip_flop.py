import torch

from ordinate.data.batch import IGNORE_INDEX
from ordinate.replications.flip_flop import READ, SYMBOLS, FlipFlop, flip_flops, is_write, last_written, read_error


def test_the_bit_written_last_is_that_of_the_nearest_write_before():
    # write 1, ignore 0, read, write 0, ignore 1, read
    rows = torch.tensor([[1, 2, READ, 0, 3, READ]])
    assert last_written(rows)[0].tolist() == [1, 1, 1, 0, 0, 0]


def test_texts_begin_with_a_write_end_with_a_read_and_ignore_as_many_bits_as_asked():
    for share in (0.2, 0.8):
        rows = flip_flops(torch.Generator().manual_seed(0), 200, share)
        assert is_write(rows[:, :1]).all()
        assert (rows[:, -1] == READ).all()
        inner = rows[:, 1:-1]
        ignored = ~is_write(inner) & (inner != READ)
        assert abs(float(ignored.double().mean()) - share) < 0.02
        # the rest in equal parts
        assert abs(float(is_write(inner).double().mean() - (inner == READ).double().mean())) < 0.02


def test_reads_alone_are_targets_and_alone_are_scored():
    batch = FlipFlop().sample(torch.Generator().manual_seed(0), 8)
    assert torch.equal(batch.targets != IGNORE_INDEX, batch.inputs == READ)
    right = torch.nn.functional.one_hot(last_written(batch.inputs), SYMBOLS).double()
    assert read_error(right, batch.inputs) == 0
    flipped = torch.where((batch.inputs == READ)[..., None], right, right.roll(1, -1))
    assert read_error(flipped, batch.inputs) == 0
    assert read_error(1 - right, batch.inputs) == 1
