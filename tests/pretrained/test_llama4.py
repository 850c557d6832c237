"""Llama 4: chunks, layers without RoPE, experts on weighted inputs, and its language model inside of the whole."""

import runpy
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ordinate import Decoder, Geometry, Shape
from ordinate.models.expert_options import ExpertOptions
from ordinate.pretrained import hf, verify
from ordinate.pretrained.verification.theirs import with_cache
from ordinate.pretrained.weights import load, save

transformers = pytest.importorskip("transformers")
MIXED = runpy.run_path(str(Path(__file__).with_name("mixed_layers.py")))
FAMILIES, read_there, change, near = (MIXED[name] for name in ("FAMILIES", "read_there", "change", "near"))
SIZES, IDS, LEFT = (getattr(FAMILIES["llama4_text"], name) for name in ("settings", "ids", "left"))
written = partial(MIXED["written"], family="llama4_text")
drawn = partial(MIXED["drawn"], spread=FAMILIES["llama4_text"].spread)
IMAGE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
IMAGE |= {"image_size": 8, "patch_size": 4, "vision_output_dim": 16, "projector_input_dim": 16}
IMAGE |= {"projector_output_dim": 16}
PLAIN = {"attn_temperature_tuning": False}
FULL, CHUNKED = "full_attention", "chunked_attention"
NORMS = "softmax:variant.qk_norm=true,variant.norm_eps=1e-05,variant.qk_norm_kind=nonparametric_rms"
NORMS += ",variant.qk_norm_after=true"
ROPE, GROWN = "rope:theta=500000.0,layout=interleaved", "log_length:form=llama4,trained_length=3,beta=0.5"


def chunks(model):
    return [block.mixer.chunk for block in model.blocks]


@pytest.mark.parametrize(
    ("settings", "sizes", "schemes"),
    [
        ({}, [4, None, 4, None], [ROPE, GROWN, ROPE, GROWN]),
        (PLAIN, [4, None, 4, None], [ROPE, "none", ROPE, "none"]),
        ({"no_rope_layers": [0, 1, 1, 1]}, [None, 4, 4, 4], [GROWN, ROPE, ROPE, ROPE]),
        ({"no_rope_layers": []}, [4, None, 4, None], [ROPE, GROWN, ROPE, GROWN]),
        ({"no_rope_layer_interval": 3}, [4, 4, None, 4], [ROPE, ROPE, GROWN, ROPE]),
        ({"attention_chunk_size": None}, [None] * 4, [ROPE, GROWN, ROPE, GROWN]),
        ({"attention_chunk_size": 14}, [14, None, 14, None], [ROPE, GROWN, ROPE, GROWN]),
        ({"layer_types": [FULL, CHUNKED, CHUNKED, FULL]}, [None, 4, 4, None], [ROPE, GROWN, ROPE, GROWN]),
        ({"layer_types": ["attention", CHUNKED] * 2}, [None, 4, None, 4], [ROPE, GROWN, ROPE, GROWN]),
        ({"floor_scale": 1}, None, [ROPE, GROWN.replace("=3", "=1")] * 2),
    ],
)
@torch.no_grad()
def test_each_layer_has_the_chunks_and_the_positions_of_transformers(tmp_path, settings, sizes, schemes):
    there = written(tmp_path, **settings)
    # as it was given, without what transformers writes out
    change(tmp_path, "layer_types", "no_rope_layers", "moe_layers", **settings)
    here = load(tmp_path)
    assert sizes is None or chunks(here) == sizes
    assert here.shape.scheme_spec.entries == schemes
    near(here(IDS), there(IDS).logits)
    save(here, tmp_path / "again", "llama4_text")
    again = read_there(tmp_path / "again")
    near(again(IDS).logits, there(IDS).logits)
    assert torch.equal(load(tmp_path / "again")(IDS), here(IDS))


@pytest.mark.parametrize(
    ("settings", "experts"),
    [
        ({}, (0, 2)),
        ({"interleave_moe_layer_step": 1}, ()),
        ({"interleave_moe_layer_step": 3}, (0, 1, 3)),
        ({"moe_layers": [0, 3, 9]}, (1, 2)),
        ({"moe_layers": []}, None),
        ({"interleave_moe_layer_step": 5}, None),
    ],
)
@torch.no_grad()
def test_layers_have_the_experts_of_transformers(tmp_path, settings, experts):
    there = written(tmp_path, **settings)
    change(tmp_path, "moe_layers", **settings)
    here = load(tmp_path)
    own = here.shape.experts
    assert (None if own is None else own.dense_layers) == experts
    assert own is None or (own.shared_hidden, own.dense_hidden) == (12, 10 if experts else None)
    assert own is not None or here.shape.hidden == 10
    near(here(IDS), there(IDS).logits)
    # sizes of what a model does not have may say anything
    change(tmp_path, **({} if experts != () else {"intermediate_size_mlp": 10**9}))
    change(tmp_path, **({} if own is not None else {"num_local_experts": 10**9, "intermediate_size": 10**9}))
    near(load(tmp_path)(IDS), there(IDS).logits)


@torch.no_grad()
def test_a_head_and_biases_are_read(tmp_path):
    there = written(tmp_path, tie_word_embeddings=True, attention_bias=True, use_qk_norm=False)
    here = load(tmp_path)
    assert here.shape.tie_embeddings
    assert {str(mixer) for mixer in here.shape.mixer_spec.entries} == {
        "softmax:variant.bias=true",
        "softmax:variant.bias=true,variant.chunk=4",
    }
    near(here(IDS), there(IDS).logits)


@torch.no_grad()
def test_padded_texts_have_the_temperature_of_the_text_alone(tmp_path):
    there = written(tmp_path)
    out = load(tmp_path)(IDS, Geometry.padded(LEFT))
    near(out[0, 5:], there(IDS[:1, 5:]).logits[0])
    near(out[1], there(IDS[1:]).logits[0])
    places = (LEFT.long().cumsum(1) - 1).clamp(min=0)
    # in transformers it counts the padding
    padded = there(IDS, attention_mask=LEFT.long(), position_ids=places).logits
    assert (padded[0, 5:] - out[0, 5:]).abs().max() > 1e-3


@torch.no_grad()
def test_packed_texts_are_as_alone_and_their_chunks_those_of_transformers(tmp_path):
    there = written(tmp_path, **PLAIN)
    out = load(tmp_path)(IDS[:1], Geometry.packed([5, 9]))
    near(out, torch.cat([there(part).logits for part in IDS[:1].split([5, 9], 1)], 1))
    places = torch.cat([torch.arange(5), torch.arange(9)])[None]
    near(out, there(IDS[:1], position_ids=places, use_cache=False).logits)


@pytest.mark.parametrize("chunk", [4, 64])
def test_verify_agrees_and_says_what_it_does_not_reach(tmp_path, chunk):
    written(tmp_path, attention_chunk_size=chunk)
    found = verify(tmp_path, tokens=20)
    assert found.agrees, found.to_dict()
    note = next(check.note for check in found.checks if check.name == "outputs")
    assert note == ("" if chunk == 4 else "the attention chunk of 64 tokens is not reached: give more --tokens")


@pytest.mark.parametrize("real", [None, LEFT, LEFT.flip(1)])
@torch.no_grad()
def test_attention_of_ordinate_inside_of_transformers_has_the_same_chunks(tmp_path, real):
    there = written(tmp_path)
    there.set_attn_implementation("eager")
    told = {} if real is None else {"attention_mask": real.long()}
    seen = slice(None) if real is None else real
    places = torch.cat([torch.arange(5), torch.arange(9)])[None].expand(2, -1)

    def runs():
        whole = there(IDS, **told).logits[seen]
        first, kept = with_cache(there, None, input_ids=IDS[:, :9], **{key: x[:, :9] for key, x in told.items()})
        parts = [first.logits]
        for place in range(9, 14):
            own = {key: x[:, : place + 1] for key, x in told.items()}
            came, kept = with_cache(there, kept, input_ids=IDS[:, place : place + 1], **own)
            parts.append(came.logits)
        packed = there(IDS, position_ids=places, use_cache=False).logits
        return whole, torch.cat(parts, 1)[seen], packed

    expected = runs()
    hf.use(there)
    for mine, theirs in zip(runs(), expected, strict=True):
        near(mine, theirs)


@pytest.mark.parametrize("inner", [None, True, False])
@pytest.mark.parametrize("outer", [None, True, False])
@torch.no_grad()
def test_the_language_model_inside_of_a_llama_4_is_read(tmp_path, outer, inner):
    text, whole = ({} if tied is None else {"tie_word_embeddings": tied} for tied in (inner, outer))
    config = transformers.Llama4Config(text_config=SIZES | text, vision_config=IMAGE, image_token_index=3, **whole)
    there = drawn(transformers.Llama4ForConditionalGeneration(config))
    there.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="only the language model of a llama4 is read; not read: multi_modal_proj"):
        here = load(tmp_path)
    # what the settings around it say of its head has no effect there
    assert here.shape.tie_embeddings is bool(inner)
    near(here(IDS), there.language_model(IDS).logits)
    save(here, tmp_path / "alone", "llama4_text")
    assert torch.equal(load(tmp_path / "alone")(IDS), here(IDS))


def test_the_class_around_a_llama_4_does_not_run_in_transformers():
    # where it does, tests of other wrappers can have it
    config = transformers.Llama4Config(text_config=SIZES, vision_config=IMAGE, image_token_index=3)
    with pytest.raises(AttributeError, match="image_outputs"):
        transformers.Llama4ForConditionalGeneration(config).eval()(input_ids=IDS)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (
            {"attention_chunk_size": 1},
            "attention_chunk_size must be above 1 where layers have chunks: .*; got 1; corr",
        ),
        ({"attention_chunk_size": None}, "attention_chunk_size must be above 1 where .*; got None"),
        ({"attention_chunk_size": 0}, "attention_chunk_size in config.json must be above zero; got 0"),
        ({"layer_types": [FULL] * 3}, "layer_types must have one for each of the 4 layers; got"),
        ({"layer_types": ["sliding_attention"] * 4}, "layer_types must be full_attention or chunked_attention; got"),
        ({"no_rope_layers": [1]}, "no_rope_layers must have an entry for each layer; got 1 for 4 layers"),
        ({"no_rope_layer_interval": 0}, "no_rope_layer_interval in config.json must be above zero; got 0"),
        ({"interleave_moe_layer_step": 0}, "interleave_moe_layer_step in config.json must be above zero; got 0"),
        ({"moe_layers": "x"}, "moe_layers in config.json must be"),
        ({"floor_scale": 0}, "floor_scale in config.json must be above zero; got 0"),
        ({"attn_scale": float("inf")}, "attn_scale in config.json must be a finite number; got inf"),
        ({"num_local_experts": 10**6}, r"experts.gate_up_proj must have shape|must fit the weights"),
        ({"intermediate_size_mlp": 11}, r"gate_proj.weight must have shape \(11, 16\)"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}}, "whole heads"),
    ],
)
def test_settings_that_are_not_implemented_are_refused_by_name(tmp_path, settings, match):
    written(tmp_path)
    change(tmp_path, **settings)
    with pytest.raises(ValueError, match=match):
        load(tmp_path)


WEIGHTED = {"scores": "sigmoid", "normalise": False, "weighted_inputs": True}


def made(**options):
    torch.manual_seed(0)
    told = {"heads": 2, "kv_heads": 1, "layers": 2, "norm_eps": 1e-5, "feedforward": "swiglu", "hidden": 12}
    told |= {"mixer": f"{NORMS},variant.chunk=4,softmax", "scheme": f"{ROPE},{GROWN}", "tie_embeddings": False}
    return drawn(Decoder(Shape(29, 16, **(told | options))))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mixer": "softmax:variant.bias=true,softmax:variant.bias=true,variant.chunk=3", "scheme": f"{ROPE},none"},
        {"mixer": f"{NORMS},variant.chunk=3", "scheme": "rope:layout=interleaved", "tie_embeddings": True},
        {"mixer": "softmax", "scheme": "none", "head_width": 6},
        {"experts": ExpertOptions(3, **WEIGHTED, shared_hidden=12)},
        {"experts": ExpertOptions(3, 1, **WEIGHTED, shared_hidden=12, dense_layers=(0,), dense_hidden=20)},
    ],
)
@torch.no_grad()
def test_a_model_of_your_own_is_saved_and_read_there(tmp_path, options):
    model = made(**options)
    save(model, tmp_path, "llama4_text")
    there = read_there(tmp_path)
    near(model(IDS), there(IDS).logits)
    assert torch.equal(load(tmp_path)(IDS), model(IDS))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            {"mixer": "softmax:variant.chunk=4,softmax:variant.chunk=3"},
            "all chunks of a llama4_text have one size; got mixer='soft",
        ),
        (
            {"mixer": "softmax:variant.chunk=4,linear", "scheme": "none"},
            "requires the mixer softmax in all layers; got mixer=",
        ),
        ({"mixer": f"softmax,{NORMS}"}, "mixer=.* would become"),
        ({"scheme": f"none,{GROWN}"}, "has one log_length in all layers without rope, or none; got scheme="),
        ({"scheme": f"rope,{GROWN}"}, "scheme=.* would become"),
        ({"scheme": "alibi,none"}, "requires the scheme rope"),
        ({"sliding_windows": (4,)}, "a llama4_text has no windows"),
        ({"experts": ExpertOptions(3, **WEIGHTED)}, "experts=.* would become"),
        ({"experts": ExpertOptions(3, shared_hidden=12)}, "experts=.* would become"),
        ({"mixer": f"{NORMS},variant.chunk=1,softmax"}, "attention_chunk_size must be above 1"),
    ],
)
def test_a_model_that_the_family_does_not_have_is_not_written(tmp_path, options, match):
    with pytest.raises(ValueError, match=match):
        save(made(**options), tmp_path, "llama4_text")


def test_other_families_have_no_chunks(tmp_path):
    with pytest.raises(ValueError, match=r"a llama requires the mixer 'softmax'; got 'softmax:variant.chunk=4'"):
        save(made(mixer="softmax:variant.chunk=4", scheme="rope"), tmp_path, "llama")


@torch.no_grad()
def test_a_checkpoint_without_a_head_is_read(tmp_path):
    there = written(tmp_path / "whole")
    there.model.save_pretrained(tmp_path / "bare")
    names = set(load_file(tmp_path / "bare" / "model.safetensors"))
    assert "embed_tokens.weight" in names
    here = load(tmp_path / "bare")
    near(here.hidden_states(IDS), there.model(IDS).last_hidden_state)
    # as in the published files, whose tensors have the names of the whole
    tensors = load_file(tmp_path / "whole" / "model.safetensors")
    save_file({f"language_model.{name}": x for name, x in tensors.items()}, tmp_path / "whole" / "model.safetensors")
    change(tmp_path / "whole", "architectures", model_type="llama4", text_config=SIZES)
    with pytest.warns(UserWarning, match="only the language model of a llama4 is read; not read: nothing"):
        near(load(tmp_path / "whole")(IDS), there(IDS).logits)
