"""Base class of decoders."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from torch import Tensor

from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.models.text_head import READERS, TextHead
from ordinate.pretrained._family import Family, TensorRule, linear_rules
from ordinate.pretrained.text_heads import head_classes, head_labels, head_settings

TOKEN_BIAS = "token_classification_bias"
PLAIN_LOGITS: Mapping[str, Any] = {"logit_scale": 1.0, "logit_softcap": None}
"""What changes logits of next tokens only."""
PLAIN_HEAD: Mapping[str, Any] = {"head_transform": False, "head_activation": "gelu", "head_bias": True}
"""What a model without a head does not have."""
# names of the head here, and of what else only models with one have
OUTPUT = ("head.", "head_bias")
HEAD_PARTS = (*OUTPUT, "head_transform.")


class DecoderLike(Family):
    """Decoders, with a head for the next token, a classifier of texts or tokens, a head for answers, or none.

    Must: besides those of `Family`, `causal_lm_class` and `base_class`.
    May: `heads`, `output_head` with `head_rules`, `text_classifier`, `token_classifier`, `span_prefix` and
        `has_bias`; and `token_classification_bias` among `defaults`, where config.json can say that the classifier of
        tokens has no bias.
    """

    causal_lm_class: ClassVar[str]
    """The transformers class with a next-token head."""
    heads: ClassVar[tuple[TextHead, ...]] = READERS
    """The other heads that transformers has for the family."""
    output_head: ClassVar[str] = "lm_head"
    """Name of the next-token head in checkpoints."""
    text_classifier: ClassVar[str] = "score"
    """Name of the classifier of texts in checkpoints."""
    token_classifier: ClassVar[str] = "classifier"
    """Name of the classifier of tokens in checkpoints."""
    span_prefix: str | None = None
    """Prefix of tensor names in checkpoints with a head for answers, if it is another one."""

    @property
    def classes(self) -> Mapping[str, TextHead]:
        """The transformers classes with one of `heads`."""
        return head_classes(self.base_class, self.heads)

    def token_bias(self) -> bool:
        """Whether the classifier of tokens has a bias, by the settings."""
        return TOKEN_BIAS not in self.defaults or bool(self.settings[TOKEN_BIAS])

    def has_bias(self, head: TextHead) -> bool:
        """Whether a head, one of `heads`, has a bias, by the settings."""
        return head == "spans" or (head == "token_classes" and self.token_bias())

    def head_rules(self, shape: Shape) -> list[TensorRule]:
        """Return the tensor mappings of the next-token head: of a tied one, the bias if it has one."""
        if not shape.tie_embeddings:
            return linear_rules("head", self.output_head, bias="head" in shape.bias)
        return [TensorRule("head_bias", (f"{self.output_head}.bias",))] if "head" in shape.bias else []

    def architecture(self, shape: Shape) -> str:
        named = {head: name for name, head in self.classes.items()}
        named |= {"next_token": self.causal_lm_class, "none": self.base_class}
        must = f"a {self.model_type} has one of the heads {', '.join(named)} in transformers"
        need(shape.head in named, must, f"got head={shape.head!r}", "use save_pretrained instead")
        return named[shape.head]

    def read_config(self, given: Mapping[str, Any], names: Collection[str]) -> Shape:
        shape = super().read_config(given, names)
        named = (self.settings.get("architectures") or ("",))[0]
        plain = tuple(place for place in shape.bias if place != "head")
        if named in self.classes:
            head = self.classes[named]
            return replace(
                shape,
                head=head,
                labels=head_labels(head, self.settings),
                padding=self._padding(shape) if head == "classes" else None,
                bias=(*plain, "head") if self.has_bias(head) else plain,
                tie_embeddings=False,
                **PLAIN_LOGITS,
            )
        stored = (rule.theirs[0] for rule in self.rules(shape) if rule.ours.startswith(HEAD_PARTS))
        heads = {self.stored_name(name, names) for name in stored}
        # a tied head is there even in a checkpoint of the bare model
        if named != self.base_class or heads <= set(names):
            return shape
        return replace(shape, head="none", bias=plain, tie_embeddings=False, **PLAIN_LOGITS, **PLAIN_HEAD)

    def refined(self, shape: Shape, tensors: Mapping[str, Tensor]) -> Shape:
        """Return the shape; with a head of its own where the checkpoint has one that differs, as in transformers."""
        if shape.head != "next_token" or not shape.tie_embeddings:
            return shape
        own = replace(shape, tie_embeddings=False)
        named = {rule.ours: rule.theirs[0] for rule in self.rules(own)}
        return own if self.differ(tensors, named["tokens.weight"], named["head.weight"]) else shape

    def differ(self, tensors: Mapping[str, Tensor], *names: str) -> bool:
        """Whether a checkpoint has two tensors with these names, and other numbers in one than in the other."""
        first, second = (self.stored_name(name, tensors) for name in names)
        return first in tensors and second in tensors and not tensors[first].equal(tensors[second])

    def write_config(self, shape: Shape) -> dict[str, Any]:
        # of a padding token outside of the vocabulary, as the default may be, transformers makes no table
        padding = (
            {"pad_token_id": shape.padding} if shape.head == "classes" or "pad_token_id" in self.defaults else {}
        )
        plain = TOKEN_BIAS in self.defaults and shape.head == "token_classes" and "head" not in shape.bias
        told = padding | ({TOKEN_BIAS: False} if plain else {})
        return {**super().write_config(shape), **head_settings(shape), **told}

    def all_rules(self, shape: Shape) -> list[TensorRule]:
        rules = super().all_rules(shape)
        if shape.head == "next_token":
            return rules
        rules = [rule for rule in rules if not rule.ours.startswith(OUTPUT)]
        if shape.head == "spans" and self.span_prefix is not None:
            rules = [replace(rule, theirs=tuple(map(self._span_name, rule.theirs))) for rule in rules]
        theirs = {"classes": self.text_classifier, "token_classes": self.token_classifier, "spans": "qa_outputs"}
        own = linear_rules("classes", theirs[shape.head], bias="head" in shape.bias) if shape.head in theirs else []
        return [*rules, *own]

    def _span_name(self, name: str) -> str:
        return f"{self.span_prefix}{name.removeprefix(self.prefix)}"

    def _padding(self, shape: Shape) -> int | None:
        """Return the padding token; one outside of the vocabulary is in no text."""
        token = self.settings.get("pad_token_id")
        return token if token is not None and 0 <= token < shape.vocabulary else None
