"""Swin has stages that merge patches between them: each is measured separately."""

import numpy as np
import pytest
import torch

from ordinate import Decoder, Shape
from ordinate.core.progress import ignore
from ordinate.probing._adapter import Hooks, Inputs, NotApplicable
from ordinate.probing._attach import attach
from ordinate.probing._probe import ProbeData
from ordinate.probing.instrumentation.inspect_model import patch_grid
from ordinate.probing.instrumentation.layer_stacks import find_stages
from ordinate.probing.instrumentation.weight_extraction import norm_weight_before
from ordinate.probing.measures import image_patches
from ordinate.probing.runner.probe_runner import ProbeSpec, run_probe

transformers = pytest.importorskip("transformers")
SIZES = {"embed_dim": 16, "depths": [1, 3, 2], "num_heads": [2, 4, 4], "window_size": 4, "image_size": 64} | {
    "patch_size": 4
}


def swin(**changes):
    torch.manual_seed(0)
    model = transformers.SwinForImageClassification(transformers.SwinConfig(**SIZES | changes)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.2 if parameter.ndim > 1 else 0.05))
    return model


@pytest.fixture(scope="module")
def model():
    return swin()


def images(count=2, side=64):
    draw = torch.Generator().manual_seed(1)
    return torch.randn(count, 3, side, side, generator=draw, dtype=torch.float64)


class Streams(Hooks):
    def __init__(self):
        self.found = []

    def residual(self, layer, x):
        self.found.append(x.clone())


def test_each_stage_is_a_stack_of_its_own(model):
    found = {stage: attach(model, name="swin", stage=stage).info for stage in (1, 2, 3)}
    assert [(own.layers, own.heads, own.width, own.grid) for own in found.values()] == [
        (1, 2, 16, (16, 16)),
        (3, 4, 32, (8, 8)),
        (2, 4, 64, (4, 4)),
    ]
    assert [own.left_out.split(":")[0] for own in found.values()] == [
        "only layers 1 to 1 of 6 are probed, stage 1 of 3",
        "only layers 2 to 4 of 6 are probed, stage 2 of 3",
        "only layers 5 to 6 of 6 are probed, stage 3 of 3",
    ]
    # without a number it is the longest
    assert attach(model, name="swin").info == found[2]


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_what_enters_a_stage_is_what_the_one_before_gave(model, stage):
    one, watch = attach(model, stage=stage), Streams()
    reading = one.forward(Inputs(images=images()), watch)
    with torch.no_grad():
        out = model(images(), output_hidden_states=True)
    torch.testing.assert_close(reading.logits[:, 0], out.logits, rtol=1e-5, atol=1e-5)
    assert len(watch.found) == one.info.layers + 1
    torch.testing.assert_close(watch.found[0], out.hidden_states[stage - 1], rtol=1e-5, atol=1e-5)
    if stage == 3:
        # the softmax is taken in float32
        torch.testing.assert_close(reading.residual, out.hidden_states[3], rtol=1e-5, atol=1e-5)


@pytest.mark.covering(0)
@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("side", [64, 72])
def test_matrices_are_found_where_attention_is_within_windows(model, stage, side):
    # 18 and 9 patches a side are no whole number of windows: nothings fill them up
    one = attach(model if side == 64 else swin(image_size=side), stage=stage)
    assert one.windowed == (stage < 3 or side == 72)
    for layer, module in enumerate(one.layers):
        found, own, (heads, width) = one.projection(layer), module.attention, (one.info.heads, one.info.width)
        for matrix, linear in ((found.query, own.q_proj), (found.key, own.k_proj), (found.value, own.v_proj)):
            expected = linear.weight.unflatten(0, (heads, -1)).mT
            torch.testing.assert_close(matrix, expected, rtol=1e-9, atol=1e-9)
        expected = own.o_proj.weight.T.unflatten(0, (heads, -1))
        torch.testing.assert_close(found.out, expected, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(found.norm_weight, module.layernorm_before.weight, rtol=1e-6, atol=1e-6)
        assert found.out.shape[2] == width


def test_the_norm_before_attention_is_identified():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.attention = (
                torch.nn.Linear(6, 6),
                torch.nn.LayerNorm(6),
                torch.nn.Identity(),
            )

        def forward(self, x):
            # as in windows: the same tokens in another order, filled up
            tokens = self.norm(x + self.first(x)).flip(1)
            return self.attention(torch.nn.functional.pad(tokens, (0, 0, 0, 3)))

    layer, x = Layer().double(), images()[:1, 0, :6, :6]
    torch.nn.init.uniform_(layer.norm.weight)
    with torch.no_grad():
        found = norm_weight_before(layer, layer.attention, lambda: layer(x), x.new_zeros(6))
    torch.testing.assert_close(found, layer.norm.weight.detach(), rtol=1e-6, atol=1e-6)


def test_weight_symmetry_is_measured_within_windows_and_other_measures_are_skipped_with_the_reason(model):
    one = attach(model, name="swin", stage=2)
    found = run_probe(ProbeSpec("qk_roles", {}), one, ProbeData(None, images(4), "noise"), 0, ignore)
    assert found.status == "measured"
    symmetry = found.tables[0].columns.index("symmetry")
    rows = {row[:2]: row[symmetry] for row in found.tables[0].rows}
    layer = one.layers[1]
    q, k = (
        (linear.weight * layer.layernorm_before.weight).unflatten(0, (4, 8))[2].T
        for linear in (layer.attention.q_proj, layer.attention.k_proj)
    )
    m = (q @ k.T).detach()
    assert rows[2, 3] == pytest.approx(float(torch.trace(m @ m) / m.square().sum()), rel=1e-6)
    reasons = [caveat for caveat in found.caveats if caveat.startswith("Not measured")]
    assert any("symmetry of scores: swin attends within windows" in reason for reason in reasons)
    assert "stage 2 of 3" in found.caveats[0]
    assert {one.name for one in found.estimates} >= {"symmetric part of W_q W_k^T, median head"}
    assert not [one for one in found.estimates if one.name.startswith("increase")]


@pytest.mark.extended
@pytest.mark.covering(0)
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_questions_are_answered_of_each_stage(model, stage):
    one, read = attach(model, name="swin", stage=stage), ProbeData(None, images(5), "noise")
    found = {
        name: run_probe(ProbeSpec(name, {}), one, read, 0, ignore)
        for name in ("order_sensitivity", "position_retention")
    }
    assert [own.status for own in found.values()] == ["measured"] * 2
    assert f"stage {stage} of 3" in found["position_retention"].caveats[0]
    offsets = run_probe(ProbeSpec("positional_heads", {}), one, read, 0, ignore)
    # the last stage has one window: there all see all
    assert (offsets.status, "within windows" in offsets.answer) == (
        ("measured", False) if stage == 3 else ("skipped", True)
    )


@pytest.mark.parametrize("stage", [0, 4, -1])
def test_a_stage_that_is_not_there_is_refused(model, stage):
    with pytest.raises(ValueError, match=f"stages of this model are 1 to 3; got stage {stage}; give one of these"):
        attach(model, stage=stage)


def test_models_of_one_stack_have_one_stage():
    ours = Decoder(Shape(vocabulary=10, width=16, heads=2, layers=2)).eval()
    config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=30, n_positions=20)
    for one in (ours, transformers.GPT2LMHeadModel(config)):
        assert attach(one, stage=1).info == attach(one).info
        with pytest.raises(ValueError, match="got stage 2"):
            attach(one, stage=2)


def test_a_list_whose_members_hold_several_is_no_stack():
    def layer():
        return torch.nn.Sequential(torch.nn.Linear(2, 2))

    body = torch.nn.ModuleList([torch.nn.Module() for _ in range(3)])
    for part, depth in zip(body, (1, 2, 1), strict=True):
        part.blocks = torch.nn.ModuleList([layer() for _ in range(depth)])
    attending = [block[0] for part in body for block in part.blocks]
    found = find_stages(body, attending)
    assert [[attention for _, attention in stage] for stage in found] == [
        attending[:1],
        attending[1:3],
        attending[3:],
    ]
    assert found[0][0][0] is body[0].blocks[0]


def test_a_grid_of_merged_patches_counts_those_at_the_edge():
    config = transformers.SwinConfig(image_size=36, patch_size=2)
    assert [patch_grid(config, length) for length in (324, 81, 25)] == [(18, 18), (9, 9), (5, 5)]
    oblong = transformers.SwinConfig(image_size=(16, 64), patch_size=4)
    assert [patch_grid(oblong, length) for length in (64, 16, 65)] == [(4, 16), (2, 8), (4, 16)]


def test_a_model_that_does_not_say_how_large_its_patches_are_is_refused():
    config = transformers.PvtConfig(image_size=32)
    with pytest.raises(NotApplicable, match="does not say"):
        attach(transformers.PvtModel(config))


def test_patches_change_places_whole():
    given = images(1, 8)
    order = torch.tensor([[3, 0, 1, 2]])
    found = image_patches.permute_patches(given, order, (2, 2))
    np.testing.assert_array_equal(found[0, :, :4, :4], given[0, :, 4:, 4:])
    np.testing.assert_array_equal(found[0, :, :4, 4:], given[0, :, :4, :4])
    np.testing.assert_array_equal(found[0, :, 4:, 4:], given[0, :, 4:, :4])
    for grid in ((3, 2), (2, 3)):
        with pytest.raises(NotApplicable, match=f"8 x 8 pixels do not divide into {grid[0]} x {grid[1]}"):
            image_patches.permute_patches(given, order, grid)
