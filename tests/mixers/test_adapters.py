"""Adapters around linear layers (LoRA) have their effect and their gradients, also where a layer's matrix is read."""

import copy

import pytest
import torch
from torch import nn

from ordinate import Decoder, Encoder, EncoderDecoder, EncoderDecoderShape, EncoderShape, Geometry, Shape, attend
from ordinate.core import catalog
from ordinate.mixers._mixer import Mixer
from ordinate.models.multi_head_attention import MultiHeadAttention
from ordinate.ops.linear_layer import Linear, weight_and_bias
from ordinate.schemes import Deberta, Fire, LogMlp, NoPosition, Rope
from ordinate.schemes.deberta import DebertaVersion
from ordinate.testing.backend import random_qkv

MIXERS = catalog.names("ordinate.mixers")


class Adapted(nn.Module):
    """A linear layer and a product of two small matrices, with the attributes of the layer."""

    def __init__(self, base):
        super().__init__()
        self.base, self.in_features, self.out_features = base, base.in_features, base.out_features
        self.down = nn.Parameter(torch.randn(2, base.in_features) * 0.3)
        self.up = nn.Parameter(torch.randn(base.out_features, 2) * 0.3)

    @property
    def weight(self):
        return self.base.weight

    @property
    def bias(self):
        return self.base.bias

    def forward(self, x):
        return self.base(x) + (x @ self.down.mT) @ self.up.mT


@torch.no_grad()
def adapted_and_merged(module):
    """Return a module with adapters around its linear layers, and one with the sums in their place."""
    module = copy.deepcopy(module)
    for part in list(module.modules()):
        for name, layer in list(part.named_children()):
            if type(layer) in (nn.Linear, Linear):
                part._modules[name] = Adapted(layer)
    merged = copy.deepcopy(module)
    for part in list(merged.modules()):
        for name, layer in list(part.named_children()):
            if isinstance(layer, Adapted):
                layer.base.weight.add_(layer.up @ layer.down)
                part._modules[name] = layer.base
    return module, merged


def assert_adapted(module, run):
    """The results are those of the merged layers, and each adapter has a gradient."""
    adapted, merged = adapted_and_merged(module)
    torch.manual_seed(0)
    made = run(adapted)
    torch.manual_seed(0)
    torch.testing.assert_close(made, run(merged), rtol=1e-4, atol=1e-5)
    adapters = [x for name, x in adapted.named_parameters() if name.endswith((".down", ".up"))]
    assert all(x is not None and x.abs().max() > 0 for x in torch.autograd.grad(made.square().sum(), adapters))


def has_linear_layers(module):
    return any(type(x) in (nn.Linear, Linear) for x in module.modules())


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("name", MIXERS)
def test_adapters_in_mixers(name, causal):
    kind = catalog.load("ordinate.mixers", Mixer, name)
    if not (kind.causal if causal else kind.bidirectional):
        return
    sizes = {"vocabulary": 9, "width": 16, "layers": 1, "heads": 2, "max_length": 20}
    build, shape = (Decoder, Shape) if causal else (Encoder, EncoderShape)
    mixer = build(shape(mixer=name, scheme=kind.default_scheme, **sizes)).blocks[0].mixer
    if not has_linear_layers(mixer):
        return
    x = torch.randn(2, 11, 16)
    at = NoPosition().at(Geometry.causal(11) if causal else Geometry.full(11))
    assert_adapted(mixer, lambda mixer: mixer(x, at)[0])


def test_adapters_decide_which_tokens_meet_under_autocast():
    mixer = catalog.load("ordinate.mixers", Mixer, "reformer")(width=16, heads=2)
    adapted, merged = adapted_and_merged(mixer)
    x = torch.randn(2, 11, 16)
    made, exact, before = (module._unrounded(x) for module in (adapted, merged, mixer))
    torch.testing.assert_close(made, exact)
    assert not torch.allclose(exact, before, rtol=1e-2, atol=1e-1)


def test_adapters_in_cross_attention():
    x, context = torch.randn(2, 3, 16), torch.randn(2, 5, 16)
    assert_adapted(MultiHeadAttention(16, 2, scheme=Rope(head_width=8)), lambda attention: attention(x, context)[0])


def test_adapters_of_the_projections_that_a_scheme_uses():
    scheme = Deberta(width=16, heads=2, head_width=8, version=DebertaVersion(shared=True))
    nn.init.normal_(scheme.table)
    mixer = Decoder(Shape(vocabulary=9, width=16, layers=1, heads=2, scheme=scheme)).blocks[0].mixer
    x = torch.randn(2, 11, 16)
    assert_adapted(mixer, lambda mixer: mixer(x, scheme.at(Geometry.causal(11)))[0])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fire(heads=4, hidden=5),
        lambda: Fire(heads=4, hidden=5, biases=False),
        lambda: LogMlp(heads=4, hidden=5),
        lambda: Deberta(width=32, heads=4, head_width=8),
    ],
    ids=["fire", "fire without biases", "log_mlp", "deberta"],
)
@pytest.mark.parametrize("tokens", [9, 300])
def test_adapters_in_schemes(make, tokens):
    where, scheme = Geometry.causal(tokens), make()
    if isinstance(scheme, Deberta):
        nn.init.normal_(scheme.table)
    q, k, v = random_qkv(where, kv_heads=4, dtype=torch.float32)
    assert_adapted(scheme, lambda scheme: attend(q, k, v, scheme.at(where)))


@pytest.mark.parametrize("kind", ["masked", "translation"])
def test_adapters_of_heads_of_their_own(kind):
    ids, sizes = torch.randint(9, (2, 5)), {"vocabulary": 9, "width": 16, "layers": 1, "heads": 2}
    if kind == "masked":
        model = Encoder(EncoderShape(tie_embeddings=False, **sizes))
        assert_adapted(model.masked, lambda head: head.logits(model(ids).detach(), model.tokens.weight))
    else:
        model = EncoderDecoder(EncoderDecoderShape(tie_embeddings=False, scheme="none", **sizes))
        # those of the other layers have gradients as elsewhere
        memory = torch.randn(2, 5, 16)
        assert_adapted(nn.ModuleDict({"head": model.head}), lambda own: logits_by(model, own["head"], memory))


def logits_by(model, head, x):
    model = copy.copy(model)
    model._modules = model._modules | {"head": head}
    return model._logits(x)


def test_the_matrix_of_a_layer_whose_forward_was_replaced():
    layer = Linear(3, 2)
    assert weight_and_bias(layer) == (layer.weight, layer.bias)
    layer.forward = lambda x: 2 * nn.functional.linear(x, layer.weight, layer.bias)
    weight, bias = weight_and_bias(layer)
    torch.testing.assert_close(weight, 2 * layer.weight)
    torch.testing.assert_close(bias, 2 * layer.bias)


def test_the_matrix_of_a_quantised_layer_which_has_no_parameters():
    class Quantised(nn.Module):
        in_features = 5

        def __init__(self):
            super().__init__()
            self.register_buffer("held", torch.arange(-5, 10, dtype=torch.int8).view(3, 5))

        def forward(self, x):
            return x @ self.held.to(x.dtype).mT / 8 + 1

    layer = Quantised()
    weight, bias = weight_and_bias(layer)
    assert torch.equal(weight, layer.held / 8)
    assert torch.equal(bias, torch.ones(3))
