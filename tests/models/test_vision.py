import pytest
import torch
from torch import nn

from ordinate import Geometry
from ordinate.data.batch import Batch
from ordinate.models.vision import VisionShape, VisionTransformer
from ordinate.testing import assert_as_close

SMALL = {"vocabulary": 3, "width": 16, "layers": 2, "heads": 4, "image": (8, 12), "patch": (4, 4), "channels": 2}


def build(**choices):
    torch.manual_seed(0)
    return VisionTransformer(VisionShape(**SMALL | choices)).double().eval()


def images(height=8, width=12, count=2):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 2, height, width, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("height", [8, 12, 20])
@pytest.mark.parametrize("scheme", ["axial", "rope"])
def test_leading_tokens_are_at_the_centre_of_the_image_if_the_shape_says_so(scheme, height):
    model = build(scheme=scheme, registers=2, lead_position="centre")
    pos = model._where(height // 4, 3, torch.device("cpu")).q_pos[0].double()
    middle = pos[3:].mean(0).expand(3, -1)
    assert_as_close(pos[:3], middle, middle)
    # of a training grid of 2 by 3 patches
    assert pos[0].tolist() == pytest.approx([0.5, 1.0] if scheme == "axial" else [2.5])


def test_the_position_of_leading_tokens_needs_some():
    with pytest.raises(ValueError, match="lead_position is that of class token and registers; got 'centre' without"):
        build(pool="mean", lead_position="centre")


@pytest.mark.parametrize("pool", ["token", "mean", "both"])
@pytest.mark.parametrize("registers", [0, 2])
def test_it_is_its_formula(pool, registers):
    position = {"class_position": True} if pool == "both" else {}
    model, pixels = build(pool=pool, registers=registers, **position), images()
    kernel = model.patches.weight.unflatten(1, (2, 4, 4))
    patches = torch.nn.functional.conv2d(pixels, kernel, model.patches.bias, stride=4).flatten(2).mT
    x = patches + model.schemes[0].table.flatten(0, 1)
    lead = registers + (pool != "mean")
    if lead:
        first = model.lead.weight.clone()
        if position:
            first[0] = first[0] + model.class_position.weight[0]
        x = torch.cat([first.expand(2, -1, -1), x], 1)
    for block in model.blocks:
        x = block(x, model.schemes[0].at(Geometry.from_positions(torch.zeros(1, lead + 6, 2).long(), causal=False)))[
            0
        ]
    x = model.norm(x)
    assert torch.allclose(model(pixels), x, atol=1e-12)
    mean = sum(x[:, lead + patch] for patch in range(6)) / 6
    read = {"token": x[:, 0], "mean": mean, "both": torch.cat([x[:, 0], mean], 1)}[pool]
    expected = read @ model.head.weight.T + model.head.bias
    assert torch.allclose(model.logits(x), expected, atol=1e-12)
    assert torch.allclose(model.batch_logits(Batch(pixels, torch.tensor([0, 1]))), expected, atol=1e-12)
    model.logits(model(pixels)).sum().backward()
    assert all(bool((x.grad != 0).any()) for x in model.parameters())


def shuffled(pixels, order):
    """The same image with permuted patches."""
    patches = pixels.unfold(2, 4, 4).unfold(3, 4, 4).flatten(2, 3)[:, :, order]
    return patches.unflatten(2, (2, 3)).permute(0, 1, 2, 4, 3, 5).reshape(pixels.shape)


@torch.no_grad()
@pytest.mark.parametrize("scheme", ["none", "learned_grid", "grid", "axial", "swin", "rope", "learned", "alibi"])
def test_only_a_scheme_tells_where_patches_stand(scheme):
    model, pixels = build(scheme=scheme), images()
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.3)
    moved = (model.logits(model(pixels)) - model.logits(model(shuffled(pixels, [4, 0, 5, 2, 1, 3])))).abs().max()
    assert moved < 1e-12 if scheme == "none" else moved > 1e-6


def test_schemes_for_two_axes_see_rows_and_columns_and_others_a_number():
    for scheme, expected in (("axial", [[1, 1], [0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]), ("rope", None)):
        model, seen = build(scheme=scheme), []
        model.blocks[0].mixer.register_forward_pre_hook(lambda module, args, seen=seen: seen.append(args[1].where))
        model(images())
        assert seen[0].q_pos[0].tolist() == (expected or [[4], [0], [1], [2], [3], [4], [5]])
        assert seen[0].is_unmasked


@torch.no_grad()
@pytest.mark.parametrize("size", [(16, 16), (4, 12), (8, 16)])
def test_a_table_is_laid_on_images_of_other_sizes(size):
    model, pixels = build(), images(*size)
    x = model(pixels)
    model.schemes[0] = model.schemes[0].resized(size[0] // 4, size[1] // 4, antialias=False)
    model.vision = VisionShape(**SMALL | {"image": size})
    assert torch.allclose(model(pixels), x, atol=1e-12)


def test_a_table_learns_from_images_of_other_sizes():
    model = build()
    model.logits(model(images(16, 20))).sum().backward()
    assert bool((model.schemes[0].table.grad != 0).all(-1).any())


@torch.no_grad()
def test_places_are_stretched_or_counted():
    def places(size, **choices):
        model, seen = build(scheme="axial", pool="mean", **choices), []
        model.blocks[0].mixer.register_forward_pre_hook(lambda module, args: seen.append(args[1].where))
        model(images(*size))
        return seen[0].q_pos[0].tolist()

    assert places((4, 24), grid="counted") == [[0, column] for column in range(6)]
    assert places((4, 24)) == [[0.5, column / 2 - 0.25] for column in range(6)]
    assert places((8, 12)) == places((8, 12), grid="counted") == [[row, x] for row in range(2) for x in range(3)]
    with pytest.raises(ValueError, match="LearnedGrid has 2 rows and 3 columns"):
        build(grid="counted")(images(16, 12))


@torch.no_grad()
@pytest.mark.parametrize("mixer", ["softmax,linear", "rwkv6", "mlp", "s4d"])
def test_any_bidirectional_mixer_is_supported(mixer):
    model = build(mixer=mixer, scheme="grid", max_length=16)
    # some ignore later tokens at initialisation
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.2)
    x = model(images())
    other = images()
    other[:, :, -4:, -4:] += 1
    # the last patch reaches the first token
    assert not torch.equal(model(other)[:, 0], x[:, 0])


@torch.no_grad()
def test_a_pooler_reads_the_class_token():
    model = build(head="pooler")
    x = model(images())
    assert torch.allclose(model.pool(x), torch.tanh(x[:, 0] @ model.pooler.weight.T + model.pooler.bias))
    with pytest.raises(
        ValueError, match="the model needs a classification head; it has none; build it with head='classes'"
    ):
        model.logits(x)
    with pytest.raises(ValueError, match="the model needs a pooler; it has none"):
        build().pool(x)


@pytest.mark.parametrize("head", ["pooler", "classes"])
def test_hidden_states_of_other_axes_or_another_width_are_refused(head, untyped):
    model = build(head=head)
    x, read = model(images()), model.pool if head == "pooler" else model.logits
    for wrong, match in (
        (x[0], r"x needs the axes \(batch, tokens, width\); got \(\d+, 16\); reshape it"),
        (x[None], r"x needs the axes \(batch, tokens, width\); got .*; reshape it"),
        (x[..., :8], "x has the 16 columns of the model; got 8; give what the model itself returned"),
        (torch.zeros(1, 2, 16, dtype=torch.long), "x needs floating-point numbers; got torch.int64; convert it"),
    ):
        with pytest.raises(ValueError, match=match):
            read(wrong)


@torch.no_grad()
def test_what_is_saved_comes_back_bit_by_bit(tmp_path):
    model = build(labels=("eel", "newt", "owl"), registers=1).float()
    model.save_pretrained(tmp_path)
    again = VisionTransformer.from_pretrained(tmp_path)
    assert again.shape == model.shape
    assert torch.equal(again(images().float()), model(images().float()))


@torch.no_grad()
def test_16_bit_models_take_pixels_of_any_type():
    model, pixels = build(scheme="axial"), images()
    expected = model(pixels)
    out = model.to(torch.bfloat16)(pixels)
    assert out.dtype == torch.bfloat16
    assert torch.allclose(out.double(), expected, atol=0.1)


@pytest.mark.parametrize(
    ("choices", "match"),
    [
        ({"image": (9, 12)}, "patches of 4 by 4 pixels must cover an image; got 9 by 12 pixels; resize or crop it"),
        ({"channels": 0}, "channels must be above zero"),
        ({"image": (8, 10**40)}, "image must be at most 2147483648; got 1000"),
        ({"pool": "maen"}, "no pool is named 'maen'; .*did you mean 'mean'"),
        ({"head": "class"}, "no head is named 'class'; .*did you mean 'classes'"),
        ({"grid": "count"}, "no grid is named 'count'; .*did you mean 'counted'"),
        ({"tie_embeddings": True, "bias": ()}, "a vision model has no token table to tie"),
        ({"registers": -1}, "registers must not be negative; got -1"),
        (
            {"pool": "mean", "class_position": True},
            "class_position and head='pooler' need a class token; got pool='mean'",
        ),
        ({"pool": "mean", "head": "pooler"}, "need a class token"),
        ({"labels": ("eel",)}, "labels needs a name for each class, or none at all; got 1 names for 3 classes"),
        ({"scheme": "sections+learned_grid"}, "axes"),
        ({"scheme": "learned_grid,t5"}, "must all take one axis or all two; got"),
        (
            {"mixer": "triangular_mlp", "scheme": "none"},
            "needs a mixer with a bidirectional form; mixer 'triangular_mlp' has no",
        ),
    ],
)
def test_a_shape_that_makes_no_model_is_refused(choices, match, untyped):
    with pytest.raises(ValueError, match=match):
        build(**choices)


@pytest.mark.parametrize(
    ("pixels", "kind", "match"),
    [
        (None, TypeError, "images must be a tensor; got NoneType"),
        (torch.zeros(2, 8, 12), ValueError, r"images need the axes \(batch, 2 channels, height, width\); got \(2, 8"),
        (torch.zeros(1, 3, 8, 12), ValueError, r"2 channels, height, width\); got \(1, 3, 8, 12\)"),
        (
            torch.zeros(1, 2, 8, 12).long(),
            ValueError,
            "pixels must be floating-point numbers; got torch.int64; scale",
        ),
        (torch.zeros(1, 2, 8, 13), ValueError, "must cover an image; got 8 by 13 pixels"),
    ],
)
def test_what_are_no_images_is_refused(pixels, kind, match, untyped):
    with pytest.raises(kind, match=match):
        build()(pixels)


def test_a_patch_layer_without_parameters():
    """As a quantised one is: images have the dtype of the other layers."""

    class Quantised(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.held = lambda: (layer.weight, layer.bias)

        def weight(self):
            """A method, as torch.ao's layers have."""

        def forward(self, x):
            return nn.functional.linear(x, *self.held())

    model = VisionTransformer(VisionShape(3, width=8, layers=1, heads=2, image=(8, 8), patch=(4, 4)))
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    expected = model(images)
    model.patches = Quantised(model.patches)
    assert torch.equal(model(images), expected)
