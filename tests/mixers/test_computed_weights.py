"""Weights that PyTorch computes before each use, by hooks or parametrisations, have their effect in every model."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

from ordinate import Decoder, Encoder, EncoderDecoder, EncoderDecoderShape, EncoderShape, Shape

SIZES = {"vocabulary": 9, "width": 16, "layers": 2, "heads": 2, "max_length": 32}
HIDDEN = {"head": "none", "scheme": "none"}
WAYS = {
    "weight_norm": weight_norm,
    "spectral_norm": spectral_norm,
    "prune": lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
    "parametrised weight_norm": parametrizations.weight_norm,
    "parametrised spectral_norm": parametrizations.spectral_norm,
}
# those that read the matrix of a layer, where others call it
MODELS = {
    "deberta": lambda: Decoder(Shape(scheme="deberta", **SIZES)),
    "fire": lambda: Decoder(Shape(scheme="fire", **SIZES)),
    "log_mlp": lambda: Decoder(Shape(scheme="log_mlp", **SIZES)),
    "continuous": lambda: Decoder(Shape(scheme="continuous", **SIZES)),
    "dape": lambda: Decoder(Shape(scheme="none", mixer="dape", **SIZES)),
    "h3": lambda: Decoder(Shape(scheme="none", mixer="h3", **SIZES)),
    "convolution": lambda: Encoder(EncoderShape(convolution=3, norm_position="post", **HIDDEN, **SIZES)),
    "translation": lambda: EncoderDecoder(EncoderDecoderShape(scheme="none", **SIZES)),
}


def logits(model, ids):
    return model(ids, ids) if isinstance(model, EncoderDecoder) else model(ids)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_a_step_of_training_changes_the_weights_that_are_used(name, way):
    torch.manual_seed(0)
    model, ids = MODELS[name](), torch.randint(9, (2, 11))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        for layer in list(model.modules()):
            if isinstance(layer, nn.Linear | nn.Conv1d):
                WAYS[way](layer)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(2):
        optimiser.zero_grad()
        logits(model, ids).square().mean().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        optimiser.step()
    plain = MODELS[name]().eval()
    made = logits(model.eval(), ids)
    own = dict(model.named_modules())
    with torch.no_grad():
        for path, module in plain.named_modules():
            for part, parameter in module.named_parameters(recurse=False):
                parameter.copy_(getattr(own[path], part))
    torch.testing.assert_close(made, logits(plain, ids))
