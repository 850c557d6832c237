"""Keys of config.json that change the numbers in transformers: each is honoured, or refused by its name."""

import json
import runpy
from pathlib import Path

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file, save_file

from ordinate.models.feedforward import GATED
from ordinate.ops.activation import ACTIVATIONS
from ordinate.pretrained import verify
from ordinate.pretrained.activation_names import HF_ACTIVATIONS, HF_GATES, HF_LEARNED, activation_name
from ordinate.pretrained.checkpoint_files import CheckpointTensors
from ordinate.pretrained.checkpoint_sizes import check_sizes
from ordinate.pretrained.config_types import OPTIONAL
from ordinate.pretrained.decoder_like import DecoderLike
from ordinate.pretrained.verification.theirs import with_cache
from ordinate.pretrained.weights import family_of, load, save

transformers = pytest.importorskip("transformers")
FIELDS = runpy.run_path(str(Path(__file__).with_name("fields.py")))["FIELDS"]
DECODERS = tuple(name for name in FIELDS if isinstance(family_of(name), DecoderLike))
ENCODERS = (
    "bert",
    "roberta",
    "xlm_roberta",
    "camembert",
    "roformer",
    "distilbert",
    "electra",
    "albert",
    "eurobert",
    "nomic_bert",
    "mpnet",
    "roberta_prelayernorm",
    "data2vec_text",
    "xlm_roberta_xl",
    "megatron_bert",
    "ernie",
    "esm",
    "modernbert",
    "deberta_v2",
    "vit",
    "dinov2",
    "dinov2_with_registers",
    "dinov3_vit",
)
# families with windows in some layers
LAYER_TYPES = ("ministral", "qwen2", "qwen3", "smollm3", "olmo3", "exaone4", "cohere2", "gemma2", "gemma3_text")
LAYER_TYPES += ("gpt_oss", "qwen2_moe", "dots1", "vaultgemma", "exaone_moe", "granite_swa", "granitemoe_swa")
LAYER_TYPES += ("afmoe", "mimo_v2_flash", "cohere2_moe", "laguna", "cwm", "mellum")
# or chunks
LAYER_TYPES += ("llama4_text", "gemma4_text", "gemma4_unified_text")
# and with linear attention in some
LAYER_TYPES += ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid")
# or Mamba-2
LAYER_TYPES += ("granitemoehybrid", "bamba", "falcon_h1", "nemotron_h")
# or gated short convolutions
LAYER_TYPES += ("lfm2", "lfm2_moe", "lfm3")
# or Kimi Delta Attention
LAYER_TYPES += ("kimi_linear", "modernbert_decoder")
# transformers refuses the others, or never ties them
UNTIED = ("dbrx", "nemotron_h", "kimi_linear")
ONE_WINDOW = ("mistral", "ministral3", "mixtral", "phimoe", "qwen3_moe", "phi3", "starcoder2")
PAIRS = ("t5", "mt5", "umt5", "marian", "bart", "mbart", "pegasus", "m2m_100", "plbart", "blenderbot")
SEERS = ("vit", "dinov2", "dinov2_with_registers")
TEXTS = "ForSequenceClassification"
HEADS = ("lm_head.weight", "embed_out.weight", "output_projection.weight", "decoder.weight")
TABLES = (
    "embed_tokens.weight",
    "tokens_embed.weight",
    "wte.weight",
    "embed_in.weight",
    "word_embeddings.weight",
    "embeddings.weight",
)


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


@pytest.mark.parametrize("family", [name for name in FIELDS if family_of(name).aliases])
def test_a_key_and_its_alias_precede_each_other_as_in_transformers(family):
    read, compared = family_of(family), 0
    kind = transformers.CONFIG_MAPPING[read.model_type]
    for alias, key in read.aliases.items():
        usual = getattr(kind(), key, None)
        # of lists and switches there are too few values
        if type(usual) not in (int, float, type(None)):
            continue
        low, high = 2 * (usual or 1), 4 * (usual or 1)
        given = {name: value for name, value in kind().to_dict().items() if name not in (alias, key)}
        for config in ({alias: low, key: high}, {key: high, alias: low}):
            try:
                there = getattr(kind.from_dict(given | config), key)
            except StrictDataclassError:
                # such as layers without types
                continue
            assert there == (high if alias in read.fallback_aliases else low), (alias, key)
            compared += 1
    assert compared or family in ("internlm3", "bamba", "falcon_h1", "granitemoehybrid")


@pytest.mark.parametrize(
    ("name", "windowed"),
    [
        ("sliding_window", (*ONE_WINDOW, *LAYER_TYPES)),
        # the others have no layer types, which the cache would follow
        ("attention_chunk_size", LAYER_TYPES),
    ],
)
@pytest.mark.parametrize("family", [*DECODERS, *PAIRS])
def test_a_window_that_only_the_cache_of_transformers_has_is_refused(family, name, windowed):
    read, sizes = family_of(family), FIELDS[family][0]
    # no layer needs a window
    types = [kind.replace("sliding", "full") for kind in sizes.get("layer_types", [])]
    sizes = sizes | ({"layer_types": types} if types else {})
    for value in (None, 3):
        if value is None or family in windowed:
            read.read_config(sizes | {name: value}, ())
            continue
        with pytest.raises(ValueError, match=f"has no {name}: .* its cache forgets .*; got {name}=3; remove it"):
            read.read_config(sizes | {name: value}, ())


@torch.no_grad()
@pytest.mark.parametrize(("family", "told"), [("gpt2", {}), ("llama", {}), ("mistral", {"sliding_window": None})])
def test_the_cache_of_transformers_has_a_window_that_its_attention_does_not_have(family, told, made):
    other = transformers.AutoModelForCausalLM.from_pretrained(made(family, heads(family), told)).eval()
    ids = torch.arange(3, 13)[None]
    whole = other(ids).logits[:, -1]

    def continued():
        _, kept = with_cache(other, None, input_ids=ids[:, :-1])
        return with_cache(other, kept, input_ids=ids[:, -1:])[0].logits[:, -1]

    torch.testing.assert_close(continued(), whole)
    other.config.attention_chunk_size = 3
    assert torch.equal(other(ids, use_cache=False).logits[:, -1], whole)
    assert (continued() - whole).abs().max() > 0.1 * whole.abs().max()


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
    ("sizes", "config", "window"),
    [({}, {}, 64), ({"local_attention": 9}, {}, 4), ({"local_attention": 8}, {"sliding_window": 3}, 3)],
)
def test_the_window_of_a_modernbert_decoder_is_half_of_that_of_its_encoder(sizes, config, window, made):
    folder = made("modernbert_decoder", "ForCausalLM", config, **sizes)
    assert load(folder).shape.layer_windows == [None, window]
    agrees(folder)


@pytest.mark.parametrize(
    ("config", "came"),
    [({"local_attention": 0}, "0"), ({"local_attention": 3}, "1"), ({"sliding_window": None}, "None")],
)
def test_a_window_of_a_modernbert_decoder_with_which_transformers_caches_all_tokens_is_refused(config, came):
    read, sizes = family_of("modernbert_decoder"), FIELDS["modernbert_decoder"][0]
    with pytest.raises(
        ValueError, match=f"sliding_window of .*, half of local_attention, .* above 1; got {came}; corr"
    ):
        read.read_config(sizes | config, ())
    # without a layer that has one it has no effect
    full = {"layer_types": ["full_attention"] * 2}
    assert read.read_config(sizes | config | full, ()).layer_windows == [None, None]


def test_a_modernbert_decoder_without_a_padding_token_is_saved_with_one_that_is_in_no_text(made, tmp_path):
    model = load(made("modernbert_decoder", "ForCausalLM"))
    save(model, tmp_path / "again", "modernbert_decoder")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["pad_token_id"] == -1
    agrees(tmp_path / "again")
    assert load(tmp_path / "again").shape == model.shape


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
        must = (
            f"or equal the one that it is tied to; got unexpected {name}; if it differs from {source} on purpose, set"
        )
        with pytest.raises(ValueError, match=must):
            load(made(family, "ForMaskedLM", tensors=lambda kept: {name: kept[source] + 0.5}))


@pytest.mark.parametrize("family", [name for name in DECODERS if name not in UNTIED])
@torch.no_grad()
def test_a_decoder_with_a_stored_head_that_differs_from_the_tied_table_reads_it_as_transformers_does(family, made):
    folder = made(family, "ForCausalLM", {"tie_word_embeddings": True}, tie_word_embeddings=False)
    model = load(folder)
    assert not model.shape.tie_embeddings
    assert not model.head.weight.equal(model.tokens.weight)
    agrees(folder)
    # the same head again is the tied one
    names = load_file(folder / "model.safetensors")
    head, table = (next(name for name in names if name.endswith(end)) for end in (HEADS, TABLES))
    folder = made(family, "ForCausalLM", {"tie_word_embeddings": True}, lambda kept: {head: kept[table].clone()})
    assert load(folder).shape.tie_embeddings
    agrees(folder)


@pytest.mark.parametrize(
    ("family", "head", "table", "copy"),
    [
        ("llama", "ForCausalLM", "model.embed_tokens.weight", "lm_head.weight"),
        ("gpt2", "ForCausalLM", "transformer.wte.weight", "lm_head.weight"),
        ("gptj", "ForCausalLM", "transformer.wte.weight", "lm_head.weight"),
        ("phi", "ForCausalLM", "model.embed_tokens.weight", "lm_head.weight"),
        ("opt", "ForCausalLM", "model.decoder.embed_tokens.weight", "lm_head.weight"),
        ("gpt_neox", "ForCausalLM", "gpt_neox.embed_in.weight", "lm_head.weight"),
        ("gpt_neox", "ForCausalLM", "gpt_neox.embed_in.weight", "embed_out.weight"),
        ("bert", "ForMaskedLM", "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
        ("t5", "ForSeq2SeqLM", "shared.weight", "lm_head.weight"),
        ("t5", "ForSeq2SeqLM", "shared.weight", "encoder.embed_tokens.weight"),
        ("marian", "ForSeq2SeqLM", "model.shared.weight", "model.decoder.embed_tokens.weight"),
    ],
)
def test_a_tied_table_is_read_under_any_of_the_names_that_are_tied_to_it(family, head, table, copy, made):
    folder = made(family, head, config={"tie_word_embeddings": True}, tie_word_embeddings=True)
    kept, whole = load_file(folder / "model.safetensors"), load(folder).state_dict()
    stored = kept[table].clone()
    del kept[table]
    save_file(kept | {copy: stored}, folder / "model.safetensors", metadata={"format": "pt"})
    found = load(folder).state_dict()
    assert found.keys() == whole.keys()
    assert all(torch.equal(found[name], whole[name]) for name in whole)
    agrees(folder)


def test_the_head_of_a_gpt_neox_is_read_under_the_later_name_of_transformers(made):
    folder = made("gpt_neox", "ForCausalLM", tie_word_embeddings=False)
    kept = load_file(folder / "model.safetensors")
    kept["lm_head.weight"] = kept.pop("embed_out.weight")
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    agrees(folder)


def test_without_ties_a_head_is_not_read_as_the_token_table(made):
    folder = made("llama", "ForCausalLM", tie_word_embeddings=False)
    kept = load_file(folder / "model.safetensors")
    del kept["model.embed_tokens.weight"]
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"missing model.embed_tokens.weight; download it again"):
        load(folder)


def test_activations_have_the_names_and_the_numbers_of_transformers():
    from transformers.activations import ACT2FN

    x = torch.linspace(-13, 13, 105, dtype=torch.float64)
    # these two have parameters
    assert set(ACT2FN) - {"prelu", "xielu"} == set(HF_ACTIVATIONS)
    assert set(HF_LEARNED) == set(ACT2FN)
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


@pytest.mark.parametrize(
    ("family", "told", "match"),
    [
        ("mpt", {"max_seq_len": 1}, "max_seq_len of an mpt must be above 1; got 1; load"),
        ("vit", {"id2label": {}}, "id2label must name a class; got {}; check config.json"),
        ("vit", {"id2label": {}, "num_labels": 0}, "id2label must name a class; got {}; check config.json"),
        (
            "vit",
            {"id2label": {"0": "eel", "x": "newt"}},
            r"keys of id2label must be the numbers .*; got \['x'\]; check",
        ),
        ("roberta", {"pad_token_id": 31}, r"must be above pad_token_id \+ 1, .*; got 32 and 31; correct both"),
    ],
)
def test_a_size_for_which_transformers_has_no_such_model_is_refused(family, told, match):
    with pytest.raises(ValueError, match=match):
        family_of(family).read_config(FIELDS[family][0] | told, ())


@pytest.mark.parametrize(
    ("family", "head", "key"),
    [
        ("vit", "", "num_channels"),
        ("vit", "", "pooler_output_size"),
        ("dinov2", "", "mlp_ratio"),
        ("dinov2_with_registers", "", "num_register_tokens"),
        ("deberta_v2", "ForMaskedLM", "embedding_size"),
        ("deberta_v2", "ForMaskedLM", "conv_kernel_size"),
        ("deberta_v2", "ForMaskedLM", "conv_groups"),
    ],
)
def test_a_size_that_no_tensor_can_have_is_refused_by_its_name(family, head, key, made):
    folder = made(family, head)
    for size in (2**63 + 1, 10**12 + 1):
        (folder / "config.json").write_text(
            json.dumps(json.loads((folder / "config.json").read_text()) | {key: size})
        )
        with pytest.raises(ValueError, match=f"{key} in config.json must fit the weights; got {size}; they have no"):
            load(folder)


def test_a_ratio_of_sizes_may_be_a_fraction(made):
    tensors = CheckpointTensors(made("dinov2", ""))
    # as that of Swin, which transformers runs and probes read
    check_sizes({"mlp_ratio": 2.5}, tensors)
    for ratio, says in ((float("nan"), "fit the weights"), (1e9, "fit the weights"), ("2", "be a number")):
        with pytest.raises(ValueError, match=f"mlp_ratio in config.json must {says}"):
            check_sizes({"mlp_ratio": ratio}, tensors)


def test_the_rotated_channels_of_a_gptj_and_the_layers_without_windows_are_numbers():
    with pytest.raises(ValueError, match=r"rotary_dim in config.json must be a whole number; got None"):
        family_of("gptj").read_config(FIELDS["gptj"][0] | {"rotary_dim": None}, ())
    sizes = FIELDS["qwen2"][0] | {"max_window_layers": None, "sliding_window": 3}
    assert family_of("qwen2").read_config(sizes, ()).layer_windows == [None, None]
    with pytest.raises(ValueError, match=r"max_window_layers must be the number of layers .*; got None; set it"):
        family_of("qwen2").read_config(sizes | {"use_sliding_window": True}, ())


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
