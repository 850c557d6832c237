"""Models without a position code, and what can be asked of them."""

import pytest
import torch

from ordinate.anatomy.ways import blind
from ordinate.attachment import attach
from ordinate.lab.conduct import Question, answer
from ordinate.subject import Inputs, Unfit
from ordinate.testing.plain import Plain, texts

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
    return answer(Question(name, {}), subject, texts(6, 24), 0, lambda done: None)


@pytest.mark.parametrize("make", [without_rotation, with_an_empty_table])
def test_a_model_without_positions_is_told_any_and_gives_the_same(make):
    torch.manual_seed(0)
    one = attach(make())
    assert one.facts.position == "none"
    moved = Inputs(IDS.ids, torch.arange(8).flip(0).expand(2, -1))
    assert torch.equal(one.read(moved).stream, one.read(IDS).stream)
    close, order, secret = (asked(name, one) for name in ("closeness", "order", "secrecy"))
    assert "no position code was found" in close.answer
    assert "mask alone tell it the order" not in order.answer
    assert "they alone tell it the order" in order.answer
    assert secret.answer.startswith("The same: tokens")
    further = asked("extrapolation", one)
    assert "only distances count" not in further.answer


@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_layers_that_do_not_attend_are_named_and_may_tell_the_order():
    torch.manual_seed(0)
    one = attach(half_of_mamba())
    assert (one.facts.layers, one.ways) == (1, [])
    assert "only the 1 of 2 layers that attend" in one.facts.left_out
    with pytest.raises(Unfit, match="cannot be told other positions: no position code was found"):
        one.read(Inputs(IDS.ids, torch.arange(8).expand(2, -1)))
    found = asked("secrecy", one)
    assert "Not the same" not in found.answer
    assert "could not be measured" in found.answer
    assert "Of this model only the 1 of 2 layers" in found.caveats[0]


@pytest.mark.parametrize("position", ["none", "learned", "rope"])
def test_only_a_model_that_gives_permuted_texts_permuted_is_blind(position):
    model = Plain(position)
    assert blind(lambda given: model.read(given).stream, IDS) is (position == "none")


def test_a_bias_that_stands_in_a_mask_is_not_taken_for_none():
    model, bias = Plain("none"), Plain("rope")
    # whoever gives another mask takes the code away with it
    assert not blind(lambda given: (bias if given.visible is None else model).read(given).stream, IDS)


def test_of_images_it_is_not_known():
    assert not blind(lambda given: given.images, Inputs(images=torch.zeros(1, 1, 2, 2)))
