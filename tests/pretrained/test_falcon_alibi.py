"""Falcon with ALiBi, in texts so long that positions are rounded: above 256 not every one is a bfloat16."""

import copy
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ordinate import Cache, Decoder, Geometry, Shape
from ordinate.pretrained.verification.theirs import with_cache
from ordinate.pretrained.weights import load, save

transformers = pytest.importorskip("transformers")
FAMILIES = runpy.run_path(str(Path(__file__).with_name("families.py")))
CASES = ("falcon, alibi", "falcon, alibi and grouped")
LENGTH = 700
IDS = torch.randint(0, 29, (2, LENGTH), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module", params=CASES)
def pair(request, tmp_path_factory):
    """Our model and that of transformers."""
    folder, other = tmp_path_factory.mktemp("falcon"), FAMILIES["theirs"](request.param)
    other.save_pretrained(folder)
    return load(folder), other


def apart(out, expected):
    """The largest difference, as a share of the largest number."""
    return ((out - expected).abs().max() / expected.abs().max()).item()


@torch.no_grad()
def test_long_texts_have_the_logits_of_transformers_and_only_with_the_rounding(pair):
    model, other = pair
    expected = other(IDS).logits
    assert apart(model(IDS), expected) < 2e-5
    (factor,) = {scheme._factor for scheme in model.schemes}
    unrounded = Decoder(replace(model.shape, scheme="alibi"))
    unrounded.load_state_dict(model.state_dict())
    for scheme in unrounded.schemes:
        scheme.initial_slopes = [factor * slope for slope in scheme.initial_slopes]
    assert apart(unrounded(IDS), expected) > 1e-3


@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_padding_is_not_counted(pair, side):
    model, other = pair
    places = torch.arange(LENGTH)
    real = torch.stack([places >= 300 if side == "left" else places < 400, places >= 0])
    expected = other(IDS, attention_mask=real.long()).logits
    assert apart(model(IDS, Geometry.padded(real))[real], expected[real]) < 2e-5


@torch.no_grad()
def test_packed_texts_have_the_logits_of_each_alone(pair):
    model, other = pair
    sizes = [270, 30, 400]
    ours = model(IDS[:1], Geometry.packed(sizes))
    alone = torch.cat([other(part).logits for part in IDS[:1].split(sizes, 1)], 1)
    assert apart(ours, alone) < 2e-5
    # transformers goes on counting in its ALiBi, and rounds other positions than for a text alone
    theirs = other(IDS[:1], position_ids=torch.cat([torch.arange(size) for size in sizes])[None]).logits
    assert apart(theirs[:, :270], alone[:, :270]) < 2e-5
    assert apart(theirs[:, 300:], alone[:, 300:]) > 1e-3


@torch.no_grad()
def test_tokens_read_one_by_one_have_the_same_logits(pair):
    model, other = pair
    cache, kept, whole = Cache(), None, other(IDS).logits
    for piece in IDS.split([LENGTH - 5, 1, 1, 1, 2], 1):
        came, kept = with_cache(other, kept, input_ids=piece)
        ours = model(piece, cache=cache)
        assert apart(ours, came.logits) < 2e-5
    assert apart(ours, whole[:, -2:]) < 2e-5


@pytest.mark.parametrize("heads", range(1, 130))
def test_the_rounded_slopes_and_positions_are_those_of_transformers(heads):
    from transformers.models.falcon.modeling_falcon import build_alibi_tensor

    from ordinate.schemes import Alibi

    theirs = build_alibi_tensor(torch.ones(1, 3000, dtype=torch.long), heads, torch.float32)[:, 0]
    ours = Alibi(heads=heads, bfloat16_factor=1.0).bias(Geometry.cross(1, 3000))[0, :, 0]
    assert torch.equal(-ours, theirs)


@torch.no_grad()
def test_a_model_is_written_and_read_by_transformers(tmp_path):
    shape = Shape(
        vocabulary=29, width=72, layers=2, heads=12, scheme=f"alibi:bfloat16_factor={6**-0.5}", norm="layer",
        norm_position="pre", feedforward="gelu", bias=("norm",), tie_embeddings=True, max_length=64,
    )  # fmt: skip
    model = Decoder(shape).eval()
    for parameter in model.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))
    save(model, tmp_path, "falcon")
    other = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert other.config.alibi
    assert apart(model(IDS), other(IDS).logits) < 2e-5
    assert load(tmp_path).shape.scheme == shape.scheme
    odd = Decoder(replace(shape, width=84, scheme=f"alibi:bfloat16_factor={7**-0.5}"))
    with pytest.raises(ValueError, match="needs an even head width; got 7; use save_pretrained instead"):
        save(odd, tmp_path, "falcon")


@torch.no_grad()
def test_eager_attention_of_transformers_adds_the_bias_twice(pair, monkeypatch):
    # why `verify` compares with its SDPA: once this fails, it need not
    from transformers.models.falcon import modeling_falcon

    other = pair[1]
    eager = type(other)._from_config(copy.deepcopy(other.config), attn_implementation="eager").eval()
    eager.load_state_dict(other.state_dict())
    build, expected = modeling_falcon.build_alibi_tensor, other(IDS).logits
    assert apart(eager(IDS).logits, expected) > 1e-2
    monkeypatch.setattr(modeling_falcon, "build_alibi_tensor", lambda *given, **named: build(*given, **named) / 2)
    assert apart(eager(IDS).logits, expected) < 2e-5
