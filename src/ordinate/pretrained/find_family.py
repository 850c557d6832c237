"""Find the family that reads a published checkpoint."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from ordinate.core import catalog
from ordinate.core.checks import need, need_known, shown
from ordinate.pretrained._family import Family
from ordinate.pretrained._wrapper import Wrapper
from ordinate.pretrained.checkpoint_files import CheckpointConfig
from ordinate.pretrained.decoder_like import DecoderLike

_FOLDER, _WRAPPERS = "ordinate.pretrained.families", "ordinate.pretrained.wrappers"


def wrapper_for(config: Mapping[str, Any]) -> Wrapper | None:
    """Return the model around a language model that a config.json describes; None: it describes none."""
    name = str(config["model_type"]).replace("-", "_")
    return catalog.load(_WRAPPERS, Wrapper, name)() if name in catalog.names(_WRAPPERS) else None


def language_config(config: Mapping[str, Any]) -> CheckpointConfig:
    """Return the config.json of a language model: itself, or that of the part of a larger model.

    Raises:
        ValueError: a part that is no object, or a class of the larger model with another head.
    """
    wrapper = wrapper_for(config)
    if wrapper is None:
        return CheckpointConfig(config)
    inner, headed = wrapper.text_config(config), wrapper.has_head(config)
    family = family_for(inner)
    if not isinstance(family, DecoderLike):
        must = f"the language model of a {wrapper.model_type} must be a decoder"
        kind = f"model_type {family.model_type}, a family of {family.model_class.__name__} models"
        raise ValueError(f"{must}; got text_config with {kind}; load another checkpoint")
    named = {True: family.causal_lm_class, False: family.base_class, None: None}[headed]
    return CheckpointConfig({**inner, "architectures": None if named is None else [named]})


def family_for(config: Mapping[str, Any]) -> Family:
    """Return the family that reads a config.json: that of its `model_type`, or the one that transformers takes.

    Raises:
        ValueError: a family that Ordinate does not have; the message names the nearest that it has.
    """
    named, known = config["model_type"], catalog.names(_FOLDER)
    listed = sorted([*known, *catalog.names(_WRAPPERS)])
    near = get_close_matches(named.replace("-", "_"), listed, n=1, cutoff=0.5)
    inner = config.get("text_config")
    part = inner.get("model_type") if isinstance(inner, Mapping) else None
    alone = f"its text_config is a {part}: save the language model alone in transformers, and load that"
    need(
        named.replace("-", "_") in known,
        f"model_type in config.json must be one of {', '.join(listed)}",
        f"got {shown(named)}" + (f", whose nearest by name is {near[0]}" if near else ""),
        alone if part in known else "load a checkpoint of one of these families",
    )
    return family_of(family_of(named).read_as(config))


def family_of(model_type: str) -> Family:
    """Return the family of a `model_type`."""
    names = catalog.names(_FOLDER)
    name = model_type.replace("-", "_")
    need_known("family of models", name, names)
    return catalog.load(_FOLDER, Family, name)()
