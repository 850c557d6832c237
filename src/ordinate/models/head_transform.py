"""Transform of hidden states before an output head."""

from jaxtyping import Float
from torch import Tensor, nn

from ordinate.models.shape import Shape
from ordinate.ops.activation import ACTIVATIONS


class HeadTransform(nn.Module):
    """Transform of hidden states before the logits: norm(f(W x + b)), f and b as the shape says.

    Args:
        shape: hyperparameters, of which `head_activation`, `head_bias` and the norm count.
        width: columns of the hidden states.
        columns: columns of the result.
        there: whether there is one; otherwise the result is x itself.
        normed: whether it has the norm.

    Source: Devlin et al. 2019, BERT, section 3.1, https://arxiv.org/abs/1810.04805, and its code.
    """

    def __init__(self, shape: Shape, width: int, columns: int, *, there: bool = True, normed: bool = True) -> None:
        super().__init__()
        self.transform = nn.Linear(width, columns, bias=shape.head_bias) if there else nn.Identity()
        self.activation = ACTIVATIONS[shape.head_activation if there else "linear"]
        self.norm = shape.make_norm(columns) if there and normed else nn.Identity()

    def forward(self, x: Float[Tensor, "b *n width"]) -> Float[Tensor, "b *n columns"]:
        """Transform vectors of tokens or of sequences."""
        # under autocast the product is in a narrower type than the weights of the norm
        return self.norm(self.activation(self.transform(x)).to(x.dtype))
