"""What an evaluation needs to know of the plan of a study."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class EvaluationSettings(Protocol):
    """Sizes of an evaluation; the plan of a study has them."""

    @property
    def length(self) -> int:
        """Tokens of a training sequence."""

    @property
    def longest_length(self) -> int:
        """Longest evaluation length [tokens]."""

    @property
    def eval_length_multiples(self) -> tuple[int, ...]:
        """Evaluation lengths, as multiples of `length`."""

    @property
    def eval_samples(self) -> int:
        """Held-out sequences of the longest length, pairs or images."""

    @property
    def shuffle_samples(self) -> int:
        """Held-out sequences of the trained length whose tokens are shuffled."""

    @property
    def task_samples(self) -> int:
        """Newly generated sequences of a synthetic task, at each length."""

    @property
    def generated_texts(self) -> int:
        """Texts or translations that are generated."""

    @property
    def generated_tokens(self) -> int:
        """Length of each generated text."""

    @property
    def precision(self) -> str:
        """`bf16` for bfloat16 matrix products, or `fp32`."""
