"""Convert published checkpoints to Ordinate models and back."""

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from torch import Tensor

from ordinate.core import catalog
from ordinate.core.atomic_files import write_json
from ordinate.core.checks import need, reading, shown
from ordinate.mixers._spec import MixerSpec
from ordinate.models.backbone import Backbone
from ordinate.models.decoder import Decoder
from ordinate.models.encoder import Encoder
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.norm_kinds import RMS_NORMS
from ordinate.models.registry import MODEL_KINDS
from ordinate.models.shape import Shape
from ordinate.models.vision import VisionTransformer
from ordinate.pretrained._family import Family, TensorRule
from ordinate.pretrained.checkpoint_files import (
    ADAPTER,
    CONFIG,
    GENERATION_CONFIG,
    WEIGHTS,
    CheckpointConfig,
    SizedTensors,
    need_weight_dtype,
    read_config,
    read_generation_config,
    remove_shards,
    resolve_checkpoint,
)
from ordinate.pretrained.checkpoint_sizes import SIZES, check_sizes
from ordinate.pretrained.find_family import family_for, family_of, language_config, wrapper_for
from ordinate.pretrained.generation_settings import SETTINGS, with_generation_settings
from ordinate.pretrained.quantised_tensors import open_tensors
from ordinate.pretrained.wrapped_tensors import WrappedTensors
from ordinate.schemes._spec import SchemeSpec

# special tokens, which older files have in config.json
SPECIAL_TOKENS = ("decoder_start_token_id", "eos_token_id")
TOKEN_KEYS = (*SPECIAL_TOKENS, "pad_token_id")
# tensors that a checkpoint may have a second time
TABLE = "tokens.weight"
TIED = (TABLE, "masked.bias")
Model = Backbone | EncoderDecoder | VisionTransformer


def load(
    source: str | Path, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> Decoder | Encoder | EncoderDecoder | VisionTransformer:
    """Load a published checkpoint as an Ordinate model with the same outputs, in eval mode.

    Only JSON and safetensors files are read. No code of the checkpoint is executed: where config.json names some
    (`auto_map`), a warning is issued and it is ignored; so is an adapter (adapter_config.json) beside the weights.

    Args:
        source: a folder with config.json and model.safetensors (or shards and their index), or the name of a model on
            the Hugging Face Hub, which is then downloaded.
        dtype: parameter dtype; None: that of the checkpoint (of several, the one that config.json names), and float32
            for quantised weights, which are dequantised in float32 and then rounded to a narrower dtype.
        device: target device; None: the CPU.

    Raises:
        ValueError: an unknown family, an unsupported setting or format of quantised weights, or a tensor that is
            missing, unexpected, of the wrong shape, or not finite.
    """
    folder = resolve_checkpoint(source)
    if read_config(folder).get("auto_map"):
        warnings.warn(
            "config.json names code (auto_map); it is not run: Ordinate uses its own implementation", stacklevel=2
        )
    if (folder / ADAPTER).exists():
        told = "is not read: transformers with peft would take the model that it names, and adapt that"
        warnings.warn(f"{folder / ADAPTER} {told}", stacklevel=2)
    family, shape, tensors = _opened(folder)
    for told in filter(None, (tensors.unread, family.warning)):
        warnings.warn(f"{told} ({folder / CONFIG})", stacklevel=2)
    if tensors.activations:
        told = "activations are not quantised: the model is computed with its dequantised weights"
        warnings.warn(f"{told} ({tensors.activations}, {folder / CONFIG})", stacklevel=2)
    with torch.device("meta"), reading(folder / CONFIG):
        model: Model = cast(Callable[[Shape], Model], family.model_class)(shape)
    dtype = tensors.default_dtype if dtype is None else dtype
    state = _read(family, model, tensors, dtype)
    kinds = {tensor.dtype for name, tensor in state.items() if not name.endswith(family.wide)}
    if dtype is None and len(kinds) > 1:
        dtype = _common_dtype(read_config(folder), kinds)
        state = {name: _converted(family, name, x, dtype) for name, x in state.items()}
    model.load_state_dict(state, assign=True)
    return cast(Decoder | Encoder | EncoderDecoder | VisionTransformer, model.to(device or "cpu").eval())


def _converted(family: Family, name: str, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor of the state dict in the dtype of the model, or in 32 bits if the family keeps it there."""
    return x.to(torch.promote_types(dtype, torch.float32) if name.endswith(family.wide) else dtype)


def _common_dtype(config: Mapping[str, Any], kinds: set[torch.dtype]) -> torch.dtype:
    """Return the dtype of a checkpoint whose tensors have several: that of config.json, or the widest."""
    named = getattr(torch, str(config.get("dtype") or config.get("torch_dtype")), None)
    return named if named in kinds else reduce(torch.promote_types, sorted(kinds, key=str))


def published_shape(source: str | Path) -> Shape:
    """Return the `Shape` of a published model, reading config.json and tensor names only.

    Raises:
        ValueError: as for `load`, concerning config.json.
    """
    return published_family(source)[1]


def published_family(source: str | Path) -> tuple[Family, Shape]:
    """Return the family of a published model, with the settings of its config.json, and its `Shape`.

    Raises:
        ValueError: as for `load`, concerning config.json.
    """
    return _opened(resolve_checkpoint(source))[:2]


def _need_published(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise a ValueError if a folder has a model in the format of Ordinate, which names no family."""
    named = config.get("architectures")
    kind = next((one.model.__name__ for one in MODEL_KINDS.values() if named == [one.model.__name__]), "Decoder")
    need(
        "model_type" in config or "shape" not in config,
        "load reads published checkpoints, whose config.json has a model_type",
        f"{folder} has a model of Ordinate, written by save_pretrained",
        f"read it with ordinate.{kind}.from_pretrained",
    )


def _opened(folder: Path) -> tuple[Family, Shape, SizedTensors]:
    whole = read_config(folder)
    _need_published(folder, whole)
    with reading(folder / CONFIG):
        wrapper, given = wrapper_for(whole), language_config(whole)
        family = family_for(given)
    need(
        whole.get("transformers_weights") is None,
        f"weights are read from {WEIGHTS}",
        f"config.json names another file (transformers_weights={shown(whole.get('transformers_weights'))})",
        f"give that file the name {WEIGHTS}, and remove the key",
    )
    with reading(folder):
        stored = open_tensors(folder, whole)
    tensors: SizedTensors = stored if wrapper is None else WrappedTensors(stored, wrapper, family.prefix, given)
    # sizes that the family does not have are without effect
    known = {*family.defaults, *family.aliases} - family.optional_sizes
    nested = [value for name, value in given.items() if name in known and isinstance(value, dict)]
    inner = {name: value for part in nested for name, value in part.items() if name in SIZES - {*family.aliases}}
    outer = {name: value for name, value in given.items() if name in known or name not in SIZES}
    check_sizes(inner | outer, tensors)
    given = CheckpointConfig(with_generation_settings(given, folder, SPECIAL_TOKENS))
    with reading(folder / CONFIG):
        shape = family.read_config(given, tensors.keys())
        check_sizes({name: given[name] for name in family.used_sizes(shape) if name in given}, tensors)
        shape = family.refined(shape, tensors)
        return family, shape if wrapper is None else wrapper.text_shape(shape, given), tensors


def save(model: Model, folder: str | Path, model_type: str) -> None:
    """Save an Ordinate model as a checkpoint of a published family, readable by transformers.

    What the folder says of an earlier model is removed: the shards of its weights and their index, and special tokens
    in generation_config.json.

    Args:
        model: the model.
        folder: output folder for config.json and model.safetensors; created if missing.
        model_type: the family, by the `model_type` of config.json.

    Raises:
        ValueError: an unknown family, or a shape that its config.json cannot represent.
    """
    family, folder = family_of(model_type), Path(folder)
    shape, kind = model.shape, next(model.parameters()).dtype
    if shape.norm_eps is None:
        shape = replace(shape, norm_eps=_default_eps(shape, kind))
    config = _config_of(family, shape, kind, model_type)
    writing = read_generation_config(folder)
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f".{WEIGHTS}"
    save_file(_written(family, shape, model.state_dict()), fresh, metadata={"format": "pt"})
    fresh.replace(folder / WEIGHTS)
    about = {"model_type": family.model_type, "dtype": str(kind).removeprefix("torch.")}
    write_json(folder / CONFIG, about | json.loads(json.dumps(config)))
    if writing and any(name in config for name in SPECIAL_TOKENS):
        known = {*SPECIAL_TOKENS, *SETTINGS}
        kept = {name: value for name, value in writing.items() if name not in known}
        told = {name: config[name] for name in (*TOKEN_KEYS, *SETTINGS) if name in config}
        write_json(folder / GENERATION_CONFIG, kept | told)
    # the new file is there: nothing needs them
    remove_shards(folder)


def _config_of(family: Family, shape: Shape, kind: torch.dtype, model_type: str) -> dict[str, Any]:
    """Return the contents of config.json; raise a ValueError if reading it back gives another shape."""
    config, computed = family.write_config(shape), family.computed(shape)
    names = [*(name for rule in family.all_rules(shape) for name in rule.theirs), *computed]
    # otherwise the model would silently load as another one
    read = family.read_config(config, names)
    read = family.refined(read, computed) if computed else read
    own, came = (_comparable(each, kind) for each in (shape, read))
    need(
        own == came,
        f"the config.json of a {model_type} must be able to represent the model",
        ", ".join(f"{name}={own[name]!r} would become {came[name]!r}" for name in own if own[name] != came[name]),
        "choose another family, or use save_pretrained",
    )
    return config


def _written(family: Family, shape: Shape, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint, converted from the state dict."""
    tensors = dict[str, Tensor]()
    for rule in family.all_rules(shape):
        parts = rule.write(state[rule.ours], shape)
        for name, part in zip(rule.theirs, parts, strict=True):
            # two Ordinate tensors may share one checkpoint tensor, each contributing 0 in the other's rows
            tensors[name] = (tensors[name] + part if name in tensors else part).contiguous()
    return {**tensors, **family.computed(shape)}


def _default_eps(shape: Shape, kind: torch.dtype) -> float:
    """Return the epsilon of norms for which none was given: PyTorch's, that of the type of its sums for RMSNorm."""
    return torch.finfo(torch.promote_types(kind, torch.float32)).eps if shape.norm in RMS_NORMS else 1e-5


def _comparable(shape: Shape, kind: torch.dtype) -> dict[str, object]:
    """Return a shape in canonical form, without fields that do not change its outputs."""
    full = replace(
        shape.with_defaults(),
        sliding_windows=tuple(shape.layer_windows),
        dropout=0.0,
        norm_eps=_default_eps(shape, kind) if shape.norm_eps is None else shape.norm_eps,
        # a norm without a shift has no bias
        bias=tuple(sorted(place for place in shape.bias if place != "norm" or shape.norm == "layer")),
    )
    plans = {name: plan for name, plan in vars(full).items() if name in ("scheme", "source_scheme")}
    same = vars(full) | {name: _canonical_plan(plan, full) for name, plan in plans.items()}
    same["mixer"] = _canonical_mixers(full, full.mixer_spec)
    second = full.second_mixer_spec
    same["second_mixer"] = None if second is None else _canonical_mixers(full, second)
    # of the initial weights; schemes that depend on it have it as an option, compared with their others
    del same["embedding_std"]
    return same


def _canonical_plan(plan: SchemeSpec, shape: Shape) -> list[list[tuple[str, dict[str, object]]]]:
    """Return the schemes of each layer, with all options."""
    layers = [plan.split_schemes(layer) for layer in range(shape.layers)]
    return [[_canonical_scheme(single, shape) for single in singles] for singles in layers]


def _canonical_mixers(shape: Shape, spec: MixerSpec) -> list[tuple[str, dict[str, object]]]:
    """Return the mixers of each layer, with all options, those that are sizes of the model included."""
    entries = spec.entries
    return [_canonical_mixer(entries[layer % len(entries)], shape) for layer in range(shape.layers)]


def _canonical_mixer(entry: str, shape: Shape) -> tuple[str, dict[str, object]]:
    name, options = catalog.parse(entry)
    kind = MixerSpec.class_named(name)
    usual = {name: option.default for name, option in catalog.options(kind).items()}
    bound = usual | catalog.bind(kind, options, {**shape.bindable_sizes, "layer": None})
    return name, kind.complete_options(bound)


def _canonical_scheme(entry: str, shape: Shape) -> tuple[str, dict[str, object]]:
    """Return a scheme's name and all of its options, defaults included."""
    name, options = catalog.parse(entry)
    kind = SchemeSpec.class_named(name)
    usual = {name: option.default for name, option in catalog.options(kind).items()}
    return name, usual | catalog.bind(kind, options, shape.bindable_sizes)


def _read(family: Family, model: Model, tensors: SizedTensors, dtype: torch.dtype | None) -> dict[str, Tensor]:
    """Return the state dict, converted from checkpoint tensors one by one; each is validated before use."""
    wanted, rules = model.state_dict(), family.all_rules(model.shape)
    names = {theirs: family.stored_name(theirs, tensors) for rule in rules for theirs in rule.theirs}
    names |= _copied_table(family, model, tensors)
    missing = [theirs for theirs, name in names.items() if name not in tensors]
    need(
        not missing,
        f"a checkpoint must contain every tensor of the model that {family.source} describes",
        f"missing {_some(missing)}",
        _class_remedy(family, model, "download it again"),
    )
    _check_extra(family, model, tensors, names)
    state, taken = dict[str, Tensor](), set[int]()
    for rule in rules:
        _check_shapes(rule, [names[theirs] for theirs in rule.theirs], wanted[rule.ours], model, tensors, family)
        parts = [tensors[names[theirs]] for theirs in rule.theirs]
        for theirs, part in zip(rule.theirs, parts, strict=True):
            need_weight_dtype(names[theirs], part)
            need(
                bool(part.isfinite().all()),
                "weights must be finite floating-point numbers",
                f"{names[theirs]} has others",
                "download the checkpoint again",
            )
        made = rule.read(parts, model.shape).contiguous()
        made = made if dtype is None else _converted(family, rule.ours, made, dtype)
        # two of ours may be read from one of a file, or a part of it, whose memory only one can have
        whole = made.untyped_storage().nbytes() == made.nbytes and made.data_ptr() not in taken
        state[rule.ours] = made if whole else made.clone()
        taken.add(state[rule.ours].data_ptr())
    return state


def _copied_table(family: Family, model: Model, tensors: SizedTensors) -> dict[str, str]:
    """Return the name of the token table, and of a tensor that is tied to it, if a checkpoint has only this one."""
    tables = [rule.theirs[0] for rule in family.all_rules(model.shape) if rule.ours == TABLE]
    lacking = [name for name in tables if family.stored_name(name, tensors) not in tensors]
    copies = [family.stored_name(name, tensors) for name in family.copies(model.shape) if lacking]
    return {name: copy for name in lacking for copy in copies if copy in tensors}


def _class_remedy(family: Family, model: Model, usual: str) -> str:
    """Return what to do if config.json names a class with another head, or none; otherwise the usual remedy."""
    named, read = family.settings.get("architectures") or [], family.architecture(model.shape)
    if not named:
        return f"{usual}, or name the class of the model in config.json (architectures); without it, it is a {read}"
    # the code of some checkpoints has the same class with other capitals: MPTForCausalLM
    if named[0].lower() in (read.lower(), family.base_class.lower()):
        return usual
    if not family.base_class:
        return f"config.json names a {named[0]}: load a checkpoint of a {read}"
    hidden = f"load that in transformers as a {family.base_class}, and save it again, for its hidden states"
    return f"config.json names a {named[0]}, whose head is not supported: {hidden}"


def _check_extra(family: Family, model: Model, tensors: SizedTensors, names: Mapping[str, str]) -> None:
    used = set(names.values())
    extra = [name for name in tensors if name not in used and not family.ignores(name, model.shape)]
    usual = "check that config.json belongs to these weights"
    # a tied head, with its bias, or the embedding of one side, may be stored again beside what it is tied to
    untied = {name for rule in family.untied_rules(model.shape) for name in rule.theirs}
    for rule in family.all_rules(model.shape):
        if rule.ours in TIED:
            first, end = names[rule.theirs[0]], rule.ours.rpartition(".")[2]
            extra = [name for name in extra if not (name.endswith(end) and _equal(tensors, name, first))]
            if any(name.endswith(end) and name in untied for name in extra):
                usual = f"if it differs from {first} on purpose, set tie_word_embeddings to false in config.json"
    need(
        not extra,
        "every tensor of a checkpoint must belong to the model, or equal the one that it is tied to",
        f"got unexpected {_some(extra)}",
        _class_remedy(family, model, usual),
    )


def _equal(tensors: SizedTensors, name: str, other: str) -> bool:
    """Whether two tensors are the same; their data is read only if their shapes are."""
    return tensors.shape(name) == tensors.shape(other) and tensors[name].equal(tensors[other])


def _check_shapes(
    rule: TensorRule, names: list[str], ours: Tensor, model: Model, tensors: SizedTensors, family: Family
) -> None:
    came = [tensors.shape(name) for name in names]
    for name, size, found in zip(names, rule.stored_shapes(ours, came, model.shape), came, strict=True):
        must = f"{name} must have shape {size} according to {family.source}"
        need(found == size, must, f"got {found}", "download both files again")


def _some(names: list[str]) -> str:
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + rest
