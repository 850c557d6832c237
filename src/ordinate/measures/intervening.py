"""A model in which something is always changed on the way: a subject like any other."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from ordinate.subject import Facts, Inputs, Reading, Subject, Watch


class Intervened(Subject):
    """A model with a watch that never leaves it.

    Args:
        subject: the model.
        watch: what it changes.
    """

    order = 1_000_000

    def __init__(self, subject: Subject, watch: Watch) -> None:
        self.subject, self.watch = subject, watch

    @classmethod
    def refuses(cls, model: object) -> str | None:
        """It is made of a subject and of a watch."""
        return "it looks into no model by itself"

    @property
    def facts(self) -> Facts:
        """What is known of the model."""
        return self.subject.facts

    def read(self, inputs: Inputs, watch: Watch | None = None) -> Reading:
        """A forward pass with what is changed.

        Raises:
            ValueError: another watch; two cannot be told apart.
        """
        if watch is not None:
            raise ValueError("a model in which something is changed takes no other watch; got one; give none")
        return self.subject.read(inputs, self.watch)

    def token_table(self) -> Float[Tensor, "vocabulary width"]:
        """The vectors that tokens enter by."""
        return self.subject.token_table()

    def position_table(self, length: int) -> Float[Tensor, "length width"]:
        """What is added to a token's vector at each position."""
        return self.subject.position_table(length)

    def projection(self, layer: int) -> Any:
        """The matrices of a layer."""
        return self.subject.projection(layer)
