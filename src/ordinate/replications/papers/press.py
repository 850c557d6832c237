"""Press et al. 2022: ALiBi trained on short texts reads long ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import nn

from ordinate.core.finding import Estimate
from ordinate.data.tasks.text import Text
from ordinate.models.shape import Shape
from ordinate.replications.estimates import over_pairs
from ordinate.replications.longer_texts import LONGEST, TRAINED, score_controls, scores, split_name
from ordinate.replications.prose import VOCABULARY, heldout_texts, train_bytes
from ordinate.replications.replication import Subject
from ordinate.replications.result import Claim, Control, Paper
from ordinate.replications.trained import Arm, TrainedReplication
from ordinate.replications.trained_runs import TrainedRun

TEXTS = 32
STEPS, BATCH, LEARNING_RATE = 800, 16, 3e-3
# a receptive field of 2 (16 - 1) + 1 = 31 tokens, shorter than training
WINDOW = "window:window=16"
# below the entropy of a byte given the one before it, 2.56 nats in this text
MOST_LOSS = 2.5
# token embeddings start at .02, as in a study: sinusoids need the factor (docs/baselines.md)
SHAPE = Shape(
    vocabulary=VOCABULARY, width=64, layers=2, heads=4, max_length=LONGEST, embedding_std=0.02, embedding_scale=0.16
)


class Press(TrainedReplication):
    """ALiBi trained on 64 tokens reads 512; scored in two ways, which separate extrapolation from longer context.

        split:    mean loss over texts cut into pieces of n tokens: longer pieces have fewer early tokens
        context:  loss of the same tokens after 449 to 512 tokens, minus that after 64

    Split scores fall with n if early tokens are worse, also where no model reads farther back. The context score has
    the same tokens on both sides.

    Source: Press, Smith and Lewis 2022, https://arxiv.org/abs/2108.12409, sections 4 and appendix B.
    Departs: bytes of Python's documentation, width 64, 2 layers, 800 steps; no model of the paper's size.
    """

    paper = Paper(
        authors="Press et al.", year=2022, arxiv="2108.12409",
        title="Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation",
    )  # fmt: skip
    order = 8
    arms = tuple(
        Arm(name, shape, STEPS, BATCH, LEARNING_RATE)
        for name, shape in {
            "alibi": replace(SHAPE, scheme="alibi"),
            "sinusoidal": replace(SHAPE, scheme="sinusoidal"),
            "window": replace(SHAPE, scheme="alibi", mixer=WINDOW),
            "rope": replace(SHAPE, scheme="rope"),
        }.items()
    )
    claims = (
        Claim(
            name="against sinusoidal",
            text="ALiBi reads inputs longer than those of training with less loss than sinusoidal positions.",
            tested="sign",
            quantity=f"loss added by reading {LONGEST} tokens in place of {TRAINED} [nats], ALiBi minus sinusoidal",
            side="below",
            size=0.1,
            null="0: both lose alike",
            needs="training",
        ),
        Claim(
            name="against rotary",
            text="ALiBi reads inputs longer than those of training with less loss than rotary positions.",
            tested="sign",
            quantity=f"loss added by reading {LONGEST} tokens in place of {TRAINED} [nats], ALiBi minus RoPE",
            side="below",
            size=0.1,
            null="0: both lose alike",
            needs="training",
        ),
        Claim(
            name="extrapolates",
            text="With ALiBi the loss falls as inputs grow beyond the length of training.",
            tested="sign",
            quantity=f"loss added by reading {LONGEST} tokens in place of {TRAINED} [nats], texts split",
            side="below",
            size=0.01,
            null="0: the length changes nothing",
            printed="18.40 at 3072 after training at 512; sinusoidal, trained at 3072, 18.67 (perplexity)",
            checked=False,
            needs="training",
        ),
        Claim(
            name="more context",
            text="ALiBi uses context beyond the length of training.",
            tested="sign",
            quantity=f"loss of the same tokens after 449 to {LONGEST} tokens minus after {TRAINED} [nats], ALiBi",
            side="below",
            size=0.01,
            null="the same in models that cannot read farther back than 31 tokens",
            needs="training",
        ),
    )

    def task(self, arm: Arm) -> Text:
        return Text(tokens=train_bytes(), vocabulary=VOCABULARY, length=TRAINED)

    def examine(self, model: nn.Module) -> Mapping[str, float]:
        return scores(model, heldout_texts(TEXTS, LONGEST + 1))

    def has_learnt(self, run: TrainedRun) -> bool:
        return run.numbers[split_name(TRAINED)] < MOST_LOSS

    def controls(self, seed: int) -> Sequence[Control]:
        return score_controls(seed)

    def measure(self, subject: Subject) -> Mapping[str, Estimate]:
        runs = subject.runs
        if runs is None:
            return {}
        near, long = split_name(TRAINED), split_name(LONGEST)
        added = {arm.name: runs.numbers(arm.name, long) - runs.numbers(arm.name, near) for arm in self.arms}
        context, local = (runs.numbers(arm, "context") for arm in ("alibi", "window"))
        return {
            "against sinusoidal": over_pairs("difference", added["alibi"] - added["sinusoidal"]),
            "against rotary": over_pairs("difference", added["alibi"] - added["rope"]),
            "extrapolates": over_pairs("added loss", added["alibi"]),
            "more context": over_pairs("context gain", context, local),
        }
