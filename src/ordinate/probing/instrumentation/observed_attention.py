"""Reference attention of Ordinate models with hooks on scores, pattern and output."""

from dataclasses import dataclass

import torch

from ordinate.attention._backend import AttentionCall, ScoreOptions, attention_scores, attention_weights
from ordinate.core.shapes import Keys, Outputs, Queries, Values, Visible
from ordinate.mixers._projections import AttentionProjections
from ordinate.ops.heads import repeat_keys
from ordinate.probing._adapter import AttentionRecord, Hooks
from ordinate.schemes._scheme import Placed


@dataclass(frozen=True, eq=False)
class HookedAttention:
    """Attention of one layer by the reference formula, with hooks; replaces `AttentionProjections.compute_attention`.

    Args:
        mixer: the mixer of the layer.
        layer: index of the layer.
        watch: the hooks.
        visible: attention mask in place of that of the geometry; None: that of the geometry.
    """

    mixer: AttentionProjections
    layer: int
    watch: Hooks
    visible: Visible | None

    def __call__(
        self,
        q: Queries,
        k: Keys,
        v: Values,
        at: Placed,
        score_options: ScoreOptions,
        backend: str | None = None,
        **_: object,
    ) -> Outputs:
        """Compute the head outputs."""
        hooks, watch, layer = self.watch.overridden, self.watch, self.layer
        if "qkv" in hooks:
            q, k, v = watch.qkv(layer, q, k, v) or (q, k, v)
        call = AttentionCall(q, k, v, at, self.mixer.scale, 0.0, score_options)
        visible = at.where.visible if self.visible is None else self.visible.to(q.device)
        scored = attention_scores(call).masked_fill(~visible[:, None], float("-inf"))
        if "attention_scores" in hooks:
            scored = _or(watch.attention_scores(layer, scored), scored)
        weights = attention_weights(scored, visible, score_options).to(v.dtype)
        if "attention_pattern" in hooks:
            weights = _or(watch.attention_pattern(layer, weights), weights)
        carried = at.scheme.value_bias(weights, at.where)
        out = weights @ repeat_keys(v, call.q.shape[1])
        out = out if carried is None else out + carried
        if "head_output" in hooks:
            out = _or(watch.head_output(layer, out), out)
        if "attention" in hooks:
            watch.attention(layer, AttentionRecord(q, k, v, scored, weights, out))
        return out


class AttentionLayers(Hooks):
    """Record which layers call the attention hooks."""

    def __init__(self) -> None:
        self.layers: set[int] = set()

    def attention(self, layer: int, seen: AttentionRecord) -> None:
        self.layers.add(layer)


def _or(new: torch.Tensor | None, old: torch.Tensor) -> torch.Tensor:
    # hooks may compute in a wider type
    return old if new is None else new.to(old.dtype)
