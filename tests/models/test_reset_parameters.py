"""Models that were built without memory are initialised by `reset_parameters` as new ones are."""

import pytest
import torch

from ordinate import (
    Decoder,
    Encoder,
    EncoderDecoder,
    EncoderDecoderShape,
    EncoderShape,
    Shape,
    VisionShape,
    VisionTransformer,
)
from ordinate.mixers._attention_options import AttentionOptions
from ordinate.models.multi_head_attention import MultiHeadAttention
from ordinate.schemes import T5, Alibi, HeadGroups

SIZES = {"vocabulary": 9, "width": 16, "layers": 2, "heads": 4, "max_length": 20}
ZERO_CENTRED = "softmax:variant.qk_norm=true,variant.qk_norm_zero_centred=true"
MODELS = {
    "decoder": lambda: Decoder(Shape(scheme="t5+fire", layer_scale=0.1, **SIZES)),
    "zero-centred": lambda: Decoder(Shape(zero_centred_norm=True, mixer=ZERO_CENTRED, **SIZES)),
    "head groups": lambda: Decoder(Shape(scheme="t5/kerple,none", mixer="softmax,reformer", **SIZES)),
    "mixers": lambda: Decoder(Shape(mixer="rwkv7,mamba2", scheme="none", **SIZES)),
    "encoder": lambda: Encoder(EncoderShape(scheme="learned", token_types=2, **SIZES)),
    "translation": lambda: EncoderDecoder(EncoderDecoderShape(scheme="t5", logit_bias=True, **SIZES)),
    "vision": lambda: VisionTransformer(VisionShape(image=(8, 8), patch=(4, 4), class_position=True, **SIZES)),
}


@pytest.mark.parametrize("name", MODELS)
def test_memory_without_values_gets_those_of_a_new_model(name):
    with torch.device("meta"):
        model = MODELS[name]()
    model = model.to_empty(device="cpu")
    for x in model.state_dict().values():
        x.fill_(7)
    torch.manual_seed(3)
    model.reset_parameters()
    torch.manual_seed(3)
    new = MODELS[name]().state_dict()
    for path, x in model.state_dict().items():
        assert torch.equal(x, new[path]), path


def test_a_scheme_that_was_given_without_values():
    with torch.device("meta"):
        model = Decoder(Shape(scheme=T5(heads=4), **SIZES))
    model = model.to_empty(device="cpu")
    torch.nn.init.constant_(model.schemes[0].table, 7)
    model.reset_parameters()
    assert 0 < model.schemes[0].table.std() < 0.1


def test_attention_with_schemes_that_are_given():
    sinks = AttentionOptions(sinks=True, qk_norm=True)
    layer = MultiHeadAttention(16, 4, scheme=HeadGroups(T5(heads=2), Alibi(heads=2), heads=4), variant=sinks)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(7)
    torch.manual_seed(3)
    layer.reset_parameters()
    assert all(parameter.abs().max() <= 1 for parameter in layer.parameters())
    assert layer.scheme.parts[0].table.std() > 0
