"""RoPE frequencies for positions with several axes (images, video)."""

import math
from typing import Literal

HEO = """@inproceedings{heo2024rotary,
  title = {Rotary Position Embedding for Vision Transformer},
  author = {Heo, Byeongho and Park, Song and Han, Dongyoon and Yun, Sangdoo},
  booktitle = {European Conference on Computer Vision},
  year = {2024},
  url = {https://arxiv.org/abs/2403.13298}
}"""
"""BibTeX entry of the paper that compares rotary embeddings for images."""

Spacing = Literal["lang", "round_robin", "pixel", "pixel_log", "centres"]


def axis_frequencies(
    spacing: Spacing, *, axes: int, pairs: int, theta: float, max_frequency: float
) -> list[list[float]]:
    """Return the angular frequencies of the channel pairs, one list per axis.

        lang:        w[a, m] = theta^(-m/P)                             [radians a token]
        round_robin: w[a, m] = theta^(-(m A + a)/(P A))                 [radians a token]
        pixel:       w[a, m] = pi * (1 + (F/2 - 1) m/(P-1))             [radians per half a side]
        pixel_log:   w[a, m] = pi * (F/2)^(m/(P-1))                     [radians per half a side]
        centres:     w[a, m] = 2 pi theta^(-m/P)                        [radians per half a side]

    Args:
        spacing: which formula; `round_robin` distributes one list of frequencies over the axes in turn, the others
            use the same frequencies for every axis.
        axes: number of axes, A.
        pairs: channel pairs per axis, P.
        theta: base of the wavelengths of `lang`, `round_robin` and `centres`.
        max_frequency: twice the highest frequency of the pixel forms, F [half turns per half a side].
    """
    if spacing == "round_robin":
        return [[theta ** (-(m * axes + axis) / (pairs * axes)) for m in range(pairs)] for axis in range(axes)]
    rates = [theta ** (-m / pairs) for m in range(pairs)]
    steps = [m / max(pairs - 1, 1) for m in range(pairs)]
    top = max_frequency / 2
    shared = {
        "lang": rates,
        "centres": [2 * math.pi * rate for rate in rates],
        "pixel": [math.pi * (1 + (top - 1) * step) for step in steps],
        "pixel_log": [math.pi * top**step for step in steps],
    }
    return [shared[spacing]] * axes
