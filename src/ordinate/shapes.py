"""Names for the tensors that travel through the house, with their axes.

Axes: `b` batch, `h` heads, `g` key heads, `n` tokens, `i` queries, `j` keys, `d` head width,
`width` model width, `axes` position axes. A `#` before an axis lets it be 1 and broadcast.
"""

from jaxtyping import Bool, Float, Int, Real
from torch import Tensor

Ids = Int[Tensor, "b n"]
# the tokens of a text that another one is written from
SourceIds = Int[Tensor, "b m"]
Tokens = Float[Tensor, "b n width"]
# what the tokens of another sequence look at
Context = Float[Tensor, "b j width"]
# wider than the tokens were where a scheme appends columns
Marked = Float[Tensor, "b n marked"]
Logits = Float[Tensor, "b n vocabulary"]
# whole or fractional; one axis for text, two for images; one row serves a whole batch
Positions = Real[Tensor, "#b n axes"]
Queries = Float[Tensor, "b h i d"]
# fewer key heads than query heads: each key head serves a group of them
Keys = Float[Tensor, "b g j d"]
# wider than they were where a scheme makes two channels of one
MarkedQueries = Float[Tensor, "b h i marked"]
MarkedKeys = Float[Tensor, "b g j marked"]
# as many as keys, of a width of their own
Values = Float[Tensor, "b g j e"]
Outputs = Float[Tensor, "b h i e"]
# a number for each query
Totals = Float[Tensor, "b h i"]
# of the longest key of each head
Lengths = Float[Tensor, "b g"]
Bias = Float[Tensor, "#b #h i j"]
# a bias by distance: entry x is for keys x - queries + 1 places after the query
Table = Float[Tensor, "h offsets"]
Weights = Float[Tensor, "b h i j"]
Visible = Bool[Tensor, "#b i j"]
