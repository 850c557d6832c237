"""ERNIE 1.0 to 3.0."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ordinate.models.encoder_shape import EncoderShape
from ordinate.models.shape import Shape
from ordinate.pretrained._family import TensorRule, Weight
from ordinate.pretrained.next_sentence_like import NextSentenceLike


@dataclass(frozen=True)
class FirstTaskAdded(TensorRule):
    """Vectors of token types, plus the first one of a table of tasks, which transformers adds to each token.

    Args:
        tasks: rows of that table.
    """

    adds = True

    tasks: int

    def read(self, tensors: Sequence[Weight], shape: Shape) -> Weight:
        return tensors[0] + tensors[1][0]

    def write(self, tensor: Weight, shape: Shape) -> list[Weight]:
        return [tensor, tensor.new_zeros(self.tasks, tensor.shape[1])]


class Ernie(NextSentenceLike):
    """ERNIE 1.0 to 3.0: BERT, trained on masked words and phrases; later versions have a vector for each task.

    The vector of the first task, the default in transformers, is added to those of the token types; `save` writes
    their sum, without tasks.

    Sources: Sun et al. 2019, https://arxiv.org/abs/1904.09223; Sun et al. 2020, ERNIE 2.0,
    https://arxiv.org/abs/1907.12412.
    """

    model_type = "ernie"
    prefix = "ernie."
    masked_lm_class = "ErnieForMaskedLM"
    causal_lm_class = "ErnieForCausalLM"
    base_class = "ErnieModel"
    defaults: ClassVar[Mapping[str, Any]] = {
        **NextSentenceLike.defaults,
        "task_type_vocab_size": 3,
        "use_task_id": False,
    }
    optional_sizes = frozenset({"task_type_vocab_size"})

    def complete_config(self, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Say that the vectors of all tasks but the first are left out."""
        found = super().complete_config(config, names)
        if config["use_task_id"]:
            told = "task types other than 0 are not loaded"
            self.warning = f"{self.warning}; {told}" if self.warning else told
        return found

    def used_sizes(self, shape: Shape) -> frozenset[str]:
        return self.optional_sizes if self.settings.get("use_task_id") else frozenset()

    def token_type_rules(self, table: str, shape: EncoderShape) -> list[TensorRule]:
        if not self.settings.get("use_task_id"):
            return super().token_type_rules(table, shape)
        names = tuple(f"{table}.{kind}_type_embeddings.weight" for kind in ("token", "task"))
        return [FirstTaskAdded("kinds.weight", names, self.settings["task_type_vocab_size"])]

    def config(self, shape: Shape) -> dict[str, Any]:
        return super().config(shape) | {"use_task_id": False}
