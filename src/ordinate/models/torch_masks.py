"""The masks of `torch.nn.MultiheadAttention`, as the structure of a geometry where they have one."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn.functional import pad

from ordinate.core.checks import need
from ordinate.core.shapes import Bias
from ordinate.core.tensors import has_values, need_tensor


@dataclass(frozen=True)
class AttentionSizes:
    """Sizes of one call of attention.

    Args:
        batch: sequences.
        heads: attention heads.
        queries: tokens of each target sequence.
        keys: tokens of each source sequence.
    """

    batch: int
    heads: int
    queries: int
    keys: int


@dataclass(frozen=True, eq=False)
class AttentionMask:
    """Which keys a query may attend to, and what is added to the scores.

    Args:
        is_causal: whether query i attends to none but the keys 0 .. i.
        hidden_keys: key padding mask, True at keys that no query attends to; None: no key is padding.
        added: a number for each score, -inf at hidden pairs; None: none.
    """

    is_causal: bool
    hidden_keys: Bool[Tensor, "b j"] | None
    added: Bias | None

    @classmethod
    def of(
        cls, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool, sizes: AttentionSizes
    ) -> "AttentionMask":
        """Read the masks of PyTorch: True, or -inf, hides a key.

        On a CPU a causal mask and a floating-point padding mask are recognised by their values, so that no queries x
        keys tensor is needed; and a mask that hides all later keys, among others, is known as causal to the scheme.
        Elsewhere reading values would wait for the device.

        Args:
            attn_mask: (queries, keys) or (batch * heads, queries, keys), boolean or added to the scores.
            key_padding_mask: (batch, keys), boolean or added to the scores.
            is_causal: whether the mask is the causal one; it is then not read, and may be left out.
            sizes: sizes of the call.

        Raises:
            TypeError: a mask that is no tensor.
            ValueError: masks of other shapes or types; `is_causal` with another mask than the causal one, on a CPU.
        """
        added, hidden = None, None
        if attn_mask is not None:
            _check("attn_mask", attn_mask, _attn_shapes(sizes))
            plain = _is_causal(attn_mask, sizes) if is_causal or attn_mask.ndim == 2 else False
            need(
                not is_causal or plain is not False,
                "is_causal=True says that attn_mask is the causal mask",
                "got another mask",
                "leave is_causal out, or attn_mask",
            )
            if plain:
                # of a single key it hides nothing
                is_causal = is_causal or sizes.keys > 1
            elif not is_causal:
                is_causal = _hides_later(attn_mask, sizes)
                added = _as_bias(attn_mask).expand(-1, sizes.queries, sizes.keys)
                added = added[None] if attn_mask.ndim == 2 else added.unflatten(0, (sizes.batch, sizes.heads))
        if key_padding_mask is not None:
            _check("key_padding_mask", key_padding_mask, {"(batch, keys)": (sizes.batch, sizes.keys)})
            hidden = _hidden(key_padding_mask)
            if hidden is None:
                padding = key_padding_mask[:, None, None].expand(-1, -1, sizes.queries, -1)
                added = padding if added is None else added + padding
        return cls(is_causal, hidden, added)

    def with_visible_key(self, queries: int, keys: int, like: Tensor) -> "AttentionMask":
        """Append a key that every query sees: causality, no structure any longer, becomes a tensor.

        Args:
            queries: queries before.
            keys: keys before.
            like: a tensor of the type and on the device of the mask to make.
        """
        added = self.added
        if self.is_causal:
            hidden = torch.ones(queries, keys, dtype=torch.bool, device=like.device).triu(1)
            causal = like.new_zeros(queries, keys).masked_fill(hidden, float("-inf"))
            added = causal.expand(1, 1, -1, -1) if added is None else added + causal
        padding = None if self.hidden_keys is None else pad(self.hidden_keys, (0, 1))
        return AttentionMask(False, padding, None if added is None else pad(added, (0, 1)))


def _attn_shapes(sizes: AttentionSizes) -> dict[str, tuple[int, ...]]:
    pairs = sizes.queries, sizes.keys
    return {"(queries, keys)": pairs, "(batch * heads, queries, keys)": (sizes.batch * sizes.heads, *pairs)}


def _check(name: str, mask: Tensor, shapes: dict[str, tuple[int, ...]]) -> None:
    need_tensor(name, mask)
    need(
        mask.dtype == torch.bool or mask.is_floating_point(),
        f"{name} must be boolean, True at hidden pairs, or floating-point numbers added to the scores",
        f"got {mask.dtype}",
        f"convert it: {name}.bool()",
    )
    # under torch.compile a symbolic size cannot be formatted, so the message is made on failure only
    if not any(tuple(mask.shape) == shape for shape in shapes.values()):
        known = " or ".join(f"{axes} = {shape}" for axes, shape in shapes.items())
        came = tuple(mask.shape)
        raise ValueError(
            f"{name} must have the shape {known}; got {came}; check batch_first and the order of its axes"
        )


def _readable(mask: Tensor) -> bool:
    """Whether reading the values of a mask is cheap, and loses no gradient."""
    eager = not torch.compiler.is_compiling() and mask.device.type == "cpu" and has_values(mask)
    return eager and not mask.requires_grad


def _is_causal(mask: Tensor, sizes: AttentionSizes) -> bool | None:
    """Whether a mask is the causal one; None where its values are not read."""
    if not _readable(mask):
        return None
    hidden = torch.ones(sizes.queries, sizes.keys, dtype=torch.bool, device=mask.device).triu(1)
    if mask.dtype == torch.bool:
        return bool((mask == hidden).all())
    return bool((mask == torch.zeros(hidden.shape, device=mask.device).masked_fill(hidden, float("-inf"))).all())


def _hides_later(mask: Tensor, sizes: AttentionSizes) -> bool:
    """Whether a mask is known to hide, among others, all later keys; of a single key none is later."""
    if sizes.keys == 1 or not _readable(mask):
        return False
    hidden = mask if mask.dtype == torch.bool else mask == float("-inf")
    later = torch.ones(sizes.queries, sizes.keys, dtype=torch.bool, device=mask.device).triu(1)
    return bool((hidden | ~later).all())


def _hidden(mask: Tensor) -> Tensor | None:
    """Boolean form of a key padding mask; None if it is not known to hide and to add nothing."""
    if mask.dtype == torch.bool:
        return mask
    if not _readable(mask):
        return None
    hidden = mask == float("-inf")
    return hidden if bool((hidden | (mask == 0)).all()) else None


def _as_bias(mask: Tensor) -> Tensor:
    """The numbers that a mask adds to the scores, with an axis before queries and keys."""
    if mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, device=mask.device).masked_fill(mask, float("-inf"))
    return mask if mask.ndim == 3 else mask[None]
