"""True and False are no numbers, though Python counts with them; and a composition of nothing is no scheme."""

import pytest
import torch

from ordinate import (
    Decoder,
    EncoderDecoderShape,
    EncoderShape,
    Geometry,
    Shape,
    VisionShape,
    attend,
    generate,
)
from ordinate.models import NextTokenRules, Truncation
from ordinate.schemes import Alibi, HeadGroups, Sum
from ordinate.spectra import Proportional
from ordinate.training.settings import TrainingSettings

SIZES = {"vocabulary": 9, "width": 8, "heads": 2}
POSITIONS = torch.arange(3)[None, :, None]
X = torch.ones(1, 2, 3, 4)
FIELDS = [
    (Shape, SIZES, ("kv_heads", "layers", "dropout")),
    (EncoderShape, SIZES, ("padding", "mask_token", "token_types", "convolution", "convolution_groups")),
    (EncoderDecoderShape, SIZES, ("source_layers", "source_heads", "source_hidden", "start", "end")),
    (NextTokenRules, {}, ("no_repeat_ngram_size", "min_new_tokens", "repetition_penalty", "forced_bos_token_id")),
    (Truncation, {}, ("top_k", "min_p")),
    (VisionShape, SIZES | {"image": (8, 8), "patch": (4, 4)}, ("registers", "channels")),
    (TrainingSettings, {"steps": 4, "batch": 2}, ("seed", "warmup_steps", "weight_decay", "steps")),
    (Proportional, {}, ("partial_rotary_factor", "factor")),
]
OPTIONS = [(kind, sizes, name) for kind, sizes, names in FIELDS for name in names]


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize(("kind", "sizes", "name"), OPTIONS)
def test_a_number_of_a_model_or_its_training_is_no_truth_value(kind, sizes, name, value):
    with pytest.raises(TypeError, match=f"{name} must be a (whole )?number; got {value}; give"):
        kind(**{**sizes, name: value})


CALLS = {
    "tokens": lambda value: Geometry.causal(value),
    "cached": lambda value: Geometry.causal(3, cached=value),
    "window": lambda value: Geometry.full(3, window=value),
    "queries": lambda value: Geometry.cross(value, 3),
    "document 1": lambda value: Geometry.packed([3, value]),
    "axis 0": lambda value: Geometry.grid(value, 3),
    "start": lambda value: Geometry(POSITIONS, POSITIONS, is_causal=True, start=value),
    "scale": lambda value: attend(X, X, X, Alibi(heads=2).at(Geometry.causal(3)), scale=value),
    "dropout": lambda value: attend(X, X, X, Alibi(heads=2).at(Geometry.causal(3)), dropout=value),
    "max_new_tokens": lambda value: _generated(value),
    "temperature": lambda value: _generated(2, temperature=value),
    "top_k": lambda value: _generated(2, top_k=value),
    "top_p": lambda value: _generated(2, top_p=value),
}


def _generated(tokens, **settings):
    model = Decoder(Shape(**SIZES, layers=1))
    return list(generate(model, torch.zeros(1, 1, dtype=torch.long), tokens, generator=torch.Generator(), **settings))


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("name", CALLS)
def test_a_number_of_a_call_is_no_truth_value(name, value):
    with pytest.raises(TypeError, match=f"{name} must be a (whole )?number; got {value}; give"):
        CALLS[name](value)


def test_compositions_have_parts():
    with pytest.raises(ValueError, match="a composition is made of schemes; got none; give one or more"):
        Sum()
    with pytest.raises(ValueError, match="a composition is made of schemes; got none; give one or more"):
        HeadGroups(heads=2)
    with pytest.raises(TypeError, match="a composition is made of schemes; got int; give instances"):
        Sum(Alibi(heads=2), 3)
    with pytest.raises(ValueError, match="heads must be above zero; got 0"):
        HeadGroups(Alibi(heads=1), heads=0)
