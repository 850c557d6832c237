"""Settings of encoders that few published models have: read and written with the numbers of transformers."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from ordinate.models.encoder import Encoder
from ordinate.models.encoder_shape import EncoderShape
from ordinate.pretrained import verify
from ordinate.pretrained.weights import family_of, load, save

pytest.importorskip("transformers")
MASKED, BASE, CLASSES, TOKENS, SPANS = (
    *("ForMaskedLM", "", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"),
)
IMAGES, REPLACED = "ForImageClassification", "ForPreTraining"
# of deberta-v2-xlarge and xxlarge, with small sizes
XLARGE = {"conv_kernel_size": 3, "conv_act": "gelu", "pos_att_type": "p2c|c2p", "norm_rel_ebd": "layer_norm"}
BIASED = {"position_biased_input": True}
NARROW = {"embedding_size": 6}
OWN = {"share_att_key": False}
ABSOLUTE = {"relative_attention": False, **BIASED}
CASES = [
    *(("bert", head, {"is_decoder": True}) for head in (MASKED, BASE, CLASSES, TOKENS, SPANS, "ForCausalLM")),
    *(("roberta", head, {"is_decoder": True}) for head in (MASKED, CLASSES, "ForCausalLM")),
    *((family, MASKED, {"tie_word_embeddings": False}) for family in ("bert", "roberta", "modernbert", "deberta_v2")),
    ("bert", BASE, {"tie_word_embeddings": False}),
    ("bert", BASE, {"position_embedding_type": "relative_key"}),
    ("modernbert", MASKED, {"decoder_bias": False}),
    ("modernbert", MASKED, {"decoder_bias": False, "tie_word_embeddings": False}),
    ("modernbert", TOKENS, {"decoder_bias": False, "classifier_activation": "tanh"}),
    *(("deberta_v2", head, XLARGE) for head in (MASKED, BASE, CLASSES, TOKENS, SPANS)),
    ("deberta_v2", BASE, {"conv_kernel_size": 5, "conv_groups": 4, "conv_act": "sigmoid"}),
    *(("deberta_v2", head, BIASED) for head in (MASKED, CLASSES)),
    *(("deberta_v2", head, OWN) for head in (MASKED, SPANS)),
    *(("deberta_v2", BASE, {**OWN, "pos_att_type": terms}) for terms in ("c2p", "p2c", [])),
    *(("deberta_v2", head, NARROW) for head in (MASKED, TOKENS)),
    ("deberta_v2", MASKED, {**NARROW, **BIASED, "type_vocab_size": 2}),
    ("deberta_v2", MASKED, {**NARROW, "tie_word_embeddings": False}),
    ("deberta_v2", MASKED, {"legacy": False}),
    ("deberta_v2", MASKED, {"legacy": False, "tie_word_embeddings": False}),
    ("deberta_v2", BASE, {"is_decoder": True}),
    *(("deberta_v2", MASKED, {**ABSOLUTE, "pos_att_type": terms}) for terms in (None, "c2p", "p2c|c2p")),
    ("deberta_v2", BASE, {"relative_attention": False, "norm_rel_ebd": "layer_norm"}),
    ("deberta_v2", BASE, {"pos_att_type": "p2p", "norm_rel_ebd": "layer_norm"}),
    ("deberta_v2", BASE, {**BIASED, "pos_att_type": "p2p | c2p"}),
    *(("deberta_v2", BASE, {"position_buckets": buckets}) for buckets in (-1, 2, 5, 32)),
    ("deberta_v2", BASE, {"position_buckets": 32, "max_relative_positions": 1}),
    ("deberta_v2", MASKED, {**XLARGE, **OWN, **BIASED, **NARROW, "position_buckets": -1}),
    *(("roformer", head, {"rotary_value": True}) for head in (MASKED, CLASSES, TOKENS)),
    *(("roformer", head, {**NARROW, "hidden_act": "relu"}) for head in (MASKED, CLASSES, SPANS)),
    ("roformer", "ForCausalLM", {"is_decoder": True, "rotary_value": True, "tie_word_embeddings": False}),
    *(("distilbert", head, {"activation": "silu"}) for head in (MASKED, CLASSES)),
    ("distilbert", MASKED, {"tie_word_embeddings": False, "sinusoidal_pos_embds": True}),
    *(("electra", head, {"hidden_act": "relu"}) for head in (MASKED, BASE, REPLACED, CLASSES, SPANS)),
    *(("electra", head, {"embedding_size": 16, "is_decoder": True}) for head in (MASKED, REPLACED, "ForCausalLM")),
    ("electra", MASKED, {"tie_word_embeddings": False}),
    *(("esm", head, {"token_dropout": True}) for head in (MASKED, BASE, CLASSES, TOKENS)),
    ("esm", MASKED, {"position_embedding_type": "absolute", "emb_layer_norm_before": True}),
    ("esm", MASKED, {"tie_word_embeddings": False, "rope_theta": 100.0, "is_decoder": True}),
    ("esm", BASE, {"position_embedding_type": "relative_key"}),
    *(("mpnet", head, {"hidden_act": "silu"}) for head in (MASKED, BASE, CLASSES, SPANS)),
    ("mpnet", MASKED, {"tie_word_embeddings": False, "relative_attention_num_buckets": 40}),
    *(("roberta_prelayernorm", head, {"hidden_act": "relu"}) for head in (MASKED, BASE, CLASSES)),
    ("roberta_prelayernorm", "ForCausalLM", {"is_decoder": True, "tie_word_embeddings": False}),
    *(
        (family, head, {"hidden_act": "relu"})
        for family in ("xlm_roberta_xl", "megatron_bert")
        for head in (MASKED, BASE, CLASSES)
    ),
    *(
        (family, "ForCausalLM", {"is_decoder": True, "tie_word_embeddings": False})
        for family in ("data2vec_text", "xlm_roberta_xl", "megatron_bert", "ernie")
    ),
    *(("nomic_bert", head, {"hidden_act": "gelu", "head_dim": 6}) for head in (MASKED, BASE, CLASSES, TOKENS)),
    ("nomic_bert", MASKED, {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0}}),
    ("nomic_bert", MASKED, {"tie_word_embeddings": False}),
    *(
        ("eurobert", head, {"attention_bias": True, "mlp_bias": True, "head_dim": 6})
        for head in (MASKED, BASE, TOKENS)
    ),
    *(("eurobert", CLASSES, {"classifier_pooling": pool}) for pool in ("bos", "mean", "late")),
    *(("eurobert", MASKED, {"tie_word_embeddings": True, "mlp_bias": biased}) for biased in (True, False)),
    ("vit", BASE, {"pooler_act": "relu", "pooler_output_size": 5}),
    ("vit", IMAGES, {"pooler_act": "relu", "pooler_output_size": 5}),
    *((family, IMAGES, {"head_dim": 6}) for family in ("vit", "dinov2", "dinov2_with_registers")),
    ("dinov2", BASE, {"num_attention_heads": 3}),
    ("dinov3_vit", BASE, {"use_gated_mlp": True, "hidden_act": "silu", "proj_bias": False, "num_register_tokens": 2}),
    ("dinov3_vit", BASE, {"key_bias": True, "mlp_bias": False, "image_size": [8, 16]}),
    ("dinov3_vit", BASE, {"query_bias": False, "value_bias": False, "layerscale_value": 0.0}),
    ("dinov3_vit", BASE, {"query_bias": False, "value_bias": False, "proj_bias": False, "rope_theta": 10.0}),
]
SEERS = ("vit", "dinov2", "dinov2_with_registers", "dinov3_vit")
MARKED = [
    pytest.param(*case, marks=() if place % 4 == 0 else pytest.mark.extended) for place, case in enumerate(CASES)
]


@pytest.mark.parametrize(("family", "head", "settings"), MARKED)
def test_a_setting_is_read_and_written_with_the_numbers_of_transformers(family, head, settings, made, tmp_path):
    folder = made(family, head, **settings)
    checks = (
        ["outputs", "gradients"]
        if family in SEERS
        else [*("outputs", "gradients", "left padding", "right padding", "packing")]
    )
    found = verify(folder, checks=checks)
    assert found.agrees, found.to_dict()
    model = load(folder)
    save(model, tmp_path / "again", family)
    assert load(tmp_path / "again").shape == model.shape
    again = verify(tmp_path / "again", checks=["outputs"])
    assert again.agrees, again.to_dict()


def test_the_setting_changes_the_numbers(made):
    """A mutant: a model that passes over its setting is another one."""
    text = torch.randint(3, 19, (2, 9), generator=torch.Generator().manual_seed(0))
    for family, settings, usual in (
        ("bert", {"is_decoder": True}, {"causal": False}),
        ("roformer", {"rotary_value": True}, {"mixer": "softmax:variant.bias=true"}),
        ("electra", {}, {"narrow_norm": False, "embedding_norm": True}),
        ("deberta_v2", {"conv_kernel_size": 3, "conv_act": "gelu"}, {"convolution_activation": "tanh"}),
        ("deberta_v2", {"pos_att_type": "p2p"}, {"scheme": "deberta:version.shared=true,buckets=4,max_distance=12"}),
    ):
        model = load(made(family, BASE, **settings))
        other = Encoder(EncoderShape(**vars(model.shape) | usual)).eval()
        other.load_state_dict(model.state_dict(), strict=False)
        assert (model(text) - other(text)).abs().max() > 1e-3


CROSSED = ("bert", "roberta", "roberta_prelayernorm", "esm", "data2vec_text", "xlm_roberta_xl", "megatron_bert")


@pytest.mark.parametrize("family", CROSSED)
def test_cross_attention_is_left_out_with_a_warning(family, made):
    folder = made(family, MASKED, is_decoder=True, add_cross_attention=True)
    assert any("crossattention" in name for name in load_file(folder / "model.safetensors"))
    with pytest.warns(UserWarning, match="cross-attention is not loaded"):
        load(folder)


@pytest.mark.parametrize("head", [MASKED, BASE, CLASSES])
def test_the_first_task_of_an_ernie_is_added_to_its_token_types(head, made, tmp_path):
    folder = made("ernie", head, use_task_id=True, task_type_vocab_size=5)
    stored = load_file(folder / "model.safetensors")
    kinds, tasks = (
        next(stored[name] for name in stored if name.endswith(f"{kind}_type_embeddings.weight"))
        for kind in ("token", "task")
    )
    assert tasks.shape == (5, 16)
    assert tasks[0].abs().min() > 0
    with pytest.warns(UserWarning, match="task types other than 0 are not loaded"):
        model = load(folder)
    assert model.kinds.weight.equal(kinds + tasks[0])
    with pytest.warns(UserWarning, match="task types"):
        found = verify(folder, checks=["outputs", "gradients", "left padding", "right padding", "packing"])
    assert found.agrees, found.to_dict()
    save(model, tmp_path / "again", "ernie")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["use_task_id"] is False
    assert not any("task_type" in name for name in load_file(tmp_path / "again" / "model.safetensors"))
    assert load(tmp_path / "again").shape == model.shape
    again = verify(tmp_path / "again", checks=["outputs"])
    assert again.agrees, again.to_dict()


@pytest.mark.parametrize(
    ("tasks", "match"),
    [
        (0, "task_type_vocab_size in config.json must be above zero; got 0"),
        (4, r"task_type_embeddings.weight must have shape \(4, 16\) .*; got \(5, 16\)"),
    ],
)
@pytest.mark.filterwarnings("ignore:task types")
def test_the_tasks_of_an_ernie_are_counted(tasks, match, made):
    told = {"use_task_id": True, "task_type_vocab_size": tasks}
    folder = made("ernie", BASE, told, use_task_id=True, task_type_vocab_size=5)
    with pytest.raises(ValueError, match=match):
        load(folder)


def test_a_decoder_of_its_own_has_the_names_of_transformers(made, tmp_path):
    for family, name in (("bert", "cls.predictions"), ("roberta", "lm_head"), ("deberta_v2", "cls.predictions")):
        folder = made(family, MASKED, tie_word_embeddings=False)
        save(load(folder), tmp_path / family, family)
        first, written = (load_file(each / "model.safetensors") for each in (folder, tmp_path / family))
        assert written.keys() == first.keys() >= {f"{name}.decoder.weight", f"{name}.decoder.bias", f"{name}.bias"}
        # one of the two biases has no effect
        assert all(written[key].equal(first[key]) for key in first if key != f"{name}.bias" and "position" not in key)


def test_the_table_of_a_roformer_is_checked(made, tmp_path):
    name = "roformer.encoder.embed_positions.weight"
    for kind in (torch.float32, torch.bfloat16):
        folder = made("roformer", MASKED, tensors=lambda kept, kind=kind: {name: kept[name].to(kind)})
        assert load(folder).shape.scheme == "rope:layout=interleaved"
    for wrong in (lambda table: table + 1e-3, lambda table: table[:5], lambda table: table.bfloat16().float()):
        folder = made("roformer", MASKED, tensors=lambda kept, wrong=wrong: {name: wrong(kept[name])})
        with pytest.raises(
            ValueError, match=rf"{name} of a roformer must be sines and cosines, .*; got other numbers"
        ):
            load(folder)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_the_rounded_rates_of_an_esm_are_recognised_and_written(kind, made, tmp_path):
    import transformers

    text = torch.randint(3, 19, (2, 9), generator=torch.Generator().manual_seed(0))
    there = "esm.encoder.layer.{}.attention.self.rotary_embeddings.inv_freq".format

    def rounded(kept):
        rates = next(x for name, x in kept.items() if name.endswith("inv_freq")).to(getattr(torch, kind))
        return {there(layer): rates.float().clone() for layer in "01"}

    folder = made("esm", MASKED, tensors=rounded)
    kept = {name: x for name, x in load_file(folder / "model.safetensors").items() if "*" not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    model = load(folder)
    assert model.shape.scheme == f"rope:theta=10000.0,spectrum=rounded,spectrum.dtype={kind}"
    other = transformers.EsmForMaskedLM.from_pretrained(folder).eval()
    far = torch.cat([text] * 20, 1)
    with torch.no_grad():
        expected = other(far).logits
        torch.testing.assert_close(model.logits(model(far)), expected, atol=2e-5, rtol=2e-5)
        save(model, tmp_path / "again", "esm")
        again = transformers.EsmForMaskedLM.from_pretrained(tmp_path / "again").eval()
        torch.testing.assert_close(again(far).logits, expected)
        assert load(tmp_path / "again").shape == model.shape
        # a mutant: the exact rates
        plain = Encoder(EncoderShape(**vars(model.shape) | {"scheme": "rope"})).eval()
        plain.load_state_dict(model.state_dict())
        assert (plain.logits(plain(far)) - expected).abs().max() > 2e-4


@torch.no_grad()
def test_an_mpnet_reads_the_first_buckets_of_its_table_and_counts_from_its_padding_token(made):
    import transformers

    folder = made("mpnet", MASKED, {"pad_token_id": 7}, relative_attention_num_buckets=40)
    model, text = load(folder), torch.randint(3, 19, (1, 30), generator=torch.Generator().manual_seed(0))
    other = transformers.MPNetForMaskedLM.from_pretrained(folder).eval()
    assert (model.shape.padding, model.schemes[0].parts[1].table.shape) == (1, (32, 2))
    torch.testing.assert_close(model.logits(model(text)), other(text).logits, atol=1e-5, rtol=1e-5)
    few = made("mpnet", MASKED, relative_attention_num_buckets=20)
    with pytest.raises(ValueError, match=r"relative_attention_num_buckets must be at least 32, .*; got 20"):
        load(few)


def test_other_rates_and_settings_of_an_esm_are_refused(made):
    folder = made("esm", MASKED, tensors=lambda kept: {"esm.rotary_embeddings.inv_freq": torch.ones(4)})
    kept = {name: x for name, x in load_file(folder / "model.safetensors").items() if "*" not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        ValueError, match=r"inv_freq of an esm must have the rates that rope_theta gives, .*; got others"
    ):
        load(folder)
    for config, match in (
        ({"token_dropout": True, "mask_token_id": None}, "token_dropout needs a mask_token_id; got null; set it"),
        ({"vocab_size": None}, "vocab_size must be given; got None; set it in config.json"),
        ({"head_dim": 4}, "esm is supported with head_dim=8 only; got 4"),
    ):
        with pytest.raises(ValueError, match=match):
            load(made("esm", MASKED, config))


@torch.no_grad()
def test_the_discriminator_of_an_electra_has_a_logit_for_each_token(made, tmp_path):
    import transformers

    text = torch.randint(3, 19, (2, 9), generator=torch.Generator().manual_seed(0))
    for config in ({}, {"architectures": None, "id2label": {"0": "eel", "1": "newt"}}):
        folder = made("electra", REPLACED, config)
        model, other = load(folder), transformers.ElectraForPreTraining.from_pretrained(folder).eval()
        assert model.shape.labels == ("replaced",)
        torch.testing.assert_close(model.class_logits(text)[..., 0], other(text).logits, atol=1e-5, rtol=1e-5)
    save(model, tmp_path / "again", "electra")
    written = json.loads((tmp_path / "again" / "config.json").read_text())
    assert written["architectures"] == ["ElectraForPreTraining"]


@pytest.mark.parametrize("legacy", [True, False])
def test_the_later_masked_head_of_a_deberta_is_found_by_its_tensors(legacy, made):
    folder = made("deberta_v2", MASKED, {"architectures": None}, legacy=legacy)
    assert load(folder).shape.head == "masked"


def test_absolute_positions_that_are_not_added_are_ignored(made):
    table = {"deberta.embeddings.position_embeddings.weight": torch.randn(12, 16)}
    found = verify(made("deberta_v2", MASKED, tensors=lambda kept: table), checks=["outputs"])
    assert found.agrees, found.to_dict()


def test_relative_positions_that_config_json_does_not_name_are_refused(made):
    with pytest.raises(ValueError, match=r"unexpected deberta.encoder.rel_embeddings.weight; check that config.json"):
        load(made("deberta_v2", MASKED, {"relative_attention": False, "position_biased_input": False}))


@pytest.mark.parametrize(
    ("choices", "match"),
    [
        ({"scheme": "none/deberta:version.shared=true"}, "a deberta-v2 has the scheme .*; got none/deberta"),
        ({"scheme": "deberta:buckets=6,max_distance=12"}, "a deberta-v2 has the scheme deberta:version.shared=true"),
        ({"scheme": "alibi"}, "learned, both as learned[+]deberta, or none; got alibi; use save_pretrained"),
        ({"scheme": "learned", "mixer": "softmax"}, "a deberta-v2 has the mixer softmax:variant.bias=true"),
        ({"scheme": "none", "mixer": "softmax:variant.bias=true,variant.scale=0.3"}, "has the mixer .*; got .*0.3"),
        (
            {"mixer": "softmax:variant.bias=true,position_projections=key"},
            "with position_projections for the terms of its scheme if it has them; got .*position_projections=key",
        ),
        ({"scheme": "none", "causal": True}, "causal=True would become False"),
        (
            {"scheme": "deberta:version.shared=true,version.rescale=false"},
            "the config.json of a deberta_v2 must be able to represent the model; scheme=",
        ),
    ],
)
def test_what_no_deberta_has_is_not_written(choices, match, tmp_path):
    sizes = {"vocabulary": 11, "width": 16, "layers": 2, "heads": 2, "norm": "layer", "norm_position": "post"}
    like = {"bias": ("norm", "feedforward"), "embedding_norm": True, "mixer": "softmax:variant.bias=true"}
    shape = EncoderShape(**sizes | like | {"scheme": "deberta:version.shared=true"} | choices)
    with pytest.raises(ValueError, match=match):
        save(Encoder(shape), tmp_path, "deberta_v2")


def test_other_families_do_not_write_what_they_lack(tmp_path):
    sizes = {"vocabulary": 11, "width": 16, "layers": 2, "heads": 2, "norm": "layer", "norm_position": "post"}
    like = {"bias": ("norm", "feedforward"), "embedding_norm": True, "mixer": "softmax:variant.bias=true"}
    for lacking in ({"logit_bias": False}, {"convolution": 3}, {"embedding_width": 8, "scheme": "learned:width=8"}):
        shape = EncoderShape(**sizes | like | {"scheme": "learned", "token_types": 2} | lacking)
        with pytest.raises(ValueError, match="a bert must"):
            save(Encoder(shape), tmp_path, "bert")


def test_a_square_number_of_patches_in_a_rectangle_is_refused(made):
    config = {"image_size": [8, 16], "patch_size": [4, 2]}
    with pytest.raises(ValueError, match=r"of a dinov2 must not have a square number .*; got 2 by 8 patches"):
        load(made("dinov2", BASE, **config))
    # of another number transformers can interpolate none, and uses the table as it is
    assert verify(made("dinov2", BASE, image_size=8, patch_size=[4, 2]), checks=["outputs"]).agrees


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"position_buckets": 1}, "position_buckets must be above 1, .*; got 1 and 12; load another"),
        (
            {"position_buckets": 6, "max_relative_positions": 4},
            "max_relative_positions not the half .*; got 6 and 4; load",
        ),
        ({"conv_kernel_size": 4}, "conv_kernel_size must be odd; got 4; load another checkpoint"),
    ],
)
def test_sizes_of_which_transformers_makes_no_numbers_are_refused(settings, match, made):
    folder = made("deberta_v2", BASE)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))
    with pytest.raises(ValueError, match=match):
        load(folder)


def test_a_type_beside_the_rope_parameters_of_a_modernbert_has_no_effect(made):
    # transformers has completed them by then, and leaves the factor without a use
    for key, scheme in (("type", "rope:theta=160000.0"), ("rope_type", "rope:theta=160000.0,spectrum=linear")):
        folder = made("modernbert", BASE, rope_scaling={key: "linear", "factor": 2.0})
        config = json.loads((folder / "config.json").read_text()) | {"rope_scaling": {key: "linear", "factor": 2.0}}
        del config["rope_parameters"]
        (folder / "config.json").write_text(json.dumps(config))
        assert load(folder).shape.scheme_spec.entries[0].startswith(scheme)
        assert ("spectrum" in load(folder).shape.scheme) == (key == "rope_type")
        found = verify(folder, checks=["outputs"])
        assert found.agrees, found.to_dict()


def test_values_of_which_transformers_reads_another_are_read_as_that(made):
    for family, settings in (
        ("modernbert", {"local_attention": 0, "layer_types": ["full_attention", "sliding_attention"]}),
        ("vit", {"pooler_output_size": 0}),
        ("dinov2", {"layerscale_value": 0.0}),
    ):
        found = verify(made(family, BASE, **settings), checks=["outputs"])
        assert found.agrees, found.to_dict()


def test_a_size_that_a_family_does_not_have_is_without_effect(made):
    for family, settings in (("bert", {"embedding_size": 4096}), ("dinov2", {"intermediate_size": 4096})):
        found = verify(made(family, BASE, **settings), checks=["outputs"])
        assert found.agrees, found.to_dict()


def test_a_size_of_the_embeddings_is_a_number():
    given = {"hidden_size": 16, "num_attention_heads": 2, "embedding_size": None}
    with pytest.raises(ValueError, match=r"embedding_size in config.json must be a whole number; got None; correct"):
        family_of("deberta_v2").read_config(given, ())


def test_the_keys_of_the_positions_are_written_as_they_were_read(made, tmp_path):
    settings = {**OWN, **BIASED, "pos_att_type": ["p2c"], "position_buckets": -1, "max_relative_positions": 8}
    save(load(made("deberta_v2", BASE, **settings)), tmp_path / "again", "deberta_v2")
    written = json.loads((tmp_path / "again" / "config.json").read_text())
    assert {key: written[key] for key in settings} == settings
