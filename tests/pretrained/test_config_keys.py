"""Keys of config.json that change the numbers in transformers: each is honoured, or refused by its name."""

import json
import runpy
from pathlib import Path

import pytest
import torch

from ordinate.models.activation import ACTIVATIONS
from ordinate.models.feedforward import GATED
from ordinate.pretrained import verify
from ordinate.pretrained._family import HF_ACTIVATIONS, HF_GATES, activation_name
from ordinate.pretrained.config_types import OPTIONAL
from ordinate.pretrained.rope_parameters import rope_spec, spec_to_rope_parameters
from ordinate.pretrained.weights import family_of, load, save

transformers = pytest.importorskip("transformers")
FIELDS = runpy.run_path(str(Path(__file__).with_name("fields.py")))["FIELDS"]
DECODERS = ("llama", "mistral", "ministral", "qwen2", "qwen3", "gpt2", "gpt_neox", "gptj", "bloom", "mpt")
ENCODERS = ("bert", "roberta", "modernbert", "deberta_v2", "vit", "dinov2", "dinov2_with_registers")
PAIRS = ("t5", "marian")
SEERS = ("vit", "dinov2", "dinov2_with_registers")
TEXTS = "ForSequenceClassification"


def agrees(folder):
    found = verify(folder, checks=["outputs"])
    assert found.agrees, found.to_dict()


def heads(family):
    return "ForSeq2SeqLM" if family in PAIRS else "ForCausalLM" if family in DECODERS else ""


@pytest.mark.parametrize("family", [*DECODERS, *ENCODERS, *PAIRS])
def test_is_causal_must_be_that_of_the_family(family):
    own = {**dict.fromkeys(DECODERS, True), **dict.fromkeys(ENCODERS, False)}.get(family)
    read = family_of(family)
    for other in {True, False} - {own}:
        with pytest.raises(ValueError, match=f"is supported with is_causal={own} only; got {other}"):
            read.read_config(FIELDS[family][0] | {"is_causal": other}, ())
    assert read.read_config(FIELDS[family][0] | {"is_causal": own}, ()) == read.read_config(FIELDS[family][0], ())


@pytest.mark.parametrize(
    ("family", "config", "field", "value"),
    [
        ("bloom", {"apply_residual_connection_post_layernorm": True}, "norm_position", "residual"),
        ("bloom", {"slow_but_exact": True, "pretraining_tp": 3}, "bias", ("norm", "feedforward_in")),
        ("bloom", {"slow_but_exact": True, "pretraining_tp": 1}, "bias", ("norm", "feedforward")),
        ("bloom", {"slow_but_exact": False, "pretraining_tp": 3}, "bias", ("norm", "feedforward")),
        ("mpt", {"attn_config": {"clip_qkv": 0.5}}, "mixer", "softmax:variant.clip_qkv=0.5"),
        ("mpt", {"attn_config": {"clip_qkv": 0.0, "softmax_scale": 0.3}}, "mixer", "softmax:variant.scale=0.3"),
        ("mpt", {"attn_config": {"qk_ln": True, "prefix_lm": True}}, "mixer", "softmax"),
        ("mpt", {"attn_config": {"alibi": False, "alibi_bias_max": 4}}, "scheme", "alibi"),
        ("mpt", {"logit_scale": 0.5, "learned_pos_emb": True, "no_bias": False}, "scheme", "alibi"),
        ("gpt_neox", {"rotary_pct": 0.0}, "scheme", "none"),
        ("gpt_neox", {"rotary_pct": 0.4}, "scheme", "rope:theta=10000.0,rotary_dim=3"),
        ("gpt_neox", {"head_dim": 16}, "scheme", "rope:theta=10000.0,rotary_dim=4"),
        ("gpt_neox", {"head_dim": 4}, "scheme", "rope:theta=10000.0,rotary_dim=1"),
        (
            "gpt_neox",
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10.0, "beta_fast": 3.0}},
            "scheme",
            "rope:theta=10.0,rotary_dim=2,spectrum=linear,spectrum.factor=2.0",
        ),
        (
            "llama",
            {"partial_rotary_factor": 0.9, "rope_parameters": {"rope_type": "linear", "factor": 2.0}},
            "scheme",
            "rope:theta=10000.0,rotary_dim=7,spectrum=linear,spectrum.factor=2.0",
        ),
        ("ministral", {"layer_types": None, "sliding_window": 3}, "sliding_windows", (3,)),
        ("t5", {"is_gated_act": None, "scale_decoder_outputs": None}, "logit_scale", 1.0),
        ("t5", {"relative_attention_num_buckets": 7}, "scheme", "t5:buckets=7,max_distance=40"),
        ("marian", {"encoder_attention_heads": 4, "decoder_attention_heads": 1}, "source_heads", 4),
        ("marian", {"encoder_ffn_dim": 20}, "source_hidden", 20),
        ("marian", {"decoder_vocab_size": 25}, "vocabulary", 19),
        ("marian", {"tie_word_embeddings": False}, "tie_embeddings", False),
        ("marian", {"tie_word_embeddings": False}, "source_vocabulary", 19),
        (
            "marian",
            {"tie_word_embeddings": False, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 25},
            "vocabulary",
            25,
        ),
    ],
)
def test_a_setting_has_the_outputs_that_it_has_in_transformers(family, config, field, value, made, tmp_path):
    folder = made(family, "ForSeq2SeqLM" if family in PAIRS else "ForCausalLM", **config)
    # a model is made with the setting, and its config.json says it again as it was given
    made_with = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**made_with, **config}))
    model = load(folder)
    assert getattr(model.shape, field) == value
    found = verify(folder, checks=["outputs", "left padding", "decoding", "gradients"])
    assert found.agrees, found.to_dict()
    if family == "llama":
        # a part of a head is rotated by other families only
        return
    save(model, tmp_path / "again", family)
    again = load(tmp_path / "again")
    assert getattr(again.shape, field) == value
    assert verify(tmp_path / "again", checks=["outputs"]).agrees


def test_the_cross_attention_of_a_gpt2_is_left_out_with_a_warning(made, tmp_path):
    folder = made("gpt2", "ForCausalLM", add_cross_attention=True)
    with pytest.warns(
        UserWarning, match="cross-attention is not loaded: GPT-2 uses it only together with an encoder"
    ):
        model = load(folder)
    with pytest.warns(UserWarning, match="cross-attention is not loaded"):
        agrees(folder)
    # its tensors are left out only where config.json says that there is one
    with pytest.raises(ValueError, match=r"got unexpected transformer\.h\.0\.crossattention\.c_attn"):
        load(made("gpt2", "ForCausalLM", {"add_cross_attention": False}, add_cross_attention=True))
    save(model, tmp_path / "again", "gpt2")
    agrees(tmp_path / "again")


def test_the_rotated_channels_of_a_gptj_are_an_even_number(made):
    for rotated, came in ((3, "got 3"), (10, "got 10")):
        with pytest.raises(
            ValueError, match=f"rotary_dim must be an even number of at most 8 channels; {came}; load"
        ):
            family_of("gptj").read_config(FIELDS["gptj"][0] | {"rotary_dim": rotated}, ())


def test_a_part_of_each_head_is_refused_where_transformers_rotates_whole_ones():
    scaled = {"rope_parameters": {"rope_type": "linear", "factor": 2.0}, "partial_rotary_factor": 0.5}
    with pytest.raises(
        ValueError, match=r"of this family rotates whole heads, .*; got partial_rotary_factor=0\.5 of 8"
    ):
        family_of("llama").read_config(FIELDS["llama"][0] | scaled, ())


@pytest.mark.parametrize("head", ["", "ForCausalLM", "ForQuestionAnswering"])
def test_a_mistral_with_layer_types_is_read_as_automodel_reads_it(head, made):
    types = ["full_attention", "sliding_attention"]
    folder = made("ministral", head, layer_types=types, sliding_window=3, head_dim=8)
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "mistral"}
    (folder / "config.json").write_text(json.dumps(config | {"architectures": [f"Mistral{head or 'Model'}"]}))
    assert load(folder).shape.layer_windows == [None, 3]
    found = verify(folder, checks=["outputs", "gradients"])
    assert found.agrees, found.to_dict()
    assert (found.family, found.architecture) == ("ministral", f"Ministral{head or 'Model'}")
    (folder / "config.json").write_text(json.dumps(config | {"layer_types": ["odd", "full_attention"]}))
    with pytest.raises(ValueError, match="layer types must be full_attention or sliding_attention; got"):
        load(folder)


@pytest.mark.parametrize(
    ("config", "window"),
    [({"sliding_window": 2}, 3), ({"sliding_window": 2, "local_attention": 8}, 3), ({"local_attention": 8}, 5)],
)
def test_the_window_of_a_modernbert_has_two_names(config, window, made):
    folder = made("modernbert", "ForMaskedLM", {"layer_types": ["full_attention", "sliding_attention"], **config})
    assert load(folder).shape.layer_windows == [None, window]
    agrees(folder)


def test_the_window_of_a_modernbert_is_a_number(made):
    with pytest.raises(ValueError, match="sliding_window of a modernbert must be a whole number; got null; leave"):
        load(made("modernbert", "ForMaskedLM", {"sliding_window": None}))


@pytest.mark.parametrize(
    "config",
    [
        {"dense_act_fn": "gelu"},
        {"feed_forward_proj": "gated-gelu"},
        {"feed_forward_proj": "tanh", "dense_act_fn": "silu", "is_gated_act": False},
    ],
)
def test_the_feed_forward_of_a_t5_is_what_its_later_keys_say(config, made):
    agrees(made("t5", "ForSeq2SeqLM", config))
    said = made("t5", "ForSeq2SeqLM", feed_forward_proj="gated-gelu", config={"dense_act_fn": "silu"})
    assert load(said).shape.feedforward == "swiglu"
    with pytest.raises(ValueError, match="no feed_forward_proj is named 'gated-prelu'; there are"):
        family_of("t5").read_config(FIELDS["t5"][0] | {"feed_forward_proj": "gated-prelu"}, ())


def test_a_t5_that_is_no_encoder_decoder_is_refused_where_transformers_mixes_its_caches(made):
    with pytest.raises(ValueError, match="t5 is supported with is_encoder_decoder=True only; got False"):
        load(made("t5", "ForSeq2SeqLM", {"is_encoder_decoder": False}))
    agrees(made("t5", "ForSeq2SeqLM", {"is_encoder_decoder": False, "use_cache": False}))


@pytest.mark.parametrize("family", ["modernbert"])
def test_a_head_width_that_only_the_rotation_would_take_is_refused(family, made):
    with pytest.raises(ValueError, match=f"{family} is supported with head_dim=8 only; got 4"):
        load(made(family, heads(family), {"head_dim": 4}))
    for same in (8, None):
        assert load(made(family, heads(family), {"head_dim": same})).shape.width == 16


def test_weights_in_another_file_are_refused(made):
    folder = made("llama", "ForCausalLM", {"transformers_weights": "other.safetensors"})
    with pytest.raises(
        ValueError, match=r"another file \(transformers_weights='other.safetensors'\); give that file the name"
    ):
        load(folder)
    assert load(made("llama", "ForCausalLM", {"transformers_weights": None})).shape.width == 16


@pytest.mark.parametrize("part", ["weight", "bias"])
@pytest.mark.parametrize(
    ("family", "table", "head"),
    [
        ("bert", "bert.embeddings.word_embeddings.weight", "cls.predictions"),
        ("roberta", "roberta.embeddings.word_embeddings.weight", "lm_head"),
        ("deberta_v2", "deberta.embeddings.word_embeddings.weight", "cls.predictions"),
        ("modernbert", "model.embeddings.tok_embeddings.weight", ""),
    ],
)
def test_a_decoder_that_is_stored_again_must_be_the_tied_one(family, table, head, part, made):
    name, source = f"{head}.decoder.{part}".lstrip("."), table if part == "weight" else f"{head}.bias"
    if family == "modernbert" and part == "bias":
        # this one is the bias itself
        source = name
    agrees(made(family, "ForMaskedLM", tensors=lambda kept: {name: kept[source].clone()}))
    if name != source:
        with pytest.raises(ValueError, match=f"or equal the one that it is tied to; got unexpected {name}; check"):
            load(made(family, "ForMaskedLM", tensors=lambda kept: {name: kept[source] + 0.5}))


def test_activations_have_the_names_and_the_numbers_of_transformers():
    from transformers.activations import ACT2FN

    x = torch.linspace(-13, 13, 105, dtype=torch.float64)
    # these two have parameters
    assert set(ACT2FN) - {"prelu", "xielu"} == set(HF_ACTIVATIONS)
    for name, ours in HF_ACTIVATIONS.items():
        torch.testing.assert_close(ACTIVATIONS[ours](x), ACT2FN[name](x), atol=1e-9, rtol=1e-9)
        gate = HF_GATES[name]
        assert (activation_name(ours), GATED[gate]) == (activation_name(gate, HF_GATES), ours)


@pytest.mark.parametrize(
    ("family", "key"),
    [
        ("bert", "hidden_act"),
        ("roberta", "hidden_act"),
        ("modernbert", "hidden_activation"),
        ("modernbert", "classifier_activation"),
        ("deberta_v2", "hidden_act"),
        ("deberta_v2", "pooler_hidden_act"),
        ("vit", "hidden_act"),
        ("dinov2", "hidden_act"),
        ("gpt2", "activation_function"),
        ("gpt_neox", "hidden_act"),
        ("llama", "hidden_act"),
    ],
)
def test_a_model_with_quick_gelu_is_read_and_written_and_one_with_parameters_refused(family, key, made, tmp_path):
    head = heads(family) if family in DECODERS else "ForImageClassification" if family in SEERS else TEXTS
    folder = made(family, head, **{key: "quick_gelu"}, pad_token_id=0)
    agrees(folder)
    save(load(folder), tmp_path / "again", family)
    assert json.loads((tmp_path / "again" / "config.json").read_text())[key] == "quick_gelu"
    agrees(tmp_path / "again")
    with pytest.raises(ValueError, match=f"no {key} is named 'prelu'; there are"):
        load(made(family, head, {key: "prelu"}, pad_token_id=0))


# what a damaged config.json may have in place of a value
DAMAGED = (None, 0, -1, 0.0, True, "x", [], {}, [0], [None], {"0": 1}, {"x": {}})


def refusal(family, config):
    try:
        family_of(family).read_config(config, ())
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize("family", FIELDS)
def test_a_damaged_value_is_refused_in_the_words_of_ordinate(family):
    sizes, drawn, _ = FIELDS[family]
    read = family_of(family)
    for key in {*read.defaults, *read.aliases, *sizes, *drawn, *OPTIONAL}:
        for value in DAMAGED:
            said = refusal(family, sizes | {key: value})
            # what must hold; what came; what to do
            assert said is None or said.count("; ") >= 2, (key, value, said)


@pytest.mark.parametrize(
    ("family", "key", "aliased"),
    [
        ("llama", "num_attention_heads", "num_attention_heads"),
        ("llama", "num_key_value_heads", "num_key_value_heads"),
        ("gpt2", "n_head", "n_head"),
        ("gpt2", "num_attention_heads", "n_head"),
        ("bert", "type_vocab_size", "type_vocab_size"),
        ("vit", "patch_size", "patch_size"),
        ("modernbert", "global_attn_every_n_layers", "global_attn_every_n_layers"),
    ],
)
def test_a_count_of_zero_is_refused_by_its_name(family, key, aliased):
    with pytest.raises(ValueError, match=f"{aliased} in config.json must be above zero; got 0; correct it"):
        family_of(family).read_config(FIELDS[family][0] | {key: 0}, ())


def test_the_rotated_channels_of_a_gptj_and_the_layers_without_windows_are_numbers():
    with pytest.raises(ValueError, match=r"rotary_dim in config.json must be a whole number; got None"):
        family_of("gptj").read_config(FIELDS["gptj"][0] | {"rotary_dim": None}, ())
    sizes = FIELDS["qwen2"][0] | {"max_window_layers": None, "sliding_window": 3}
    assert family_of("qwen2").read_config(sizes, ()).layer_windows == [None, None]
    with pytest.raises(ValueError, match=r"max_window_layers must be the number of layers .*; got None; set it"):
        family_of("qwen2").read_config(sizes | {"use_sliding_window": True}, ())


@pytest.mark.parametrize(
    ("family", "config", "start", "ends", "padding", "fill"),
    [
        ("t5", {"eos_token_id": [1]}, 0, (1,), 0, 0),
        ("t5", {"eos_token_id": [1, 2, 19]}, 0, (1, 2), 0, 0),
        ("t5", {"eos_token_id": None, "pad_token_id": None}, 0, (), None, 0),
        ("t5", {"pad_token_id": 19, "eos_token_id": 3}, 0, (3,), None, 3),
        ("t5", {"decoder_start_token_id": None, "bos_token_id": 5}, 5, (1,), 0, 0),
        ("t5", {"decoder_start_token_id": None}, None, (1,), 0, 0),
        ("marian", {"decoder_start_token_id": 19}, None, (0,), 18, 18),
        ("marian", {"pad_token_id": None, "eos_token_id": [2, 4]}, 18, (2, 4), None, 2),
        ("marian", {"pad_token_id": -1, "bad_words_ids": [[18], [40]]}, 18, (0,), None, 0),
    ],
)
def test_special_tokens_may_be_several_or_none(family, config, start, ends, padding, fill, made, tmp_path):
    folder = made(family, "ForSeq2SeqLM", config)
    # it has those of the model that was made, and would take precedence
    (folder / "generation_config.json").unlink()
    model, shape = load(folder), load(folder).shape
    assert (shape.start, shape.end_tokens, shape.padding, shape.fill_token) == (start, ends, padding, fill)
    agrees(folder)
    save(model, tmp_path / "again", family)
    again = load(tmp_path / "again").shape
    assert (again.start, again.end_tokens, again.padding) == (start, ends, padding)


@pytest.mark.parametrize(
    ("family", "head"),
    [
        ("vit", "ForImageClassification"),
        ("vit", ""),
        ("dinov2", "ForImageClassification"),
        ("dinov2_with_registers", "ForImageClassification"),
        ("modernbert", "ForMaskedLM"),
        ("deberta_v2", "ForMaskedLM"),
        ("bert", "ForMaskedLM"),
    ],
)
@pytest.mark.parametrize("named", [None, []])
def test_a_head_follows_from_the_tensors_where_no_class_is_named(family, head, named, made):
    folder = made(family, head)
    expected = load(folder).shape
    made(family, head, {"architectures": named})
    assert load(folder).shape == expected
    assert expected.head in ("classes", "masked", "pooler")


@pytest.mark.parametrize(
    ("family", "head"),
    [
        ("llama", "ForSequenceClassification"),
        ("bert", "ForSequenceClassification"),
        ("modernbert", "ForTokenClassification"),
    ],
)
def test_a_head_that_does_not_follow_from_the_tensors_needs_the_name_of_its_class(family, head, made):
    with pytest.raises(ValueError, match=r"or name the class of the model in config.json \(architectures\); without"):
        load(made(family, head, {"architectures": None}, pad_token_id=0))


def test_a_dinov2_with_no_registers_is_one(made, tmp_path):
    folder = made("dinov2_with_registers", num_register_tokens=0)
    agrees(folder)
    save(load(folder), tmp_path / "again", "dinov2_with_registers")
    assert load(tmp_path / "again").shape == load(folder).shape


@pytest.mark.parametrize(("width", "rotated"), [(44, 30), (22, 15), (8, 3), (64, 16)])
def test_any_number_of_rotated_channels_is_written_and_read(width, rotated):
    config = spec_to_rope_parameters(f"rope:rotary_dim={rotated}", width, partial=True)
    assert int(width * config["partial_rotary_factor"]) == rotated
    assert f"rotary_dim={rotated}" in rope_spec(config, width, 64, partial=True)
