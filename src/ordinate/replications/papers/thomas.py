"""Thomas et al. 2025, with Xu et al. 2023: a permuted computation is exact, and hides no tokens."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ordinate.core.finding import Estimate
from ordinate.probing._adapter import Inputs, ModelAdapter
from ordinate.replications.estimates import over_seeds
from ordinate.replications.random_models import (
    LAYERS,
    VOCABULARY,
    attention_outputs,
    random_decoder,
    random_texts,
)
from ordinate.replications.replication import Replication, Subject
from ordinate.replications.result import Claim, Control, Paper

TEXTS, TOKENS, SEEDS = 4, 8, 6
# weights of an attacker who has another model
OTHER = 1000
XU = "https://arxiv.org/abs/2304.07735"

Rows = Float[Tensor, "n width"]


class Thomas(Replication):
    """Vocabulary matching: hidden states with permuted rows tell all tokens to a reader who has the weights.

        token t = argmin over v of min over rows r of |h(token 1 .. t - 1, v) - r|

    Against permuted columns both sides are sorted, which no permutation changes. With RoPE the first layer's input
    has no order, so that only which tokens there are is recovered from it.

    Source: Thomas et al. 2025, https://arxiv.org/abs/2505.18332; the exact computation: Xu et al. 2023,
    https://arxiv.org/abs/2304.07735.
    Departs: decoders with random weights and 256 tokens; each token is searched in the whole vocabulary.
    """

    paper = Paper(
        authors="Thomas et al.", year=2025, arxiv="2505.18332",
        title="Hidden No More: Attacking and Defending Private Third-Party LLM Inference",
    )  # fmt: skip
    order = 14
    claims = (
        Claim(
            name="exact",
            text="With tokens, positions and mask permuted, outputs are the plain ones, permuted.",
            tested="identity",
            quantity="relative difference of the outputs of a RoPE decoder, permuted back",
            side="equal",
            expected=0.0,
            size=1e-5,
            null="the mask not permuted",
            source=XU,
        ),
        *(
            Claim(
                name=name,
                text=f"Hidden states {hidden} tell nearly all tokens to a reader who has the weights.",
                tested="number",
                quantity=f"share of tokens that vocabulary matching recovers from {layer} of {SEEDS} RoPE decoders"
                f"{rounding}; chance: 1 / {VOCABULARY}",
                side="above",
                size=0.94,
                null="an attacker with other weights",
                printed="nearly perfect",
                checked=False,
            )
            for name, hidden, layer, rounding in (
                ("first layer", "of the first layer with permuted rows", "the first layer's input", ", in any order"),
                ("last layer", "of the last layer with permuted rows", "the last layer's output", ""),
                (
                    "bfloat16",
                    "with permuted rows, rounded to bfloat16,",
                    "the last layer's output",
                    ", rounded to bfloat16",
                ),
                ("columns", "with permuted rows and columns", "the last layer's output", ""),
            )
        ),
    )

    def controls(self, seed: int) -> Sequence[Control]:
        model, ids = random_decoder(seed, "rope"), random_texts(seed, 1, TOKENS)[0]
        blank = torch.zeros(TOKENS, model.info.width, dtype=torch.float64)
        planted = model.token_table()[ids].double()
        return (
            Control(name="tokens recovered from rows of the token table", expected=1.0,
                    got=share(match_vocabulary(model, planted, 0), ids, ordered=False), tolerance=0.0),
            Control(name="tokens recovered from zeros", expected=0.0,
                    got=share(match_vocabulary(model, blank, LAYERS), ids), tolerance=0.15),
        )  # fmt: skip

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        model, ids = random_decoder(subject.seed, "rope"), random_texts(subject.seed, TEXTS, TOKENS)
        found = {
            "exact": Estimate(
                name="difference", value=permuted_error(model, ids, subject.seed),
                null=permuted_error(model, ids, subject.seed, mask=False),
            )
        }  # fmt: skip
        seeds = range(subject.seed, subject.seed + SEEDS)
        for name, layer, rounded, columns in (
            ("first layer", 0, torch.float32, False),
            ("last layer", LAYERS, torch.float32, False),
            ("bfloat16", LAYERS, torch.bfloat16, False),
            ("columns", LAYERS, torch.float32, True),
        ):
            own, other = (
                [_recovered(seed, seed + gap, layer, rounded, columns) for seed in seeds] for gap in (0, OTHER)
            )
            found[name] = over_seeds("share", own, other, subject.seed)
        return found


def permuted_error(model: ModelAdapter, ids: Int[Tensor, "texts n"], seed: int, *, mask: bool = True) -> float:
    """Relative difference of outputs with permuted tokens and positions, permuted back.

    Args:
        model: a decoder.
        ids: its tokens.
        seed: of the permutation.
        mask: whether the mask is permuted too.
    """
    tokens = ids.shape[1]
    order = torch.randperm(tokens, generator=torch.Generator().manual_seed(seed))
    places, causal = torch.arange(tokens).expand(len(ids), -1), torch.ones(tokens, tokens).tril().bool()
    allowed = causal[order][:, order] if mask else causal
    plain = model.forward(Inputs(ids=ids)).residual
    moved = model.forward(Inputs(ids=ids[:, order], positions=places[:, order], mask=allowed[None])).residual
    return float((moved[:, order.argsort()] - plain).norm() / plain.norm())


def match_vocabulary(model: ModelAdapter, rows: Rows, layer: int, *, columns: bool = False) -> Int[Tensor, "n"]:
    """Recover tokens one after the other: of each, the vocabulary's entry whose hidden state is nearest to any row.

    Args:
        model: the attacker's model.
        rows: hidden states of one text in any order.
        layer: where they were seen: the input of this layer, from 0.
        columns: whether their columns are permuted too, so that sorted rows are compared.
    """
    target = rows.sort(-1).values if columns else rows
    found = torch.empty(0, dtype=torch.long)
    free = torch.ones(len(rows), dtype=torch.bool)
    for _ in range(len(rows)):
        tried = torch.cat([found.expand(VOCABULARY, -1), torch.arange(VOCABULARY)[:, None]], 1)
        made = attention_outputs(model, tried).streams[layer][:, -1]
        made = made.sort(-1).values if columns else made
        distances = torch.cdist(made, target).masked_fill(~free, torch.inf)
        token, row = divmod(int(distances.argmin()), len(rows))
        found, free[row] = torch.cat([found, torch.tensor([token])]), False
    return found


def share(found: Int[Tensor, "n"], ids: Int[Tensor, "n"], *, ordered: bool = True) -> float:
    """Share of tokens that are right, each at its place; or in any order."""
    if ordered:
        return float((found == ids).double().mean())
    counts = [torch.bincount(one, minlength=VOCABULARY) for one in (found, ids)]
    return float(torch.minimum(*counts).sum() / len(ids))


def hide(rows: Rows, rounded: torch.dtype, columns: bool, seed: int) -> Rows:
    """Permute rows, and columns if asked for; rounded to a type."""
    generator = torch.Generator().manual_seed(seed)
    rows = rows[torch.randperm(len(rows), generator=generator)].to(rounded).double()
    return rows[:, torch.randperm(rows.shape[1], generator=generator)] if columns else rows


def _recovered(seed: int, attacker: int, layer: int, rounded: torch.dtype, columns: bool) -> float:
    """Share of a text's tokens that an attacker with the weights of another seed recovers."""
    ids = random_texts(seed, 1, TOKENS)
    rows = attention_outputs(random_decoder(seed, "rope"), ids).streams[layer][0]
    guess = match_vocabulary(
        random_decoder(attacker, "rope"), hide(rows, rounded, columns, seed), layer, columns=columns
    )
    return share(guess, ids[0], ordered=layer > 0)
