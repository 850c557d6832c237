"""Models without a position code, and what can be asked of them."""

import pytest
import torch

from ordinate.core.progress import ignore
from ordinate.probing._adapter import Inputs, NotApplicable
from ordinate.probing._attach import attach
from ordinate.probing.instrumentation.find_position_inputs import ignores_position
from ordinate.probing.runner.probe_runner import ProbeSpec, run_probe
from ordinate.testing.analytic_model import AnalyticModel, random_sequences

transformers = pytest.importorskip("transformers")
SIZES = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4} | {
    "intermediate_size": 48,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
IDS = Inputs(torch.randint(50, (2, 8), generator=torch.Generator().manual_seed(0)))


def without_rotation():
    config = transformers.SmolLM3Config(**SIZES, no_rope_layers=[0, 0])
    return transformers.SmolLM3ForCausalLM(config)


def with_an_empty_table():
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)
    )
    model.transformer.wpe.weight.data.zero_()
    return model


def half_of_mamba():
    layers = {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "num_experts": 2}
    return transformers.JambaForCausalLM(transformers.JambaConfig(**SIZES, **layers))


def asked(name, subject):
    return run_probe(ProbeSpec(name, {}), subject, random_sequences(6, 24), 0, ignore)


@pytest.mark.extended
@pytest.mark.parametrize("make", [without_rotation, with_an_empty_table])
def test_positions_do_not_change_the_output_of_a_model_without_positions(make):
    torch.manual_seed(0)
    one = attach(make())
    assert one.info.position == "none"
    moved = Inputs(IDS.ids, torch.arange(8).flip(0).expand(2, -1))
    assert torch.equal(one.forward(moved).residual, one.forward(IDS).residual)
    close, order, secret = (asked(name, one) for name in ("position_similarity", "order_sensitivity", "privacy"))
    assert "no position encoding was found" in close.answer
    assert "other sources of order" not in order.answer
    assert "positions and mask are its only sources of order" in order.answer
    assert secret.answer.startswith("Undone, nothing is lost: tokens")
    further = asked("extrapolation", one)
    assert "only relative positions matter" not in further.answer


@pytest.mark.extended
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_layers_without_attention_are_named_and_may_encode_order():
    torch.manual_seed(0)
    one = attach(half_of_mamba())
    assert (one.info.layers, one.position_inputs) == (1, [])
    told = "only the layers with attention are probed, 1 of 0 to 1, each with all that precedes it"
    assert one.info.left_out == f"{told}; their numbers here are 0 to 0"
    with pytest.raises(NotApplicable, match="cannot be given other positions: no position encoding was found"):
        one.forward(Inputs(IDS.ids, torch.arange(8).expand(2, -1)))
    found = asked("privacy", one)
    assert "Different output" not in found.answer
    assert "could not be measured" in found.answer
    assert f"Of this model, {told}" in found.caveats[0]


@pytest.mark.parametrize("position", ["none", "learned", "rope"])
def test_only_a_model_that_gives_permuted_texts_permuted_is_blind(position):
    model = AnalyticModel(position)
    assert ignores_position(lambda given: model.forward(given).residual, IDS) is (position == "none")


def test_a_bias_that_stands_in_a_mask_is_not_taken_for_none():
    model, bias = AnalyticModel("none"), AnalyticModel("rope")
    # replacing the mask also removes the position encoding
    assert not ignores_position(lambda given: (bias if given.mask is None else model).forward(given).residual, IDS)


def test_of_images_it_is_not_known():
    assert not ignores_position(lambda given: given.images, Inputs(images=torch.zeros(1, 1, 2, 2)))
