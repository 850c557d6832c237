"""Intervention: a subject whose forward pass always runs under given hooks."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from ordinate.probing._adapter import ForwardOutput, Hooks, Inputs, ModelAdapter, ModelInfo


class InterventionAdapter(ModelAdapter):
    """A model under a permanent intervention on its activations.

    Args:
        subject: the model.
        watch: the hooks that intervene.
    """

    priority = 1_000_000

    def __init__(self, subject: ModelAdapter, watch: Hooks) -> None:
        self.subject, self.watch = subject, watch

    @classmethod
    def unsupported_reason(cls, model: object) -> str | None:
        """Always refuse: it wraps another subject."""
        return "it wraps another subject and adapts no model itself"

    @property
    def info(self) -> ModelInfo:
        return self.subject.info

    def forward(self, inputs: Inputs, watch: Hooks | None = None) -> ForwardOutput:
        """Run a forward pass under the intervention.

        Raises:
            ValueError: a second watch was given; hooks are not combined.
        """
        if watch is not None:
            raise ValueError("a model under intervention takes no second watch; got one; pass None")
        return self.subject.forward(inputs, self.watch)

    def token_table(self) -> Float[Tensor, "vocabulary width"]:
        return self.subject.token_table()

    def position_table(self, length: int) -> Float[Tensor, "length width"]:
        return self.subject.position_table(length)

    def projection(self, layer: int) -> Any:
        return self.subject.projection(layer)
