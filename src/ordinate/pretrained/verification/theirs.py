"""Load a checkpoint in transformers: from files of its folder only, without code of the checkpoint."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ordinate.pretrained._quantisation import FIELD
from ordinate.pretrained.checkpoint_files import read_config
from ordinate.pretrained.find_family import family_for

INSTALL = "pip install 'ordinate[hf]'"
CACHES = ("cache", "past_key_values")
"""Names of the argument for a cache."""


def transformers_library() -> Any:
    """Import transformers.

    Raises:
        ValueError: it is not installed; the message has the command.
    """
    try:
        import transformers
    except ImportError:
        raise ValueError(f"verify compares with transformers; it is not installed; install it: {INSTALL}") from None
    return transformers


def load_theirs(folder: Path, architecture: str, dtype: torch.dtype) -> Any:
    """Load a checkpoint in transformers, in eval mode.

    Args:
        folder: the checkpoint.
        architecture: the class.
        dtype: parameter dtype. For float64 the parameters are read in float32 first: every number is the same.

    Raises:
        ValueError: transformers cannot load it.
    """
    library = transformers_library()
    wide, kind = dtype == torch.float64, getattr(library, architecture)
    try:
        with quiet(library):
            # a class may be that of several families
            family = family_for(read_config(folder))
            known = library.CONFIG_MAPPING[family.model_type]
            config = known.from_pretrained(folder, local_files_only=True, return_dict=True)
            if getattr(config, FIELD, None) is not None:
                # else it would compute with quantised weights where there is a GPU
                config.quantization_config = {**config.quantization_config, "dequantize": True}
            model = kind.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32 if wide else dtype,
                # others may need certain devices, or code that is downloaded
                attn_implementation=family.reference_attention,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
            )
    except Exception as error:
        raise ValueError(
            f"transformers must be able to load the checkpoint; as {architecture} it raised "
            f"{type(error).__name__}: {error}; check the folder, or update transformers"
        ) from error
    if hasattr(model, "set_experts_implementation"):
        # the usual kernel of experts needs rows of a multiple of 16 bytes
        model.set_experts_implementation("eager")
    return (model.double() if wide else model).eval()


def with_cache(model: Any, cache: Any, **inputs: Any) -> tuple[Any, Any]:
    """Run a model of transformers on inputs that continue a cache.

    The argument and the field of the output are called cache from transformers 5.24 on, past_key_values before.

    Args:
        model: the model.
        cache: what was returned for the inputs before these, or None.
        inputs: other arguments of the forward pass.

    Returns:
        The output, and the cache thereafter.
    """
    known = inspect.signature(model.forward).parameters
    name = next((name for name in CACHES if name in known), None)
    if name is None:
        # a model without a cache (GPT) reads the whole text again
        whole = dict(inputs) if cache is None else {**inputs, **_joined(cache, inputs)}
        came = model(**whole, return_dict=True)
        return replace(came, logits=came.logits[:, -inputs["input_ids"].shape[1] :]), whole
    came = model(**inputs, **{name: cache}, use_cache=True, return_dict=True)
    return came, came[name]


def _joined(before: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what each token has one of, of all tokens; a mask is that of all already."""
    return {
        name: torch.cat([before[name], inputs[name]], 1) for name in ("input_ids", "position_ids") if name in inputs
    }


@contextmanager
def with_default_type(dtype: torch.dtype) -> Iterator[None]:
    """Have float64 as the default type for a model of that type: XGLM makes its largest mask of it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.promote_types(before, dtype))
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def quiet(library: Any) -> Iterator[None]:
    """Disable the progress bars and the warnings of transformers."""
    logging = library.utils.logging
    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
