"""The model that is questioned: a folder of ours or of a published one, or what was trained here last."""

import json
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import fields
from io import StringIO
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from ordinate import catalog
from ordinate.checks import need
from ordinate.models.decoder import Decoder
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.shape import Shape
from ordinate.sources import fingerprint
from ordinate.subject import Subject, Unfit
from ordinate.tokenizer import Tokenizer, load_tokenizer

PACKAGE = "ordinate.subjects"
RUNS = Path("runs")
KINDS: dict[Any, type] = {Decoder: Shape, Encoder: EncoderShape}
"""Our models, told apart by the fields of their shapes."""

Say = Callable[[str], None]


def subject_of(model: object, *, name: str | None = None, tokenizer: Tokenizer | None = None) -> Subject:
    """A model as probes see it: the first kind of subject that does not refuse it.

    Args:
        model: ours, or one of transformers; a subject is taken as it is.
        name: what it is called.
        tokenizer: makes tokens of a text.

    Raises:
        ValueError: no kind of subject can be made of it; each one's reason is given.
    """
    if isinstance(model, Subject):
        return model
    if not isinstance(model, nn.Module):
        raise TypeError(f"a probe looks at a model; got {type(model).__name__}; give an nn.Module, or a folder")
    kinds = sorted(
        (catalog.load(PACKAGE, Subject, one) for one in catalog.names(PACKAGE)), key=lambda kind: kind.order
    )
    reasons = []
    for kind in kinds:
        reason = kind.refuses(model)
        if reason is None:
            try:
                made = cast(Callable[..., Subject], kind)
                return made(model, name or type(model).__name__, tokenizer)
            except Unfit as error:
                reason = str(error)
        reasons.append(f"{kind.__name__}: {reason}")
    listed = "\n  ".join(reasons)
    raise ValueError(
        f"a probe must be able to look into a model; {type(model).__name__} lets nobody:\n  {listed}\n"
        "give one of ours, or of a family of transformers"
    )


def read_model(folder: Path) -> tuple[nn.Module, Tokenizer | None]:
    """The model in a folder, and its tokenizer if there is one.

    Raises:
        ValueError: no config.json, or one that names no known kind of model.
    """
    config = folder / "config.json"
    inside = sorted(folder.glob("runs/*/model")) if folder.is_dir() else []
    need(
        config.is_file(),
        "a model folder holds config.json",
        f"{folder} does not",
        f"give one of: {', '.join(map(str, inside))}" if inside else "give the folder that `ordinate train` prints",
    )
    about = json.loads(config.read_text(encoding="utf-8"))
    tokenizer = load_tokenizer(folder) if (folder / "tokenizer.json").is_file() else None
    return (_published(folder, about) if "model_type" in about else _own(folder, about)), tokenizer


def last_trained(runs: Path = RUNS) -> Path | None:
    """The folder of the decoder that the last study trained, the best of it where it trained several; None: none."""
    studies = sorted(runs.glob("*/study.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for study in studies:
        found = [(_loss(path), path.parent / "model") for path in study.parent.glob("runs/*/result.json")]
        whole = [(loss, model) for loss, model in found if loss is not None and (model / "tokenizer.json").is_file()]
        if whole:
            return min(whole, key=lambda one: one[0])[1]
    return None


def train_small(say: Say, runs: Path = RUNS) -> Path:
    """Train a small decoder with rope on the standard library, a minute or two, and give its folder."""
    from ordinate.study.conduct import Watcher, conduct
    from ordinate.study.plan import Plan
    from ordinate.study.settle import settle

    class Told(Watcher):
        def reading(self, name: str) -> None:
            say(f"reading the text: {name}")

        def planned(self, plan: Plan, todo: int) -> None:
            say(f"training a decoder with rope for {plan.steps} steps")

        def news(self, news: Any) -> None:
            if news.message:
                say(news.message)

    plan = settle(Plan(schemes=("rope",), steps=400, samples=0, windows=8, shuffled=8))
    folder = conduct(plan, runs / f"probed-{plan.digest()}", 1, "ordinate probe", Told())
    (run,) = plan.runs()
    need(folder.status(run) == "done", "a model must have been trained", f"{run.name} was not", "try again")
    return folder.run(run) / "model"


def identity(folder: Path) -> str:
    """A string that changes when the files of a model may have changed."""
    return fingerprint(sorted(path for path in folder.iterdir() if path.is_file()))[:16]


def _loss(result: Path) -> float | None:
    try:
        written = json.loads(result.read_text(encoding="utf-8"))
        return float(written["training"]["loss"][-1]) if written["status"] == "done" else None
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def _own(folder: Path, about: dict[str, Any]) -> nn.Module:
    written = set(about.get("shape", {}))
    for kind, shape in KINDS.items():
        if written == {field.name for field in fields(shape)}:
            # the hub's loader prints
            with redirect_stdout(StringIO()):
                return cast(nn.Module, kind.from_pretrained(str(folder), local_files_only=True)).eval()
    raise ValueError(
        f"config.json names a model_type of transformers, or holds the shape of a model of ours; that of {folder} "
        "does neither; give the folder that `ordinate train` prints"
    )


def _published(folder: Path, about: dict[str, Any]) -> nn.Module:
    try:
        import transformers
    except ImportError:
        raise ValueError(
            f"a model of transformers needs it installed; {folder} is one; pip install 'ordinate[hf]'"
        ) from None
    names = [name for name in about.get("architectures") or () if hasattr(transformers, name)]
    kind = getattr(transformers, names[0]) if names else transformers.AutoModel
    # float16 on a processor is slow and cannot hold the tests
    model = kind.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    small = {torch.float16, torch.bfloat16} & {x.dtype for x in model.parameters()}
    return (model.float() if small and not torch.cuda.is_available() else model).eval()
