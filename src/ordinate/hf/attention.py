"""The attention of a layer of transformers, computed here."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from ordinate.attention import attend
from ordinate.checks import need
from ordinate.geometry import Geometry
from ordinate.hf.mask import Mask
from ordinate.route import Formula
from ordinate.scheme import Placed, Scheme
from ordinate.schemes.none import Unmarked
from ordinate.shapes import Bias

# what layers hand on and the usual attention does not read either
_UNREAD = frozenset(
    {
        "cache_position", "cu_seq_lens_k", "cu_seq_lens_q", "cu_seqlens", "deterministic", "hidden_states",
        "max_length_k", "max_length_q", "num_items_in_batch", "output_hidden_states", "output_router_logits",
        "past_key_values", "position_embeddings", "position_ids", "return_dict", "seq_idx", "use_cache",
    }
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Settings:
    """What a layer of transformers says of its attention beside queries, keys, values and a mask.

    Args:
        dropout: share of the weights dropped.
        scaling: multiplies q.k; None: 1 / sqrt(head width).
        softcap: scores are bent to stay between -softcap and softcap.
        s_aux: the score of each head's sink.
        position_bias: is added to the scores (T5).
        sliding_window: keys seen at most; the mask says it too.
        is_causal: whether a call without a mask reads from left to right; None: as the layer says of itself.
        output_attentions: whether the weights are wanted.
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
    def of(cls, given: dict[str, Any]) -> "Settings":
        """What is known of what came, everything else refused."""
        names = {field.name for field in fields(cls)}
        others = sorted(key for key, value in given.items() if key not in names | _UNREAD and value is not None)
        need(
            not others,
            "every setting of a layer has an effect",
            f"got {', '.join(others)}, which this attention does not know",
            "leave the model to sdpa or eager",
        )
        settings = cls(**{key: value for key, value in given.items() if key in names})
        need(
            not settings.output_attentions,
            "no weights of attention are held",
            "got output_attentions=True",
            "leave the model to eager: model.set_attn_implementation('eager')",
        )
        return settings


class Given(Scheme):
    """Numbers that are added to the scores as they come, for queries and keys at the places of a geometry.

    Enters at: scores.
    Args:
        bias: the numbers.
        start: the place of the first query.
    """

    shift_invariant = False

    def __init__(self, bias: Bias, start: int) -> None:
        super().__init__()
        # as a parameter it would be cut off from what it was computed from; routes ask for its gradient by this name
        self._parameters["given"] = bias  # type: ignore[assignment]
        self.start = start

    def bias(self, where: Geometry) -> Bias:
        """Those of a block."""
        given: Tensor = self._parameters["given"]  # type: ignore[assignment]
        if where.shape == tuple(given.shape[2:]):
            return given
        rows, keys = (slice(int(pos[0, 0, 0]), int(pos[0, -1, 0]) + 1) for pos in (where.q_pos, where.k_pos))
        return given[:, :, rows.start - self.start : rows.stop - self.start, keys]


def attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **given: Any
) -> tuple[Tensor, None]:
    """What transformers calls in each layer: attention by `attend`, and no weights.

    Args:
        module: the layer.
        query: the queries, marked (b, heads, n, d).
        key: the keys, marked, from the cache too; fewer heads are not repeated.
        value: the values.
        attention_mask: what the mask function made; True where visible, or numbers to add, where a user gave them;
            None: everything is visible, or what is not later where the layer is causal.
        given: see `Settings`.

    Raises:
        ValueError: a setting that this attention does not know, or a mask that does not fit.
    """
    settings = Settings.of(given)
    at = _placed(module, query, key, attention_mask, settings)
    keys = at.where.shape[1]
    y = attend(
        query,
        key[:, :, :keys],
        value[:, :, :keys],
        at,
        scale=settings.scaling,
        dropout=settings.dropout if module.training else 0.0,
        formula=Formula(settings.softcap, settings.s_aux),
    )
    return y.transpose(1, 2).contiguous(), None


def _placed(module: nn.Module, q: Tensor, k: Tensor, mask: Tensor | None, settings: Settings) -> Placed:
    queries, keys = q.shape[2], k.shape[2]
    if isinstance(mask, Mask):
        need(
            (mask.shape[2], mask.keys) == (queries, keys),
            "a mask has the queries and keys of its layer",
            f"got {mask.shape[2]} and {mask.keys} for {queries} and {keys}",
            "leave the model to sdpa or eager",
        )
        return mask.at if settings.position_bias is None else _biased(settings.position_bias, mask.at.where)
    where = _unmasked(module, q, k, settings) if mask is None else Geometry.cross(queries, keys)
    # positions and masks live where the queries do
    where = Geometry(
        where.q_pos.to(q.device), where.k_pos.to(q.device), where.hides_future, where.start, ordered=True
    )
    added = settings.position_bias
    if mask is not None:
        if mask.dtype == torch.bool:
            mask = torch.where(mask, 0.0, torch.finfo(q.dtype).min).to(q.dtype)
        added = mask[..., :keys] if added is None else added + mask[..., :keys]
    return Unmarked().at(where) if added is None else _biased(added, where)


def _biased(added: Tensor, where: Geometry) -> Placed:
    """What is added to the scores, at a geometry that leaves out keys that no query sees."""
    added = added[..., : where.shape[1]].expand(-1, -1, *where.shape)
    return Given(added, where.start).at(where)


def _unmasked(module: nn.Module, q: Tensor, k: Tensor, settings: Settings) -> Geometry:
    """Where tokens stand in a call without a mask: a layer by itself, or a model that masks nothing."""
    queries, keys = q.shape[2], k.shape[2]
    causal = getattr(module, "is_causal", True) if settings.is_causal is None else settings.is_causal
    window = settings.sliding_window
    need(
        window is None or keys <= window,
        "a layer with a window comes with a mask",
        f"got none for {keys} keys and a window of {window}",
        "make one by transformers.masking_utils",
    )
    if not causal or queries == 1:
        return Geometry.cross(queries, keys)
    need(
        queries == keys,
        "a call without a mask that reads from left to right has as many keys as queries",
        f"got {queries} queries, {keys} keys",
        "make a mask by transformers.masking_utils",
    )
    return Geometry.causal(queries)
