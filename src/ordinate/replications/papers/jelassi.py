"""Jelassi et al. 2024: a state of fixed size copies no more than fits into it."""

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from ordinate.attention import attend
from ordinate.core.finding import Estimate
from ordinate.core.geometry import Geometry
from ordinate.ops.analytic_heads import offset_head_rope
from ordinate.replications.estimates import over_seeds
from ordinate.replications.replication import Replication, Subject
from ordinate.replications.result import Claim, Control, Paper
from ordinate.schemes import Rope

VOCABULARY, BITS, TEXTS, SEEDS = 16, 64, 1024, 8
# symbols that fit, and the length at which half of them do
FITS = BITS // int(math.log2(VOCABULARY))
LONG = 2 * FITS
# score of the constructed head at its offset, far above the others
STRENGTH, HEAD_WIDTH = 4.0, 128

Symbols = Int[Tensor, "texts n"]


class Jelassi(Replication):
    """A state of b bits copies at most b / log2 V of V symbols; one attention head copies any string.

        P(all n right) <= 2^b / V^n

    This holds for every code: 2^b states yield at most 2^b of the V^n strings. The quantised state here reaches it:
    it stores the last b / log2 V symbols, shifts by log2 V bits at each token, and guesses the others. Its share of
    right symbols is f + (1 - f) / V with f = b / (n log2 V); codes that give up some of the stored ones may have a
    larger share.

    Source: Jelassi et al. 2024, https://arxiv.org/abs/2402.01032, section 2.
    Departs: bounds and constructed states; the trained models of its section 3 are not measured.
    """

    paper = Paper(
        authors="Jelassi et al.", year=2024, arxiv="2402.01032",
        title="Repeat After Me: Transformers are Better than State Space Models at Copying",
    )  # fmt: skip
    order = 21
    claims = (
        Claim(
            name="all that fits",
            text="A state of b bits copies b / log2 V symbols.",
            tested="identity",
            quantity=f"share of {TEXTS} random strings of {FITS} symbols out of {VOCABULARY} that a quantised state "
            f"of {BITS} bits copies whole",
            side="equal",
            expected=1.0,
            size=0.0,
            null="the same state with one bit less",
        ),
        Claim(
            name="no more",
            text="A state of b bits copies no more than b / log2 V symbols: one more, and whole strings are copied "
            "with the probability 1 / V.",
            tested="number",
            quantity=f"share of strings of {FITS + 1} symbols that the state copies whole",
            side="equal",
            expected=1 / VOCABULARY,
            size=0.02,
            null=f"strings of {FITS} symbols",
        ),
        Claim(
            name="beyond",
            text="Beyond that, accuracy falls with the length: a state that holds half of the symbols guesses the "
            "others.",
            tested="number",
            quantity=f"share of symbols copied of strings of {LONG} symbols",
            side="equal",
            expected=0.5 + 0.5 / VOCABULARY,
            size=0.01,
            null="a state of twice the bits",
        ),
        Claim(
            name="attention",
            text="One attention head copies strings of any length with the same weights.",
            tested="identity",
            quantity=f"share of symbols copied by one constructed RoPE head, strings of {LONG} and {8 * LONG} "
            "symbols",
            side="equal",
            expected=1.0,
            size=0.0,
            null="guessing: 1 / V",
        ),
    )

    def controls(self, seed: int) -> Sequence[Control]:
        symbols = random_symbols(seed, LONG)
        wrong = (symbols + 1) % VOCABULARY
        return (
            Control(name="share copied by a state of no bits", expected=1 / VOCABULARY,
                    got=share(symbols, copy_by_state(symbols, 0, seed + 1)), tolerance=0.02),
            Control(name="share copied by a state for all symbols", expected=1.0,
                    got=share(symbols, copy_by_state(symbols, 2 * BITS, seed + 1)), tolerance=0.0),
            Control(name="share of symbols of which each is another", expected=0.0, got=share(symbols, wrong),
                    tolerance=0.0),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        rows = torch.tensor([_shares(subject.seed + turn) for turn in range(SEEDS)], dtype=torch.float64).T.numpy()
        fits, less, more, half, double = rows
        heads = [copy_by_attention(random_symbols(subject.seed, length)) for length in (LONG, 8 * LONG)]
        copied = [share(random_symbols(subject.seed, len(own[0])), own) for own in heads]
        return {
            "all that fits": over_seeds("share", fits, less, subject.seed),
            "no more": over_seeds("share", more, fits, subject.seed),
            "beyond": over_seeds("share", half, double, subject.seed),
            "attention": Estimate(name="share", value=min(copied), null=1 / VOCABULARY),
        }


def random_symbols(seed: int, length: int) -> Symbols:
    """Independent, uniform symbols."""
    return torch.randint(VOCABULARY, (TEXTS, length), generator=torch.Generator().manual_seed(seed))


def copy_by_state(symbols: Symbols, bits: int, seed: int) -> Symbols:
    """Copy strings through a state of so many bits, and guess what it does not tell.

        state = (V state + symbol) mod 2^bits,   symbol i of n = state / V^(n - i - 1) mod V

    A symbol of which only some bits are left is guessed among those with these bits.

    Args:
        symbols: the strings.
        bits: size of the state.
        seed: of the guesses.
    """
    size, kept = 2**bits, []
    guesses = torch.randint(VOCABULARY, symbols.shape, generator=torch.Generator().manual_seed(seed))
    for text, guessed in zip(symbols.tolist(), guesses.tolist(), strict=True):
        state, made = 0, []
        for symbol in text:
            state = (state * VOCABULARY + symbol) % size
        for place, guess in enumerate(reversed(guessed)):
            # bits of this symbol that the state has
            told = min(max(size // VOCABULARY**place, 1), VOCABULARY)
            made.append(guess // told * told + state // VOCABULARY**place % told)
        kept.append(made[::-1])
    return torch.tensor(kept)


def copy_by_attention(symbols: Symbols) -> Symbols:
    """Copy strings with one head that attends to a fixed distance: the string's length, of a string read twice."""
    length = symbols.shape[1]
    q, k = offset_head_rope(HEAD_WIDTH, length, STRENGTH).marks(torch.zeros(1, 2 * length, 1, dtype=torch.float64))
    values = torch.nn.functional.one_hot(torch.cat([symbols, torch.zeros_like(symbols)], 1), VOCABULARY).double()
    # one pattern serves all strings: they are columns of the values
    columns = values.transpose(0, 1).flatten(1)[None, None]
    read = attend(q, k, columns, Rope(head_width=HEAD_WIDTH).at(Geometry.causal(2 * length)))[0, 0, length:]
    return read.unflatten(1, (len(symbols), VOCABULARY)).argmax(-1).T


def share(symbols: Symbols, copied: Symbols) -> float:
    """Share of symbols that are right."""
    return float((symbols == copied).double().mean())


def whole(symbols: Symbols, copied: Symbols) -> float:
    """Share of strings of which each symbol is right."""
    return float((symbols == copied).all(1).double().mean())


def _shares(seed: int) -> tuple[float, float, float, float, float]:
    """Whole strings that fit, with a bit less, a symbol more; symbols of long strings, and with twice the bits."""
    fits, more, long = (random_symbols(seed, length) for length in (FITS, FITS + 1, LONG))
    other = seed + 1000
    return (
        whole(fits, copy_by_state(fits, BITS, other)),
        whole(fits, copy_by_state(fits, BITS - 1, other)),
        whole(more, copy_by_state(more, BITS, other)),
        share(long, copy_by_state(long, BITS, other)),
        share(long, copy_by_state(long, 2 * BITS, other)),
    )
