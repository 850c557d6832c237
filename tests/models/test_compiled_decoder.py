"""A whole decoder is one graph of torch.compile, forward and backward, as on a CPU and as on a GPU."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from ordinate.core import catalog
from ordinate.mixers import Mixer
from ordinate.mixers._sequence import SequenceMixer
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


def assert_it_ends_well(program, *words, **environment):
    """Run a program, which asserts, without the check of types that the other tests run under, as a user has it."""
    command = [sys.executable, "-W", "ignore", "-c", program, *words]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.extended
@pytest.mark.parametrize("part", range(PARTS))
def test_a_decoder_with_a_scheme_is_one_graph_as_on_a_gpu(part):
    assert_it_ends_well(PROGRAM, "cuda", *NAMES[part::PARTS])


# compiled for each length, and one that draws random directions in each call
OTHERS = {"block_linformer", "longformer", "reformer"}
# mixers of whole sequences: attention is tested above, by scheme
MIXERS = [
    name
    for name in catalog.names("ordinate.mixers")
    if name not in OTHERS and issubclass(catalog.load("ordinate.mixers", Mixer, name), SequenceMixer)
]
MIXED = """
import sys
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from ordinate import Decoder, Encoder, EncoderShape, Shape
from ordinate.core import catalog
from ordinate.mixers import Mixer

for name in sys.argv[1:]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    kind = catalog.load("ordinate.mixers", Mixer, name)
    sizes = {"vocabulary": 50, "width": 32, "layers": 1, "heads": 2, "max_length": 200}
    sizes |= {"mixer": name, "scheme": kind.default_scheme}
    model = Decoder(Shape(**sizes)) if kind.causal else Encoder(EncoderShape(**sizes))
    learned = [x for x in model.parameters() if x.requires_grad]
    with torch.no_grad():
        # where an output matrix is 0, all gradients before it are
        for x in learned:
            x.add_(torch.randn_like(x), alpha=0.03)
    # aot_eager alone has other strides than it expects after softplus
    counter = CompileCounterWithBackend("aot_eager_decomp_partition")
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    # fewer than 2^16 pairs, from which on attention is another graph
    for tokens in (64, 96, 120, 77):
        ids = torch.randint(0, 50, (2, tokens))
        losses = [run(ids).square().sum() for run in (model, compiled)]
        assert torch.allclose(*losses, rtol=1e-4), name
        both = (torch.autograd.grad(loss, learned, allow_unused=True) for loss in losses)
        for x, y in zip(*both):
            assert x is None or torch.allclose(x, y, rtol=1e-3, atol=1e-3 * x.abs().max()), name
    # one for the first length, and one for all others
    assert counter.frame_count <= 2, (name, counter.frame_count)
"""


@pytest.mark.extended
@pytest.mark.parametrize("part", range(PARTS))
def test_a_model_with_a_mixer_of_sequences_has_one_graph_for_all_lengths_but_the_first(part):
    assert_it_ends_well(MIXED, *MIXERS[part::PARTS])


DOCUMENTS = """
import sys
import torch
from ordinate import Decoder, Encoder, EncoderShape, Geometry, Shape
from ordinate.core import catalog
from ordinate.mixers import Mixer

def one_text(tokens, causal):
    return Geometry.causal(tokens) if causal else Geometry.full(tokens)


for name in sys.argv[1:]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    kind = catalog.load("ordinate.mixers", Mixer, name)
    sizes = {"vocabulary": 50, "width": 32, "layers": 1, "heads": 2, "max_length": 100}
    sizes |= {"mixer": name, "scheme": kind.default_scheme}
    model = Decoder(Shape(**sizes)) if kind.causal else Encoder(EncoderShape(**sizes))
    learned = [x for x in model.parameters() if x.requires_grad]
    with torch.no_grad():
        for x in learned:
            x.add_(torch.randn_like(x), alpha=0.03)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager_decomp_partition")
    for lengths, real in (([30, 7, 3], [40, 33]), ([11, 44, 1], [56, 5])):
        ids, index = torch.randint(0, 50, (2, sum(lengths))), torch.arange(sum(lengths))
        packed = Geometry.packed(lengths, causal=kind.causal)
        padded = Geometry.padded(index < torch.tensor(real)[:, None], causal=kind.causal)
        # each document alone, without the code that takes documents apart
        pieces = [model(part, one_text(len(part[0]), kind.causal)) for part in ids.split(lengths, 1)]
        rows = [model(row[None, :size], one_text(size, kind.causal))[0] for row, size in zip(ids, real)]
        found = [out[:size] for out, size in zip(compiled(ids, padded), real)]
        for plain, outs in ((pieces, compiled(ids, packed).split(lengths, 1)), (rows, found)):
            for one, other in zip(outs, plain):
                torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4, msg=name)
            losses = [sum(out.square().sum() for out in side) for side in (plain, outs)]
            both = (torch.autograd.grad(loss, learned, allow_unused=True) for loss in losses)
            for x, y in zip(*both):
                assert x is None or torch.allclose(x, y, rtol=1e-3, atol=1e-3 * x.abs().max()), name
"""


@pytest.mark.extended
@pytest.mark.parametrize("part", range(PARTS))
def test_padded_and_packed_texts_are_one_graph_and_as_each_document_alone(part):
    assert_it_ends_well(DOCUMENTS, *MIXERS[part::PARTS])


# of published models: Gemma 3, Gemma 2, Granite, gpt-oss
FORMS = (
    "norm_position='peri', zero_centred_norm=True, embedding_scale=32**0.5, round_embedding_scale=True, "
    "mixer='softmax:variant.qk_norm=true,variant.qk_norm_zero_centred=true'",
    "norm_position='peri', zero_centred_norm=True, mixer='softmax:variant.softcap=2', logit_softcap=0.5",
    "residual_scale=0.3, embedding_scale=3.0, logit_scale=0.25",
    "feedforward='swiglu', experts=ExpertOptions(4, limit=0.5), bias=('feedforward', 'router')",
    "feedforward='swiglu', experts=ExpertOptions(4, scores='sigmoid', choice_bias=True, groups=2, scale=2.0, "
    "shared_hidden=24, shared_gate=True)",
)
FORMED = """
import sys
import torch
from ordinate import Decoder, Shape
from ordinate.models.expert_options import ExpertOptions

for options in sys.argv[1:]:
    for kind in (torch.float32, torch.bfloat16):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = Decoder(eval(f"Shape(vocabulary=50, width=32, layers=1, heads=2, {options})")).to(kind)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager_decomp_partition")
        ids, near = torch.randint(0, 50, (2, 24)), 1e-4 if kind == torch.float32 else 0.05
        outs = [run(ids).float() for run in (model, compiled)]
        assert (outs[0] - outs[1]).abs().max() <= near * outs[0].abs().max(), options
        both = (torch.autograd.grad(out.square().sum(), list(model.parameters())) for out in outs)
        for x, y in zip(*both):
            assert (x - y).abs().max() <= 10 * near * x.abs().max(), options
"""


@pytest.mark.extended
def test_a_decoder_with_the_norms_caps_and_factors_of_published_ones_is_one_graph():
    assert_it_ends_well(FORMED, *FORMS)


# with kernels in Triton
KERNELS = ("none", "rope", "t5", "alibi", "kerple", "fire", "toeplitz", "shaw", "transformer_xl", "deberta", "music")
# the graphs are traced, and nothing of them is computed
TRACED = """
import sys
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from ordinate import Decoder, Shape

# operations for which a process waits for a GPU
WAITS = ("_local_scalar_dense", "nonzero", "aten.equal", "is_nonzero", "unique", "masked_select")
graphs = []

def traced(graph, inputs):
    graphs.append({str(node.target) for node in graph.graph.nodes if node.op == "call_function"})
    (results,) = next(node.args for node in graph.graph.nodes if node.op == "output")
    made = [None if x is None else x.meta["val"] for x in results]
    return make_boxed_func(lambda *given: [None if x is None else torch.zeros(x.shape, dtype=x.dtype) for x in made])

for name in sys.argv[1:]:
    torch._dynamo.reset()
    graphs.clear()
    model = Decoder(Shape(vocabulary=50, width=32, layers=1, heads=2, max_length=64, scheme=name))
    tracer = aot_autograd(fw_compiler=traced, bw_compiler=traced)
    torch.compile(model, fullgraph=True, backend=tracer)(torch.randint(0, 50, (2, 24))).sum().backward()
    forward, backward = (sorted(x for x in graph if x.startswith("ordinate.triton")) for graph in graphs)
    assert len(forward) == len(backward) == 1, (name, forward, backward)
    assert backward[0] == forward[0].replace(".default", "_backward.default"), (name, forward, backward)
    assert not [x for graph in graphs for x in graph if any(word in x for word in WAITS)], name
"""


@pytest.mark.extended
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is for Linux on x86-64")
@pytest.mark.parametrize("part", range(2))
def test_the_graph_of_a_decoder_has_the_triton_kernels_and_nothing_that_waits(part):
    # chosen by name on the CPU, where the interpreter makes them available
    named = {"TRITON_INTERPRET": "1", "ORDINATE_ATTENTION_BACKEND": "triton"}
    assert_it_ends_well(TRACED, *KERNELS[part::2], **named)
