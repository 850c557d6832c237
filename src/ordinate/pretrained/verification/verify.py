"""Compare a checkpoint in Ordinate and in transformers."""

import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import torch

from ordinate.core.checks import need, need_known, need_seed, need_whole
from ordinate.core.progress import OnProgress, Progress, ignore
from ordinate.models.shape import Shape
from ordinate.pretrained._family import Family
from ordinate.pretrained.checkpoint_files import ADAPTER, SizedTensors, read_config
from ordinate.pretrained.find_family import wrapper_for
from ordinate.pretrained.quantised_tensors import need_same_dequantised, open_tensors
from ordinate.pretrained.verification._check import Check, IncomparableError
from ordinate.pretrained.verification._runner import Runner
from ordinate.pretrained.verification.decoding_checks import DecodingCheck, TrainedLengthCheck
from ordinate.pretrained.verification.gradient_check import GradientCheck
from ordinate.pretrained.verification.lengths import table_length
from ordinate.pretrained.verification.output_checks import (
    Bfloat16Check,
    ImageSizesCheck,
    LeftPaddingCheck,
    OutputsCheck,
    PackingCheck,
    RightPaddingCheck,
)
from ordinate.pretrained.verification.outputs import Results
from ordinate.pretrained.verification.result import CheckResult, Verification
from ordinate.pretrained.verification.runners import RUNNERS
from ordinate.pretrained.verification.theirs import load_theirs, quiet, transformers_library, with_default_type
from ordinate.pretrained.weights import load, published_family

CHECKS: Sequence[type[Check]] = (
    OutputsCheck,
    LeftPaddingCheck,
    RightPaddingCheck,
    PackingCheck,
    DecodingCheck,
    TrainedLengthCheck,
    ImageSizesCheck,
    GradientCheck,
    Bfloat16Check,
)
"""All checks, in the order of the table."""
USUAL, SHORTEST = 24, 6
# transformers makes tables of this length for some families, whatever the size of the weights
LONGEST = 2**21
# time to load a model and to run it in a type, beside a forward pass in float32
LOADING, SLOWER = 3.0, {torch.float64: 2.0}
# of each parameter: in float64; with gradients in float64 and a copy of them, and those in float32 of both libraries
BYTES, BYTES_WITH_GRADIENTS = 8, 32
OURS, THEIRS = "Ordinate", "transformers"
Key = tuple[str, torch.dtype]


def verify(
    folder: str | Path,
    *,
    checks: Collection[str] | None = None,
    tokens: int | None = None,
    seed: int = 0,
    on_progress: OnProgress = ignore,
) -> Verification:
    """Compare a checkpoint in Ordinate and in transformers, check by check.

    Both libraries read the same files and get the same drawn inputs; each check measures how far their results are
    apart, beside the rounding error of transformers itself. Nothing is downloaded, and no code of the checkpoint is
    run. One model is in memory at a time.

    Args:
        folder: a checkpoint of a family in `ordinate list families`.
        checks: names of checks, as in the result; None: all.
        tokens: length of the texts that the models read; None: 24, or as many as the model has positions [tokens].
        seed: seed of the inputs.
        on_progress: receives the share that is done.

    Raises:
        ValueError: no folder of a published checkpoint, an unknown check, a seed below zero or above 2^63 - 1, a
            checkpoint that one of the libraries cannot load, or transformers is not installed.
    """
    folder = Path(folder)
    need_seed(seed)
    need(folder.is_dir(), "a checkpoint must be a folder", f"got {str(folder)!r}", "download it first")
    config = read_config(folder)
    _need_published(folder, config)
    library = transformers_library()
    family, shape = published_family(folder)
    runner = _runner(family, shape, config, tokens, seed)
    chosen = _chosen(checks)
    tensors = open_tensors(folder, config)
    _need_memory(tensors, gradients=GradientCheck in chosen)
    need_same_dequantised(tensors)
    reasons = {kind: kind.reason(runner) for kind in chosen}
    made = [kind(runner) for kind, reason in reasons.items() if reason is None]
    need(bool(made), "at least one check must apply", f"{', '.join(checks or ())} do not", "choose others")
    results, parameters = _results(folder, family.architecture(shape), made, on_progress)
    judged = {type(check): _judge(check, results) for check in made}
    return Verification(
        str(folder),
        family.model_type,
        family.architecture(shape),
        parameters,
        runner.tokens if runner.reads_texts else None,
        seed,
        {"ordinate": version("ordinate"), "torch": torch.__version__, "transformers": library.__version__},
        tuple(
            judged.get(kind) or CheckResult(kind.name, kind.about, "does not apply", note=reasons[kind] or "")
            for kind in chosen
        ),
    )


def _need_published(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise a ValueError unless a folder has a whole published checkpoint, of a model that is one here, too."""
    published = "the config.json of a published checkpoint names its family (model_type)"
    own = "a model in Ordinate's own format has no other library to be compared with: save it with ordinate.save"
    early = 'add it, "model_type": "bert" for a BERT: files of early checkpoints lack it'
    need("model_type" in config, published, f"{folder} has none", own if "shape" in config else early)
    whole = not (folder / ADAPTER).exists()
    need(whole, "a checkpoint must be a whole model", f"{folder} has {ADAPTER}", "merge the adapter, and save it")
    must, alone = "verify compares a language model alone", "save it by ordinate.save, and verify that folder"
    need(wrapper_for(config) is None, must, f"got a {config['model_type']}, of texts and images", alone)


def check_names() -> list[str]:
    """Return the names of all checks."""
    return [kind.name for kind in CHECKS]


def _chosen(names: Collection[str] | None) -> list[type[Check]]:
    for name in names or ():
        need_known("check", name, check_names())
    return [kind for kind in CHECKS if names is None or kind.name in names]


def _runner(family: Family, shape: Shape, config: Mapping[str, Any], tokens: int | None, seed: int) -> Runner:
    kind = RUNNERS[family.model_class]
    # transformers makes tables of this length also where Ordinate needs none
    limit = min(shape.max_length, table_length(shape) or shape.max_length)
    need(
        tokens is None or kind.reads_texts,
        "--tokens is the length of texts",
        f"got {tokens} for a model of images",
        "leave it out",
    )
    chosen = min(USUAL, limit) if tokens is None else tokens
    need_whole("tokens", chosen)
    long = not kind.reads_texts or limit >= SHORTEST
    must = f"verify needs a model of {SHORTEST} positions at least, for texts of several lengths"
    need(long, must, f"got one of {limit}", "choose another model")
    need(
        not kind.reads_texts or SHORTEST <= chosen <= limit,
        f"texts must have {SHORTEST} to {limit} tokens, as the model has positions",
        f"got {chosen}",
        "choose a length in between",
    )
    need(
        shape.max_length <= LONGEST,
        f"transformers makes tables for every position, of at most {LONGEST} here",
        f"got {shape.max_length} positions in config.json",
        "check that config.json belongs to these weights",
    )
    settings = {**family.defaults, **config}
    return kind(family, shape, settings, chosen, seed)


def _need_memory(tensors: SizedTensors, *, gradients: bool) -> None:
    """Raise a ValueError if the largest stage, transformers in float64, does not fit into memory."""
    numbers = sum(math.prod(shape) for shape in tensors.shapes())
    needed = numbers * (BYTES_WITH_GRADIENTS if gradients else BYTES)
    try:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return
    remedy = "leave gradients out, by --checks" if gradients else "use a larger machine"
    came = f"{numbers:,} parameters need {needed / 2**30:.1f} GiB, of {there / 2**30:.1f} GiB"
    need(needed <= there, "the models must fit into memory, one at a time", came, remedy)


def _results(
    folder: Path, architecture: str, checks: Sequence[Check], on_progress: OnProgress
) -> tuple[dict[tuple[Key, str], Results | Exception], int]:
    """Load one model after another, and run every check that needs it; return what they computed."""
    stages: dict[Key, list[Check]] = {}
    for check in checks:
        for key in ((OURS, check.dtype), (THEIRS, check.dtype), (THEIRS, check.exact_dtype)):
            stages.setdefault(key, []).append(check)
    costs = {
        key: [LOADING, *(check.relative_cost * SLOWER.get(key[1], 1.0) for check in stages[key])] for key in stages
    }
    total, done, found, parameters = sum(map(sum, costs.values())), 0.0, {}, 0
    for key, stage in sorted(stages.items(), key=lambda item: item[0][0] == THEIRS):
        library, dtype = key
        title, shares = f"{library} in {str(dtype).removeprefix('torch.')}", iter(costs[key])
        on_progress(Progress("verify", title, done / total, 1.0))
        model: Any = load(folder, dtype=dtype) if library == OURS else load_theirs(folder, architecture, dtype)
        parameters = parameters or sum(parameter.numel() for parameter in model.parameters())
        done += next(shares)
        for check, share in zip(stage, shares, strict=True):
            on_progress(Progress("verify", title, done / total, 1.0))
            with nullcontext() if library == OURS else with_default_type(dtype):
                found[key, check.name] = _run(check.ours if library == OURS else check.theirs, model)
            done += share
        # before the next one is loaded
        del model
    on_progress(Progress("verify", "measured", 1.0, 1.0))
    return found, parameters


@torch.no_grad()
def _run(compute: Callable[[Any], Results], model: Any) -> Results | Exception:
    """Return what a check computes, or the error that it raises: an error of one check does not end the others."""
    try:
        with quiet(transformers_library()):
            return compute(model)
    except Exception as error:
        # its frames would keep the model in memory
        return error.with_traceback(None)


def _judge(check: Check, results: Mapping[tuple[Key, str], Results | Exception]) -> CheckResult:
    ours, theirs, exact = (
        results[key, check.name] for key in ((OURS, check.dtype), (THEIRS, check.dtype), (THEIRS, check.exact_dtype))
    )
    for came in (theirs, exact):
        if isinstance(came, Exception):
            return CheckResult(check.name, check.about, "failed", note=_raised(THEIRS, came))
    if isinstance(ours, Exception):
        return CheckResult(check.name, check.about, "differs", note=_raised(OURS, ours))
    return check.judge(ours, cast(Results, theirs), cast(Results, exact))


def _raised(library: str, error: Exception) -> str:
    return str(error) if isinstance(error, IncomparableError) else f"{library} raised {type(error).__name__}: {error}"
