"""The attention function registered with transformers: adapts its arguments to `attend`."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from ordinate.attention._attend import attend_encoded
from ordinate.attention._backend import ScoreOptions
from ordinate.core.checks import need
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Bias
from ordinate.pretrained.hf.mask import StructuredMask
from ordinate.schemes._scheme import Encoded, Placed, Scheme
from ordinate.schemes.none import NoPosition

# keyword arguments that layers pass through and that the eager and SDPA functions of transformers ignore as well
_UNREAD = frozenset(
    {
        "cache", "cache_position", "cu_seq_lens_k", "cu_seq_lens_q", "cu_seqlens", "deterministic",
        "grid_thw", "hidden_states", "logits_to_keep", "max_length_k", "max_length_q", "num_items_in_batch",
        "output_hidden_states", "output_router_logits", "past_key_values", "position_embeddings", "position_ids",
        "return_dict", "seq_idx", "use_cache",
    }
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class AttentionArguments:
    """Keyword arguments of a transformers attention function, beside queries, keys, values and mask.

    Args:
        dropout: dropout probability of the attention weights.
        scaling: multiplies q.k; None: 1 / sqrt(head width).
        softcap: bound of the scores, softcap * tanh(score / softcap) (Gemma 2).
        s_aux: the logit of each head's attention sink (gpt-oss).
        position_bias: bias added to the scores (T5).
        sliding_window: number of visible keys; the mask encodes it as well.
        is_causal: whether a call without a mask is causal; None: the layer's own `is_causal`.
        output_attentions: whether attention weights are requested; refused.
    """

    dropout: float = 0.0
    scaling: float | None = None
    softcap: float | None = None
    s_aux: Tensor | None = None
    position_bias: Tensor | None = None
    sliding_window: int | None = None
    is_causal: bool | None = None
    output_attentions: bool | None = False

    @classmethod
    def of(cls, given: dict[str, Any]) -> "AttentionArguments":
        """Select the known arguments; refuse unknown ones that are not None."""
        others = sorted(key for key, value in given.items() if key not in _READ | _UNREAD and value is not None)
        need(
            not others,
            "every keyword argument of the attention function must be supported",
            f"got {', '.join(others)}, which attn_implementation='ordinate' does not support",
            "use attn_implementation='sdpa' or 'eager'",
        )
        return cls(**{key: value for key, value in given.items() if key in _READ})


# torch.compile cannot trace `fields`
_READ = frozenset(field.name for field in fields(AttentionArguments))


class ExplicitBias(Scheme):
    """A dense additive score bias, given as a tensor.

    Enters at: scores.
    Args:
        bias: the bias (b or 1, heads or 1, n_q, n_k).
        start: index of the first query among the keys.
    """

    shift_invariant = False

    def __init__(self, bias: Bias, start: int) -> None:
        super().__init__()
        # not an nn.Parameter, which would be detached from its graph; backends look up its gradient by this name
        self._parameters["given"] = bias  # type: ignore[assignment]
        self.start = start

    def bias(self, where: Geometry) -> Bias:
        """Return the bias, or its part for a block of queries and keys."""
        given: Tensor = self._parameters["given"]  # type: ignore[assignment]
        if where.shape == tuple(given.shape[2:]):
            return given
        rows, keys = (slice(int(pos[0, 0, 0]), int(pos[0, -1, 0]) + 1) for pos in (where.q_pos, where.k_pos))
        return given[:, :, rows.start - self.start : rows.stop - self.start, keys]


def attention_forward(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None = None, **given: Any
) -> tuple[Tensor, None]:
    """Attention forward function in the signature of transformers' AttentionInterface; returns no weights.

    Args:
        module: the attention layer.
        query: queries with position already encoded (b, heads, n, d).
        key: encoded keys, the KV cache included; grouped key heads are not repeated.
        value: the values.
        attention_mask: a `StructuredMask` made by the mask function; or the user's own tensor, boolean (True:
            visible) or additive; None: a causal mask where the layer is causal, otherwise no mask.
        given: keyword arguments, see `AttentionArguments`.

    Raises:
        ValueError: an unsupported keyword argument, attention weights asked for by argument or in the config, or a
            mask of the wrong size.
    """
    settings = AttentionArguments.of(given)
    need(
        not settings.output_attentions and not getattr(getattr(module, "config", None), "output_attentions", False),
        "attention weights are not materialised",
        "got output_attentions=True",
        "switch to eager: model.set_attn_implementation('eager')",
    )
    at = _placed(module, query, key, attention_mask, settings)
    keys = at.where.shape[1]
    y = attend_encoded(
        Encoded(query, key[:, :, :keys]),
        value[:, :, :keys],
        at,
        scale=settings.scaling,
        dropout=settings.dropout if module.training else 0.0,
        score_options=ScoreOptions(settings.softcap, settings.s_aux),
    )
    return y.transpose(1, 2).contiguous(), None


def _placed(module: nn.Module, q: Tensor, k: Tensor, mask: Tensor | None, settings: AttentionArguments) -> Placed:
    queries, keys = q.shape[2], k.shape[2]
    if isinstance(mask, StructuredMask):
        need(
            (mask.shape[2], mask.keys) == (queries, keys),
            "the mask must match the number of queries and keys of the layer",
            f"got {mask.shape[2]} and {mask.keys} for {queries} and {keys}",
            "use attn_implementation='sdpa' or 'eager'",
        )
        return mask.at if settings.position_bias is None else _biased(settings.position_bias, mask.at.where)
    where = _unmasked(module, q, k, settings) if mask is None else Geometry.cross(queries, keys)
    # positions must be on the device of the queries
    where = Geometry(
        where.q_pos.to(q.device), where.k_pos.to(q.device), where.is_causal, where.start, consecutive=True
    )
    added = settings.position_bias
    if mask is not None:
        if mask.dtype == torch.bool:
            mask = q.new_zeros(mask.shape).masked_fill(~mask, torch.finfo(q.dtype).min)
        added = mask[..., :keys] if added is None else added + mask[..., :keys]
    return NoPosition().at(where) if added is None else _biased(added, where)


def _biased(added: Tensor, where: Geometry) -> Placed:
    """Bind an additive bias to a geometry, dropping keys that no query sees."""
    added = added[..., : where.shape[1]].expand(-1, -1, *where.shape)
    return ExplicitBias(added, where.start).at(where)


def _unmasked(module: nn.Module, q: Tensor, k: Tensor, settings: AttentionArguments) -> Geometry:
    """Return the geometry of a call without a mask: a layer called on its own, or a model without masking."""
    queries, keys = q.shape[2], k.shape[2]
    causal = getattr(module, "is_causal", True) if settings.is_causal is None else settings.is_causal
    window = settings.sliding_window
    need(
        window is None or keys <= window,
        "a layer with a sliding window needs a mask",
        f"got none for {keys} keys and a window of {window}",
        "create one with transformers.masking_utils",
    )
    if not causal or queries == 1:
        return Geometry.cross(queries, keys)
    need(
        queries == keys,
        "a causal call without a mask must have as many keys as queries",
        f"got {queries} queries, {keys} keys",
        "create a mask with transformers.masking_utils",
    )
    return Geometry.causal(queries)
