import subprocess
import sys
from dataclasses import dataclass, replace

import pytest

from ordinate import Geometry
from ordinate.core.records import changed
from ordinate.core.sequence_shard import SequenceShard


def test_it_copies_as_dataclasses_do():
    where = Geometry.packed([3, 4], window=2)
    one, other = changed(where, window=3, start=1), replace(where, window=3, start=1)
    assert type(one) is Geometry
    assert all(getattr(one, name) is getattr(other, name) for name in Geometry.__match_args__)
    assert where.window == 2


def test_keyword_only_fields_of_a_shard_are_copied():
    shard = SequenceShard.of(Geometry.causal(8), 1, 2)
    made = changed(shard, window=3)
    assert (made.window, made.rank, made.world, made.sequence) == (3, 1, 2, shard.sequence)


def test_the_checks_of_a_class_run_again():
    @dataclass(frozen=True)
    class Positive:
        x: int

        def __post_init__(self):
            if self.x < 0:
                raise ValueError("must be positive")

    with pytest.raises(ValueError, match="must be positive"):
        changed(Positive(1), x=-1)


PROGRAM = """
import torch
from ordinate import Geometry
from ordinate.core.records import changed

def last(x):
    where = Geometry.causal(x.shape[0])
    return changed(where, window=2).block(slice(-3, None)).q_pos[0, :, 0] + x[:3]

x = torch.ones(5)
assert torch.compile(last, fullgraph=True, backend="eager")(x).equal(last(x))
"""


@pytest.mark.extended
def test_copies_and_blocks_of_a_geometry_made_within_a_graph_can_be_compiled():
    # without the type checks of the other tests, which cannot be traced
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
