"""What transformers makes of the same numbers."""

import pytest
import torch


@pytest.fixture
def theirs():
    """A function: the rates and the multiplier that transformers computes from a `rope_parameters` dictionary."""
    utils = pytest.importorskip("transformers.modeling_rope_utils")
    configuration = pytest.importorskip("transformers.models.llama.configuration_llama")

    def compute(parameters, head_width, max_length=4096, length=None):
        config = configuration.LlamaConfig(
            head_dim=head_width, max_position_embeddings=max_length, rope_parameters=dict(parameters)
        )
        rates, magnitude = utils.ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, seq_len=length)
        return rates.double(), float(magnitude)

    return compute


@pytest.fixture
def agrees(theirs):
    """A function: raises unless a rope turns at the rates of transformers, to float32, at each of these lengths."""

    def compare(rope, parameters, head_width, max_length=4096, lengths=(1,)):
        for length in lengths:
            rates, magnitude = theirs(parameters, head_width, max_length, length)
            ours = rope.angles(torch.ones(1, 1, 1), float(length))[0, 0]
            assert ours.shape == rates.shape
            # their numbers are in float32
            assert torch.allclose(ours, rates, rtol=3e-6, atol=0), (parameters, length)
            assert abs(rope.spectrum.query_key_scale - magnitude) < 1e-12

    return compare
