"""Checkpoints of published models into ours, and back."""

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from safetensors.torch import save_file
from torch import Tensor

from ordinate import catalog
from ordinate.checkpoints.files import CONFIG, WHOLE, Config, Tensors, find_folder, read_config, read_writing
from ordinate.checks import need, need_known
from ordinate.family import Family, Rule
from ordinate.files import write_json
from ordinate.models.decoder import Decoder
from ordinate.models.encoder import Encoder
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.shape import Shape
from ordinate.models.trunk import Trunk
from ordinate.models.vision import Vision
from ordinate.recipe import Recipe
from ordinate.scheme import Scheme

_FOLDER = "ordinate.families"
Model = Trunk | EncoderDecoder | Vision


def load(
    source: str | Path, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> Decoder | Encoder | EncoderDecoder | Vision:
    """A published model as ours: its outputs are the same.

    Only JSON and safetensors files are read. No code of a checkpoint is run; where its config.json names some
    (`auto_map`), that is said and passed over.

    Args:
        source: a folder with config.json and model.safetensors (or its parts and their index), or the name of a model
            on the hub, which is then fetched.
        dtype: the type of its numbers; None: that of the checkpoint.
        device: where it lives; None: the CPU.

    Raises:
        ValueError: an unknown family, a setting that ours has not, or a tensor that is missing, unknown, of another
            shape, or not finite.
    """
    folder = find_folder(source)
    if read_config(folder).get("auto_map"):
        warnings.warn("config.json names code (auto_map); it is not run: the family is our own", stacklevel=2)
    family, shape, tensors = _opened(folder)
    with torch.device("meta"):
        model: Model = cast(Callable[[Shape], Model], family.kind)(shape)
    state = _read(family, model, tensors)
    if dtype is not None:
        state = {name: tensor.to(dtype) for name, tensor in state.items()}
    model.load_state_dict(state, assign=True)
    return cast(Decoder | Encoder | EncoderDecoder | Vision, model.to(device or "cpu").eval())


def published_shape(source: str | Path) -> Shape:
    """The sizes and choices of a published model; of its tensors only the names are read.

    Raises:
        ValueError: as `load`, of its config.json.
    """
    return _opened(find_folder(source))[1]


def _opened(folder: Path) -> tuple[Family, Shape, Tensors]:
    given = read_config(folder)
    family = family_of(given["model_type"])
    packed = given.get("quantization_config") or {}
    need(
        not packed,
        "weights are numbers as the model was trained with, or rounded to 16 bits",
        f"config.json says that they are quantised ({packed.get('quant_method', 'quantization_config')})",
        "load the checkpoint that they were quantised from, or save it anew after model.dequantize() in transformers",
    )
    tensors = Tensors(folder)
    said = {**family.defaults, **read_writing(folder), **given}
    return family, family.shape(Config(family.complete(said, tensors.keys()))), tensors


def save(model: Model, folder: str | Path, model_type: str) -> None:
    """Write our model as one of a published family, for transformers and whatever reads its files.

    Args:
        model: the model.
        folder: where config.json and model.safetensors go; made if there is none.
        model_type: the family, as config.json names it.

    Raises:
        ValueError: an unknown family, or a shape that it cannot say.
    """
    family, folder = family_of(model_type), Path(folder)
    config = family.config(model.shape)
    names = [name for rule in family.all_rules(model.shape) for name in rule.theirs]
    told = Config(family.complete({**family.defaults, **config}, names))
    own, came = _said(model.shape), _said(family.shape(told))
    need(
        own == came,
        f"a {model_type} can be said in its config.json",
        ", ".join(f"{name}={own[name]!r} would become {came[name]!r}" for name in own if own[name] != came[name]),
        "save it as another family, or as our own (save_pretrained)",
    )
    state, tensors = model.state_dict(), dict[str, Tensor]()
    for rule in family.all_rules(model.shape):
        parts = rule.write(state[rule.ours], model.shape)
        for name, part in zip(rule.theirs, parts, strict=True):
            # two of ours may stand in one of theirs, each leaving 0 where the other stands
            tensors[name] = (tensors[name] + part if name in tensors else part).contiguous()
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f".{WHOLE}"
    save_file(tensors, fresh, metadata={"format": "pt"})
    fresh.replace(folder / WHOLE)
    kind = str(next(model.parameters()).dtype).removeprefix("torch.")
    about = {"model_type": family.model_type, "architectures": [family.architecture(model.shape)], "dtype": kind}
    write_json(folder / CONFIG, about | json.loads(json.dumps(config)))


def _said(shape: Shape) -> dict[str, object]:
    """What a shape says, however it is written; left out is what its weights are not read by."""
    full = replace(shape.full(), windows=tuple(shape.layer_windows), dropout=0.0, blocks="plain")
    plans = {name: plan for name, plan in vars(full).items() if name in ("scheme", "source_scheme")}
    return vars(full) | {name: _plan_said(plan, full) for name, plan in plans.items()}


def _plan_said(plan: str, shape: Shape) -> list[tuple[str, dict[str, object]]]:
    """The scheme of each layer."""
    entries = Recipe.entries(plan)
    return [_scheme_said(entries[layer % len(entries)], shape) for layer in range(shape.layers)]


def _scheme_said(entry: str, shape: Shape) -> tuple[str, dict[str, object]]:
    """The name of a scheme and all of its options."""
    name, options = catalog.parse(entry)
    kind = catalog.load("ordinate.schemes", Scheme, name)
    usual = {name: option.default for name, option in catalog.options(kind).items()}
    return name, usual | catalog.bind(kind, options, shape.sizes)


def family_of(model_type: str) -> Family:
    """The family that a config.json is marked by."""
    names = catalog.names(_FOLDER)
    name = model_type.replace("-", "_")
    need_known("family of models", name, names)
    return catalog.load(_FOLDER, Family, name)()


def _read(family: Family, model: Model, tensors: Tensors) -> dict[str, Tensor]:
    """Our tensors, from those of a checkpoint; each is checked before it is used."""
    wanted, rules = model.state_dict(), family.all_rules(model.shape)
    names = {theirs: _name(family, theirs, tensors) for rule in rules for theirs in rule.theirs}
    missing = [theirs for theirs, name in names.items() if name not in tensors]
    need(not missing, "a checkpoint has every tensor of its model", f"it lacks {_some(missing)}", "fetch it again")
    _check_extra(family, model, tensors, set(names.values()))
    state = {}
    for rule in rules:
        _check_shapes(rule, [names[theirs] for theirs in rule.theirs], wanted[rule.ours], model, tensors)
        parts = [tensors[names[theirs]] for theirs in rule.theirs]
        for theirs, part in zip(rule.theirs, parts, strict=True):
            finite = part.is_floating_point() and bool(part.isfinite().all())
            need(finite, "weights are finite numbers", f"{names[theirs]} holds others", "fetch the checkpoint again")
        state[rule.ours] = rule.read(parts, model.shape).contiguous()
    return state


def _name(family: Family, theirs: str, tensors: Tensors) -> str:
    """What the checkpoint calls a tensor: without the prefix where it is of a model without a head."""
    return theirs if theirs in tensors else theirs.removeprefix(family.prefix)


def _check_extra(family: Family, model: Model, tensors: Tensors, used: set[str]) -> None:
    extra = [name for name in tensors if name not in used and not name.endswith(family.aside or ("\0",))]
    if not isinstance(model, Vision):
        # a tied head, or a table of one side, may be written out beside the table that it is
        ours = next(rule for rule in family.all_rules(model.shape) if rule.ours == "tokens.weight").theirs[0]
        size, table = tuple(model.tokens.weight.shape), _name(family, ours, tensors)
        extra = [name for name in extra if tensors.shape(name) != size or not tensors[name].equal(tensors[table])]
    need(
        not extra, "every tensor of a checkpoint has a place in the model", f"{_some(extra)} has none", "is it whole?"
    )


def _check_shapes(rule: Rule, names: list[str], ours: Tensor, model: Model, tensors: Tensors) -> None:
    for name, part in zip(names, rule.write(ours, model.shape), strict=True):
        came = tensors.shape(name)
        need(
            came == tuple(part.shape),
            f"{name} has the shape {tuple(part.shape)} that config.json says",
            f"got {came}",
            "fetch both files again",
        )


def _some(names: list[str]) -> str:
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + rest
