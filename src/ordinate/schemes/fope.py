"""FoPE: Fourier position embedding (Hua et al., 2024)."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.checks import need, need_positive
from ordinate.core.devices import numbers_beside
from ordinate.core.shapes import Keys, Positions, Queries
from ordinate.core.tensors import in_float64
from ordinate.ops.heads import repeat_for_heads, resolve_kv_heads
from ordinate.ops.rotate import Rotation
from ordinate.ops.sinusoids import combine_sinusoids
from ordinate.schemes._scheme import Scheme

FourierSeries = Float[Tensor, "#b h n pairs"]


class Fope(Scheme):
    """FoPE: RoPE with a Fourier series per channel pair, without frequencies too low for the training length.

        cos[h, m](p) = sum over D of C[h, D, m] cos(p w_D),   sin[h, m](p) = sum over D of S[h, D, m] sin(p w_D)

    w_D are the frequencies theta^(-2D/d) of rope that complete a period within the trained length: w_D >= 2 pi / L.
    The remaining pairs are not rotated: cos = 1, sin = 0. C and S are initialised to identities plus noise.

    Enters at: queries and keys.
    Args:
        head_width: channels of a head, d, paired as in rope's layout `half`.
        heads: heads of the model.
        kv_heads: key heads; None: as many as query heads. Query heads share C and S of their key head.
        theta: base of the wavelengths.
        trained_length: L [tokens]; longer inputs are supported.
        form: `paper`: as many mixtures as kept frequencies, d/4 at most; `official`: the same, and unrotated pairs
            have sin = 1 as in the published code, which doubles their contribution to q.k; `vllm`: a mixture for each
            kept frequency.
        init_gain: gain of Xavier's normal initialisation of the noise; the source uses 0.3 to 0.6, more in larger
            models.
        trainable: whether C and S are trained; not in the source (False).
    Raises:
        ValueError: an odd head width, or a trained length too short for any frequency.
    Source: Hua et al. 2024, Fourier Position Embedding, https://arxiv.org/abs/2412.17739, initialisation from its
        published code.
    Departs: `official` is not the default.
    """

    per_layer = True
    shift_invariant = False
    citation = """@article{hua2024fourier,
  title = {Fourier Position Embedding: Enhancing Attention's Periodic Extension for Length Generalization},
  author = {Hua, Ermo and Jiang, Che and Lv, Xingtai and Zhang, Kaiyan and Sun, Youbang and Fan, Yuchen and
            Zhu, Xuekai and Qi, Biqing and Ding, Ning and Zhou, Bowen},
  journal = {arXiv preprint arXiv:2412.17739},
  year = {2024},
  url = {https://arxiv.org/abs/2412.17739}
}"""

    def __init__(
        self,
        *,
        head_width: int,
        heads: int,
        kv_heads: int | None = None,
        theta: float = 10_000.0,
        trained_length: int = 512,
        form: Literal["paper", "official", "vllm"] = "paper",
        init_gain: float = 0.3,
        trainable: bool = False,
    ) -> None:
        super().__init__()
        for name, value in (("theta", theta), ("trained_length", trained_length)):
            need_positive(name, value)
        groups = resolve_kv_heads(heads, kv_heads)
        even = head_width > 0 and head_width % 2 == 0
        need(
            even,
            "fope needs an even head width",
            f"got head_width {head_width}",
            "choose heads that divide width evenly",
        )
        need(init_gain >= 0, "init_gain must not be below zero", f"got {init_gain}", "0 is no noise, 0.3 is usual")
        rates = [theta ** (-2 * m / head_width) for m in range(head_width // 2)]
        self.rates = [rate for rate in rates if rate >= 2 * math.pi / trained_length]
        need(
            len(self.rates) > 0,
            "at least one frequency must complete a period within the training length",
            f"got trained_length={trained_length}",
            "give 7 or more",
        )
        kept = len(self.rates)
        outputs = kept if form == "vllm" else min(kept, max(head_width // 4, 1))
        self.unrotated_pairs, self.form = head_width // 2 - outputs, form
        self.cosines = nn.Parameter(_near_identity(groups, kept, outputs, init_gain), requires_grad=trainable)
        self.sines = nn.Parameter(_near_identity(groups, kept, outputs, init_gain), requires_grad=trainable)

    def encode_query(self, q: Queries, pos: Positions) -> Queries:
        return Rotation(*self.waves(pos, q.shape[1]), "half")(q)

    def encode_key(self, k: Keys, pos: Positions) -> Keys:
        return Rotation(*self.waves(pos, k.shape[1]), "half")(k)

    def waves(self, pos: Positions, heads: int) -> tuple[FourierSeries, FourierSeries]:
        """Return the Fourier series that replace cosine and sine of each head's pairs at each position."""
        place = in_float64(pos[..., :1])
        angles = place * numbers_beside(place, self.rates, torch.float64)
        cos = combine_sinusoids(angles.cos(), in_float64(repeat_for_heads(self.cosines, heads)))
        sin = combine_sinusoids(angles.sin(), in_float64(repeat_for_heads(self.sines, heads)))
        pad = nn.functional.pad
        return pad(cos, (0, self.unrotated_pairs), value=1.0), pad(
            sin, (0, self.unrotated_pairs), value=float(self.form == "official")
        )


def _near_identity(heads: int, kept: int, outputs: int, gain: float) -> Float[Tensor, "{heads} {kept} {outputs}"]:
    """Return Xavier noise plus 1 at one frequency for each output, evenly spaced over the kept frequencies."""
    table, step = torch.empty(heads, kept, outputs), math.ceil(kept / outputs)
    nn.init.xavier_normal_(table, gain=gain)
    own = range(math.ceil(kept / step))
    table[:, [step * m for m in own], list(own)] += 1
    return table
