"""Masks handed to models of transformers: dense ones, and what models do with them."""

import pytest
import torch

pytest.importorskip("transformers")
import transformers

from ordinate.pretrained import hf
from ordinate.pretrained.hf.mask import DenseMask

IDS = torch.randint(3, 28, (2, 9), generator=torch.Generator().manual_seed(0))
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
TEXT = SIZES | {"vocab_size": 29, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}


def built(config):
    transformers.set_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        parameter.data.add_(0.1 * torch.randn(parameter.shape))
    return model


def near(result, expected, share=2e-5):
    assert (result - expected).abs().max() <= share * expected.abs().max()


@torch.no_grad()
def test_boolean_masks_serve_float64():
    model = built(transformers.LlamaConfig(**TEXT)).double()
    seen = torch.rand(2, 1, 9, 9, generator=torch.Generator().manual_seed(0)) > 0.5
    seen |= torch.eye(9, dtype=torch.bool)
    added = torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, float("-inf"))
    expected = model(input_ids=IDS, attention_mask=added).logits
    hf.use(model)
    near(model(input_ids=IDS, attention_mask=seen).logits, expected, 1e-6)


@torch.no_grad()
def test_a_window_of_0_that_no_layer_uses_is_no_error():
    # of Qwen2-MoE the default: a mask of it is made beside the one that the layers use
    sizes = {"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "num_experts": 4}
    model = built(transformers.Qwen2MoeConfig(**TEXT | sizes | {"num_experts_per_tok": 2, "num_key_value_heads": 2}))
    assert model.config.sliding_window == 0
    expected = model(input_ids=IDS).logits
    hf.use(model)
    near(model(input_ids=IDS).logits, expected)


@torch.no_grad()
def test_attention_code_of_its_own_gets_no_boolean_mask():
    # text layers of GIT add the mask to their scores; its vision layers use the interface, so hf.use accepts it
    image = SIZES | {"image_size": 12, "patch_size": 4}
    model = built(transformers.GitConfig(**TEXT, vision_config=image))
    hf.use(model)
    with pytest.raises(
        ValueError,
        match=r"ordinate. are boolean, .*; this model calls add on one as if it held numbers; "
        "use attn_implementation='eager'",
    ):
        model(input_ids=IDS)


def test_a_dense_mask_selects_and_is_not_computed_with():
    mask = (torch.rand(2, 1, 4, 5) > 0.5).as_subclass(DenseMask)
    scores, plain = torch.randn(2, 3, 4, 5), mask.as_subclass(torch.Tensor)
    for selected in (scores.masked_fill(~mask, -9.0), torch.where(mask, scores, -9.0)):
        assert type(selected) is torch.Tensor
        assert torch.equal(selected, scores.masked_fill(~plain, -9.0))
    assert isinstance(mask[..., :3] & ~mask[..., 1:4], DenseMask)
    assert int(mask.sum()) == int(plain.sum())
    for compute in (
        lambda: scores + mask,
        lambda: mask + scores,
        lambda: scores.clone().add_(mask[:, :, :, :5]),
        lambda: scores + mask.to(scores.dtype),
        lambda: (1.0 - mask.float()) * -9.0,
    ):
        with pytest.raises(ValueError, match="as if it held numbers"):
            compute()


@pytest.mark.parametrize("name", ["logits_to_keep", "grid_thw"])
def test_keyword_arguments_that_are_passed_on_to_layers_have_no_effect(name):
    layer = torch.nn.Module()
    q = torch.randn(1, 4, 5, 8, generator=torch.Generator().manual_seed(0))
    plain, _ = hf.attention.attention_forward(layer, q, q, q, None)
    with_it, _ = hf.attention.attention_forward(layer, q, q, q, None, **{name: torch.tensor([[1, 1, 5]])})
    assert torch.equal(with_it, plain)
