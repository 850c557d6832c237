"""Every backend on the device of `--device` agrees with the reference there; on a CPU, a few of the same cases."""

import os
import subprocess
import sys

import pytest
import torch

from ordinate import Geometry, attend
from ordinate.attention._attend import BACKENDS
from ordinate.attention._backend import AttentionCall, ScoreOptions
from ordinate.attention._proof_case import disagreement
from ordinate.schemes import T5, Alibi, NoPosition
from ordinate.testing.backend import GEOMETRIES, random_qkv


def t5():
    scheme = T5(heads=4)
    torch.nn.init.normal_(scheme.table)
    return scheme


SCHEMES = {"none": NoPosition, "alibi": lambda: Alibi(heads=4), "t5": t5}


@pytest.mark.covering(1)
@pytest.mark.parametrize("width", [16, 40, 64, 128])
@pytest.mark.parametrize("type", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", SCHEMES)
def test_every_backend_that_supports_a_call_agrees_with_the_reference(name, geometry, type, width):
    where, scheme = GEOMETRIES[geometry](17), SCHEMES[name]()
    q, k, v = random_qkv(where, dtype=type, width=width)
    call = AttentionCall(q, k, v, scheme.at(where), width**-0.5, 0.0, ScoreOptions())
    for backend in BACKENDS.values():
        if backend.unsupported_reason(call) is None:
            assert disagreement(backend, call, gradients=True) is None


def test_tensors_are_made_on_the_device(request):
    wanted = torch.device(request.config.getoption("--device")).type
    where = Geometry.causal(5)
    q, k, v = random_qkv(where, dtype=torch.float32)
    out = attend(q, k, v, Alibi(heads=4).at(where))
    assert {x.device.type for x in (where.q_pos, q, out)} == {wanted}


@pytest.mark.extended
def test_the_option_makes_tensors_elsewhere():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "--device", "meta"]
    done = subprocess.run([*command, "-k", "made_on"], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stdout[-2000:]
