"""Families with multi-head latent attention."""

import math
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ordinate import Decoder, Shape
from ordinate.models.cache import Cache
from ordinate.pretrained.weights import family_of, load, save
from ordinate.probing import attach

transformers = pytest.importorskip("transformers")
FAMILIES = runpy.run_path(str(Path(__file__).with_name("families.py")))
theirs = FAMILIES["theirs"]
NAMES = ("deepseek_v3, groups", "deepseek_v2, groups", "glm4_moe_lite, mixed", "minicpm3, plain", "youtu")
TEXT = torch.randint(0, 29, (2, 9), generator=torch.Generator().manual_seed(0))
SMALL = {
    "vocab_size": 29,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "kv_lora_rank": 6,
    "q_lora_rank": None,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "first_k_dense_replace": 2,
    "mlp_layer_types": ["dense", "dense"],
    "intermediate_size": 12,
}
SIZES = "latent:variant.rank=6,variant.content_width=12,variant.value_width=8"
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16}


def written(name, folder, **told):
    other = theirs(name, **told)
    other.set_experts_implementation("eager")
    other.save_pretrained(folder)
    return other, load_file(folder / "model.safetensors")


def shape_of(family, **told):
    return family_of(family).read_config(SMALL | told, [])


@pytest.mark.parametrize(
    ("family", "told", "field", "value"),
    [
        ("deepseek_v3", {}, "mixer", SIZES),
        ("deepseek_v3", {}, "head_width", 4),
        ("deepseek_v3", {}, "scheme", "rope:theta=10000.0,layout=interleaved"),
        ("deepseek_v3", {"rope_interleave": False}, "scheme", "rope:theta=10000.0"),
        ("deepseek_v3", {"rope_interleave": None}, "scheme", "rope:theta=10000.0"),
        ("deepseek_v2", {"rope_interleave": False}, "scheme", "rope:theta=10000.0,layout=interleaved"),
        ("deepseek_v2", {"head_dim": 7}, "head_width", 4),
        ("glm4_moe_lite", {"head_dim": 8}, "head_width", 8),
        ("deepseek_v3", {"q_lora_rank": 5, "attention_bias": True}, "mixer", None),
        ("deepseek_v2", {"mlp_bias": True}, "bias", ("norm", "feedforward")),
        ("deepseek_v2", {"num_key_value_heads": None}, "mixer", SIZES),
        ("deepseek_v3", {"num_key_value_heads": 1}, "kv_heads", 2),
        ("youtu", {}, "mixer", SIZES),
        ("youtu", {"rope_interleave": False}, "scheme", "rope:theta=10000.0"),
        ("minicpm3", {"v_head_dim": None}, "mixer", SIZES),
        ("minicpm3", {"head_dim": 7}, "head_width", 4),
        ("minicpm3", {}, "scheme", "rope:theta=10000.0"),
        ("minicpm3", {"scale_emb": 3}, "embedding_scale", 3.0),
        ("minicpm3", {"scale_depth": 1.4}, "residual_scale", 1.4 / math.sqrt(2)),
        ("minicpm3", {"scale_depth": None}, "residual_scale", 1.0),
        ("minicpm3", {"dim_model_base": 4}, "logit_scale", 0.25),
        ("minicpm3", {"dim_model_base": None}, "logit_scale", 1.0),
    ],
)
def test_a_setting_is_read_as_in_transformers(family, told, field, value):
    came = getattr(shape_of(family, **told), field)
    if value is None:
        value = SIZES.replace("variant.content", "variant.query_rank=5,variant.content") + ",variant.bias=true"
    assert came == value


@pytest.mark.parametrize("family", ["deepseek_v3", "deepseek_v2", "glm4_moe_lite", "minicpm3", "youtu"])
@pytest.mark.parametrize(
    ("rope", "share"),
    [
        ({**YARN, "mscale": 0.7, "mscale_all_dim": 0.5}, 0.5),
        ({**YARN, "mscale_all_dim": 0.5}, 0.5),
        ({**YARN, "mscale_all_dim": 0.3, "attention_factor": 1.1}, 0.3),
        ({"rope_type": "linear", "factor": 3.0, "mscale_all_dim": 1.0}, 1.0),
        ({"rope_type": "linear", "factor": 0.5, "mscale_all_dim": 1.0}, None),
        ({"rope_type": "default", "factor": 3.0, "mscale_all_dim": 1.0}, None),
        ({**YARN, "mscale": 0.7}, None),
    ],
)
def test_mscale_all_dim_enters_at_the_scale_of_the_scores_and_is_written_again(family, rope, share, tmp_path):
    shape = shape_of(family, rope_parameters=rope)
    growth = 1.0 if share is None else 0.1 * share * math.log(rope["factor"]) + 1.0
    assert shape.mixer == SIZES + (f",variant.scale={16**-0.5 * growth * growth}" if share else "")
    save(Decoder(shape), tmp_path, family)
    again = load(tmp_path)
    assert again.shape.mixer == shape.mixer
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    other = transformers.AutoModelForCausalLM.from_config(config)
    assert other.model.layers[0].self_attn.scaling == pytest.approx(16**-0.5 * growth**2, rel=1e-12)


@pytest.mark.parametrize(
    ("family", "told", "match"),
    [
        ("deepseek_v3", {"head_dim": 8}, "head_dim must be qk_rope_head_dim, .*; got 8; remove it"),
        ("youtu", {"head_dim": 8}, "head_dim must be qk_rope_head_dim, .*; got 8; remove it"),
        ("minicpm3", {"scale_emb": 0}, r"scale_emb in config\.json must be above zero; got 0"),
        ("minicpm3", {"scale_depth": -1.0}, r"scale_depth in config\.json must be above zero; got -1"),
        ("minicpm3", {"dim_model_base": 0}, r"dim_model_base in config\.json must be above zero; got 0"),
        ("deepseek_v3", {"kv_lora_rank": 0}, r"kv_lora_rank in config\.json must be above zero; got 0"),
        ("deepseek_v3", {"v_head_dim": None}, r"v_head_dim in config\.json must be a whole number; got None"),
        (
            "deepseek_v3",
            {"rope_parameters": {"rope_type": "longrope", "mscale_all_dim": 1.0, "short_factor": [1.0, 1.0]}},
            "factor",
        ),
        ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method"),
        (
            "deepseek_v2",
            {"topk_method": "group_limited_greedy", "first_k_dense_replace": 0, "n_group": 2},
            "topk_method='group_limited_greedy' needs topk_group; got none; load",
        ),
        (
            "deepseek_v2",
            {"mlp_bias": True, "first_k_dense_replace": 0, "num_experts_per_tok": 1},
            "mlp_bias, which the experts themselves have not, needs a model without them; got both",
        ),
        ("glm4_moe_lite", {"mlp_layer_types": ["dense"]}, "mlp_layer_types must have a kind for each of 2 layers"),
        ("glm4_moe_lite", {"mlp_layer_types": "dense"}, r"mlp_layer_types in config\.json must be list"),
    ],
)
def test_a_setting_that_cannot_be_computed_is_refused_by_name(family, told, match):
    with pytest.raises(ValueError, match=match):
        shape_of(family, **told)


@pytest.mark.parametrize(
    ("told", "match"),
    [
        ({"mixer": "softmax"}, "a deepseek_v3 requires the mixer 'latent'; got 'softmax'; choose another"),
        ({"mixer": "latent:variant.norm_eps=0.1"}, "the config.json of a deepseek_v3 must .*mixer=.*norm_eps=0.1"),
        (
            {"mixer": "latent:variant.scale=0.3"},
            "the scale of the mixer must be that of the mscale_all_dim of the sch",
        ),
        ({"scheme": "alibi"}, "this family requires the scheme rope; got 'alibi'"),
    ],
)
def test_a_shape_that_a_family_does_not_have_is_not_saved(told, match, tmp_path):
    sizes = {"vocabulary": 11, "width": 16, "layers": 2, "heads": 2, "feedforward": "swiglu", "norm_eps": 1e-6}
    model = Decoder(Shape(**{**sizes, "mixer": "latent", "tie_embeddings": False, **told}))
    with pytest.raises(ValueError, match=match):
        save(model, tmp_path, "deepseek_v3")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("depth", [0.1, 1.0, 1.4, 2.3, math.sqrt(3)])
def test_the_factors_of_a_minicpm3_are_written_as_they_were_read(depth, tmp_path):
    told = {"scale_depth": depth, "scale_emb": 12.5, "dim_model_base": 5, "num_hidden_layers": 3}
    save(Decoder(shape_of("minicpm3", **told)), tmp_path, "minicpm3")
    written = transformers.AutoConfig.from_pretrained(tmp_path)
    assert (written.scale_depth, written.scale_emb, written.dim_model_base) == (depth, 12.5, 5)
    model = Decoder(replace(shape_of("minicpm3"), logit_scale=0.3))
    with pytest.raises(ValueError, match=r"a minicpm3 must be a whole number over .*; got .*0\.3 .* 16;"):
        save(model, tmp_path, "minicpm3")


@torch.no_grad()
@pytest.mark.parametrize("name", NAMES)
def test_one_token_at_a_time_gives_the_logits_of_the_whole_text(name, tmp_path):
    other, _ = written(name, tmp_path)
    model, cache = load(tmp_path, dtype=torch.float64), Cache()
    whole = torch.cat([model(TEXT[:, place : place + 1], cache=cache) for place in range(9)], 1)
    torch.testing.assert_close(whole, model(TEXT), rtol=0, atol=1e-11)
    torch.testing.assert_close(whole, other.double()(TEXT).logits, rtol=2e-6, atol=2e-6)


@torch.no_grad()
@pytest.mark.parametrize(("name", "layer"), [("deepseek_v3", 61), ("deepseek_v3", 2), ("glm4_moe_lite", 47)])
def test_layers_for_later_tokens_are_left_out_as_in_transformers(name, layer, tmp_path):
    other, kept = written(name, tmp_path)
    more = {f"model.layers.{layer}.eh_proj.weight": torch.zeros(32, 64)}
    save_file(kept | more, tmp_path / "model.safetensors")
    torch.testing.assert_close(load(tmp_path)(TEXT), other(TEXT).logits)
    save_file(kept | {"model.layers.9.eh_proj.weight": torch.zeros(32, 64)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"unexpected model\.layers\.9\.eh_proj\.weight"):
        load(tmp_path)


def test_fp8_without_a_format_is_refused_by_name(tmp_path):
    _, kept = written("deepseek_v3", tmp_path)
    name = "model.layers.0.self_attn.kv_b_proj.weight"
    save_file(kept | {name: kept[name].to(torch.float8_e4m3fn)}, tmp_path / "model.safetensors")
    with pytest.raises(
        ValueError, match=r"need a quantization_config .*; there is none for .*kv_b_proj\.weight, of F8"
    ):
        load(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_first_and_second_gradients_are_those_of_transformers(name, tmp_path):
    other, _ = written(name, tmp_path)
    other, model = other.double(), load(tmp_path, dtype=torch.float64)
    found = []
    for run, table, first in (
        (model, model.tokens.weight, model.blocks[0].mixer.expand.weight),
        (
            lambda ids: other(ids).logits,
            other.model.embed_tokens.weight,
            other.model.layers[0].self_attn.kv_b_proj.weight,
        ),
    ):
        table.requires_grad_()
        first.requires_grad_()
        slopes = torch.autograd.grad(run(TEXT).square().mean(), [table, first], create_graph=True)
        found.append([*slopes, *torch.autograd.grad(sum(one.square().sum() for one in slopes), [table, first])])
    for mine, their in zip(*found, strict=True):
        # transformers rounds angles, and shares of experts, to float32
        torch.testing.assert_close(mine, their, rtol=1e-4, atol=1e-5 * their.abs().max().item())


@pytest.mark.parametrize("name", NAMES)
def test_probes_see_queries_keys_values_and_patterns(name, tmp_path):
    from ordinate.probing._adapter import Hooks, Inputs, NotApplicable

    class Seen(Hooks):
        def attention(self, layer, seen):
            shapes[layer] = seen.q.shape, seen.k.shape, seen.v.shape, seen.pattern.shape

    written(name, tmp_path)
    shapes = {}
    subject = attach(load(tmp_path))
    subject.forward(Inputs(ids=TEXT), Seen())
    assert set(shapes.values()) == {((2, 4, 9, 14), (2, 4, 9, 14), (2, 4, 9, 10), (2, 4, 9, 9))}
    with pytest.raises(NotApplicable, match="queries and keys of layer 0 are not linear maps of its input"):
        subject.projection(0)
