"""CodeGen."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, Weight
from ordinate.pretrained.gptj_like import GptjLike

# the devices on which the released models were trained
PARTS = 4


class PartsQVK(TensorRule):
    """Fused QKV in four parts in the checkpoint, queries, values and keys of each; queries, keys, values here."""

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        q, v, k = tensors[0].unflatten(0, (PARTS, 3, -1)).unbind(1)
        return torch.cat([q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)])

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        q, k, v = tensor.unflatten(0, (3, PARTS, -1))
        return [torch.stack([q, v, k], 1).flatten(0, 2)]


class Codegen(GptjLike):
    """CodeGen: GPT-J with one tensor for queries, keys and values, in the order of the devices it was trained on.

    Source: Nijkamp et al. 2022, CodeGen, https://arxiv.org/abs/2203.13474.
    """

    model_type = "codegen"
    base_class = "CodeGenModel"
    causal_lm_class = "CodeGenForCausalLM"
    # transformers has no other
    heads = ()
    ignored_suffixes = (*GptjLike.ignored_suffixes, "attn.causal_mask")

    def shape(self, config: Mapping[str, Any]) -> Shape:
        width = config["n_embd"]
        must = f"n_embd of a codegen must be divisible by {PARTS}, the parts of its projections"
        need(width % PARTS == 0, must, f"got {width}", "load another checkpoint")
        return super().shape(config)

    def projection_rules(self, shape: Shape) -> Sequence[TensorRule]:
        return [PartsQVK("blocks.{}.mixer.project.weight", ("transformer.h.{}.attn.qkv_proj.weight",))]
