"""A whole decoder is one graph of torch.compile, forward and backward, as on a CPU and as on a GPU."""

import os
import subprocess
import sys

import pytest

from ordinate.core import catalog
from ordinate.schemes import Scheme

NAMES = [
    name for name in catalog.names("ordinate.schemes") if 1 in catalog.load("ordinate.schemes", Scheme, name).axes
]
# processes that share the schemes: starting one takes as long as a scheme
PARTS = 4
PROGRAM = """
import sys
import torch
from ordinate import Decoder, Shape
from ordinate.core.devices import as_if_on

for name in sys.argv[2:]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Decoder(Shape(vocabulary=50, width=32, layers=1, heads=2, max_length=64, scheme=name))
    ids, learned = torch.randint(0, 50, (2, 24)), [x for x in model.parameters() if x.requires_grad]
    with as_if_on(sys.argv[1]):
        plain = model(ids)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")(ids)
        assert torch.allclose(plain, compiled, atol=1e-4), name
        both = (torch.autograd.grad(out.sum(), learned, allow_unused=True) for out in (plain, compiled))
        for x, y in zip(*both):
            assert x is None or torch.allclose(x, y, atol=1e-3), name
"""


def compile_each(kind, *names):
    # without the check of types that the other tests run under, as a user has it
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, kind, *names]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.extended
@pytest.mark.parametrize("part", range(PARTS))
def test_a_decoder_with_a_scheme_is_one_graph_as_on_a_gpu(part):
    compile_each("cuda", *NAMES[part::PARTS])
