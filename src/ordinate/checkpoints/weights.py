"""Checkpoints of published models into ours, and back."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from safetensors.torch import save_file
from torch import Tensor

from ordinate import catalog
from ordinate.checkpoints.files import CONFIG, WHOLE, Config, Tensors, find_folder, read_config
from ordinate.checks import need, need_known
from ordinate.family import Family, Rule
from ordinate.files import write_json
from ordinate.models.decoder import Decoder
from ordinate.models.encoder import Encoder
from ordinate.models.shape import Shape
from ordinate.models.trunk import Trunk
from ordinate.recipe import Recipe
from ordinate.scheme import Scheme

_FOLDER = "ordinate.families"


def load(
    source: str | Path, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> Decoder | Encoder:
    """A published model as ours: its logits are the same.

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
    given = read_config(folder)
    family = family_of(given["model_type"])
    if given.get("auto_map"):
        warnings.warn("config.json names code (auto_map); it is not run: the family is our own", stacklevel=2)
    shape = family.shape(Config({**family.defaults, **given}))
    with torch.device("meta"):
        model = family.kind(shape)
    state = _read(family, model, Tensors(folder))
    if dtype is not None:
        state = {name: tensor.to(dtype) for name, tensor in state.items()}
    model.load_state_dict(state, assign=True)
    return cast(Decoder | Encoder, model.to(device or "cpu").eval())


def save(model: Trunk, folder: str | Path, model_type: str) -> None:
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
    own, came = _said(model.shape), _said(family.shape(Config({**family.defaults, **config})))
    need(
        own == came,
        f"a {model_type} can be said in its config.json",
        ", ".join(f"{name}={own[name]!r} would become {came[name]!r}" for name in own if own[name] != came[name]),
        "save it as another family, or as our own (save_pretrained)",
    )
    state, tensors = model.state_dict(), {}
    for rule in family.all_rules(model.shape):
        parts = rule.write(state[rule.ours], model.shape)
        tensors |= {name: part.contiguous() for name, part in zip(rule.theirs, parts, strict=True)}
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f".{WHOLE}"
    save_file(tensors, fresh, metadata={"format": "pt"})
    fresh.replace(folder / WHOLE)
    kind = str(model.tokens.weight.dtype).removeprefix("torch.")
    about = {"model_type": family.model_type, "architectures": [family.architecture(model.shape)], "dtype": kind}
    write_json(folder / CONFIG, about | json.loads(json.dumps(config)))


def _said(shape: Shape) -> dict[str, object]:
    """What a shape says, however it is written; left out is what its weights are not read by."""
    full = replace(
        shape,
        kv_heads=shape.heads if shape.kv_heads is None else shape.kv_heads,
        head_width=None if shape.sizes["head_width"] * shape.heads == shape.width else shape.head_width,
        hidden=shape.hidden_width,
        windows=tuple(shape.layer_windows),
        dropout=0.0,
        blocks="plain",
    )
    plan = Recipe.entries(shape.scheme)
    said = [_scheme_said(plan[layer % len(plan)], full) for layer in range(shape.layers)]
    return vars(full) | {"scheme": said}


def _scheme_said(entry: str, shape: Shape) -> tuple[str, dict[str, object]]:
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


def _read(family: Family, model: Trunk, tensors: Tensors) -> dict[str, Tensor]:
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


def _check_extra(family: Family, model: Trunk, tensors: Tensors, used: set[str]) -> None:
    extra = [name for name in tensors if name not in used and not name.endswith(family.aside or ("\0",))]
    heads = [name for name in extra if model.shape.tied and tensors.shape(name) == tuple(model.tokens.weight.shape)]
    # a tied head may be written out beside the table that it is
    table = next(rule for rule in family.all_rules(model.shape) if rule.ours == "tokens.weight").theirs[0]
    extra = [
        name for name in extra if name not in heads or not tensors[name].equal(tensors[_name(family, table, tensors)])
    ]
    need(
        not extra, "every tensor of a checkpoint has a place in the model", f"{_some(extra)} has none", "is it whole?"
    )


def _check_shapes(rule: Rule, names: list[str], ours: Tensor, model: Trunk, tensors: Tensors) -> None:
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
