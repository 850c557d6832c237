"""Published models whose layers are of several kinds: padding, caches, packed texts, writing and verification."""

import runpy
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
import torch

from ordinate import Cache, Geometry, generate, load
from ordinate.pretrained import verify
from ordinate.pretrained.verification.theirs import with_cache

MIXED = runpy.run_path(str(Path(__file__).with_name("mixed_layers.py")))
FAMILIES, written, near = (MIXED[name] for name in ("FAMILIES", "written", "near"))
# texts in pieces without padding, too, where tests with padding are of other settings
PIECES = [(family, True, pieces) for family, known in FAMILIES.items() for pieces in known.pieces]
PIECES += [("llama4_text", False, (3, 1, 1, 1, 4, 1, 1, 2)), ("llama4_text", False, (1,) * 14)]


def told(real, start=0, stop=None):
    """What transformers takes about tokens behind others: which of all are real, and the places of these."""
    places = (real.long().cumsum(1) - 1).clamp(min=0)
    return {"attention_mask": real.long()[:, :stop], "position_ids": places[:, start:stop]}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_padding_on_either_side_is_that_of_transformers(tmp_path, family, side):
    known = FAMILIES[family]
    there = written(tmp_path, family, **known.padded)
    real = known.left if side == "left" else known.left.flip(1)
    expected = there(known.ids, **told(real)).logits
    near(load(tmp_path)(known.ids, Geometry.padded(real))[real], expected[real])


@pytest.mark.parametrize(("family", "padded", "pieces"), PIECES)
@torch.no_grad()
def test_rows_go_on_from_a_cache_as_in_transformers(tmp_path, family, padded, pieces):
    known = FAMILIES[family]
    there = written(tmp_path, family, **(known.padded if padded else {}))
    real = known.left if padded else torch.ones_like(known.left)
    here, cache, kept = load(tmp_path), Cache(), None
    for start, stop in pairwise(accumulate(pieces, initial=0)):
        ids, seen = known.ids[:, start:stop], real[:, start:stop]
        came, kept = with_cache(there, kept, input_ids=ids, **told(real, start, stop))
        where = Geometry.padded(seen) if padded and start == 0 else None
        near(here(ids, where, cache)[seen], came.logits[seen])
    assert stop == known.ids.shape[1]


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_packed_texts_are_as_alone_in_transformers(tmp_path, family):
    known = FAMILIES[family]
    there = written(tmp_path, family, **known.unpadded)
    sizes = [4, known.ids.shape[1] - 4]
    out = load(tmp_path)(known.ids[:1], Geometry.packed(sizes))
    near(out, torch.cat([there(part).logits for part in known.ids[:1].split(sizes, 1)], 1))


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_greedy_writing_is_that_of_transformers(tmp_path, family):
    known = FAMILIES[family]
    there = written(tmp_path, family, **known.unpadded)
    size, more = known.written
    prompt = known.ids[:1, :size]
    own = {"attention_mask": torch.ones_like(prompt), "do_sample": False, "pad_token_id": 0}
    expected = there.generate(prompt, max_new_tokens=more, **own)[:, size:]
    assert torch.equal(torch.cat(list(generate(load(tmp_path), prompt, more, temperature=0)), 1), expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_verify_agrees_in_outputs_gradients_packing_and_decoding(tmp_path, family):
    written(tmp_path, family)
    found = verify(tmp_path, checks=["outputs", "gradients", "packing", "decoding"])
    assert found.agrees, found.to_dict()
