import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ordinate.attention._attend import attend, explain
from ordinate.core.geometry import Geometry
from ordinate.core.sequence_shard import SequenceShard
from ordinate.models.decoder import Decoder
from ordinate.models.shape import Shape
from ordinate.schemes.alibi import Alibi

SHARERS = Path(__file__).parent / "sharers.py"


@pytest.fixture(scope="module")
def gaps():
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, str(SHARERS)], capture_output=True, text=True, env=environment, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.extended
def test_two_processes_agree_with_one_in_outputs_and_gradients(gaps):
    for found in gaps:
        assert len(found) == 14
        for name, (outputs, gradients) in found.items():
            assert outputs < 1e-12, (name, outputs)
            assert gradients < 1e-11 or name == "forgetful", (name, gradients)


@pytest.mark.extended
def test_missing_gradients_of_other_processes_are_detected(gaps):
    assert all(found["forgetful"][1] > 1e-3 for found in gaps)


def test_a_causal_sequence_is_balanced_over_the_processes():
    whole = Geometry.causal(24)
    seen = [int(whole.visible[0, SequenceShard.of(whole, rank, 3).token_indices].sum()) for rank in range(3)]
    assert seen == [100, 100, 100]
    assert SequenceShard.of(whole, 0, 3).chunks == [slice(0, 4), slice(20, 24)]
    assert SequenceShard.of(Geometry.full(24), 1, 3).chunks == [slice(8, 16)]


def test_gather_inverts_take():
    shard = SequenceShard.of(Geometry.causal(12), 0, 1)
    x = torch.randn(2, 12, 3)
    assert torch.equal(shard.gather(shard.select_tokens(x)), x)


def test_explain_names_the_backend_and_its_bytes():
    q = torch.randn(1, 2, 8, 4)
    at = Alibi(heads=2).at(SequenceShard.of(Geometry.causal(8), 0, 1))
    found = explain(q, q, q, at)
    assert found.backend == "context_parallel"
    assert found.workspace_bytes > 2 * q.numel() * 4
    assert torch.allclose(attend(q, q, q, at), attend(q, q, q, Alibi(heads=2).at(Geometry.causal(8))))
    assert explain(q, q, q, Alibi(heads=2).at(Geometry.causal(8))).unsupported["context_parallel"]


@pytest.mark.parametrize(
    ("whole", "rank", "message"),
    [
        (
            Geometry.causal(10),
            0,
            r"2 processes need a sequence of 4 chunks of equal length; got 10 tokens; pad it to 12",
        ),
        (Geometry.causal(8), 2, r"ranks of 2 processes lie in 0 to 1; got 2"),
        (
            Geometry.causal(8, cached=4),
            0,
            r"only self-attention without a cache can be sharded; got 8 queries, 12 keys",
        ),
    ],
)
def test_sequences_that_cannot_be_sharded_raise_an_error(whole, rank, message):
    with pytest.raises(ValueError, match=message):
        SequenceShard.of(whole, rank, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"mixer": "linear", "scheme": "none"},
            "a sequence sharded over processes needs a mixer that supports context parallelism; mixer 'linear' does",
        ),
        ({"mixer": "window:window=3"}, "keys of a sharded sequence are on other processes; a shard was asked for a"),
        ({"scheme": "randomized", "max_length": 64}, "a shard must have the positions of its tokens in the sequence"),
    ],
)
def test_mixers_and_schemes_that_would_see_only_local_tokens_raise_an_error(options, message):
    model = Decoder(Shape(**({"vocabulary": 5, "width": 8, "layers": 1, "heads": 2, "max_length": 8} | options)))
    shard = SequenceShard.of(Geometry.causal(8), 0, 2)
    with pytest.raises(ValueError, match=message):
        model(torch.zeros(1, 4, dtype=torch.long), shard)


def test_a_forced_backend_raises_an_error():
    q = torch.randn(1, 2, 4, 4)
    at = Alibi(heads=2).at(SequenceShard.of(Geometry.causal(8), 0, 2))
    for backend in ("reference", "sdpa", "row_blocks"):
        with pytest.raises(ValueError, match=r"a shard was asked for|must support the call"):
            attend(q, q, q, at, backend=backend)
