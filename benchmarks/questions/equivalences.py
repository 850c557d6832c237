"""What must not change a model: caches, grouped queries, padding, packing; and what does without positions."""

import torch

from benchmarks.questions._number import Numbers, change
from ordinate import Cache, Decoder, Geometry, Shape, attend
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.vision import VisionShape, VisionTransformer
from ordinate.schemes import Rope

TOKENS = 12


def measure(quick: bool) -> Numbers:
    """Return all numbers of this file: small models with random weights, in float64."""
    return cached() | grouped() | padded() | packed() | direction() | patches()


def decoder(scheme: str) -> Decoder:
    """A decoder of two layers."""
    torch.manual_seed(0)
    sizes = {"vocabulary": 50, "width": 32, "heads": 4, "layers": 2, "max_length": 64, "embedding_std": 1.0}
    return Decoder(Shape(**sizes, scheme=scheme)).double()


def cached() -> Numbers:
    """Token by token with a cache of rotated keys, against all tokens at once."""
    model, ids, cache = decoder("rope"), torch.randint(50, (1, TOKENS)), Cache()
    steps = [model(token, cache=cache) for token in ids.split(1, 1)]
    return {"change by a cache of rotated keys": change(model(ids), torch.cat(steps, 1))}


def grouped() -> Numbers:
    """Eight query heads on two key heads, against each key head repeated four times."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, heads, TOKENS, 16).double() for heads in (8, 2, 2))
    at = Rope(head_width=16).at(Geometry.causal(TOKENS))
    repeated = (part.repeat_interleave(4, 1) for part in (k, v))
    return {
        "change by grouped queries instead of repeated keys": change(attend(q, *repeated, at), attend(q, k, v, at))
    }


def padded() -> Numbers:
    """Five tokens of padding on the left, hidden; positions counted from the first token or from the padding."""
    found: Numbers = {}
    for scheme in ("rope", "learned"):
        model = decoder(scheme)
        ids = torch.randint(50, (1, TOKENS))
        wide, real = torch.cat([torch.zeros(1, 5).long(), ids], 1), torch.arange(TOKENS + 5)[None] >= 5
        where = Geometry.padded(real)
        along = torch.arange(TOKENS + 5)[None, :, None]
        counted = Geometry(along, along, True, 0, None, where.q_document, where.k_document)
        for name, geometry in (("first token", where), ("padding", counted)):
            found[f"change by padding on the left, positions from the {name}, {scheme}"] = change(
                model(ids), model(wide, geometry)[:, 5:]
            )
    return found


def packed() -> Numbers:
    """The second of two packed documents, with positions that start over or go on."""
    found: Numbers = {}
    for scheme in ("rope", "learned"):
        model = decoder(scheme)
        ids = torch.randint(50, (1, 2 * TOKENS))
        where, along = Geometry.packed([TOKENS, TOKENS]), torch.arange(2 * TOKENS)[None, :, None]
        going_on = Geometry(along, along, True, 0, None, where.q_document, where.k_document)
        alone = model(ids[:, TOKENS:])
        for name, geometry in (("start over", where), ("go on", going_on)):
            found[f"change of a packed document, positions that {name}, {scheme}"] = change(
                alone, model(ids, geometry)[:, TOKENS:]
            )
    return found


def direction() -> Numbers:
    """An encoder reads a text backwards; without signs its outputs are those of the text, backwards."""
    found: Numbers = {}
    for scheme in ("alibi", "t5", "rope"):
        torch.manual_seed(0)
        sizes = {"vocabulary": 50, "width": 32, "heads": 4, "layers": 2, "embedding_std": 1.0}
        model = Encoder(EncoderShape(**sizes, scheme=scheme, head="none")).double()
        if scheme == "t5":
            # its table is nearly zero at initialisation
            with torch.no_grad():
                model.schemes[0].table.normal_()
        ids = torch.randint(50, (1, TOKENS))
        found[f"change of an encoder's outputs when a text is read backwards, {scheme}"] = change(
            model(ids), model(ids.flip(1)).flip(1)
        )
    return found


def patches() -> Numbers:
    """A vision transformer sees the patches of an image in another order."""
    found: Numbers = {}
    for scheme in ("none", "learned_grid"):
        torch.manual_seed(0)
        sizes = {"vocabulary": 5, "width": 32, "layers": 2, "heads": 4, "image": (16, 16), "patch": (4, 4)}
        model = VisionTransformer(VisionShape(**sizes, channels=1, scheme=scheme)).double()
        image, order = torch.randn(1, 1, 16, 16).double(), torch.randperm(16)
        cells = image.unflatten(2, (4, 4)).unflatten(4, (4, 4)).permute(0, 1, 2, 4, 3, 5).flatten(2, 3)
        moved = cells[:, :, order].unflatten(2, (4, 4)).permute(0, 1, 2, 4, 3, 5).flatten(4, 5).flatten(2, 3)
        found[f"change of a vision transformer's classes when patches are permuted, {scheme}"] = change(
            model.logits(model(image)), model.logits(model(moved))
        )
    return found
