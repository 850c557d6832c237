"""The contract of wrappers: published models of which a part is a language model of a family."""

from abc import ABC
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ordinate.core.checks import need, shown
from ordinate.models.shape import Shape
from ordinate.pretrained._family import REMEDY
from ordinate.pretrained.decoder_like import PLAIN_LOGITS

TEXT = "text_config"
"""The key of the config.json of the language model."""
TIED = "tie_word_embeddings"
"""The key that says whether the head is tied."""
OUTER, HEAD = "model.", "lm_head."
"""Beginnings of the names of the tensors of the model around it without its head, and of the head."""


class Wrapper(ABC):
    """A model of texts and images around a language model, identified by its `model_type`.

    Must: `model_type`, `causal_lm_class`, `base_class` and `text_type`.
    May: `text_type_fixed`, `text_defaults`, `tied`, `text_ties`, `keeps_cap` and `part`, and every method.
    """

    model_type: ClassVar[str]
    """The `model_type` of its config.json."""
    causal_lm_class: ClassVar[str]
    """The transformers class with a next-token head."""
    base_class: ClassVar[str]
    """The transformers class without a head."""
    text_type: ClassVar[str]
    """The `model_type` of a language model whose config.json does not name it."""
    text_type_fixed: ClassVar[bool] = False
    """Whether it is this one, whatever config.json says."""
    text_defaults: ClassVar[Mapping[str, Any]] = {}
    """The config.json of the language model, where there is none."""
    tied: ClassVar[bool] = True
    """Whether the head is tied, where config.json does not say."""
    text_ties: ClassVar[bool] = False
    """Whether a language model whose own settings tie the head ties it, where those around it do not."""
    keeps_cap: ClassVar[bool] = False
    """Whether the class around the language model caps its logits as this alone does."""
    part: ClassVar[str] = "language_model"
    """The name of the language model in the names of tensors."""

    def text_config(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the config.json of the language model, without `architectures`.

        Raises:
            ValueError: it is not an object, or one of its keys or of config.json is of another type.
        """
        inner = given.get(TEXT)
        must, came = f"{TEXT} in config.json must be an object", f"got {shown(inner)}"
        need(inner is None or isinstance(inner, dict), must, came, REMEDY)
        own = dict(self.text_defaults if inner is None else inner)
        kind = self.text_type if self.text_type_fixed else own.get("model_type", self.text_type)
        must, came = f"model_type of {TEXT} in config.json must be a text", f"got {shown(kind)}"
        need(isinstance(kind, str), must, came, REMEDY)
        tied = given.get(TIED, self.tied)
        must, came = f"{TIED} in config.json must be true or false", f"got {shown(tied)}"
        need(isinstance(tied, bool), must, came, REMEDY)
        # otherwise the class around both decides, whatever text_config says
        told = {} if self.text_ties and not tied else {TIED: tied}
        return {**own, "model_type": kind, **told}

    def has_head(self, given: Mapping[str, Any]) -> bool | None:
        """Whether config.json names the class with a next-token head; None: it names no class.

        Raises:
            ValueError: it names another class, or has no list of names.
        """
        listed, known = given.get("architectures") or [None], (self.causal_lm_class, self.base_class)
        must, came = "architectures in config.json must be a list of names", f"got {shown(listed)}"
        need(isinstance(listed, list), must, came, REMEDY)
        named = listed[0]
        must = f"the language model of a {self.model_type} is read from the classes {' and '.join(known)}"
        need(named in (None, *known), must, f"config.json names a {shown(named)}", "load another checkpoint")
        return None if named is None else named == self.causal_lm_class

    def text_shape(self, shape: Shape, text: Mapping[str, Any]) -> Shape:
        """Return the shape of the language model inside, whose logits are not scaled, nor capped unless `keeps_cap`.

        Args:
            shape: that of the language model alone.
            text: its config.json, from `text_config`.

        Raises:
            ValueError: a head with a bias.
        """
        must, came = f"the head of a {self.model_type} must have no bias", "got a language model whose head has one"
        need("head" not in shape.bias, must, came, "load another checkpoint")
        plain = replace(shape, **PLAIN_LOGITS)
        return replace(plain, logit_softcap=shape.logit_softcap) if self.keeps_cap else plain

    def text_name(self, name: str, prefix: str) -> str | None:
        """Return the name that a tensor has in a checkpoint of the language model alone; None: it is not of it.

        Args:
            name: in this checkpoint.
            prefix: of the language model's names, where it is alone and has a head.
        """
        # as today, and in files of earlier versions
        today, early = f"{OUTER}{self.part}.", f"{self.part}."
        for start, other in ((today, prefix), (f"{early}{OUTER}", prefix), (early, "")):
            if name.startswith(start):
                return other + name.removeprefix(start)
        return name if name.startswith(HEAD) else None

    def transposed(self, name: str, size: tuple[int, ...], text: Mapping[str, Any]) -> bool:
        """Whether a tensor of this shape is transposed in checkpoints, in its last two axes.

        Args:
            name: its name in a checkpoint of the language model alone.
            size: its shape.
            text: the config.json of the language model, from `text_config`.
        """
        return False
