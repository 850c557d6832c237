"""Options of multi-head latent attention."""

from dataclasses import dataclass

from ordinate.core.checks import need_fraction, need_positive, need_whole
from ordinate.core.option_values import normalise_fields


@dataclass(frozen=True)
class LatentOptions:
    """Options of multi-head latent attention.

    Args:
        rank: channels of the latent vector of keys and values; None: four times those of a head's values.
        query_rank: channels of a latent vector of queries; None: queries are projected from the tokens directly.
        content_width: channels of a head's queries and keys beside those in which position is encoded; None: as many.
        value_width: channels of a head's values; None: as `content_width`.
        scale: factor of the dot products of queries and keys; None: 1 / sqrt(all channels of a head's key).
        bias: whether the projections of tokens to latent vectors and the output projection have biases.
        norm_eps: epsilon of the norms of latent vectors.

    Raises:
        ValueError: sizes that are no whole numbers above zero.
    """

    rank: int | None = None
    query_rank: int | None = None
    content_width: int | None = None
    value_width: int | None = None
    scale: float | None = None
    bias: bool = False
    norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        normalise_fields(self)
        for name in ("rank", "query_rank", "content_width", "value_width"):
            if getattr(self, name) is not None:
                need_whole(name, getattr(self, name))
                need_positive(name, getattr(self, name))
        if self.scale is not None:
            need_positive("scale", self.scale)
        need_fraction("norm_eps", self.norm_eps)

    def widths(self, head_width: int) -> tuple[int, int, int]:
        """Return the channels of a head's content, of its values, and of the latent vector.

        Args:
            head_width: channels in which position is encoded.
        """
        content = head_width if self.content_width is None else self.content_width
        value = content if self.value_width is None else self.value_width
        return content, value, 4 * value if self.rank is None else self.rank
