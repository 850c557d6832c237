"""`torch.nn.MultiheadAttention` with a positional scheme: its arguments, parameters and results."""

from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ordinate.attention._attend import attend, attend_with_weights
from ordinate.attention._backend import ScoreOptions
from ordinate.core.checks import need, need_positive_counts
from ordinate.core.geometry import Geometry
from ordinate.core.tensors import need_tensor, need_untraced
from ordinate.models.attention_scheme import attention_scheme
from ordinate.models.torch_masks import AttentionMask, AttentionSizes
from ordinate.schemes._added_bias import place_with_bias
from ordinate.schemes._scheme import Placed, Scheme

# parameters that both classes have, by the names of PyTorch
PARAMETERS = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias", "bias_k", "bias_v")


class DropInAttention(nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` with a positional scheme, for models that call it.

        y = softmax(q k^T / sqrt(d) + bias + mask) v W_O,   queries at positions 0 .. L-1, keys at 0 .. S-1

    Arguments, parameters, initialisation and results are those of PyTorch's class, a state dict of which loads. In
    self-attention an offset is the distance of two tokens. In cross-attention it is the difference of two indices, of
    the target and of the source: meaningful only where both sequences advance together, as speech and its text do.

    PyTorch's encoder layers do not call `self_attn` in inference: they read its weights, and would compute attention
    without the scheme. With this module they always call it.

    Args:
        arguments: those of `torch.nn.MultiheadAttention`, in its order.
        scheme: positional scheme that acts inside attention, by name with options (`rope:theta=5e5`) or as an
            instance; None: no positions.
        options: those of `torch.nn.MultiheadAttention`, by name.

    Raises:
        TypeError: a width or a number of heads that is not whole.
        ValueError: heads that do not divide the width; a scheme that does not fit or enters at the token embeddings;
            `add_bias_kv` with a scheme, since the key that it adds has no position.
    Source: PyTorch, `torch.nn.MultiheadAttention`; Vaswani et al. 2017, https://arxiv.org/abs/1706.03762.
    Departs: a query that sees no key gets 0 before the output projection, and weights of 0, where PyTorch returns NaN
        for some arguments and 0 for others. `is_causal=True` needs no `attn_mask`; if both are given, a mask that is
        not the causal one is refused on a CPU, where PyTorch may follow either. `add_zero_attn` adds a key without a
        position.
    """

    def __init__(self, *arguments: Any, scheme: str | Scheme | None = None, **options: Any) -> None:
        given = signature(nn.MultiheadAttention).bind(*arguments, **options).arguments
        width, heads = given["embed_dim"], given["num_heads"]
        need_positive_counts(embed_dim=width, num_heads=heads)
        must, came = "num_heads must divide embed_dim", f"got {heads} and {width}"
        need(width % heads == 0, must, came, "choose heads that do")
        super().__init__(*arguments, **options)
        # PyTorch's encoder layers take their fast path, which does not call this module, only if it is True
        self._qkv_same_embed_dim = False
        self._use(scheme)

    @classmethod
    def from_torch(cls, attention: nn.MultiheadAttention, *, scheme: str | Scheme | None = None) -> "DropInAttention":
        """Return a module with the very parameters of a `torch.nn.MultiheadAttention`, and a scheme.

        Parameters are shared, not copied, so that an optimizer that holds them keeps working.

        Args:
            attention: the module; it is left as it is.
            scheme: positional scheme, as in the constructor.

        Raises:
            TypeError: not a `torch.nn.MultiheadAttention`, or a subclass of it, which may compute something else.
            ValueError: as the constructor does; a module with hooks, which the new one would not have.
        """
        if type(attention) not in (nn.MultiheadAttention, cls):
            came = type(attention).__name__
            raise TypeError(f"from_torch needs a torch.nn.MultiheadAttention; got {came}; build a DropInAttention")
        hooks = len(attention._forward_hooks) + len(attention._forward_pre_hooks)
        remedy = "remove them, and register them on the new module"
        need(not hooks, "attention is replaced without its hooks", f"got {hooks} forward hooks", remedy)
        new = cls(
            attention.embed_dim,
            attention.num_heads,
            attention.dropout,
            attention.in_proj_bias is not None,
            attention.bias_k is not None,
            attention.add_zero_attn,
            attention.kdim,
            attention.vdim,
            attention.batch_first,
            device="meta",
        )
        for name in PARAMETERS:
            setattr(new, name, getattr(attention, name))
        new.out_proj = attention.out_proj
        new._use(scheme)
        return new.train(attention.training)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute attention; arguments and results are those of `torch.nn.MultiheadAttention`.

        With `need_weights=False` the fastest backend is chosen, as in `attend`; weights need all pairs in memory.

        Args:
            query: target sequence, (tokens, batch, width), or (batch, tokens, width) if `batch_first`, or without
                batch; or a nested tensor.
            key: source sequence.
            value: source sequence, of as many tokens.
            key_padding_mask: (batch, keys), True or -inf at padding; other numbers are added to the scores.
            need_weights: whether the attention weights are returned too.
            attn_mask: (queries, keys) or (batch * heads, queries, keys), True or -inf at hidden pairs; other numbers
                are added to the scores.
            average_attn_weights: whether the returned weights are the mean over heads.
            is_causal: causal mask; `attn_mask` is then not needed.

        Returns:
            The output, and the weights (batch, queries, keys), or (batch, heads, queries, keys) if not averaged; or
            None.

        Raises:
            TypeError: an input or a mask that is no tensor.
            ValueError: shapes that do not match; masks as in `AttentionMask.of`; nested inputs with masks or weights.
        """
        if getattr(query, "is_nested", False):
            need_nested(self, (query, key, value), (key_padding_mask, attn_mask), need_weights)
            return self._nested(query, is_causal), None
        self._check(query, key, value)
        batched, itself = query.ndim == 3, query is key
        if not batched:
            query, key, value = (x[None] for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        sizes = AttentionSizes(query.shape[0], self.num_heads, query.shape[1], key.shape[1])
        mask = AttentionMask.of(attn_mask, key_padding_mask, is_causal, sizes)
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in self._project(query, key, value))
        if self.bias_k is not None:
            mask = mask.with_visible_key(sizes.queries, sizes.keys, q)
        y, weights = self._attend(q, k, v, self._place(q, k, mask, itself and self.bias_k is None), need_weights)
        y = self.out_proj(y.transpose(1, 2).flatten(2))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return y[0], None if weights is None else weights[0]
        return y if self.batch_first else y.transpose(0, 1), weights

    def merge_masks(self, *arguments: Any, **options: Any) -> tuple[Tensor | None, int | None]:
        """Refuse what only PyTorch's fast path calls, right before it computes attention without the scheme.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "attention with a scheme is computed by the module's forward; got a call of PyTorch's fast path, which "
            "reads its weights only; switch it off: torch.backends.mha.set_fastpath_enabled(False)"
        )

    def _reset_parameters(self) -> None:
        # PyTorch reads from it which of the projections exist, too
        before, self._qkv_same_embed_dim = self._qkv_same_embed_dim, self.in_proj_weight is not None
        super()._reset_parameters()
        self._qkv_same_embed_dim = before

    def _use(self, scheme: str | Scheme | None) -> None:
        sizes = {"width": self.embed_dim, "heads": self.num_heads, "head_width": self.head_dim}
        self.scheme = attention_scheme(scheme, sizes)
        weight = self.out_proj.weight
        if not isinstance(scheme, Scheme) and not weight.is_meta:
            self.scheme.to(weight.device, weight.dtype)
        need(
            self.bias_k is None or not self.scheme.hooks,
            "add_bias_kv adds a key that has no position, so it needs attention without a scheme",
            f"got add_bias_kv=True with {type(self.scheme).__name__}",
            "leave add_bias_kv out; add_zero_attn works with every scheme",
        )

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        need_untraced()
        axes = (
            "tokens, width" if getattr(query, "ndim", 3) == 2 else "batch, tokens, width in the order of batch_first"
        )
        widths = {"query": self.embed_dim, "key": self.kdim, "value": self.vdim}
        for (name, width), x in zip(widths.items(), (query, key, value), strict=True):
            need_tensor(name, x)
            need(
                x.ndim == query.ndim and x.ndim in (2, 3),
                f"{name} needs the axes ({axes})",
                lambda x=x: f"got {tuple(x.shape)}",
                "give all three alike",
            )
            need(
                x.shape[-1] == width,
                f"{name} must be {width} columns wide",
                lambda x=x: f"got {tuple(x.shape)}",
                "project it to that width",
            )
        need(
            key.shape[:-1] == value.shape[:-1],
            "each key needs one value",
            lambda: f"got key {tuple(key.shape)}, value {tuple(value.shape)}",
            "give both the same batch and tokens",
        )
        batch = 0 if self.batch_first else 1
        need(
            query.ndim == 2 or query.shape[batch] == key.shape[batch],
            "query and key need the same batch size",
            lambda: f"got query {tuple(query.shape)}, key {tuple(key.shape)}",
            "check batch_first",
        )

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of all heads; the learned key and value, which no token has, come last."""
        if query is key is value and self.in_proj_weight is not None:
            q, k, v = linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            weights = weights if self.in_proj_weight is None else self.in_proj_weight.chunk(3)
            biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
            q, k, v = map(linear, (query, key, value), weights, biases)
        if self.bias_k is not None and self.bias_v is not None:
            k, v = _with_last(k, self.bias_k), _with_last(v, self.bias_v)
        return q, k, v

    def _place(self, q: Tensor, k: Tensor, mask: AttentionMask, itself: bool) -> Placed:
        q_pos, k_pos = (torch.arange(x.shape[2], device=q.device)[None, :, None] for x in (q, k))
        q_document = k_document = None
        if mask.hidden_keys is not None:
            # queries at padding see the other keys, as in PyTorch
            q_document, k_document = q_pos.new_zeros(1, q.shape[2]), -mask.hidden_keys.long()
        where = Geometry(
            q_pos, q_pos if itself else k_pos, mask.is_causal, 0, None, q_document, k_document, consecutive=True
        )
        return self.scheme.at(where) if mask.added is None else place_with_bias(self.scheme, where, mask.added)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, at: Placed, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        # a key of zeros, whose value is zero too, is an attention sink with score 0
        options = (
            ScoreOptions(sinks=torch.zeros(self.num_heads, device=q.device)) if self.add_zero_attn else ScoreOptions()
        )
        dropout = self.dropout if self.training else 0.0
        if need_weights:
            y, weights = attend_with_weights(q, k, v, at, dropout=dropout, score_options=options)
            return y, weights.to(q.dtype)
        return attend(q, k, v, at, dropout=dropout, score_options=options), None

    def _nested(self, x: Tensor, is_causal: bool) -> Tensor:
        """Self-attention over sequences of different lengths: padded, and cut again."""
        lengths = torch.tensor([len(part) for part in x.unbind()], device=x.device)
        padded = torch.nested.to_padded_tensor(x, 0.0)
        real = torch.arange(padded.shape[1], device=x.device) < lengths[:, None]
        y, _ = self(padded, padded, padded, ~real, False, is_causal=is_causal)
        if x.layout == torch.jagged:
            return torch.nested.nested_tensor_from_jagged(y[real], x.offsets())  # type: ignore[attr-defined]
        return torch.nested.as_nested_tensor([row[:length] for row, length in zip(y, lengths.tolist(), strict=True)])


def _with_last(x: Tensor, last: Tensor) -> Tensor:
    return torch.cat([x, last.to(x.dtype).expand(x.shape[0], -1, -1)], 1)


def need_nested(
    module: DropInAttention, inputs: tuple[Tensor, ...], masks: tuple[Tensor | None, ...], need_weights: bool
) -> None:
    """Raise a ValueError unless nested inputs are those of self-attention, without masks and weights."""
    query, key, value = inputs
    for holds, must, came, remedy in (
        (query is key is value, "nested tensors need self-attention", "got others as key or value", "pad them"),
        (masks == (None, None), "nested tensors need no mask", "got one", "pad them, or leave the mask out"),
        (
            not need_weights,
            "nested tensors have no common weights",
            "got need_weights=True",
            "give need_weights=False",
        ),
        (module.batch_first, "nested tensors need batch_first=True", "got False", "build the module with it"),
    ):
        need(holds, must, came, remedy)
