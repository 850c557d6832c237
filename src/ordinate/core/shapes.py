"""Tensor type aliases (jaxtyping) with their axes.

Axes: `b` batch, `h` query heads, `g` key-value heads, `n` tokens, `i` queries, `j` keys, `d` head width, `e` head
width of the values, `width` model width, `axes` position axes. A `#` before an axis lets it be 1 and broadcast.
"""

from jaxtyping import Bool, Float, Int, Real
from torch import Tensor

Ids = Int[Tensor, "b n"]
# source sequence of an encoder-decoder
SourceIds = Int[Tensor, "b m"]
Tokens = Float[Tensor, "b n width"]
# context of cross-attention
Context = Float[Tensor, "b j width"]
# token vectors with position added; wider where a scheme appends columns
EmbeddedTokens = Float[Tensor, "b n marked"]
Logits = Float[Tensor, "b n vocabulary"]
# integer or fractional; one axis for text, two for images; a batch size of 1 broadcasts
Positions = Real[Tensor, "#b n axes"]
Queries = Float[Tensor, "b h i d"]
# grouped-query attention: each of `g` key heads serves a group of query heads
Keys = Float[Tensor, "b g j d"]
# queries and keys with position encoded; wider where a scheme maps one channel to two
EncodedQueries = Float[Tensor, "b h i marked"]
EncodedKeys = Float[Tensor, "b g j marked"]
# one for each key; the width may differ
Values = Float[Tensor, "b g j e"]
Outputs = Float[Tensor, "b h i e"]
# log-sum-exp of the scores of each query
LogSumExp = Float[Tensor, "b h i"]
# norm of the longest key of each head
KeyNorms = Float[Tensor, "b g"]
Bias = Float[Tensor, "#b #h i j"]
# a bias by offset in memory order: entry x is for keys x - queries + 1 tokens after the query
OffsetTable = Float[Tensor, "h offsets"]
Weights = Float[Tensor, "b h i j"]
# one more column if there is an attention sink: its weight
WeightsAndSink = Float[Tensor, "b h i weighed"]
Visible = Bool[Tensor, "#b i j"]
