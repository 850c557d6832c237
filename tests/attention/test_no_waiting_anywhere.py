"""On a GPU no call waits for the device: every scheme with its options, at every kind of geometry, in each use."""

from importlib.util import find_spec
from itertools import product

import pytest
import torch

from ordinate import Geometry, attend
from ordinate.attention import _proof
from ordinate.attention._backend import AttentionCall, ScoreOptions, offset_bias_unsupported
from ordinate.attention._proof_structure import is_decoding
from ordinate.attention._triton_tables import biases_unsupported
from ordinate.attention._triton_vectors import depends_on_content, vectors_unsupported
from ordinate.attention.backends import near_far
from ordinate.core.devices import as_if_on
from ordinate.core.sequence_shard import SequenceShard
from ordinate.schemes import T5
from ordinate.testing.waiting import no_waiting
from tests.attention.all_calls import CASES, PLACES, USES, drawn, made_for, placed, scheme_of, used

pytestmark = [
    pytest.mark.extended,
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]
TYPES = {"training": torch.bfloat16, "evaluation": torch.float32, "inference": torch.float16}
RECORDING = {"training": torch.enable_grad, "evaluation": torch.no_grad, "inference": torch.inference_mode}


@pytest.fixture(autouse=True)
def _proved(monkeypatch):
    # proofs do wait, once for each form; here every backend for GPUs has been proved before
    monkeypatch.setattr(_proof.Proofs, "reason", lambda *given: None)


@pytest.mark.parametrize("name", CASES)
def test_nothing_waits_in_any_use_at_any_geometry(name, untyped):
    case, count = scheme_of(name), 0
    scheme, sinks = case.scheme(torch.float32), torch.zeros(4)
    for place, use in product(PLACES, USES):
        with RECORDING[use]():
            with as_if_on("cuda"):
                where = made_for(case, place)
                at = placed(scheme, where, use)
                if at is None:
                    continue
                given = drawn(at, TYPES[use], use)
                # constants are held from the first step on
                used(at, *given, sinks)
            with no_waiting():
                used(scheme.at(where), *given, sinks)
        count += 1
    assert count >= 3


def fits(call, backend):
    """Whether kernels of a backend exist for a call, on the classes of GPUs below."""
    contents = depends_on_content(call.at)
    if backend == "near_far":
        by_offset = vectors_unsupported if contents else offset_bias_unsupported
        return call.q.dtype != torch.float32 and not by_offset(call) and not near_far._unfit(call)
    if contents:
        return not is_decoding(call.where) and vectors_unsupported(call) is None
    return biases_unsupported(call) is None


def launch_all(scheme, where, use, kind):
    """Launch the kernels of a scheme at a geometry, which compute nothing; how many there were."""
    from tests.attention.kernel_launches import launches

    found = 0
    for backend, options in (("triton", ScoreOptions(5.0, torch.zeros(4))), ("near_far", ScoreOptions())):
        at = placed(scheme, where, use)
        if at is None:
            return 0
        _, q, k, v = drawn(at, TYPES[use], use)
        call = AttentionCall(*at.encode_all(q, k).pair, v, at, 0.3, 0.0, options)
        if fits(call, backend):
            found += len(launches(backend, call, kind, gradients=use == "training"))
    return found


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is for Linux on x86-64")
@pytest.mark.parametrize("kind", ["hopper", "cdna"])
@pytest.mark.parametrize("name", CASES)
def test_launching_the_triton_kernels_waits_nowhere(name, kind, untyped):
    case = scheme_of(name)
    scheme = case.scheme(torch.float32)
    for place, use in product(PLACES, USES):
        with RECORDING[use]():
            where = made_for(case, place)
            with as_if_on("cuda"):
                first = launch_all(scheme, where, use, kind)
            with no_waiting():
                assert launch_all(scheme, where, use, kind) == first


def test_a_shard_of_a_sequence_does_not_wait(untyped):
    scheme, (q, k, v) = T5(heads=4), torch.randn(3, 1, 4, 8, 16)
    with no_waiting():
        where = SequenceShard.of(Geometry.causal(8), 0, 1)
        assert attend(q, k, v, scheme.at(where)).shape == q.shape
