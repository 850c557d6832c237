"""Attach to a model or the folder of one: load it, choose its adapter and verify the hooks."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from ordinate.core import catalog
from ordinate.core.checks import need, need_known
from ordinate.core.output_folder import nearest_folder
from ordinate.data.tokenizer import FILE, Tokenizer, load_tokenizer
from ordinate.pretrained._quantisation import FIELD
from ordinate.pretrained.checkpoint_files import CONFIG, SizedTensors, read_config
from ordinate.pretrained.checkpoint_sizes import check_sizes
from ordinate.pretrained.quantised_tensors import need_same_dequantised, open_tensors
from ordinate.pretrained.read_model import check_own
from ordinate.probing._adapter import ModelAdapter, NotApplicable
from ordinate.probing.instrumentation.model_parts import (
    KIND_OF_PART,
    PARTS,
    ModelPart,
    PartName,
    check_part,
    lacking_part,
    source_text,
)
from ordinate.probing.instrumentation.ordinate_layout import ORDINATE_MODELS
from ordinate.probing.instrumentation.trained_length import training_of

_FOLDER = "ordinate.probing.adapters"
EXPLICIT_ATTENTION = ("eager", "sdpa")
"""Attention implementations that every transformers model has."""
# no code of a checkpoint is run, and nothing is downloaded
LOAD_OPTIONS = {"trust_remote_code": False, "local_files_only": True}


def attach(
    model: Any,
    *,
    name: str | None = None,
    stage: int | None = None,
    part: str | None = None,
    source: str | Tensor | None = None,
) -> ModelAdapter:
    """Return an adapter through which probes access a model.

    Of an encoder-decoder one part is attached: its encoder, the self-attention of its decoder, or its
    cross-attention, with queries of the decoder and keys of the encoder. An attached model gives its other parts too;
    what was replaced in it stays replaced: `attach(ablate(attach(model), "z"), part="decoder", source=...)`.

    Args:
        model: an Ordinate model, a transformers model, any `torch.nn.Module`, or a folder with an Ordinate model or a
            transformers checkpoint in safetensors. No pickle is read, no code of a checkpoint is run, and nothing is
            downloaded.
        name: name for reports; None: that of the folder or class.
        stage: stack of layers to probe, counted from 1: Swin has four, most models one. None: the one with the most
            layers.
        part: encoder, decoder or cross; None: the encoder of an encoder-decoder, and any other model whole.
        source: of the decoder or the cross-attention, the source where inputs name none: a text, or token ids
            (batch, tokens). None: `Inputs(ids, source=...)` names it.

    Raises:
        NotApplicable: the model cannot be instrumented, lacks this part, or an instrumented pass does not reproduce
            its output.
        ValueError: the folder has no such model, the model no such stage, or a source that is read by nothing.
    """
    if part is not None:
        need_known("part", part, PARTS)
    chosen = cast("PartName | None", part)
    if isinstance(model, ModelAdapter):
        name = model.info.name if name is None else name
        return model.seen_through(_attached(model.whole, name, stage, chosen, source, tokenizer=model.tokenizer))
    tokenizer = folder = None
    if isinstance(model, str | Path):
        folder = Path(model)
        name = folder.resolve().name if name is None else name
        model = _read(folder)
        tokenizer = load_tokenizer(folder) if (folder / FILE).is_file() else None
    name = type(model).__name__ if name is None else name
    _check_finite(model, name)
    return _attached(model, name, stage, chosen, source, tokenizer=tokenizer, folder=folder)


def _attached(
    model: Any,
    name: str,
    stage: int | None,
    part: PartName | None,
    source: str | Tensor | None,
    *,
    tokenizer: Tokenizer | None,
    folder: Path | None = None,
) -> ModelAdapter:
    needs_source = check_part(model, name, part)
    must = "a source is read by the decoder and the cross-attention"
    need(needs_source or source is None, must, f"got one for {part or name}", "leave it out, or give part")
    chosen: Any = model
    if needs_source:
        encoded = source_text(tokenizer, source, name) if isinstance(source, str) else source
        chosen = ModelPart(model, cast(PartName, part), encoded)
    kinds = [catalog.load(_FOLDER, ModelAdapter, member) for member in catalog.names(_FOLDER)]
    refused = []
    for kind in sorted(kinds, key=lambda kind: kind.priority):
        reason = kind.unsupported_reason(chosen)
        if reason is None:
            adapter = _inspected(kind, name, chosen, tokenizer, stage)
            adapter.whole, adapter.trained_length = model, _trained_length(adapter, model, folder)
            own = adapter.info.kind
            if part is not None and own not in (part, KIND_OF_PART[part]):
                raise lacking_part(name, part, own)
            return adapter
        refused.append(reason)
    raise NotApplicable(f"{name} cannot be probed: {'; '.join(dict.fromkeys(refused))}")


def _inspected(kind: Any, name: str, model: object, *given: Any) -> ModelAdapter:
    """Return the adapter of a model; an error of the model in the passes that inspect it is the reason why not."""
    try:
        return kind(model, name, *given)
    except (ValueError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        told = f"inspecting it by short forward passes raised {type(error).__name__}: {error}"
        raise NotApplicable(f"{name} cannot be probed: {told}") from error


def _check_finite(model: object, name: str) -> None:
    weights = model.named_parameters() if isinstance(model, nn.Module) else ()
    # tensors on the meta device hold no numbers; adapters refuse them
    held = ((which, own) for which, own in weights if not own.is_meta)
    damaged = next((which for which, own in held if not torch.isfinite(own).all()), None)
    if damaged is not None:
        raise NotApplicable(f"the weights of {name} must be finite; {damaged} has nan or inf; load or train it again")


def _trained_length(adapter: ModelAdapter, model: object, folder: Path | None) -> int | None:
    found, longest = training_of(model, folder).length, adapter.info.max_length
    # RoBERTa's configuration counts rows of its table that no token can have
    return found if found is None or longest is None else min(found, longest)


def _read(folder: Path) -> Any:
    need(
        (folder / CONFIG).is_file(),
        f"a model folder must have {CONFIG}",
        f"{folder} {_fault(folder)}",
        nearest_folder(folder, "give the folder of a checkpoint, or one printed by `ordinate train`"),
    )
    config = read_config(folder)
    # pickles are refused here, whatever loads the weights later
    tensors = _tensors(folder, config)
    if "model_type" in config:
        check_sizes(config, tensors)
        return _published(folder, config["model_type"], config.get("architectures") or [])
    kind = _own_kind(config)
    check_own(folder, config, kind)
    # the loader of huggingface_hub prints
    with redirect_stdout(StringIO()):
        return kind.from_pretrained(str(folder), local_files_only=True)


def _tensors(folder: Path, config: Mapping[str, Any]) -> SizedTensors:
    """Open the files of a checkpoint, whose quantised weights transformers must dequantise to the same numbers."""
    try:
        tensors = open_tensors(folder, config)
        need_same_dequantised(tensors)
    except ValueError as error:
        if config.get(FIELD) is None:
            raise
        raise NotApplicable(str(error)) from None
    return tensors


def _fault(folder: Path) -> str:
    return "lacks it" if folder.is_dir() else "is a file" if folder.exists() else "does not exist"


def _own_kind(config: Mapping[str, Any]) -> type[Any]:
    """Return the class of a model in Ordinate's own format: the one it names, or the smallest with its fields."""
    named, shape = config.get("architectures"), config.get("shape")
    names = named if isinstance(named, list) else []
    fields = set(shape) if isinstance(shape, dict) else set()
    # fields that came after the model was written are missing
    fitting = [kind for kind in ORDINATE_MODELS if fields and fields <= set(_fields(kind))]
    fitting = [kind for kind in ORDINATE_MODELS if kind.__name__ in names] or fitting
    need(bool(fitting), "config.json must describe a known model", "its fields match none", "download it again")
    return min(fitting, key=lambda kind: len(_fields(kind)))


def _fields(kind: type[Any]) -> dict[str, Any]:
    return kind.__init__.__annotations__["shape"].__dataclass_fields__


def _published(folder: Path, family: str, architectures: list[str]) -> Any:
    try:
        import transformers
    except ImportError:
        raise ValueError(
            "a transformers checkpoint needs transformers; it is not installed; pip install 'ordinate[hf]'"
        ) from None
    if family not in transformers.CONFIG_MAPPING:
        raise NotApplicable(
            f"transformers must know the family (model_type) of a checkpoint; it does not know {family!r}; "
            "trust_remote_code is never enabled: update transformers, or pass a loaded model"
        )
    config = transformers.AutoConfig.from_pretrained(folder, **LOAD_OPTIONS)
    config._attn_implementation = _explicit(config._attn_implementation)
    if getattr(config, FIELD, None) is not None:
        config.quantization_config = {**config.quantization_config, "dequantize": True}
    chosen = _auto_class(config, architectures)
    given = {"config": config, "use_safetensors": True, "output_loading_info": True}
    try:
        with _quiet(transformers.utils.logging):
            model, report = chosen.from_pretrained(folder, **LOAD_OPTIONS, **given)
    except ImportError as error:
        must = "transformers must have every package that it needs for this checkpoint"
        raise ValueError(f"{must}; it says: {error}; or give the folder made by ordinate.save") from None
    # the pooler, which makes one vector of a text, is not probed
    missing = sorted(name for name in report["missing_keys"] if "pooler" not in name)
    need(
        not missing,
        "a checkpoint must have every tensor of its model",
        f"it lacks {', '.join(missing)}",
        "download it again",
    )
    return model


def _auto_class(config: Any, architectures: list[str]) -> Any:
    """Return the class of transformers that reads a checkpoint with its head."""
    import transformers

    heads: tuple[Any, ...] = (
        transformers.AutoModelForCausalLM,
        transformers.AutoModelForMaskedLM,
        transformers.AutoModelForSeq2SeqLM,
        # language models that may be given images
        transformers.AutoModelForImageTextToText,
        transformers.AutoModelForImageClassification,
        # its tensors have other names in some families
        transformers.AutoModelForQuestionAnswering,
        # of a T5 the encoder alone, where AutoModel is both sides
        transformers.AutoModelForTextEncoding,
    )
    known: list[tuple[Any, list[str]]] = []
    for head in heads:
        kinds = head._model_mapping.get(type(config), ())
        known.append((head, [kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,))]))
    # the class of a checkpoint's own code may have another name, with the same head (ExaoneForCausalLM)
    ends = {end for name in architectures if (end := name.partition("For")[2])}
    named = [head for head, names in known if set(names) & set(architectures)]
    named += [head for head, names in known if ends & {name.partition("For")[2] for name in names}]
    return named[0] if named else transformers.AutoModel


def _explicit(implementation: str | None) -> str | None:
    """Return an attention implementation that shows the pattern and runs on any device: eager instead of others."""
    return implementation if implementation in (None, *EXPLICIT_ATTENTION) else EXPLICIT_ATTENTION[0]


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Disable the progress bars of transformers."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
