"""Make a subject of a model, or of the folder of one."""

from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, cast

from ordinate import catalog
from ordinate.anatomy.body import OURS
from ordinate.checkpoints.files import CONFIG, Tensors, read_config
from ordinate.checks import need
from ordinate.subject import Subject, Unfit
from ordinate.tokenizer import FILE, load_tokenizer

_FOLDER = "ordinate.subjects"
PLAIN = ("eager", "sdpa")
"""Ways to attend that transformers has everywhere."""
# numbers of 8 bits and fewer: nothing can be computed in them
NARROW = ("F8_", "F6_", "F4")
# no code of a checkpoint is run, and nothing is fetched
SAFE = {"trust_remote_code": False, "local_files_only": True}


def attach(model: Any, *, name: str | None = None, stage: int | None = None) -> Subject:
    """A model as a probe sees it.

    Args:
        model: one of ours, one of transformers, a module of your own, or the folder of a model: one of ours, or a
            checkpoint of transformers in safetensors. No pickle is read, no code of a checkpoint is run, and nothing
            is fetched.
        name: what it is called; None: as its folder or class.
        stage: which of its stacks of layers is measured, counted from 1: Swin has four, most models one. None: the
            one of the most layers.

    Raises:
        Unfit: it cannot be taken apart, or a watched pass does not give what the model gives.
        ValueError: the folder holds no such model, or the model no such stage.
    """
    tokenizer = None
    if isinstance(model, str | Path):
        folder = Path(model)
        name = folder.resolve().name if name is None else name
        model = _read(folder)
        tokenizer = load_tokenizer(folder) if (folder / FILE).is_file() else None
    name = type(model).__name__ if name is None else name
    kinds = [catalog.load(_FOLDER, Subject, member) for member in catalog.names(_FOLDER)]
    refused = []
    for kind in sorted(kinds, key=lambda kind: kind.order):
        reason = kind.refuses(model)
        if reason is None:
            return cast(Any, kind)(model, name, tokenizer, stage)
        refused.append(reason)
    raise Unfit(f"{name} cannot be measured: {'; '.join(dict.fromkeys(refused))}")


def _read(folder: Path) -> Any:
    need(
        (folder / CONFIG).is_file(),
        f"a model is a folder with {CONFIG}",
        f"{folder} {'lacks it' if folder.is_dir() else 'is no folder'}",
        "give the folder of a checkpoint, or one that `ordinate train` prints",
    )
    config = read_config(folder)
    # whatever reads it later, pickles are refused here
    narrow = sorted(kind for kind in Tensors(folder).types() if kind.startswith(NARROW))
    if narrow:
        raise Unfit(f"its weights are quantised ({', '.join(narrow)}); load it in the type that it was trained in")
    if "model_type" in config:
        return _published(folder, config["model_type"], config.get("architectures") or [])
    shape = set(config.get("shape") or {})
    fitting = [kind for kind in OURS if shape == set(_fields(kind))]
    need(bool(fitting), "config.json says what model it is", "its fields are those of none", "fetch it again")
    # the hub's loader prints
    with redirect_stdout(StringIO()):
        return fitting[0].from_pretrained(str(folder), local_files_only=True)


def _fields(kind: type[Any]) -> dict[str, Any]:
    return kind.__init__.__annotations__["shape"].__dataclass_fields__


def _published(folder: Path, family: str, architectures: list[str]) -> Any:
    try:
        import transformers
    except ImportError:
        raise ValueError(
            "a checkpoint of transformers is read by it; it is not installed; pip install 'ordinate[hf]'"
        ) from None
    if family not in transformers.CONFIG_MAPPING:
        raise Unfit(
            f"transformers knows the family of a checkpoint (model_type); it does not know {family!r}; code that "
            "lies beside a checkpoint is not run: update transformers, or give a model object"
        )
    config = _readable(transformers.AutoConfig.from_pretrained(folder, **SAFE))
    heads = (
        transformers.AutoModelForCausalLM,
        transformers.AutoModelForMaskedLM,
        transformers.AutoModelForSeq2SeqLM,
        transformers.AutoModelForImageClassification,
    )
    chosen = transformers.AutoModel
    for head in heads:
        kinds = head._model_mapping.get(type(config), ())
        names = [kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,))]
        if set(names) & set(architectures):
            chosen = head
            break
    with _quiet(transformers.utils.logging):
        given = {"config": config, "use_safetensors": True, "output_loading_info": True}
        model, report = chosen.from_pretrained(folder, **SAFE, **given)
    # what makes one vector of a text is not measured
    missing = sorted(name for name in report["missing_keys"] if "pooler" not in name)
    need(
        not missing, "a checkpoint has every tensor of its model", f"it lacks {', '.join(missing)}", "fetch it again"
    )
    return model


def _readable(config: Any) -> Any:
    """The configuration of a model whose weights can be read, with an attention that shows what it does."""
    if getattr(config, "quantization_config", None) is not None:
        raise Unfit("its weights are quantised; load it in the type that it was trained in")
    if config._attn_implementation not in (None, *PLAIN):
        # what the folder asks for may run on no machine but its own, and shows no weights
        config._attn_implementation = PLAIN[0]
    return config


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Without the bars that transformers draws while it reads."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
