"""Contenders: PyTorch's attention without a bias, our backends, and the attention of other packages."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.harness.workload import HEAD_WIDTH, HEADS, WIDTH, Work
from ordinate import Geometry, attend
from ordinate.schemes import (
    T5,
    Alibi,
    Cope,
    Deberta,
    Fire,
    NoPosition,
    Rope,
    Scheme,
    Shaw,
    Toeplitz,
    TransformerXl,
    mask_mod,
    score_mod,
)

# the fastest attention implementation of transformers on a CPU
SDPA = {"attn_implementation": "sdpa"}
BASE = "sdpa, no bias"


@dataclass(frozen=True)
class Size:
    """Problem size.

    Args:
        tokens: queries of each sequence.
        batch: number of sequences.
        heads: query heads.
        cached: keys before the queries.
    """

    tokens: int
    batch: int = 1
    heads: int = HEADS
    cached: int = 0

    @property
    def where(self) -> Geometry:
        """Causal geometry without padding."""
        return Geometry.causal(self.tokens, cached=self.cached)

    def draw(self, type: torch.dtype, *, learn: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Draw queries, keys and values with a fixed seed."""
        torch.manual_seed(0)
        lengths = (self.tokens, self.tokens + self.cached, self.tokens + self.cached)
        q, k, v = (torch.randn(self.batch, self.heads, n, HEAD_WIDTH).to(type).requires_grad_(learn) for n in lengths)
        return q, k, v


Prepare = Callable[[Size, torch.dtype, bool], Work]
SCHEMES: dict[str, Callable[[int], Scheme]] = {
    "none": lambda heads: NoPosition(),
    "rope": lambda heads: Rope(head_width=HEAD_WIDTH),
    "rope, interleaved": lambda heads: Rope(head_width=HEAD_WIDTH, layout="interleaved"),
    "t5": lambda heads: T5(heads=heads),
    "toeplitz": lambda heads: Toeplitz(heads=heads, max_length=8192),
    "alibi": lambda heads: Alibi(heads=heads),
    "fire": lambda heads: Fire(heads=heads),
    "shaw": lambda heads: Shaw(head_width=HEAD_WIDTH),
    "transformer_xl": lambda heads: TransformerXl(width=heads * HEAD_WIDTH, heads=heads, head_width=HEAD_WIDTH),
    "deberta": lambda heads: Deberta(width=heads * HEAD_WIDTH, heads=heads, head_width=HEAD_WIDTH),
    "cope": lambda heads: Cope(head_width=HEAD_WIDTH),
}


def make(scheme: str, heads: int) -> Scheme:
    """Build a scheme with random non-zero parameters."""
    torch.manual_seed(1)
    made = SCHEMES[scheme](heads)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.1)
    return made


def split(member: str) -> tuple[str, str | None]:
    """Split `scheme@backend` into both; `scheme@` leaves the choice of the backend to `attend`."""
    scheme, _, backend = member.partition("@")
    return scheme, backend or None


def ours(member: str) -> Prepare:
    """A scheme computed by a backend. The bias table is recomputed in every pass."""
    scheme, backend = split(member)

    def prepare(size: Size, type: torch.dtype, learn: bool) -> Work:
        marks, where = make(scheme, size.heads).requires_grad_(learn), size.where
        q, k, v = size.draw(type, learn=learn)
        return lambda: attend(q, k, v, marks.at(where), backend=backend), [q, k, v, *marks.parameters()]

    return prepare


def rotated(scheme: str) -> Prepare:
    """Rotation of queries and keys by a scheme, as in every layer after the first, with cached angles."""

    def prepare(size: Size, type: torch.dtype, learn: bool) -> Work:
        q, k, _ = size.draw(type, learn=False)
        at = make(scheme, size.heads).at(size.where)
        return lambda: at.encode(q, k), []

    return prepare


def copied(size: Size, type: torch.dtype, learn: bool) -> Work:
    """Copies of queries and keys; both are held, as are both results of a rotation."""
    q, k, _ = size.draw(type, learn=False)
    return lambda: (q.clone(), k.clone()), []


def plain(size: Size, type: torch.dtype, learn: bool) -> Work:
    """PyTorch's attention without a bias: the baseline."""
    q, k, v = size.draw(type, learn=learn)
    # PyTorch's causal mask is aligned at the first key: with cached keys, a new query must attend to all
    causal = size.cached == 0
    return lambda: scaled_dot_product_attention(q, k, v, is_causal=causal), [q, k, v]


def materialised(size: Size, type: torch.dtype, learn: bool) -> Work:
    """PyTorch's attention with T5's bias as a tensor of queries x keys, with its gradient if it learns."""
    marks, where = make("t5", size.heads).requires_grad_(learn), size.where
    q, k, v = size.draw(type, learn=learn)

    def forward() -> Tensor:
        mask = marks.bias(where).masked_fill(~where.visible[:, None], float("-inf")).to(type)
        return scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return forward, [q, k, v, *marks.parameters()]


def frozen(size: Size, type: torch.dtype, learn: bool) -> Work:
    """PyTorch's attention with T5's bias as a precomputed tensor without gradient."""
    where = size.where
    q, k, v = size.draw(type, learn=learn)
    with torch.no_grad():
        mask = make("t5", size.heads).bias(where).masked_fill(~where.visible[:, None], float("-inf")).to(type)
    return lambda: scaled_dot_product_attention(q, k, v, attn_mask=mask), [q, k, v]


def flex(size: Size, type: torch.dtype, learn: bool) -> Work:
    """Compiled FlexAttention with T5's bias: forward only, since it has no backward pass on CPUs."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = size.draw(type, learn=False)
    at = make("t5", size.heads).requires_grad_(False).at(size.where)
    score, blocks = score_mod(at), create_block_mask(mask_mod(size.where), None, None, *size.where.shape, "cpu")
    compiled = torch.compile(flex_attention, dynamic=False)

    def forward() -> Tensor:
        return compiled(q, k, v, score_mod=score, block_mask=blocks)

    # compiled on the first call, which is not to be timed
    forward()
    return forward, []


def x_transformers(size: Size, type: torch.dtype, learn: bool) -> Work:
    """The attention of x-transformers with its relative bias, in its fastest setting."""
    from x_transformers.attend import Attend
    from x_transformers.x_transformers import RelativePositionBias

    q, k, v = size.draw(type, learn=learn)
    bias = RelativePositionBias(scale=HEAD_WIDTH**0.5, causal=True, heads=size.heads).to(type).requires_grad_(learn)
    inner = Attend(heads=size.heads, causal=True, flash=True)

    def forward() -> Tensor:
        return inner(q, k, v, attn_bias=bias(size.tokens, size.tokens))[0]

    return forward, [q, k, v, *bias.parameters()]


def transformers_t5(size: Size, type: torch.dtype, learn: bool) -> Work:
    """The attention of T5 in transformers, without its projections: queries, keys and values are one tensor."""
    from transformers.models.t5.modeling_t5 import T5Attention, T5Config

    config = T5Config(d_model=WIDTH, d_kv=HEAD_WIDTH, num_heads=HEADS, is_decoder=True, dropout_rate=0.0, **SDPA)
    module = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).to(type).requires_grad_(learn)
    module.q = module.k = module.v = module.o = nn.Identity()
    x = _flat(size, type, 1).requires_grad_(learn)
    hidden = torch.zeros(1, 1, *size.where.shape, dtype=type).masked_fill(
        ~size.where.visible[None], torch.finfo(type).min
    )
    return lambda: module(x, mask=hidden)[0], [x, *module.parameters()]


def transformers_bloom(size: Size, type: torch.dtype, learn: bool) -> Work:
    """The attention of Bloom in transformers, with ALiBi, without its projections."""
    from transformers.models.bloom.modeling_bloom import BloomAttention, BloomConfig, build_alibi_tensor

    config = BloomConfig(hidden_size=WIDTH, n_head=HEADS, hidden_dropout=0.0, attention_dropout=0.0, **SDPA)
    module = BloomAttention(config, layer_idx=0)
    module.query_key_value = module.dense = nn.Identity()
    x = _flat(size, type, 3).requires_grad_(learn)
    alibi = build_alibi_tensor(torch.ones(size.batch, size.tokens), HEADS, type)
    hidden = torch.zeros(1, 1, *size.where.shape, dtype=type).masked_fill(
        ~size.where.visible[None], torch.finfo(type).min
    )
    return lambda: module(x, torch.zeros((), dtype=type), alibi, hidden)[0], [x]


def _flat(size: Size, type: torch.dtype, times: int) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(size.batch, size.tokens, times * WIDTH).to(type)


PEERS: dict[str, Prepare] = {
    "sdpa, bias as a tensor, frozen": frozen,
    "sdpa, bias as a tensor, learned": materialised,
    "x-transformers, relative bias": x_transformers,
    "transformers, T5": transformers_t5,
    "transformers, Bloom": transformers_bloom,
}
