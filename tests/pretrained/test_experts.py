"""Files of models with experts: the names and layouts that their tensors have, and what is refused."""

import json
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ordinate import Decoder, Geometry, Shape
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.experts import Experts
from ordinate.pretrained import verify
from ordinate.pretrained.verification.theirs import with_cache
from ordinate.pretrained.weights import load, save

transformers = pytest.importorskip("transformers")
FAMILIES = runpy.run_path(str(Path(__file__).with_name("families.py")))
theirs = FAMILIES["theirs"]
# with a tensor for each expert, and with one for all
EACH = ("mixtral", "qwen3_moe, dense layers", "olmoe", "qwen2_moe, windows", "glm4_moe, groups", "dots1, groups")
LATENT = ("deepseek_v3, groups", "deepseek_v2, groups", "glm4_moe_lite, mixed")
EACH += (*LATENT, "sarvam_moe, groups", "hy_v3, mixed", "mellum, types", "sarvam_mla, groups")
NAMES = (*EACH, "gpt_oss", "granitemoe", "granitemoeshared")
TEXT = torch.randint(0, 29, (2, 9), generator=torch.Generator().manual_seed(0))
GATE = "model.layers.1.block_sparse_moe.experts.2.w3.weight"


def written(name, folder, **told):
    other = theirs(name)
    other.set_experts_implementation("eager")
    other.save_pretrained(folder, **told)
    return other, {} if "max_shard_size" in told else load_file(folder / "model.safetensors")


@torch.no_grad()
@pytest.mark.parametrize("name", NAMES)
def test_the_outputs_are_those_of_transformers_in_float64(name, tmp_path):
    other, _ = written(name, tmp_path)
    other, model = other.double(), load(tmp_path, dtype=torch.float64)
    # transformers rounds angles, and shares of experts, to float32
    near = {"rtol": 2e-6, "atol": 2e-6}
    torch.testing.assert_close(model(TEXT), other(TEXT).logits, **near)
    real = torch.arange(9) >= torch.tensor([[0], [3]])
    places = (real.long().cumsum(1) - 1).clamp(min=0)
    expected = other(TEXT, attention_mask=real.long(), position_ids=places).logits
    torch.testing.assert_close(model(TEXT, Geometry.padded(real))[real], expected[real], **near)
    kept, pieces = None, []
    for piece in TEXT.split([4, 3, 1, 1], 1):
        came, kept = with_cache(other, kept, input_ids=piece)
        pieces.append(came.logits)
    torch.testing.assert_close(model(TEXT), torch.cat(pieces, 1), **near)


def ungated(experts):
    experts.shared_gate = None


def unshared(experts):
    experts.shared = None


def unbiased(experts):
    experts.choice_bias.zero_()


def changed(**options):
    def change(experts):
        experts.options = replace(experts.options, **options)

    return change


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("qwen2_moe", ungated),
        ("qwen2_moe", changed(normalise=True)),
        ("granitemoe", changed(normalise=False)),
        ("granitemoeshared", unshared),
        ("glm4_moe, groups", unbiased),
        ("glm4_moe, groups", changed(groups=1, chosen_groups=1)),
        ("glm4_moe, groups", changed(scale=1.0)),
        ("dots1", changed(normalise=False)),
        ("glm4_moe", changed(normalise=False)),
    ],
)
def test_a_part_that_is_passed_over_is_noticed(name, spoil, tmp_path):
    # a mutant of a model that was read
    other, _ = written(name, tmp_path)
    model, expected = load(tmp_path), other(TEXT).logits
    torch.testing.assert_close(model(TEXT), expected)
    for block in model.blocks:
        if isinstance(block.feedforward, Experts):
            spoil(block.feedforward)
    assert (model(TEXT) - expected).abs().max() > 1e-3 * expected.abs().max()


@torch.no_grad()
@pytest.mark.parametrize("name", EACH)
def test_files_with_one_tensor_for_all_experts_are_read_too(name, tmp_path):
    _, each = written(name, tmp_path / "each")
    _, fused = written(name, tmp_path / "fused", save_original_format=False)
    assert len(fused) < len(each)
    assert any(key.endswith("experts.gate_up_proj") for key in fused)
    model = load(tmp_path / "fused")
    # outputs have the same bits only where the matrices lie alike in memory
    mine, same = model.state_dict(), load(tmp_path / "each").state_dict()
    assert mine.keys() == same.keys()
    assert all(torch.equal(x, same[key]) for key, x in mine.items())
    # published files have a tensor for each expert
    save(model, tmp_path / "again", name.split(",")[0])
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert again.keys() == each.keys()
    assert all(again[key].equal(each[key]) for key in each)


@torch.no_grad()
@pytest.mark.parametrize("name", ["granitemoe", "granitemoeshared"])
def test_a_granite_with_experts_may_have_the_names_of_transformers_5(name, tmp_path):
    other, published = written(name, tmp_path / "published")
    _, own = written(name, tmp_path / "own", save_original_format=False)
    assert own.keys() != published.keys()
    assert any(key.endswith("experts.gate_up_proj") for key in own)
    torch.testing.assert_close(load(tmp_path / "own")(TEXT), other(TEXT).logits)
    save(load(tmp_path / "own"), tmp_path / "again", name)
    assert load_file(tmp_path / "again" / "model.safetensors").keys() == published.keys()


@torch.no_grad()
def test_the_layers_of_a_glm_for_later_tokens_are_not_read(tmp_path):
    other, kept = written("glm4_moe", tmp_path)
    more = {key.replace("layers.1.", "layers.2."): x.clone() for key, x in kept.items() if "layers.1." in key}
    save_file(kept | more | {"model.layers.2.eh_proj.weight": torch.zeros(32, 64)}, tmp_path / "model.safetensors")
    torch.testing.assert_close(load(tmp_path)(TEXT), other(TEXT).logits)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_nextn_predict_layers": 0}))
    with pytest.raises(ValueError, match=r"unexpected model\.layers\.2\.eh_proj\.weight"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["glm4_moe", "dots1", "deepseek_v3", "glm4_moe_lite"])
def test_the_choice_stays_in_32_bits(name, tmp_path):
    other, kept = written(name, tmp_path)
    for dtype, wide in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
        chooses = load(tmp_path, dtype=dtype).blocks[1].feedforward
        assert (chooses.router.weight.dtype, chooses.choice_bias.dtype, chooses.widen.weight.dtype) == (
            *(wide, wide),
            dtype,
        )
    # published files have the bias alone in 32 bits
    half = {key: x if key.endswith("correction_bias") else x.bfloat16() for key, x in kept.items()}
    save_file(half, tmp_path / "model.safetensors")
    model = load(tmp_path)
    assert torch.equal(
        model.blocks[1].feedforward.choice_bias, other.model.layers[1].mlp.gate.e_score_correction_bias
    )
    assert model.blocks[1].feedforward.router.weight.dtype == torch.bfloat16
    save(model, tmp_path / "again", name)
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert all(again[key].equal(half[key]) for key in half)


@torch.no_grad()
def test_a_mixtral_may_have_the_name_of_the_layer_in_transformers(tmp_path):
    other, each = written("mixtral", tmp_path)
    assert GATE in each
    save_file({key.replace("block_sparse_moe", "mlp"): x for key, x in each.items()}, tmp_path / "model.safetensors")
    torch.testing.assert_close(load(tmp_path)(TEXT), other(TEXT).logits)
    fused = written("mixtral", tmp_path, save_original_format=False)[1]
    save_file({key.replace("mlp", "block_sparse_moe"): x for key, x in fused.items()}, tmp_path / "model.safetensors")
    torch.testing.assert_close(load(tmp_path)(TEXT), other(TEXT).logits)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({GATE: None}, f"missing {GATE}; download"),
        ({GATE: torch.zeros(47, 32)}, rf"{GATE} must have shape \(48, 32\) .*; got \(47, 32\)"),
        ({GATE: torch.full((48, 32), float("nan"))}, f"finite floating-point numbers; {GATE} has others"),
        ({GATE.replace("experts.2", "experts.5"): torch.zeros(48, 32)}, "unexpected .*experts.5.w3.weight; check"),
    ],
)
def test_an_expert_that_is_missing_or_damaged_is_named(change, match, tmp_path):
    _, each = written("mixtral", tmp_path)
    kept = {key: x for key, x in (each | change).items() if x is not None}
    save_file(kept, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=match):
        load(tmp_path)


@torch.no_grad()
@pytest.mark.parametrize("name", NAMES)
def test_shards_and_bare_models_are_read(name, tmp_path):
    other, _ = written(name, tmp_path / "shards", max_shard_size="20kB")
    assert len(list((tmp_path / "shards").glob("model-*.safetensors"))) > 1
    torch.testing.assert_close(load(tmp_path / "shards")(TEXT), other(TEXT).logits)
    other.base_model.save_pretrained(tmp_path / "bare")
    bare = load(tmp_path / "bare")
    assert bare.shape.head == "none"
    torch.testing.assert_close(bare.hidden_states(TEXT), other.base_model(TEXT).last_hidden_state)


@pytest.mark.parametrize("name", [*NAMES, "fused"])
def test_a_number_of_experts_beyond_the_weights_is_refused_before_a_model_is_made(name, tmp_path):
    written("qwen3_moe" if name == "fused" else name, tmp_path, save_original_format=name != "fused")
    config = json.loads((tmp_path / "config.json").read_text())
    sizes = {"num_local_experts", "num_experts", "num_experts_per_tok", "n_routed_experts", "n_shared_experts"}
    for key in sizes & config.keys():
        most = {name: 10**9 for name in config if name.startswith(("num_", "n_")) and "experts" in name}
        (tmp_path / "config.json").write_text(json.dumps(config | (most if "per" in key else {key: 10**9})))
        with pytest.raises(ValueError, match=r"fit the weights; got 1000000000"):
            load(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_verification_agrees(name, tmp_path):
    written(name, tmp_path)
    found = verify(tmp_path, checks=["outputs", "left padding", "decoding", "gradients"])
    assert found.agrees, found.to_dict()


def sparse(**told):
    sizes = {"vocabulary": 11, "width": 16, "layers": 2, "heads": 2, "feedforward": "swiglu", "norm_eps": 1e-6}
    return Decoder(Shape(**sizes | {"experts": ExpertOptions(4), "tie_embeddings": False} | told))


@pytest.mark.parametrize(
    ("told", "family", "match"),
    [
        ({}, "llama", "experts=ExpertOptions.*would become None"),
        ({"experts": None}, "mixtral", "a mixtral has experts in every layer; got experts=None; choose another"),
        (
            {"experts": ExpertOptions(4, dense_layers=(0,))},
            "mixtral",
            "a mixtral has experts in every layer; got exp",
        ),
        (
            {"experts": ExpertOptions(4, normalise=False)},
            "mixtral",
            "normalise=False.* would become .*normalise=True",
        ),
        ({"bias": ("norm", "router")}, "mixtral", "bias=.*router.* would become"),
        (
            {"head_width": 4},
            "olmoe",
            "have the width of the model together; got 2 heads of head_width=4 for width=16",
        ),
        ({"mixer": "softmax:variant.sinks=true"}, "gpt_oss", "a gpt_oss has experts with a limit; got Exp"),
        ({}, "glm4_moe", "a glm4_moe has two experts at least, whose scores are sigmoids; got experts=Exp"),
        ({"experts": ExpertOptions(4, shared_hidden=7)}, "mixtral", "shared_hidden=7.* would become .*=None"),
        ({"experts": ExpertOptions(4, shared_hidden=7)}, "qwen2_moe", "shared_gate=False.* would become .*=True"),
        ({"experts": ExpertOptions(4, scale=2.0)}, "granitemoe", r"scale=2\.0.* would become .*scale=1\.0"),
        ({"experts": ExpertOptions(4, scores="sigmoid")}, "mixtral", "scores='sigmoid'.* would become .*'softmax'"),
        (
            {"experts": ExpertOptions(4, scores="sigmoid", shared_hidden=7, choice_bias=True)},
            "glm4_moe",
            "shared_hidden=7.* would become",
        ),
        (
            {"experts": ExpertOptions(4, scores="sigmoid", shared_hidden=42, dense_layers=(1,), choice_bias=True)},
            "glm4_moe",
            r"dense_layers=\(1,\).* would become .*dense_layers=\(0,\)",
        ),
    ],
)
def test_experts_that_a_family_cannot_represent_are_refused(told, family, match, tmp_path):
    with pytest.raises(ValueError, match=match):
        save(sparse(**told), tmp_path, family)
    assert not list(tmp_path.iterdir())
