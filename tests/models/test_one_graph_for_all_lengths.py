"""A graph of torch.compile or torch.export serves sequences of other lengths: no size is fixed while it is traced."""

import subprocess
import sys

import pytest

MODELS = """
import torch
from torch import nn
from ordinate import Decoder, DropInAttention, Encoder, EncoderDecoder, EncoderDecoderShape, EncoderShape, Shape
from ordinate.models.expert_options import ExpertOptions

# wide enough that C++ kernels and oneDNN are asked for in eager mode
SIZES = {"vocabulary": 50, "width": 256, "layers": 1, "heads": 2, "max_length": 4096}


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = DropInAttention(32, 4, batch_first=True, scheme="t5")

    def forward(self, x, mask, padding):
        return self.attention(x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False)[0]


def ids(tokens):
    return (torch.randint(0, 50, (2, tokens)),)


def pairs(tokens):
    return *ids(tokens), *ids(tokens + 3)


def masks(tokens):
    padding = torch.arange(tokens)[None] >= torch.tensor([[tokens], [tokens - 1]])
    return torch.randn(2, tokens, 32), torch.rand(tokens, tokens) > 0.9, padding


def decoder(**options):
    return Decoder(Shape(**SIZES, **options))


MODELS = {
    "rope": (lambda: decoder(scheme="rope", feedforward="gelu"), ids),
    "shaw": (lambda: decoder(scheme="shaw"), ids),
    "learned+t5": (lambda: decoder(scheme="learned+t5"), ids),
    "alibi/none": (lambda: decoder(scheme="alibi/none"), ids),
    "experts": (lambda: decoder(experts=ExpertOptions(4)), ids),
    "merged_qk": (lambda: decoder(mixer="merged_qk", scheme="alibi"), ids),
    "encoder": (lambda: Encoder(EncoderShape(**SIZES, scheme="alibi", token_types=2)), ids),
    "encoder-decoder": (lambda: EncoderDecoder(EncoderDecoderShape(**SIZES)), pairs),
    "masks": (Masked, masks),
}
"""
COMPILED = """
from torch._dynamo.testing import CompileCounter

for name in sys.argv[1:]:
    torch._dynamo.reset()
    make, inputs = MODELS[name]
    model, counter = make().eval(), CompileCounter()
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    with torch.no_grad():
        for tokens in (5, 9, 20, 60, 200, 600):
            given = inputs(tokens)
            torch.testing.assert_close(compiled(*given), model(*given), atol=1e-4, rtol=1e-4)
    # the first length, all others, and long ones, for which attention is an operator of its own
    assert counter.frame_count <= 3, (name, counter.frame_count)
"""
EXPORTED = """
length = torch.export.Dim("tokens", min=2, max=4000)
AXES = {ids: ({1: length},), masks: ({1: length}, {0: length, 1: length}, {1: length})}

for name in sys.argv[1:]:
    make, inputs = MODELS[name]
    model, given = make().eval(), inputs(9)
    program = torch.export.export(model, given, dynamic_shapes=AXES[inputs])
    # a program may be loaded where Ordinate is not
    assert not [node for node in program.graph.nodes if "ordinate" in str(node.target)], name
    for tokens in (2, 9, 300, 1000):
        given = inputs(tokens)
        torch.testing.assert_close(program.module()(*given), model(*given), atol=1e-4, rtol=1e-4)
"""


def run(program, *names):
    # without the check of types that the other tests run under, as a user has it
    command = [sys.executable, "-W", "ignore", "-c", f"import sys\n{MODELS}\n{program}", *names]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.extended
@pytest.mark.parametrize(
    "names",
    [("rope", "shaw", "merged_qk", "experts"), ("learned+t5", "alibi/none", "masks"), ("encoder", "encoder-decoder")],
)
def test_other_lengths_are_not_compiled_again(names):
    run(COMPILED, *names)


@pytest.mark.extended
def test_an_exported_program_serves_all_lengths():
    run(EXPORTED, "rope", "shaw", "learned+t5", "masks")
