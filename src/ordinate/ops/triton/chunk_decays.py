# pyrefly: ignore-errors
"""Decays within a chunk of tokens, in Triton: sums of their logarithms, of which none is positive.

Let w_s be the log decay of token s. What token i stores has decayed by the sum of w_s over i < s <= t when token t
reads it after the update, and over i < s < t before it. No sum is a difference of two others, which would lose digits
beside a strong decay. Pairs of tokens with a decay for each channel are found by halving the chunk, as in
`ordinate.ops.decay.decayed_products`: at level l the pairs (t, i) whose ranges of 2^l tokens are the later and the
earlier half of one range; both decays are counted from the boundary between them.
"""

import triton.language as tl

from ordinate.ops.triton.kernel import address, kernel

# e to less than this is 0 in float32: smaller logarithms, -inf among them, need not be distinguished, and products
# of zeros and ones with them stay finite
LEAST = tl.constexpr(-128.0)


@kernel
def load_rows(x, batch, head, i, j, rows, columns):
    """Rows of a tensor in float32; 0 beyond its tokens and channels."""
    inside = (i < rows)[:, None] & (j < columns)[None, :]
    return tl.load(address(x, batch, head, i) + j[None, :] * x.channel, mask=inside, other=0.0).to(tl.float32)


@kernel
def store_rows(x, batch, head, i, j, rows, columns, numbers):
    """Store what `load_rows` loads."""
    inside = (i < rows)[:, None] & (j < columns)[None, :]
    tl.store(address(x, batch, head, i) + j[None, :] * x.channel, numbers, mask=inside)


@kernel
def load_logs(w, batch, head, i, j, tokens, FORM: tl.constexpr):
    """Log decays of some tokens: of each channel, or one column that all share."""
    channel = tl.arange(0, 1) if FORM.shared else j
    logs = load_rows(w, batch, head, i, channel, tokens, 1 if FORM.shared else FORM.width)
    return tl.where(logs < LEAST, LEAST, logs)


@kernel
def ones(condition):
    """1 where a condition holds, else 0: a product with it sums what it selects."""
    return tl.where(condition, 1.0, 0.0)


@kernel
def entering(logs, FORM: tl.constexpr):
    """Logarithm of the decay from the state before the chunk to the reading of each token."""
    CHUNK: tl.constexpr = FORM.chunk
    t, s = tl.arange(0, CHUNK)[:, None], tl.arange(0, CHUNK)[None, :]
    return summed(ones(s < t if FORM.before else s <= t), logs, FORM)


@kernel
def leaving(logs, FORM: tl.constexpr):
    """Logarithm of the decay from each token to the state after the chunk."""
    CHUNK: tl.constexpr = FORM.chunk
    t, s = tl.arange(0, CHUNK)[:, None], tl.arange(0, CHUNK)[None, :]
    return summed(ones(s > t), logs, FORM)


@kernel
def summed(selected, x, FORM: tl.constexpr):
    """For each row of zeros and ones the sum of the rows of `x` that it selects."""
    # decays that all channels share are one column
    ONE: tl.constexpr = FORM.shared
    return tl.sum(selected * tl.trans(x), 1)[:, None] if ONE else tl.dot(selected, x, input_precision="ieee")


@kernel
def pair_decays(logs, FORM: tl.constexpr):
    """Decays that all channels share, from each token (columns) to the reading of a later one (rows); 0 elsewhere."""
    CHUNK: tl.constexpr = FORM.chunk
    t, s = tl.arange(0, CHUNK)[:, None], tl.arange(0, CHUNK)[None, :]
    sums = tl.cumsum(tl.where(t > s, logs, 0.0), 0)
    return tl.where(t >= s, tl.exp(sums), 0.0)


@kernel
def level_pairs(level, FORM: tl.constexpr):
    """Whether a token (rows) lies in the later half, and an other (columns) in the earlier half, of one range."""
    CHUNK: tl.constexpr = FORM.chunk
    t, i = tl.arange(0, CHUNK)[:, None] >> level, tl.arange(0, CHUNK)[None, :] >> level
    return (t == i + 1) & (i % 2 == 0)


@kernel
def is_late(level, FORM: tl.constexpr):
    """Whether a token lies in the later half of its range (a column)."""
    CHUNK: tl.constexpr = FORM.chunk
    return ((tl.arange(0, CHUNK) >> level) % 2 == 1)[:, None]


@kernel
def level_decays(logs, level, FORM: tl.constexpr):
    """Decay between each token and the boundary of the halves of its range: to its reading, or since it is stored."""
    CHUNK: tl.constexpr = FORM.chunk
    t, s = tl.arange(0, CHUNK)[:, None], tl.arange(0, CHUNK)[None, :]
    read = s < t if FORM.before else s <= t
    selected = tl.where(is_late(level, FORM), read, s > t) & ((t >> level) == (s >> level))
    return tl.exp(tl.dot(ones(selected), logs, input_precision="ieee"))


@kernel
def level_partners(level, FORM: tl.constexpr):
    """1 where a token lies in the other half of the range of a token, else 0."""
    CHUNK: tl.constexpr = FORM.chunk
    t, s = tl.arange(0, CHUNK)[:, None] >> level, tl.arange(0, CHUNK)[None, :] >> level
    return ones((t ^ 1) == s)
