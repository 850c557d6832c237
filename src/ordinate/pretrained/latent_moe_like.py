"""Base class of decoders with multi-head latent attention and experts."""

from ordinate.pretrained.deepseek_moe_like import DeepseekMoeLike
from ordinate.pretrained.latent_like import LatentLike


class LatentMoeLike(LatentLike, DeepseekMoeLike):
    """Decoders with multi-head latent attention, and experts as in DeepSeek-V3.

    Must: as `LlamaLike`.
    May: what `LatentLike` and `DeepseekMoeLike` may.
    """
