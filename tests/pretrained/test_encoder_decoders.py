"""Checkpoints of encoder-decoders: the same logits and the same writing here and in transformers, and back again."""

import json
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ordinate import Cache, Geometry
from ordinate.models._generate import truncate_at
from ordinate.models._translate import translate
from ordinate.models.beam import beam_search
from ordinate.models.encoder_decoder import EncoderDecoder, EncoderDecoderShape
from ordinate.pretrained import verify
from ordinate.pretrained.bart_like import LearnedBartLike
from ordinate.pretrained.verification.theirs import with_cache
from ordinate.pretrained.weights import family_of, load, save

pytest.importorskip("transformers")
FAMILIES = runpy.run_path(str(Path(__file__).with_name("families.py")))
CASES, theirs, no_worse = FAMILIES["ENCODER_DECODERS"], FAMILIES["theirs"], FAMILIES["no_worse"]
SOURCE, TARGET = (
    torch.randint(2, 28, (2, length), generator=torch.Generator().manual_seed(length)) for length in (9, 7)
)
REAL = torch.arange(9) < torch.tensor([[9], [6]])
WRITTEN = torch.arange(7) < torch.tensor([[7], [4]])
SIDES = Geometry.padded(REAL, causal=False), Geometry.padded(WRITTEN)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
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


def expected(other, **told):
    return other(input_ids=SOURCE, decoder_input_ids=TARGET, **told).logits


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_the_logits_are_those_of_transformers(name, folders):
    model, other = load(folders(name)), theirs(name)
    assert isinstance(model, EncoderDecoder)
    near(model(SOURCE, TARGET), expected(other))


@pytest.mark.parametrize("name", FAMILIES["representative"](CASES))
@torch.no_grad()
def test_padded_rows_give_the_same_logits(name, folders):
    model, other = load(folders(name)), theirs(name)
    masks = {"attention_mask": REAL.long(), "decoder_attention_mask": WRITTEN.long()}
    near(model(SOURCE, TARGET, *SIDES)[WRITTEN], expected(other, **masks)[WRITTEN])


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_writing_on_from_a_cache_gives_the_same_logits(name, folders):
    model, other, cache, kept = load(folders(name)), theirs(name), Cache(), None
    memory, mask = model.encode_source(SOURCE, SIDES[0]), REAL.long()
    read = other.get_encoder()(SOURCE, attention_mask=mask)
    for piece in TARGET.split([3, 2, 1, 1], 1):
        came, kept = with_cache(other, kept, encoder_outputs=read, attention_mask=mask, decoder_input_ids=piece)
        near(model.target_logits(piece, memory, cache=cache), came.logits)


@pytest.mark.parametrize("name", FAMILIES["representative"](CASES))
@torch.no_grad()
def test_16_bit_weights_give_nearly_the_same_logits(name, folders):
    wide = expected(theirs(name))
    out = load(folders(name), dtype=torch.bfloat16)(SOURCE, TARGET)
    other = expected(theirs(name).to(torch.bfloat16))
    assert out.dtype == torch.bfloat16
    no_worse(out, other, wide)


@pytest.mark.parametrize("name", FAMILIES["representative"](CASES))
@torch.no_grad()
def test_there_and_back_gives_the_same_bits(name, folders, tmp_path):
    import transformers

    model = load(folders(name))
    save(model, tmp_path, name.split(",")[0])
    written, first = load_file(tmp_path / "model.safetensors"), load_file(folders(name) / "model.safetensors")
    assert written.keys() == first.keys()
    for key in first:
        # the rows of the tables of BART that no token takes are not kept
        counted = isinstance(family_of(name.split(",")[0]), LearnedBartLike) and key.endswith(
            "embed_positions.weight"
        )
        rows = slice(2 if counted else 0, None)
        assert written[key][rows].equal(first[key][rows])
    assert load(tmp_path).shape == model.shape
    other = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    near(expected(other), expected(theirs(name)), 0)


@pytest.fixture
def spoilt(folders, tmp_path):
    """A checkpoint, its parts to be changed before it is loaded."""

    def change(name, config=None, tensors=None, drop=()):
        said = json.loads((folders(name) / "config.json").read_text()) | (config or {})
        kept = load_file(folders(name) / "model.safetensors") | (tensors or {})
        (tmp_path / "config.json").write_text(json.dumps(said))
        save_file({key: value for key, value in kept.items() if key not in drop}, tmp_path / "model.safetensors")
        return tmp_path

    return change


@torch.no_grad()
def test_copies_of_a_tied_table_are_ignored(folders, spoilt):
    table = load_file(folders("t5") / "model.safetensors")["shared.weight"]
    copies = {f"{side}.embed_tokens.weight": table.clone() for side in ("encoder", "decoder")}
    near(load(spoilt("t5", tensors=copies))(SOURCE, TARGET), load(folders("t5"))(SOURCE, TARGET), 0)
    with pytest.raises(ValueError, match=r"unexpected encoder.embed_tokens.weight; check that config.json"):
        load(spoilt("t5", tensors={"encoder.embed_tokens.weight": table + 1}))


def test_the_tokens_of_generation_config_take_precedence(spoilt):
    folder = spoilt("t5", config={"eos_token_id": 1})
    assert load(folder).shape.end == 1
    # its padding token is no part of the model, and null says nothing
    writing = {"eos_token_id": 3, "decoder_start_token_id": None, "pad_token_id": 7}
    (folder / "generation_config.json").write_text(json.dumps(writing))
    shape = load(folder).shape
    assert (shape.end, shape.start, shape.padding) == (3, 0, 0)


def test_where_there_is_a_generation_config_other_settings_of_config_json_have_no_effect(spoilt):
    folder = spoilt("t5", config={"bad_words_ids": [[5]], "suppress_tokens": [9, 2], "forced_eos_token_id": 1})
    shape = load(folder).shape
    rules = {"bad_words_ids": ((5,),), "suppress_tokens": (9, 2), "forced_eos_token_id": (1,)}
    assert shape.rules.active == rules
    (folder / "generation_config.json").write_text('{"suppress_tokens": [7], "renormalize_logits": true}')
    shape = load(folder).shape
    assert shape.rules.active == {"suppress_tokens": (7,), "renormalize_logits": True}


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"stop_strings": ["eel"]}, r"stop_strings=\['eel'\]"),
        (
            {"guidance_scale": 2, "min_length": 30, "diversity_penalty": 1.2},
            "guidance_scale=2, diversity_penalty=1.2",
        ),
        # outside of the vocabulary
        ({"forced_bos_token_id": 40}, "forced_bos_token_id=40"),
        ({"forced_eos_token_id": 40}, "forced_eos_token_id=40"),
    ],
)
@pytest.mark.parametrize("name", ["t5", "marian"])
def test_generation_settings_that_are_not_applied_are_named(name, setting, told, spoilt):
    with pytest.warns(UserWarning, match=f"translate and beam_search do not apply {told} "):
        load(spoilt(name, config=setting))


def test_generation_settings_of_another_type_are_refused_with_their_file(spoilt):
    folder = spoilt("t5")
    (folder / "generation_config.json").write_text('{"suppress_tokens": "eel"}')
    with pytest.raises(ValueError, match=r"suppress_tokens in generation_config.json must be list.*; got 'eel'"):
        load(folder)


def test_tokens_outside_of_the_vocabulary_are_left_out_of_the_rules(spoilt):
    settings = {
        "bad_words_ids": [[5, 40], [29], [7]],
        "sequence_bias": [[[40], 1.0], [[2, 3], 1.0]],
        "suppress_tokens": [9, 29, -1],
        "begin_suppress_tokens": [40],
        "forced_eos_token_id": [1, 40],
    }
    expected = {
        "bad_words_ids": ((7,),),
        "sequence_bias": (((2, 3), 1.0),),
        "suppress_tokens": (9,),
        "forced_eos_token_id": (1,),
    }
    assert load(spoilt("t5", config=settings)).shape.rules.active == expected
    none = {"suppress_tokens": [40], "renormalize_logits": True}
    assert load(spoilt("t5", config=none)).shape.rules.active == {}


def test_generation_settings_without_an_effect_are_not_named(spoilt, recwarn):
    usual = {"no_repeat_ngram_size": 0, "min_length": 0, "repetition_penalty": 1.0, "forced_bos_token_id": None}
    load(
        spoilt("t5", config=usual | {"num_beams": 4, "max_length": 200, "bad_words_ids": [], "early_stopping": True})
    )
    assert not [warning for warning in recwarn if "do not apply" in str(warning.message)]


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("t5", {"pad_token_id": 2, "bad_words_ids": [[3], [9], [15]]}),
        ("t5", {"decoder_start_token_id": None, "bos_token_id": 6, "pad_token_id": None}),
        ("marian", {"pad_token_id": 28, "decoder_start_token_id": 1}),
        ("marian", {"suppress_tokens": [3, 9, 15], "renormalize_logits": True}),
    ],
)
@pytest.mark.parametrize("beams", [1, 2])
def test_texts_end_as_in_transformers(beams, name, config, spoilt):
    import transformers

    def written(folder):
        other = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        return other.generate(SOURCE, max_new_tokens=9, num_beams=beams, do_sample=False)[:, 1:]

    free = written(spoilt(name, config=config | {"eos_token_id": None}))
    # a text ends by the last of several tokens, which is suppressed in one case
    folder = spoilt(name, config=config | {"eos_token_id": [3, 4, 7, int(free[0, -1])]})
    model, expected = load(folder), written(folder)
    memory, ends = model.encode_source(SOURCE), model.shape.end_tokens
    found = translate(model, memory, 9) if beams == 1 else beam_search(model, memory, 9, beams=beams).ids[:, 0]
    texts = truncate_at(found.split(1, 1), ends)
    # what fills the rows after their ends differs between the ways of transformers
    assert texts == truncate_at(expected.split(1, 1), ends)
    assert beams == 2 or min(map(len, texts)) < 9


MORE_SETTINGS = [
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3, "renormalize_logits": True},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.7, "renormalize_logits": True},
    {"min_length": 4},
    {"min_length": 6, "forced_eos_token_id": 3, "renormalize_logits": True},
    {"forced_bos_token_id": 9},
    {"forced_bos_token_id": 3, "forced_eos_token_id": 3},
    {"eos_token_id": [3, 4, 9], "forced_eos_token_id": [4]},
    {"eos_token_id": [3, 4, 9], "forced_eos_token_id": [9, 4]},
    {"exponential_decay_length_penalty": [2, 1.3], "min_length": 3},
    {"forced_bos_token_id": 9, "begin_suppress_tokens": [9, 5], "renormalize_logits": True},
    {"encoder_repetition_penalty": 0.7, "encoder_no_repeat_ngram_size": 1},
]


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize(
    "setting",
    [
        {"forced_eos_token_id": 3},
        {"forced_eos_token_id": [3]},
        {"suppress_tokens": [5, 6, 7, 8, 9, 10, 11], "renormalize_logits": True},
        {"suppress_tokens": [3, 4], "bad_words_ids": [[5]], "forced_eos_token_id": None},
        {"renormalize_logits": True, "forced_eos_token_id": 3, "bad_words_ids": [[9]]},
        # some of those that bart-large-cnn has
        {"forced_bos_token_id": 0, "forced_eos_token_id": 3, "no_repeat_ngram_size": 3, "min_length": 5},
        {"no_repeat_ngram_size": 1, "min_new_tokens": 4, "min_length": 2},
        {"repetition_penalty": 1.3, "renormalize_logits": True},
        {
            "encoder_repetition_penalty": 1.5,
            "encoder_no_repeat_ngram_size": 2,
            "bad_words_ids": [[9], [5, 7], [8, 5]],
        },
        {"sequence_bias": [[[5], 1.5], [[0, 9], 4.0], [[9, 7], -3.0]], "begin_suppress_tokens": [5, 8]},
        *(pytest.param(setting, marks=pytest.mark.extended) for setting in MORE_SETTINGS),
    ],
)
@pytest.mark.parametrize("name", ["t5", pytest.param("marian", marks=pytest.mark.extended)])
def test_texts_are_written_with_the_settings_of_the_checkpoint_as_in_transformers(
    name, setting, beams, spoilt, tmp_path
):
    import transformers

    folder = spoilt(name, config={"eos_token_id": 3, **setting})
    model = load(folder)
    save(model, tmp_path / "again", name)
    assert load(tmp_path / "again").shape == model.shape
    auto = transformers.AutoModelForSeq2SeqLM
    others = [auto.from_pretrained(place).eval() for place in (folder, tmp_path / "again")]
    memory, ends = model.encode_source(SOURCE), model.shape.end_tokens
    # transformers refuses a least length above the greatest
    least = max(model.shape.rules.min_length - 1, model.shape.rules.min_new_tokens or 0)
    for length in (length for length in (1, 2, 5, 8) if length >= least):
        one = beams == 1
        found = translate(model, memory, length) if one else beam_search(model, memory, length, beams=beams).ids[:, 0]
        assert {*ends} & {*found[0].tolist()} or not setting.get("forced_eos_token_id")
        for other in others:
            expected = other.generate(SOURCE, max_new_tokens=length, num_beams=beams, do_sample=False)[:, 1:]
            assert truncate_at(found.split(1, 1), ends) == truncate_at(expected.split(1, 1), ends)
            assert [set(text) & {*ends} for text in found.tolist()] == [
                set(text) & {*ends} for text in expected.tolist()
            ]


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_stored_tables_are_read_unless_they_are_the_sinusoids_that_are_computed(dtype, folders, spoilt, tmp_path):
    import transformers

    table = theirs("marian").model.encoder.embed_positions.weight.detach()
    names = [f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")]
    stored = {name: table.to(dtype).clone() for name in names}
    for kept, scheme in (
        (stored, "sinusoidal:form=concatenated,scale=1.0" if dtype == torch.float32 else "learned"),
        ({name: waves.flip(0) for name, waves in stored.items()}, "learned"),
    ):
        folder = spoilt("marian", tensors=kept)
        model = load(folder, dtype=torch.float32)
        assert (model.shape.scheme, model.encoder.shape.scheme) == (scheme, scheme)
        other = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
        near(model(SOURCE, TARGET), expected(other))
        assert verify(folder, checks=["outputs", "gradients"]).agrees
        save(model, tmp_path / "again", "marian")
        near(load(tmp_path / "again")(SOURCE, TARGET), model(SOURCE, TARGET), 0)
        near(expected(transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "again").eval()), expected(other))
    with pytest.raises(ValueError, match=rf"{names[0]} must have shape \(64, 32\) according to .*; got \(9, 32\)"):
        load(spoilt("marian", tensors={name: waves[:9].clone() for name, waves in stored.items()}))


KEY = "decoder.block.1.layer.1.EncDecAttention.k.weight"


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        ("t5", {"drop": (KEY,)}, f"missing {KEY}; download it again"),
        ("t5", {"tensors": {"decoder.more": torch.zeros(2)}}, "unexpected decoder.more; check that config.json"),
        (
            "t5",
            {"tensors": {KEY: torch.zeros(31, 32)}},
            r"EncDecAttention.k.weight must have shape \(32, 32\) .*\(31, 32",
        ),
        (
            "t5",
            {"tensors": {KEY: torch.full((32, 32), float("inf"))}},
            f"finite floating-point numbers; {KEY} has others",
        ),
        ("t5", {"config": {"is_gated_act": True, "dense_act_fn": "prelu"}}, "no dense_act_fn is named 'prelu'"),
        ("t5", {"config": {"num_layers": 4}}, "missing encoder.block.3.layer"),
        ("marian", {"drop": ("model.decoder.layers.1.fc1.bias",)}, "missing model.decoder.layers.1.fc1.bias"),
        (
            "marian",
            {"config": {"tie_word_embeddings": False, "decoder_vocab_size": 31}},
            "shared, but not tied .*, must have equal vocabularies; got vocab_size=29, decoder_vocab_size=31; load",
        ),
    ],
)
def test_an_invalid_checkpoint_is_refused(name, change, match, spoilt):
    with pytest.raises(ValueError, match=match):
        load(spoilt(name, **change))


@pytest.mark.parametrize(
    ("told", "written", "size"),
    [
        ({"encoder_no_repeat_ngram_size": 2}, None, 2),
        ({}, None, 0),
        ({"encoder_no_repeat_ngram_size": 2}, {}, 0),
        ({}, {"encoder_no_repeat_ngram_size": 1}, 1),
    ],
)
def test_a_blenderbot_repeats_what_a_file_lets_it_repeat(told, written, size, spoilt, tmp_path):
    import transformers

    folder = spoilt("blenderbot")
    config = json.loads((folder / "config.json").read_text())
    config = {name: value for name, value in config.items() if name != "encoder_no_repeat_ngram_size"} | told
    (folder / "config.json").write_text(json.dumps(config))
    if written is not None:
        (folder / "generation_config.json").write_text(json.dumps(written))
    other = transformers.BlenderbotForConditionalGeneration.from_pretrained(folder)
    assert (other.generation_config.encoder_no_repeat_ngram_size or 0) == size
    model = load(folder)
    assert model.shape.rules.encoder_no_repeat_ngram_size == size
    save(model, tmp_path / "again", "blenderbot")
    assert load(tmp_path / "again").shape == model.shape
    again = transformers.BlenderbotForConditionalGeneration.from_pretrained(tmp_path / "again")
    assert (again.generation_config.encoder_no_repeat_ngram_size or 0) == size


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"pad_token_id": None}, r"count from pad_token_id \+ 1, .*; got pad_token_id=None; set it"),
        ({"pad_token_id": -2}, r"count from pad_token_id \+ 1, .*; got pad_token_id=-2"),
        (
            {"decoder_start_token_id": 1},
            "decoder_start_token_id of an m2m_100 must not be pad_token_id.*; got 1 for both",
        ),
        ({"decoder_start_token_id": None, "bos_token_id": 1}, "must not be pad_token_id"),
    ],
)
def test_an_m2m_100_needs_a_padding_token_that_does_not_start_texts(config, match, spoilt):
    with pytest.raises(ValueError, match=match):
        load(spoilt("m2m_100", config=config))


@torch.no_grad()
def test_an_m2m_100_without_a_padding_token_counts_from_0(spoilt, tmp_path):
    import transformers

    folder = spoilt("m2m_100", config={"pad_token_id": -1})
    model, other = load(folder), transformers.M2M100ForConditionalGeneration.from_pretrained(folder).eval()
    assert model.shape.padding is None
    assert "position_offset=0" in model.shape.scheme
    near(model(SOURCE, TARGET), expected(other))
    save(model, tmp_path / "again", "m2m_100")
    assert load(tmp_path / "again").shape == model.shape
    start = replace(model.shape, padding=model.shape.start, scheme=model.shape.scheme.replace("=0", "=3"))
    with pytest.raises(ValueError, match=r"start of an m2m_100 must not be padding.*; got 2 for both"):
        save(EncoderDecoder(start), tmp_path / "third", "m2m_100")


SIZES = {"vocabulary": 11, "width": 16, "layers": 1, "heads": 2}


@pytest.mark.parametrize(
    ("kind", "choices", "match"),
    [
        ("t5", {}, "a t5 requires mixer='softmax:variant.scale=1.0'.*; got 'softmax'"),
        ("marian", {"norm_position": "pre"}, "a marian requires .*norm_position='post'"),
        ("m2m_100", {"logit_bias": True}, "an? m2m_100 requires .*logit_bias=False"),
    ],
)
def test_a_shape_that_a_family_cannot_represent_is_not_written(kind, choices, match, tmp_path):
    with pytest.raises(ValueError, match=match):
        save(EncoderDecoder(EncoderDecoderShape(**SIZES, **choices)), tmp_path, kind)


@torch.no_grad()
@pytest.mark.parametrize("name", ["bart", "mbart", "pegasus", "marian", "plbart", "blenderbot"])
def test_a_model_without_a_bias_of_its_logits_is_read_and_written(name, tmp_path):
    """Files of a `BartModel` such as facebook/bart-base, which transformers reads with zeros in its place."""
    whole = theirs(name)
    whole.model.save_pretrained(tmp_path)
    assert "final_logits_bias" not in load_file(tmp_path / "model.safetensors")
    other = type(whole).from_pretrained(tmp_path).eval()
    model = load(tmp_path)
    assert not model.shape.logit_bias
    near(model(SOURCE, TARGET), expected(other))
    save(model, tmp_path / "again", name)
    near(expected(type(whole).from_pretrained(tmp_path / "again").eval()), expected(other), share=1e-6)
