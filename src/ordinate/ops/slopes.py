"""Head-specific slopes of ALiBi."""

import math
from typing import Literal

SlopeRule = Literal["paper", "even", "span"]


def alibi_slopes(heads: int, rule: SlopeRule, flattest: float) -> list[float]:
    """Return ALiBi's slope of each head: powers of two, from steep to flat [nats a token].

        paper:  2^(-F h / P),  h = 1 .. P;  then 2^(-F h / 2P),  h = 1, 3, 5 ..        P: largest power of two <= H
        even:   2^(-F h / H),  h = 1 .. H
        span:   2^-(1 + (F - 1) (h - 1) / (H - 1)),  h = 1 .. H

    With F = 8 they agree at 8 heads; `paper` and `even` agree wherever H is a power of two.

    Args:
        heads: number of heads, H.
        rule: `paper` (ALiBi's code, Bloom, MPT, x-transformers), `even` (attention-gym) or `span`
            (foundation-model-stack), whose first slope is always 1/2.
        flattest: F; the smallest slope is 2^-F.
    """
    if rule == "even":
        return [2 ** (-flattest * h / heads) for h in range(1, heads + 1)]
    if rule == "span":
        return [2 ** -(1 + (flattest - 1) * h / max(heads - 1, 1)) for h in range(heads)]
    power = 2 ** math.floor(math.log2(heads))
    first = [2 ** (-flattest * h / power) for h in range(1, power + 1)]
    between = [2 ** (-flattest / 2 * h / power) for h in range(1, 2 * power + 1, 2)]
    return first + between[: heads - power]
