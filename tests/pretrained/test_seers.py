"""Checkpoints of models for images: the same vectors and logits here and in transformers, and back again."""

import json
import runpy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ordinate.models.vision import VisionShape, VisionTransformer
from ordinate.pretrained.weights import load, save

pytest.importorskip("transformers")
FAMILIES = runpy.run_path(str(Path(__file__).with_name("families.py")))
CASES, theirs, no_worse = FAMILIES["SEERS"], FAMILIES["theirs"], FAMILIES["no_worse"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}

    def folder(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp("checkpoint")
            theirs(name).save_pretrained(made[name])
        return made[name]

    return folder


def images(height, width):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(2, 2, height, width, generator=generator) * 2 - 1


def near(out, expected, share=2e-5):
    assert out.dtype == expected.dtype
    assert (out - expected).abs().max() <= share * expected.abs().max()


def said(other, pixels):
    """What transformers says, at any size."""
    told = {"interpolate_pos_encoding": True} if other.config.model_type == "vit" else {}
    return other(pixel_values=pixels, **told)


def compare(model, other, pixels):
    x, came = model(pixels), said(other, pixels)
    if model.shape.head == "classes":
        near(model.logits(x), came.logits)
        return
    near(x, came.last_hidden_state)
    near(model.pool(x) if model.shape.head == "pooler" else x[:, 0], came.pooler_output)


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_vectors_and_logits_are_those_of_transformers_at_any_size(name, folders):
    model, other = load(folders(name)), theirs(name)
    assert isinstance(model, VisionTransformer)
    made = model.shape.image[0]
    for size in ((made, made), (20, 16), (16, 24), (4, 8), (4, 4), (20, 4)):
        compare(model, other, images(*size))


@pytest.mark.parametrize("name", FAMILIES["representative"](CASES))
@torch.no_grad()
def test_there_and_back_gives_the_same_bits(name, folders, tmp_path):
    model, kind = load(folders(name)), name.split(",")[0]
    save(model, tmp_path, kind)
    written, first = load_file(tmp_path / "model.safetensors"), load_file(folders(name) / "model.safetensors")
    if name.endswith("Model"):
        written = {key.removeprefix(f"{kind}."): value for key, value in written.items()}
    # the mask token of patches is not kept
    first = {key: value for key, value in first.items() if not key.endswith("mask_token")}
    assert written.keys() == first.keys()
    assert all(written[key].equal(first[key]) for key in first)
    assert load(tmp_path).shape == model.shape
    other = type(theirs(name)).from_pretrained(tmp_path).eval()
    compare(model, other, images(*model.shape.image))


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_16_bit_weights_give_nearly_the_same(name, folders):
    model, other = load(folders(name), dtype=torch.bfloat16), theirs(name)
    for size in ((8, 8), (12, 12)):
        pixels = images(*size)
        expected = said(other.float(), pixels)[0]
        x = model(pixels)
        out = model.logits(x) if model.shape.head == "classes" else x
        assert out.dtype == torch.bfloat16
        no_worse(out, said(other.to(torch.bfloat16), pixels.bfloat16())[0], expected)


def test_classes_have_the_names_of_the_checkpoint(folders):
    assert load(folders("dinov2, ForImageClassification")).shape.labels == ("eel", "newt")
    shape = load(folders("vit, ForImageClassification")).shape
    assert (shape.labels, shape.vocabulary) == ((), 3)


def test_an_ordinate_model_is_saved_as_a_vit(tmp_path):
    import transformers

    sizes = {"vocabulary": 2, "width": 16, "layers": 1, "heads": 2, "image": (8, 8), "patch": (4, 4), "channels": 1}
    like = {"norm": "layer", "norm_eps": 1e-6, "mixer": "softmax:variant.bias=true", "class_position": True}
    places = ("norm", "feedforward", "head")
    model = VisionTransformer(VisionShape(**sizes, **like, bias=places, labels=("eel", "newt"))).eval()
    save(model, tmp_path, "vit")
    other = transformers.AutoModelForImageClassification.from_pretrained(tmp_path).eval()
    pixels = torch.randn(1, 1, 8, 8)
    near(model.logits(model(pixels)), other(pixels).logits)
    assert other.config.id2label == {0: "eel", 1: "newt"}
    bare = VisionTransformer(VisionShape(**sizes, **like, bias=places, registers=1))
    with pytest.raises(
        ValueError, match=r"the config.json of a vit must be able to represent the model; registers=1 would become 0"
    ):
        save(bare, tmp_path, "vit")
    with pytest.raises(
        ValueError, match=r"a vit must be a vision model with scheme learned_grid .*; got VisionShape, grid"
    ):
        save(VisionTransformer(VisionShape(**sizes, scheme="grid")), tmp_path, "vit")
    with pytest.raises(ValueError, match="a dinov2 needs an integer mlp_ratio; got hidden=40 for a width of 16"):
        save(
            VisionTransformer(VisionShape(**sizes, mixer=like["mixer"], hidden=40, layer_scale=1.0)),
            tmp_path,
            "dinov2",
        )
    with pytest.raises(ValueError, match=r"a dinov2 has a square grid of patches, and layer_scale; got .*=None; use"):
        save(VisionTransformer(VisionShape(**sizes, mixer=like["mixer"])), tmp_path, "dinov2")


KEY = "vit.encoder.layer.1.attention.attention.key.weight"
TABLE = "vit.embeddings.position_embeddings"


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"drop": (KEY,)}, f"missing {KEY}; download it again"),
        ({"tensors": {"vit.more": torch.zeros(2)}}, r"unexpected vit.more; check that config.json"),
        ({"tensors": {TABLE: torch.zeros(1, 9, 32)}}, rf"{TABLE} must have shape \(1, 10, 32\) .*; got \(1, 9, 32\)"),
        ({"tensors": {KEY: torch.full((32, 32), float("inf"))}}, f"finite floating-point numbers; {KEY} has others"),
        (
            {
                "config": {"pooler_act": "prelu", "architectures": ["ViTModel"]},
                "tensors": {"vit.pooler.dense.weight": torch.zeros(32, 32)},
            },
            "no pooler_act is named 'prelu'; there are",
        ),
    ],
)
def test_an_invalid_checkpoint_is_refused(change, match, folders, tmp_path):
    folder = folders("vit, ForImageClassification")
    config = json.loads((folder / "config.json").read_text()) | change.get("config", {})
    tensors = load_file(folder / "model.safetensors") | change.get("tensors", {})
    (tmp_path / "config.json").write_text(json.dumps(config))
    kept = {key: value for key, value in tensors.items() if key not in change.get("drop", ())}
    save_file(kept, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=match):
        load(tmp_path)


@torch.no_grad()
def test_a_dinov3_without_biases_of_keys_is_saved_with_zeros(tmp_path):
    other = theirs("dinov3_vit, Model", key_bias=False)
    other.save_pretrained(tmp_path / "theirs")
    model = load(tmp_path / "theirs")
    width = model.shape.width
    assert not model.blocks[0].mixer.project.bias[width : 2 * width].any()
    save(model, tmp_path / "ours", "dinov3_vit")
    written = load_file(tmp_path / "ours" / "model.safetensors")
    assert not written["layer.0.attention.k_proj.bias"].any()
    compare(model, type(other).from_pretrained(tmp_path / "ours").eval(), images(8, 20))


def test_class_token_and_registers_of_a_dinov3_are_not_turned(folders):
    model = load(folders("dinov3_vit, Model"))
    for rows, columns in ((3, 3), (2, 5)):
        at = model.schemes[0].at(model._where(rows, columns, torch.device("cpu")))
        q = torch.randn(1, 4, 4 + rows * columns, model.shape.width // 4)
        torch.testing.assert_close(at.encode(q, q).q[:, :, :4], q[:, :, :4], rtol=0, atol=1e-6)
        # but patches are, all but one in the centre
        same = (at.encode(q, q).q - q).abs().amax((0, 1, 3)) < 1e-6
        assert same[4:].sum() == (rows % 2) * (columns % 2)
