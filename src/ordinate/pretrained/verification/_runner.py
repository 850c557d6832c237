"""The contract of runners: how models of one kind are called in Ordinate and in transformers."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from ordinate.models.shape import Shape
from ordinate.pretrained._family import Family
from ordinate.pretrained.verification.outputs import Outputs, joined
from ordinate.pretrained.verification.rows import Line, Text, Texts

# of the three texts of different lengths, as shares of the longest
SHARES = (1.0, 2 / 3, 1 / 3)


class Runner(ABC):
    """Calls a model of one kind in both libraries with the same inputs, which are drawn from a seed.

    Must: `plain_inputs`, `ours` and `theirs`.
    May: `reads_texts`, `decodes`, `classifies`, `reads_whole_texts`, `reads_first_token`, `reads_one_text`.

    Args:
        family: family of the checkpoint.
        shape: hyperparameters of the model.
        config: contents of config.json.
        tokens: length of the longest text [tokens].
        seed: seed of the inputs.
    """

    reads_texts: ClassVar[bool] = True
    """Whether inputs are texts, which can be padded and packed."""

    def __init__(self, family: Family, shape: Shape, config: Mapping[str, Any], tokens: int, seed: int) -> None:
        self.family, self.shape, self.tokens, self.seed = family, shape, tokens, seed
        self.generator = torch.Generator().manual_seed(seed)
        own = getattr(shape, "padding", None)
        # the token by which positions are counted, whatever config.json says (MPNet)
        padding = config.get("pad_token_id") if own is None else own
        self.fill = padding if isinstance(padding, int) and 0 <= padding < shape.vocabulary else 0

    @property
    def decodes(self) -> bool:
        """Whether the model decodes one token at a time, with a cache."""
        return True

    @property
    def classifies(self) -> bool:
        """Whether each row has one output, the logits of its classes."""
        return False

    @property
    def reads_whole_texts(self) -> bool:
        """Whether an output depends on where a text ends: texts are then not packed."""
        return False

    @property
    def reads_first_token(self) -> bool:
        """Whether a classifier reads the first column: texts are then not shifted."""
        return False

    @property
    def reads_one_text(self) -> bool:
        """Whether transformers reads one text in a call, and none that is padded."""
        return False

    @property
    def rows(self) -> int:
        """Number of texts or images without padding: more where each gives only the logits of a few classes."""
        return 8 if self.classifies else 2

    @abstractmethod
    def plain_inputs(self) -> Any:
        """Draw the inputs of the plain checks: without padding."""

    @abstractmethod
    def ours(self, model: Any, inputs: Any) -> Outputs:
        """Compute the outputs of the Ordinate model."""

    @abstractmethod
    def theirs(self, model: Any, inputs: Any) -> Outputs:
        """Compute the outputs of the transformers model."""

    def draw_ids(self, length: int, vocabulary: int) -> Line:
        """Draw token ids; none is the padding token, by which some models recognise padding."""
        ids = torch.randint(max(vocabulary - 1, 1), (length,), generator=self.generator)
        return ids + (ids >= self.fill) if vocabulary > 1 else ids


class TextRunner(Runner):
    """Runner of models that read texts.

    Must: `draw_text`, `ours_once` and `theirs_once`.
    """

    @abstractmethod
    def draw_text(self, length: int) -> Text:
        """Draw a text of this length."""

    @abstractmethod
    def ours_once(self, model: Any, texts: Texts) -> Outputs:
        """Compute the outputs of one call, those of padding left out."""

    @abstractmethod
    def theirs_once(self, model: Any, texts: Texts) -> Outputs:
        """Compute the outputs of one call, those of padding left out."""

    def plain_inputs(self) -> Texts:
        layout = "alone" if self.reads_one_text else "right"
        return Texts(tuple(self.draw_text(self.tokens) for _ in range(self.rows)), layout, self.fill)

    def texts(self) -> tuple[Text, ...]:
        """Draw three texts of different lengths."""
        return tuple(self.draw_text(max(int(self.tokens * share), 1)) for share in SHARES)

    def ours(self, model: Any, inputs: Texts) -> Outputs:
        return joined([self.ours_once(model, call) for call in inputs.calls()])

    def theirs(self, model: Any, inputs: Texts) -> Outputs:
        return joined([self.theirs_once(model, call) for call in inputs.calls()])

    def position_arguments(self, model: Any, positions: Int[Tensor, "b n"]) -> dict[str, Tensor]:
        """Return positions that count from 0 in transformers' terms; empty for models that take none."""
        if "position_ids" not in inspect.signature(model.forward).parameters:
            return {}
        return {"position_ids": self.family.position_ids(positions, self.shape)}

    def steps(self, model: Any, text: Text, start: int, first: int, *, ours: bool) -> Iterator[Tensor]:
        """Decode a text with a cache, the `first` tokens at once and then one at a time.

        Args:
            model: the model.
            text: the text; its tokens are given, none is generated.
            start: position of its first token.
            first: number of tokens of the first call.
            ours: whether it is the Ordinate model.

        Yields:
            the logits of each call.
        """
        raise NotImplementedError
