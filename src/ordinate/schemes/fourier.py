"""Learnable Fourier features (Li et al., 2021) and random Fourier features (Tancik et al., 2020)."""

import math
import random
from statistics import NormalDist

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.checks import need, need_positive
from ordinate.core.devices import numbers_beside
from ordinate.core.shapes import Positions, Tokens
from ordinate.core.tensors import in_float64, on_device
from ordinate.ops.mlp_bias import mlp
from ordinate.schemes._scheme import Scheme


class Fourier(Scheme):
    """Fourier features of the position, with trained or random frequencies, added to the token embeddings.

        features(p) = [cos(w_1 . p), ..., cos(w_n . p), sin(w_1 . p), ..., sin(w_n . p)],    n = width / 2

        x[p] += scale * features(p / unit)
        x[p] += W_2 gelu(W_1 features(p / unit) / sqrt(2 n) + b_1) + b_2         with `hidden`

    Each w_m is drawn from a normal distribution at initialisation. The similarity of two positions then depends on
    their Euclidean distance, unlike with sinusoids of single axes.

    Enters at: token embeddings.
    Args:
        width: model width.
        axes: position axes: 1 for text, 2 for images, 3 for video.
        hidden: width of the hidden layer of an MLP applied to the features; None: the features themselves are added.
        frequency_std: standard deviation of the initial angular frequencies [radians a unit]: 1 / gamma in Li et al.,
            2 pi sigma in Tancik et al.
        unit: position that is scaled to 1 [tokens, or cells]. Trained frequencies are stored in radians per unit, so
            a larger unit gives smaller updates per token.
        seed: None: the frequencies are trained (Li et al.); a number: they are drawn with this seed and fixed (Tancik
            et al.).
        scale: amplitude of the features; with `hidden`, multiplies W_2 and b_2 at initialisation; should match the
            magnitude of the token embeddings.
    Raises:
        ValueError: positions with a number of axes other than `axes`, or an odd width without `hidden`.
    Source: Li et al. 2021, Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding, algorithm 1
        with one group, https://arxiv.org/abs/2106.02795; fixed ones from Tancik et al. 2020, Fourier Features Let
        Networks Learn High Frequency Functions in Low Dimensional Domains, https://arxiv.org/abs/2006.10739.
    Departs: without `hidden` the features have the amplitude `scale`; in Li et al. it is 1 / sqrt(2 n).
    """

    axes = (1, 2, 3)
    shift_invariant = False
    citation = """@inproceedings{li2021learnable,
  title = {Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding},
  author = {Li, Yang and Si, Si and Li, Gang and Hsieh, Cho-Jui and Bengio, Samy},
  booktitle = {Advances in Neural Information Processing Systems},
  year = {2021},
  url = {https://arxiv.org/abs/2106.02795}
}"""

    def __init__(
        self,
        *,
        width: int,
        axes: int = 1,
        hidden: int | None = None,
        frequency_std: float = 1.0,
        unit: float = 1.0,
        seed: int | None = None,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        for name, value in (("width", width), ("frequency_std", frequency_std), ("unit", unit), ("scale", scale)):
            need_positive(name, value)
        must = "fourier takes 1, 2 or 3 axes"
        need(axes in type(self).axes, must, f"got {axes}", "give the number of position axes")
        need(
            hidden is not None or width % 2 == 0,
            "each frequency has a sine and a cosine, so the width must be even",
            f"got {width}",
            "give an even width, or hidden",
        )
        self.axes, self.unit, self.seed, self.scale = (axes,), unit, seed, scale
        shape = ((width + 1) // 2, axes)
        if seed is None:
            self.frequencies = nn.Parameter(torch.randn(*shape) * frequency_std)
        else:
            self.fixed = _drawn(seed, *shape, frequency_std)
        self.network = nn.ModuleList()
        if hidden is not None:
            need_positive("hidden", hidden)
            self.network.extend([nn.Linear(2 * shape[0], hidden), nn.Linear(hidden, width)])
            with torch.no_grad():
                for parameter in self.network[1].parameters():
                    parameter.mul_(scale)

    def embed(self, x: Tokens, pos: Positions) -> Tokens:
        """Add the features, or the output of the MLP."""
        waves = self._waves(pos)
        if not self.network:
            return x + on_device(self.scale * waves, x.dtype, x.device)
        layers = [layer for layer in self.network if isinstance(layer, nn.Linear)]
        made = mlp(waves / math.sqrt(waves.shape[-1]), layers, nn.functional.gelu)
        return x + on_device(made, x.dtype, x.device)

    def _waves(self, pos: Positions) -> Float[Tensor, "#b n waves"]:
        place = in_float64(pos)
        if self.seed is None:
            table = in_float64(self.frequencies)
        else:
            table = numbers_beside(place, self.fixed, torch.float64)
        # not a matrix product: its rounding could depend on the number of tokens
        angles = ((place / self.unit)[..., None, :] * table).sum(-1)
        return torch.cat([angles.cos(), angles.sin()], -1)


def _drawn(seed: int, waves: int, axes: int, spread: float) -> list[list[float]]:
    """Return normal random numbers that are reproducible across library versions: they use `getrandbits` only."""
    source, bell = random.Random(seed), NormalDist(0, spread)
    return [[bell.inv_cdf((source.getrandbits(52) + 0.5) / 2**52) for _ in range(axes)] for _ in range(waves)]
