import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ordinate.attention import attend, explain
from ordinate.geometry import Geometry
from ordinate.models.decoder import Decoder
from ordinate.models.shape import Shape
from ordinate.schemes.alibi import Alibi
from ordinate.shard import Shard

SHARERS = Path(__file__).parent / "sharers.py"


@pytest.fixture(scope="module")
def gaps():
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, str(SHARERS)], capture_output=True, text=True, env=environment, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_two_processes_read_a_sequence_as_one_does_outputs_and_gradients(gaps):
    for found in gaps:
        assert len(found) == 14
        for name, (outputs, gradients) in found.items():
            assert outputs < 1e-12, (name, outputs)
            assert gradients < 1e-11 or name == "forgetful", (name, gradients)


def test_gradients_that_stay_in_their_process_are_noticed(gaps):
    assert all(found["forgetful"][1] > 1e-3 for found in gaps)


def test_under_causality_all_processes_have_the_same_work():
    whole = Geometry.causal(24)
    seen = [int(whole.visible[0, Shard.of(whole, rank, 3).index].sum()) for rank in range(3)]
    assert seen == [100, 100, 100]
    assert Shard.of(whole, 0, 3).parts == [slice(0, 4), slice(20, 24)]
    assert Shard.of(Geometry.full(24), 1, 3).parts == [slice(8, 16)]


def test_what_is_taken_comes_back_in_its_place():
    shard = Shard.of(Geometry.causal(12), 0, 1)
    x = torch.randn(2, 12, 3)
    assert torch.equal(shard.gather(shard.take(x)), x)


def test_attention_names_the_way_and_what_it_holds():
    q = torch.randn(1, 2, 8, 4)
    at = Alibi(heads=2).at(Shard.of(Geometry.causal(8), 0, 1))
    found = explain(q, q, q, at)
    assert (found.route, found.bytes) == ("shared", 2 * q.numel() * 4)
    assert torch.allclose(attend(q, q, q, at), attend(q, q, q, Alibi(heads=2).at(Geometry.causal(8))))
    assert explain(q, q, q, Alibi(heads=2).at(Geometry.causal(8))).refused["shared"]


@pytest.mark.parametrize(
    ("whole", "rank", "message"),
    [
        (Geometry.causal(10), 0, r"2 processes share 4 runs of equal length; got 10 tokens; pad it to 12"),
        (Geometry.causal(8), 2, r"ranks of 2 processes lie in 0 to 1; got 2"),
        (Geometry.causal(8, cached=4), 0, r"a shared sequence is whole; got 8 queries, 12 keys"),
    ],
)
def test_what_cannot_be_shared_is_refused(whole, rank, message):
    with pytest.raises(ValueError, match=message):
        Shard.of(whole, rank, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mixer": "linear", "scheme": "none"}, "a sequence that processes share is read by attention; LinearAtt"),
        ({"mixer": "window:window=3"}, "keys of a shared sequence are with other processes; a shard was asked for a"),
        ({"scheme": "randomized", "max_length": 64}, "a shard has the positions of its own tokens"),
    ],
)
def test_what_would_see_only_its_own_tokens_is_refused(options, message):
    model = Decoder(Shape(**({"vocabulary": 5, "width": 8, "layers": 1, "heads": 2, "max_length": 8} | options)))
    shard = Shard.of(Geometry.causal(8), 0, 2)
    with pytest.raises(ValueError, match=message):
        model(torch.zeros(1, 4, dtype=torch.long), shard)


def test_a_forced_route_is_refused():
    q = torch.randn(1, 2, 4, 4)
    at = Alibi(heads=2).at(Shard.of(Geometry.causal(8), 0, 2))
    for route in ("reference", "sdpa", "rows"):
        with pytest.raises(ValueError, match=r"a shard was asked for|must take the call"):
            attend(q, q, q, at, route=route)
