"""Masks handed to models of transformers: dense ones, and what models do with them."""

import subprocess
import sys

import pytest
import torch

pytest.importorskip("transformers")
import transformers

from ordinate.pretrained import hf
from ordinate.pretrained.hf.mask import DenseMask, StructuredMask

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


def test_decoding_from_a_static_cache_gets_a_plain_tensor():
    """`generate` makes it outside of the forward pass, which it compiles on a GPU."""
    model, found = built(transformers.LlamaConfig(**TEXT)), []
    hf.use(model)
    layer = model.model.layers[0].self_attn
    layer.register_forward_pre_hook(lambda _, a, given: found.append(given["attention_mask"]), with_kwargs=True)
    told = {"max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False, "pad_token_id": 0, "disable_compile": True}
    model.generate(IDS, cache_implementation="static", **told)
    assert [type(mask) for mask in found] == [StructuredMask, torch.Tensor, torch.Tensor]
    assert found[1].dtype == torch.bool
    assert found[1][0, 0, 0].sum() == 10
    found.clear()
    model.generate(IDS, **told)
    assert [type(mask) for mask in found] == [StructuredMask] * 3


COMPILED = """
import torch, transformers
from transformers import CompileConfig
from ordinate.pretrained import hf

sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
sizes |= {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"], "head_dim": 8}
sizes |= {"num_key_value_heads": 2, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
sizes["vocab_size"] = 29
model = transformers.AutoModelForCausalLM.from_config(transformers.Gemma2Config(**sizes)).eval()
ids, mask = torch.arange(18).reshape(2, 9), torch.ones(2, 9).long()
mask[1, :3] = 0

def logits(**told):
    told |= {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "output_logits": True}
    told |= {"return_dict_in_generate": True}
    return torch.stack(model.generate(ids, attention_mask=mask, **told).logits)

config = CompileConfig(backend="eager", fullgraph=False, mode=None)
config._compile_all_devices = True
model.set_attn_implementation("eager")
expected = logits()
hf.use(model)
assert (logits(cache_implementation="static", compile_config=config) - expected).abs().max() < 1e-5

for layer in model.model.layers:
    layer.compile(backend="eager", fullgraph=True)
with torch.no_grad():
    for padding in (3, 2, 5):
        mask = (torch.arange(9) >= torch.tensor([[0], [padding]])).long()
        given = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
        ours = model(**given).logits
        model.set_attn_implementation("eager")
        assert (model(**given).logits - ours)[mask.bool()].abs().max() < 1e-5
        hf.use(model)
"""


@pytest.mark.extended
def test_a_compiled_decoding_step_and_compiled_layers_give_the_same():
    # in a process of its own: the checks of types in these tests cannot be compiled
    subprocess.run([sys.executable, "-W", "ignore", "-c", COMPILED], check=True)
