"""Gates of model folders: a published config.json, safetensors files and their index, our own format."""

import json
import random
import runpy
import shutil
import struct
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from ordinate import Decoder, Shape
from ordinate.models.registry import MODEL_KINDS
from ordinate.pretrained.read_model import read_model
from ordinate.pretrained.weights import save
from tests.bad_input.intake import mutation
from tests.bad_input.intake.outcome import Attempt, Wrong

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
FAMILIES = Path(__file__).parents[2] / "pretrained" / "families.py"
SIZES = {"vocabulary": 300, "width": 16, "layers": 2, "heads": 2}
OWN = {"vision": {"image": (4, 4), "patch": (2, 2), "channels": 1, "scheme": "none"}}
# families whose models transformers writes, and whose outputs are compared with its own
FAMILIES_COMPARED = ("gpt2", "bert, ForMaskedLM", "t5", "vit, Model")


@cache
def published(name: str) -> Path:
    """Return the folder of a tiny model of a family; `llama` is written without transformers."""
    folder = Path(mkdtemp(prefix="published-"))
    if name == "llama":
        torch.manual_seed(0)
        save(Decoder(Shape(**SIZES, feedforward="swiglu", max_length=32, tie_embeddings=False)), folder, "llama")
    else:
        runpy.run_path(str(FAMILIES))["theirs"](name).save_pretrained(folder)
    return folder


@cache
def own(kind: str, vocabulary: int = SIZES["vocabulary"]) -> Path:
    """Return the folder of a tiny model of a kind in our own format."""
    folder = Path(mkdtemp(prefix="own-"))
    torch.manual_seed(0)
    one = MODEL_KINDS[kind]
    one.build(one.shape(**SIZES | OWN.get(kind, {}) | {"vocabulary": vocabulary})).save_pretrained(folder)
    return folder


def copied(source: Path, folder: Path) -> Path:
    """Copy a model to a folder that may be damaged."""
    there = folder / "model"
    shutil.rmtree(there, ignore_errors=True)
    return Path(shutil.copytree(source, there))


@torch.no_grad()
def outputs(model: Any) -> torch.Tensor:
    """Return what a model gives for a fixed input."""
    shape = model.shape
    if hasattr(shape, "image"):
        return model(pixels(shape))
    ids = (8 + torch.arange(9))[None] % min(
        shape.vocabulary, getattr(shape, "source_vocabulary", None) or shape.vocabulary
    )
    return model(ids, ids) if hasattr(shape, "end") else model(ids)


def pixels(shape: Any) -> torch.Tensor:
    """Return the fixed input of a vision model; of its size, unless that would not fit into memory."""
    size = [min(side, 2**12) for side in shape.image]
    return torch.linspace(0, 1, shape.channels * size[0] * size[1]).reshape(1, shape.channels, *size)


def config(draw: random.Random, folder: Path) -> Attempt:
    """A published config.json with one key changed, or damaged."""
    return _config("llama", draw, folder, compared=False)


def compared_config(draw: random.Random, folder: Path) -> Attempt:
    """The same for several families; a model that loads gives what transformers gives."""
    return _config(draw.choice(("llama", *FAMILIES_COMPARED)), draw, folder, compared=True)


def config_of_any_family(draw: random.Random, folder: Path) -> Attempt:
    """The same for every family, with the models that its other tests have."""
    return _config(draw.choice(every_family()), draw, folder, compared=False)


@cache
def every_family() -> list[str]:
    """Return the names of the tiny models of all families."""
    found = runpy.run_path(str(FAMILIES))
    return [name for kind in ("CASES", "ENCODERS", "SEERS", "ENCODER_DECODERS") for name in found[kind]]


def _config(name: str, draw: random.Random, folder: Path, *, compared: bool) -> Attempt:
    there = copied(published(name), folder)
    value = json.loads((there / CONFIG).read_text())
    if draw.random() < 0.2:
        raw, what = mutation.mutated_bytes((there / CONFIG).read_bytes(), draw)
    else:
        changed, what, _ = mutation.mutated_json(value, draw)
        raw = mutation.dump(changed)
    (there / CONFIG).write_bytes(raw)

    def ask() -> torch.Tensor:
        model = read_model(there).eval()
        came = outputs(model)
        if compared and not torch.equal(came, outputs(read_model(published(name)).eval())):
            compare(there, came, model.shape)
        return came

    return Attempt(f"{name}: {what}", (CONFIG,), ask)


def warm() -> None:
    """Write the models, so that this is not part of the time of an input."""
    for name in ("llama", *FAMILIES_COMPARED):
        outputs(read_model(published(name)).eval())
    for kind in MODEL_KINDS:
        outputs(read_model(own(kind)).eval())


def compare(folder: Path, came: torch.Tensor, shape: Any) -> None:
    """Raise `Wrong` unless transformers gives the same for the same folder, if it is installed."""
    import transformers

    if not came.isfinite().all():
        return
    ids = (8 + torch.arange(9))[None]
    value = json.loads((folder / CONFIG).read_text())
    try:
        auto = getattr(transformers, (value.get("architectures") or ["AutoModel"])[0])
        theirs, info = auto.from_pretrained(folder, output_loading_info=True, attn_implementation="eager")
        if info["missing_keys"] or info["mismatched_keys"]:
            raise ValueError("missing keys")
        given = {"pixel_values": pixels(shape)} if hasattr(shape, "image") else {"input_ids": ids}
        given |= {"decoder_input_ids": ids} if value.get("is_encoder_decoder") else {}
        with torch.no_grad():
            expected = theirs.eval()(**given)
    except Exception as error:
        raise Wrong(f"transformers refuses it ({str(error)[:80]}); here other numbers come out") from None
    expected = expected.logits if hasattr(expected, "logits") else expected[0]
    if expected.shape != came.shape or not torch.allclose(came, expected, atol=1e-3, rtol=1e-3):
        raise Wrong("transformers gives other numbers")


def own_format(draw: random.Random, folder: Path) -> Attempt:
    """The config.json of a model in our own format with one value changed, or damaged."""
    kind = draw.choice(sorted(MODEL_KINDS))
    there = copied(own(kind), folder)
    if draw.random() < 0.2:
        raw, what = mutation.mutated_bytes((there / CONFIG).read_bytes(), draw)
    else:
        changed, what, _ = mutation.mutated_json(json.loads((there / CONFIG).read_text()), draw)
        raw = mutation.dump(changed)
    (there / CONFIG).write_bytes(raw)

    def ask() -> torch.Tensor:
        return outputs(read_model(there).eval())

    return Attempt(f"{kind}: {what}", (CONFIG,), ask)


def weights(draw: random.Random, folder: Path) -> Attempt:
    """The safetensors file of a model, damaged, or with other tensors in it."""
    source = draw.choice([published("llama"), *map(own, sorted(MODEL_KINDS))])
    there = copied(source, folder)
    file = there / WEIGHTS
    tensors, raw = load_file(file), file.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])
    name = draw.choice(sorted(tensors))
    kind = draw.randrange(6)
    if kind == 0:
        written, what = mutation.mutated_bytes(raw, draw)
        if what.startswith("byte"):
            # of the numbers themselves every value is possible
            place = draw.randrange(8 + size)
            written = raw[:place] + bytes([raw[place] ^ (1 << draw.randrange(8))]) + raw[place + 1 :]
            what = f"bit of byte {place} of {8 + size} of the header flipped"
    elif kind == 1:
        changed, what, _ = mutation.mutated_json({k: v for k, v in header.items() if k != "__metadata__"}, draw)
        text = mutation.dump(changed)
        written = struct.pack("<Q", len(text)) + text + raw[8 + size :]
    else:
        tensor = tensors[name]
        spoilt: Any = draw.choice(
            [None, tensor.flatten(), tensor[:0], tensor.to(torch.int64), tensor.to(torch.float64), tensor.half(),
             tensor * float("nan"), tensor / 0, tensor.new_zeros(1), torch.cat([tensor, tensor])]
        )  # fmt: skip
        del tensors[name]
        if spoilt is not None:
            tensors[name] = spoilt.contiguous()
        if draw.random() < 0.2:
            tensors["extra"] = torch.zeros(3)
        save_file(tensors, file, metadata={"format": "pt"})
        written, what = (
            file.read_bytes(),
            f"{name} as {None if spoilt is None else (spoilt.dtype, tuple(spoilt.shape))}",
        )
    file.write_bytes(written)
    return Attempt(f"{source.name}: {what}", (WEIGHTS, name, "config.json"), lambda: _same(source, there))


def _same(source: Path, there: Path) -> torch.Tensor:
    """What a damaged model gives; other numbers than before must come of other numbers in its file."""
    came = outputs(read_model(there).eval())
    before, after = load_file(source / WEIGHTS), load_file(there / WEIGHTS)
    if all(name in after and torch.equal(before[name].double(), after[name].double()) for name in before):
        expected = outputs(read_model(source).eval())
        if not torch.allclose(came.double(), expected.double(), atol=1e-2):
            raise Wrong("other outputs from the same numbers")
    return came


def index(draw: random.Random, folder: Path) -> Attempt:
    """The index of a checkpoint in two files, with one value changed, or damaged."""
    source = published("llama")
    there = copied(source, folder)
    tensors = load_file(there / WEIGHTS)
    (there / WEIGHTS).unlink()
    names = sorted(tensors)
    files = {name: f"model-0000{1 + (place > 5)}-of-00002.safetensors" for place, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: tensors[name] for name in names if files[name] == file}, there / file)
    value = {"metadata": {"total_size": 1}, "weight_map": files}
    if draw.random() < 0.3:
        raw, what = mutation.mutated_bytes(mutation.dump(value), draw)
    else:
        changed, what, _ = mutation.mutated_json(value, draw)
        raw = mutation.dump(changed)
    (there / INDEX).write_bytes(raw)

    def ask() -> torch.Tensor:
        came = outputs(read_model(there).eval())
        if not torch.equal(came, outputs(read_model(source).eval())):
            raise Wrong("other numbers")
        return came

    return Attempt(what, (INDEX, "a checkpoint must contain every tensor"), ask)
