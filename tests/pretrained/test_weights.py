"""Checkpoints of published families: the same logits here and in transformers, and back again."""

import json
import runpy
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ordinate import Cache, Decoder, Geometry, Shape
from ordinate.core import catalog
from ordinate.models.encoder import EncoderShape
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.vision import VisionShape
from ordinate.pretrained.verification.theirs import with_cache
from ordinate.pretrained.weights import load, save

pytest.importorskip("transformers")
FAMILIES = runpy.run_path(str(Path(__file__).with_name("families.py")))
CASES, theirs, no_worse = FAMILIES["CASES"], FAMILIES["theirs"], FAMILIES["no_worse"]
TEXT = torch.randint(0, 29, (2, 9), generator=torch.Generator().manual_seed(0))
REAL = torch.arange(9) >= torch.tensor([[0], [3]])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder of each case, written by transformers."""
    made = {}

    def folder(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp("checkpoint")
            theirs(name).save_pretrained(made[name])
        return made[name]

    return folder


def near(out, expected, share=2e-5):
    assert out.dtype == expected.dtype
    assert (out - expected).abs().max() <= share * expected.abs().max()


def test_every_family_is_tested():
    cases = (CASES, *(FAMILIES[kind] for kind in ("ENCODERS", "ENCODER_DECODERS", "SEERS")))
    tried = {name.split(",")[0] for names in cases for name in names}
    assert tried == set(catalog.names("ordinate.pretrained.families"))


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_the_logits_are_those_of_transformers(name, folders):
    near(load(folders(name))(TEXT), theirs(name)(TEXT).logits)


@pytest.mark.parametrize("name", FAMILIES["representative"](CASES))
@torch.no_grad()
def test_padded_rows_give_the_same_logits(name, folders):
    places = (REAL.long().cumsum(1) - 1).clamp(min=0)
    # models with ALiBi count by the mask; the others get position ids
    told = {} if name in ("bloom", "mpt") else {"position_ids": places}
    expected = theirs(name)(TEXT, attention_mask=REAL.long(), **told).logits
    near(load(folders(name))(TEXT, Geometry.padded(REAL))[REAL], expected[REAL])


@pytest.mark.parametrize("name", FAMILIES["representative"](CASES))
@torch.no_grad()
def test_reading_on_from_a_cache_gives_the_same_logits(name, folders):
    model, other, cache, kept = load(folders(name)), theirs(name), Cache(), None
    # in transformers Mamba forgets its state where several tokens follow a cache
    forgets = name.split(",")[0] in ("mamba", "falcon_mamba", "jamba")
    sizes = [4, 1, 1, 1, 1, 1] if forgets else [4, 3, 1, 1]
    for start, piece in zip(accumulate([0, *sizes[:-1]]), TEXT.split(sizes, 1), strict=True):
        # the model of transformers counts from 0 in each piece, unless it is told
        told = {"position_ids": start + torch.arange(piece.shape[1])[None]} if name.startswith("bamba") else {}
        came, kept = with_cache(other, kept, input_ids=piece, **told)
        near(model(piece, cache=cache), came.logits)


@pytest.mark.parametrize("name", FAMILIES["representative"](CASES))
@torch.no_grad()
def test_16_bit_weights_give_nearly_the_same_logits(name, folders):
    expected = theirs(name)(TEXT).logits
    out, other = load(folders(name), dtype=torch.bfloat16)(TEXT), theirs(name).to(torch.bfloat16)(TEXT).logits
    assert out.dtype == torch.bfloat16
    no_worse(out, other, expected)


def whole(tensors):
    """The tensors, and those of filters joined, which transformers parts in three of equal size.

    Feed-forward networks without experts have the name of experts in files that it writes of a Kimi Linear.
    """
    tensors = {key.replace(".block_sparse_moe.", ".mlp."): tensor for key, tensor in tensors.items()}
    firsts = [key for key in tensors if key.endswith("q_conv1d.weight")]
    parts = {key: [tensors.pop(key.replace("q_conv1d", f"{part}_conv1d")) for part in "qkv"] for key in firsts}
    return tensors | {key: torch.cat(each) for key, each in parts.items()}


@pytest.mark.parametrize("name", FAMILIES["representative"](CASES))
@torch.no_grad()
def test_there_and_back_gives_the_same_bits(name, folders, tmp_path):
    import transformers

    model = load(folders(name))
    save(model, tmp_path, name.split(",")[0])
    written, first = (whole(load_file(folder / "model.safetensors")) for folder in (tmp_path, folders(name)))
    assert written.keys() == first.keys()
    for key in first:
        # the rows of OPT's table that no token takes are not kept
        rows = slice(2 if key.endswith("embed_positions.weight") else 0, None)
        kept, given = (torch.atleast_1d(one[key])[rows] for one in (written, first))
        assert kept.equal(given)
    assert load(tmp_path).shape == model.shape
    # both from files: kernels may round by the place of a tensor in memory
    again, other = (
        transformers.AutoModelForCausalLM.from_pretrained(folder).eval() for folder in (tmp_path, folders(name))
    )
    near(again(TEXT).logits, other(TEXT).logits, 0)


@pytest.mark.parametrize("name", ["llama, dynamic", "llama, longrope"])
@torch.no_grad()
def test_beyond_the_trained_length_the_logits_are_those_of_transformers(name, folders):
    model, other = load(folders(name)), theirs(name)
    ids = torch.randint(0, 29, (2, 80), generator=torch.Generator().manual_seed(1))
    near(model(ids), other(ids).logits)
    # cached keys keep the rates of the shorter text; the other model remembers lengths
    cache, kept, other = Cache(), None, theirs(name)
    for piece in ids.split([12, 50, 10, 1, 7], 1):
        came, kept = with_cache(other, kept, input_ids=piece)
        near(model(piece, cache=cache), came.logits)


@torch.no_grad()
def test_greedy_writing_is_that_of_transformers(folders):
    from ordinate import generate

    model, other = load(folders("llama")), theirs("llama")
    # without a mask it would take the token 0 of the prompt for padding
    told = {"attention_mask": torch.ones(1, 9).long(), "do_sample": False, "pad_token_id": 0}
    expected = other.generate(TEXT[:1], max_new_tokens=12, **told)[:, 9:]
    assert torch.equal(torch.cat(list(generate(model, TEXT[:1], 12, temperature=0)), 1), expected)


@pytest.fixture
def spoilt(folders, tmp_path):
    """A checkpoint of a Llama, its parts to be changed before it is loaded."""

    def change(config=None, tensors=None, drop=()):
        said = json.loads((folders("llama") / "config.json").read_text()) | (config or {})
        kept = load_file(folders("llama") / "model.safetensors") | (tensors or {})
        (tmp_path / "config.json").write_text(json.dumps(said))
        save_file({key: value for key, value in kept.items() if key not in drop}, tmp_path / "model.safetensors")
        return tmp_path

    return change


GATE = "model.layers.1.mlp.gate_proj.weight"


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"drop": (GATE,)}, f"missing {GATE}; download it again"),
        ({"tensors": {"model.more": torch.zeros(2)}}, "unexpected model.more; check that config.json"),
        ({"tensors": {GATE: torch.zeros(47, 32)}}, r"gate_proj.weight must have shape \(48, 32\) .*; got \(47, 32\)"),
        (
            {"tensors": {GATE: torch.full((48, 32), float("nan"))}},
            f"finite floating-point numbers; {GATE} has others",
        ),
        ({"tensors": {GATE: torch.zeros(48, 32).long()}}, f"weights must be floating-point .*; {GATE} has int64"),
        (
            {"tensors": {GATE: torch.zeros(48, 32).to(torch.float8_e4m3fn)}},
            f"quantised weights need a quantization_config in config.json, .*; there is none for {GATE}, of F8_E4M3",
        ),
        (
            {"config": {"model_type": "lama"}},
            "model_type in config.json must be one of afmoe, .*; got 'lama', whose nearest by name is llama; load",
        ),
        ({"config": {"model_type": "xyz"}}, "model_type in config.json must be one of afmoe, .*; got 'xyz'; load"),
        ({"config": {"hidden_act": "prelu"}}, "no hidden_act is named 'prelu'; there are: gelu, "),
        (
            {"config": {"quantization_config": {"quant_method": "gptq", "bits": 4}}},
            "quantised weights are read with a quant_method of .*, fp8, mxfp4; got 'gptq'; load the original",
        ),
        ({"config": {"mlp_bias": True}}, "missing model.layers.0.mlp.gate_proj.bias, "),
        ({"config": {"per_layer_config": {"0": {}}}}, "llama is supported with per_layer_config=None only; got"),
        (
            {"config": {"architectures": ["LlamaForCausalLM"]}, "drop": ("lm_head.weight",)},
            "missing lm_head.weight; download it again",
        ),
        (
            {
                "config": {"architectures": ["LlamaForRewardModel"], "tie_word_embeddings": True},
                "tensors": {"score.weight": torch.zeros(2, 32)},
                "drop": ("lm_head.weight",),
            },
            "unexpected score.weight; config.json names a LlamaForRewardModel, whose head is not "
            "supported: load that in transformers as a LlamaModel, and save it again, for its hidden states",
        ),
        (
            {"config": {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}}},
            "rotates whole heads, .*; got partial_rotary_factor=0.5 of 8 channels, which transformers does not run",
        ),
        (
            {"config": {"rope_parameters": {"rope_type": "linear", "factor": "2"}}},
            "factor of rope_parameters must be a finite number; got '2'; correct it",
        ),
        (
            {"config": {"head_dim": 5}},
            "rotates whole heads, whose head_dim must be even; got .* of 5 channels, which transformers does not run",
        ),
        ({"config": {"rope_parameters": {"rope_type": "spiral"}}}, "no rope_type is named 'spiral'"),
    ],
)
def test_an_invalid_checkpoint_is_refused(change, match, spoilt):
    with pytest.raises(ValueError, match=match):
        load(spoilt(**change))


def test_a_missing_config_key_is_named(spoilt):
    folder = spoilt()
    said = json.loads((folder / "config.json").read_text())
    del said["hidden_size"]
    (folder / "config.json").write_text(json.dumps(said))
    with pytest.raises(
        ValueError, match=r"according to config.json and the defaults for hidden_size, which it lacks; got \(29, 32\)"
    ):
        load(folder)
    (folder / "config.json").write_text("[1")
    with pytest.raises(ValueError, match=r"config.json must be a JSON object"):
        load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match=r"a checkpoint needs a config.json"):
        load(folder)


def test_code_in_a_checkpoint_is_not_run(spoilt, tmp_path):
    (tmp_path / "modeling_mine.py").write_text("raise SystemExit('it was run')")
    folder = spoilt(config={"auto_map": {"AutoModelForCausalLM": "modeling_mine.Mine"}})
    with pytest.warns(UserWarning, match="it is not run"):
        load(folder)


def test_an_adapter_beside_the_weights_is_not_read(spoilt, tmp_path):
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "another"}')
    with pytest.warns(UserWarning, match=r"adapter_config.json is not read: transformers with peft would take the"):
        load(spoilt())


def test_a_pickle_is_refused_with_the_way_to_convert_it(spoilt):
    folder = spoilt()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(
        ValueError, match=r"has only pytorch_model.bin; pickles are not read because .*convert it once"
    ):
        load(folder)


def test_a_truncated_file_is_refused(spoilt):
    folder = spoilt()
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"model.safetensors must be a safetensors file; .* cannot be read: "):
        load(folder)


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "change", "windows"),
    [
        ("mistral", {"sliding_window": ...}, [4096, 4096]),
        ("mistral", {"sliding_window": None}, [None, None]),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}, [None, 4]),
        ("qwen3", {"use_sliding_window": True, "sliding_window": ..., "max_window_layers": 0}, [4096, 4096]),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 4, "max_window_layers": 1}, [None, None]),
    ],
)
def test_windows_follow_from_other_keys_as_in_transformers(name, change, windows, folders, tmp_path):
    # ... stands for a key that is left out
    config = json.loads((folders(name) / "config.json").read_text()) | change
    kept = {key: value for key, value in config.items() if value is not ... and key != "layer_types"}
    (tmp_path / "config.json").write_text(json.dumps(kept))
    (tmp_path / "model.safetensors").write_bytes((folders(name) / "model.safetensors").read_bytes())
    assert load(tmp_path).shape.layer_windows == windows


def test_windowed_layers_need_a_window(folders, tmp_path):
    config = json.loads((folders("qwen2") / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"layer_types": ["sliding_attention"] * 2}))
    (tmp_path / "model.safetensors").write_bytes((folders("qwen2") / "model.safetensors").read_bytes())
    with pytest.raises(ValueError, match=r"layer_types with sliding_attention need a sliding_window, .*; set both"):
        load(tmp_path)


@torch.no_grad()
def test_the_keys_of_released_blooms_are_read(folders, tmp_path):
    # bigscience/bloom: other names of sizes, and tensors without a prefix
    config = {"model_type": "bloom", "vocab_size": 29, "n_embed": 32, "n_layer": 2, "num_attention_heads": 4}
    (tmp_path / "config.json").write_text(json.dumps(config | {"pretraining_tp": 4, "seq_length": 2048}))
    tensors = load_file(folders("bloom") / "model.safetensors")
    bare = {key.removeprefix("transformer."): value for key, value in tensors.items()}
    save_file(bare, tmp_path / "model.safetensors")
    assert torch.equal(load(tmp_path)(TEXT), load(folders("bloom"))(TEXT))
    (tmp_path / "config.json").write_text(json.dumps(config | {"pretraining_tp": 4, "slow_but_exact": True}))
    # the sum of several slices has no bias in transformers
    ends = ("self_attention.dense.bias", "mlp.dense_4h_to_h.bias")
    without = {key: torch.zeros_like(value) if key.endswith(ends) else value for key, value in bare.items()}
    sliced = load(tmp_path)(TEXT)
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(without, tmp_path / "model.safetensors")
    near(sliced, load(tmp_path)(TEXT))


@torch.no_grad()
@pytest.mark.parametrize("name", ["gptj", "phi"])
def test_a_tied_head_with_a_bias_is_read(name, tmp_path):
    other = theirs(name, tie_word_embeddings=True)
    other.save_pretrained(tmp_path / "tied")
    model = load(tmp_path / "tied")
    near(model(TEXT), other(TEXT).logits)
    save(model, tmp_path / "again", name)
    again = type(other).from_pretrained(tmp_path / "again").eval()
    near(again(TEXT).logits, other(TEXT).logits)
    # without the bias there is no head
    other.base_model.save_pretrained(tmp_path / "bare")
    bare = load(tmp_path / "bare")
    assert bare.shape.head == "none"
    near(bare.hidden_states(TEXT), other.base_model(TEXT).last_hidden_state)


@torch.no_grad()
def test_a_checkpoint_without_a_head_is_read_if_the_head_is_tied(tmp_path):
    other = theirs("gpt2")
    other.transformer.save_pretrained(tmp_path)
    near(load(tmp_path)(TEXT), other(TEXT).logits)


@torch.no_grad()
@pytest.mark.parametrize(
    "name", ["llama", "gpt2, untied", "gpt_neox", pytest.param("gptj", marks=pytest.mark.extended), "qwen3", "phi"]
)
def test_a_checkpoint_without_a_head_that_is_not_tied_gives_hidden_states(name, tmp_path):
    other = theirs(name).base_model
    other.save_pretrained(tmp_path / "first")
    model = load(tmp_path / "first")
    expected = other(TEXT).last_hidden_state
    near(model.hidden_states(TEXT), expected)
    with pytest.raises(
        ValueError, match=r"logits need a decoder with head='next_token'; this one has head='none'; call"
    ):
        model(TEXT)
    save(model, tmp_path / "again", name.split(",")[0])
    assert load(tmp_path / "again").shape == model.shape
    near(type(other).from_pretrained(tmp_path / "again").eval()(TEXT).last_hidden_state, expected)


def test_a_shape_without_a_head_has_nothing_of_a_head(untyped):
    sizes = {"vocabulary": 11, "width": 16, "layers": 1, "heads": 2}
    for wrong in ({}, {"tie_embeddings": False, "bias": ("head",)}):
        with pytest.raises(ValueError, match="head='none' needs tie_embeddings=False and no bias of the head"):
            Shape(**sizes, head="none", **wrong)
    for kind in (EncoderShape, VisionShape):
        with pytest.raises(ValueError, match="no head is named 'next_token'; there are: classes, "):
            kind(**sizes, head="next_token", tie_embeddings=False, bias=())
    with pytest.raises(ValueError, match="an encoder-decoder predicts the next token; got head='none' with 0 labels"):
        EncoderDecoderShape(**sizes, head="none", tie_embeddings=False, bias=())


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_epsilon_of_default_norms_is_written_as_a_number(dtype, tmp_path):
    sizes = {"vocabulary": 11, "width": 16, "layers": 2, "heads": 2, "feedforward": "swiglu"}
    model = Decoder(Shape(**sizes)).to(dtype).eval()
    save(model, tmp_path, "llama")
    assert json.loads((tmp_path / "config.json").read_text())["rms_norm_eps"] is not None
    assert torch.equal(load(tmp_path)(TEXT % 11), model(TEXT % 11))


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@torch.no_grad()
def test_shards_written_by_transformers_are_read(name, folders, tmp_path):
    theirs(name).save_pretrained(tmp_path, max_shard_size="10kB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert torch.equal(load(tmp_path)(TEXT), load(folders(name))(TEXT))


def test_shards_are_read_and_an_index_cannot_point_outside_the_folder(folders, tmp_path):
    whole = load_file(folders("llama") / "model.safetensors")
    parts = {"one.safetensors": sorted(whole)[:7], "two.safetensors": sorted(whole)[7:]}
    for file, names in parts.items():
        save_file({name: whole[name] for name in names}, tmp_path / file)
    index = {"weight_map": {name: file for file, names in parts.items() for name in names}}
    (tmp_path / "config.json").write_bytes((folders("llama") / "config.json").read_bytes())
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert torch.equal(load(tmp_path)(TEXT), load(folders("llama"))(TEXT))
    for file in ("../one.safetensors", str(tmp_path / "one.safetensors"), "three.safetensors"):
        index["weight_map"][GATE] = file
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
        with pytest.raises(ValueError, match="must name files in its folder"):
            load(tmp_path)


def test_a_path_that_is_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match="a checkpoint must be a folder or the name of a model on the hub; got '/no/where'"
    ):
        load("/no/where")
    with pytest.raises(ValueError, match="nobody/nothing' is not a local folder and the hub answered"):
        load("nobody/nothing")


@pytest.mark.parametrize(
    ("choices", "family", "match"),
    [
        ({}, "llama", "a llama requires swiglu or another gated feedforward, .*; got gelu"),
        ({"feedforward": "swiglu", "scheme": "alibi"}, "llama", "this family requires the scheme rope; got 'alibi'"),
        (
            {"feedforward": "swiglu", "scheme": "rope:spectrum=ntk,spectrum.factor=2"},
            "llama",
            "it has no rope_type for",
        ),
        ({"feedforward": "swiglu", "sliding_windows": (3,)}, "llama", "a llama has no windows"),
        ({"feedforward": "swiglu", "sliding_windows": (3, None)}, "mistral", "a mistral must have the same window"),
        ({"scheme": "rope"}, "gpt2", "a gpt2 requires scheme learned"),
        (
            {"scheme": "learned", "mixer": "softmax:variant.bias=true", "feedforward": "swiglu"},
            "gpt2",
            "feedforward must be one that the family has: .*; got swiglu; choose",
        ),
        (
            {"feedforward": "swiglu", "scheme": "rope:rotary_dim=4"},
            "llama",
            "rotates whole heads in this family; got rotary_dim=4 of 8 channels; use the family",
        ),
        (
            {
                "feedforward": "swiglu",
                "scheme": "rope:spectrum=dynamic,spectrum.factor=2,spectrum.trained_length=1024",
            },
            "llama",
            "rates of the scheme at the length of the whole sequence; got the scheme .*; give it",
        ),
        ({"feedforward": "swiglu", "blocks": "reversible"}, "llama", "blocks='reversible' would become 'plain'"),
        ({"scheme": "alibi", "norm": "layer", "bias": (), "hidden": 48}, "mpt", "hidden=48 would become 64"),
        ({"scheme": "alibi", "norm": "rms"}, "mpt", "an mpt requires scheme alibi|norm='rms' would become 'layer'"),
    ],
)
def test_a_shape_that_a_family_cannot_represent_is_refused(choices, family, match, tmp_path):
    model = Decoder(Shape(vocabulary=11, width=16, layers=2, heads=2, norm_eps=1e-6, **choices))
    with pytest.raises(ValueError, match=match):
        save(model, tmp_path, family)
    assert not list(tmp_path.iterdir())


def test_a_saved_model_can_be_read_by_transformers(tmp_path):
    import transformers

    model = Decoder(Shape(vocabulary=11, width=16, layers=2, heads=2, feedforward="swiglu", norm_eps=1e-6)).eval()
    save(model, tmp_path, "llama")
    other, text = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval(), TEXT % 11
    with torch.no_grad():
        near(other(text).logits, model(text))


@pytest.mark.parametrize(
    ("config", "writing", "ends"),
    [
        ({}, None, ()),
        ({"eos_token_id": 3}, None, (3,)),
        ({"eos_token_id": 3}, {"eos_token_id": [4, 5]}, (4, 5)),
        ({"eos_token_id": 3}, {"eos_token_id": None}, (3,)),
        ({"eos_token_id": None}, {}, ()),
        # no text has tokens outside of the vocabulary
        ({"eos_token_id": [-1, 5, 6]}, None, (5,)),
    ],
)
def test_the_tokens_that_end_a_text_are_read(config, writing, ends, tmp_path):
    from ordinate.pretrained import read_generation_settings

    (tmp_path / "config.json").write_text(json.dumps(config))
    if writing is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(writing))
    assert read_generation_settings(tmp_path, 6).end_tokens == ends


@torch.no_grad()
@pytest.mark.parametrize("name", ["llama", "opt, narrow", "gpt_neo", "phi, norms", "falcon, grouped"])
def test_batches_of_prompts_are_written_as_transformers_does(name, folders):
    from ordinate import generate
    from ordinate.models._generate import truncate_at
    from ordinate.models.prompt import Prompt

    model, other = load(folders(name)), theirs(name)
    rows = [TEXT[0, :4].tolist(), TEXT[1].tolist(), TEXT[0, 2:8].tolist()]
    prompt = Prompt.from_lists(rows)
    free = truncate_at(generate(model, prompt, 10, temperature=0), [])
    end = free[0][3]
    told = {"attention_mask": prompt.real.long(), "do_sample": False, "eos_token_id": end, "pad_token_id": end}
    expected = other.generate(prompt.ids, max_new_tokens=10, **told)[:, 9:]
    assert torch.equal(torch.cat(list(generate(model, prompt, 10, temperature=0, end_tokens=[end])), 1), expected)
