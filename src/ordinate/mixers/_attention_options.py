"""Options of multi-head attention."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ordinate.core.checks import need, need_fraction, need_known, need_positive, need_positive_counts
from ordinate.mixers._qk_norms import OTHER_NORMS, AcrossHeadsNorm, QKNorm
from ordinate.ops.rms_norm import RMSNorm

GateKind = Literal["sigmoid", "softplus"]
"""What makes the gates of the outputs of heads."""
GATES: Mapping[GateKind, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "softplus": nn.functional.softplus,
}
# epsilon of that norm
NORM_EPS = 1e-6


@dataclass(frozen=True)
class AttentionOptions:
    """Options of multi-head attention beyond the original transformer.

    Args:
        head_width: channels of a head; None: width / heads.
        scale: factor of the dot products of queries and keys; None: 1 / sqrt(head_width).
        bias: whether the query, key, value and output projections have biases (GPT-2, gpt-oss).
        out_bias: whether the output projection has one; None: as `bias` (Qwen2 has none there).
        qk_norm: whether queries and keys of each head are normalised before positions are encoded (Qwen3).
        qk_norm_kind: that norm: `rms`; `layer`: LayerNorm with a bias (Phi); `layer_per_head`: LayerNorm without a
            bias, with weights of its own for each head (StableLM); `nonparametric_rms`: without weights (nanochat).
        qk_norm_across: whether that norm is one of the channels of all heads together (OLMo 2).
        qk_norm_zero_centred: whether the weights of that norm are added to 1, and start at 0 (Gemma 3).
        qk_norm_after: whether that norm is one of queries and keys whose positions are encoded (Hunyuan).
        norm_eps: epsilon of that norm, and of that of values.
        softcap: logit soft-capping, scores become softcap tanh(score / softcap) (Gemma 2); None: no capping.
        sinks: whether each head has a learned attention sink, a logit that takes part in the softmax and has no value
            (gpt-oss).
        clip_qkv: queries, keys and values are clipped to [-clip_qkv, clip_qkv] as they are projected (MPT); None: no
            clipping.
        clip_after_norm: whether queries and keys are clipped after `qk_norm_across`, not before it (OLMoE).
        output_gate: whether the output of each head is multiplied by a gate, the sigmoid of a linear function of the
            token, before the output projection (Qwen3-Next; Qiu et al. 2025, https://arxiv.org/abs/2505.06708).
        gate_bias: whether that linear function has a bias; None: as `bias` (Trinity has none there).
        gate_kind: what makes the gates of these functions: `sigmoid`, or `softplus` (Laguna).
        gate_per_head: whether a head has one gate, not one for each channel (Laguna).
        value_width: channels of the values of a head; None: as of its queries and keys (MiMo-V2-Flash has fewer).
        value_scale: factor of the values (MiMo-V2-Flash).
        value_norm: whether the values of each head are normalised by an RMSNorm without weights (Gemma 4).
        values_of_keys: whether the values are the keys as projected, before their norm, and have no projection
            (Gemma 4).
        chunk: with it, a token attends to keys of its own chunk only, of so many consecutive positions from 0 of its
            document (Llama 4): see `in_chunks`; None: there are no chunks [tokens].

    Raises:
        ValueError: numbers out of range, an unknown kind of norm, or an option without effect.
    """

    head_width: int | None = None
    scale: float | None = None
    bias: bool = False
    out_bias: bool | None = None
    qk_norm: bool = False
    qk_norm_kind: QKNorm = "rms"
    qk_norm_across: bool = False
    qk_norm_zero_centred: bool = False
    qk_norm_after: bool = False
    norm_eps: float = NORM_EPS
    softcap: float | None = None
    sinks: bool = False
    clip_qkv: float | None = None
    clip_after_norm: bool = False
    output_gate: bool = False
    gate_bias: bool | None = None
    gate_kind: GateKind = "sigmoid"
    gate_per_head: bool = False
    value_width: int | None = None
    value_scale: float = 1.0
    value_norm: bool = False
    values_of_keys: bool = False
    chunk: int | None = None

    def __post_init__(self) -> None:
        if self.chunk is not None:
            need_positive_counts(chunk=self.chunk)
        for name in ("head_width", "value_width", "scale", "softcap", "clip_qkv"):
            if getattr(self, name) is not None:
                need_positive(name, getattr(self, name))
        need_fraction("norm_eps", self.norm_eps)
        must = "value_scale must be a finite number"
        need(math.isfinite(self.value_scale), must, f"got {self.value_scale}", "leave it out, for 1")
        need_known("qk_norm_kind", self.qk_norm_kind, ("rms", *OTHER_NORMS))
        is_rms, of_rms = self.qk_norm_kind == "rms", ("qk_norm_across", "qk_norm_zero_centred")
        used = [name for name in of_rms if getattr(self, name)]
        others = {
            "qk_norm_kind": not is_rms,
            "qk_norm_after": self.qk_norm_after,
        }
        normed = self.qk_norm or self.value_norm or self.norm_eps == NORM_EPS
        need(normed, "norm_eps has an effect only with qk_norm or value_norm", "got neither", "give one of them too")
        must, came = "values_of_keys needs values as wide as keys", f"got value_width={self.value_width}"
        need(not self.values_of_keys or self.value_width is None, must, came, "leave one of them out")
        for name in [*used, *(name for name, given in others.items() if given)]:
            need(
                self.qk_norm, f"{name} has an effect only with qk_norm", "got qk_norm=False", "give qk_norm=True too"
            )
        must, came = f"{', '.join(used)} needs qk_norm_kind='rms'", f"got {self.qk_norm_kind!r}"
        need(is_rms or not used, must, came, "leave one of them out")
        must = "clip_after_norm has an effect only with clip_qkv and qk_norm_across"
        came = f"got clip_qkv={self.clip_qkv}, qk_norm_across={self.qk_norm_across}"
        clips = self.clip_qkv is not None and self.qk_norm_across
        need(clips or not self.clip_after_norm, must, came, "give both, or leave it out")
        need_known("gate_kind", self.gate_kind, GATES)
        given = {"gate_bias": self.gate_bias is not None, "gate_kind": self.gate_kind != "sigmoid"}
        for name in (name for name, has in {**given, "gate_per_head": self.gate_per_head}.items() if has):
            must = f"{name} has an effect only with output_gate"
            need(self.output_gate, must, "got output_gate=False", "give output_gate=True too")

    def make_value_norm(self, value_width: int, kv_heads: int) -> nn.Module:
        """Build the norm of values."""
        make = OTHER_NORMS["nonparametric_rms"]
        return make(value_width, kv_heads, self.norm_eps) if self.value_norm else nn.Identity()

    def qk_norms(self, head_width: int, heads: int, kv_heads: int) -> Sequence[nn.Module]:
        """Build the norms of queries and of keys."""
        if not self.qk_norm:
            return nn.Identity(), nn.Identity()
        if self.qk_norm_kind != "rms":
            make = OTHER_NORMS[self.qk_norm_kind]
            return [make(head_width, count, self.norm_eps) for count in (heads, kv_heads)]
        options: dict[str, Any] = {"eps": self.norm_eps, "zero_centred": self.qk_norm_zero_centred}
        if not self.qk_norm_across:
            return [RMSNorm(head_width, **options) for _ in "qk"]
        limit = self.clip_qkv if self.clip_after_norm else None
        return [AcrossHeadsNorm(head_width * count, limit=limit, **options) for count in (heads, kv_heads)]
