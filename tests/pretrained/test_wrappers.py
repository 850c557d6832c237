"""Models of texts and images: their language model has the logits that the whole has for a text."""

import dataclasses
import json
import random
import runpy
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ordinate.core import catalog
from ordinate.pretrained import verify
from ordinate.pretrained._wrapper import Wrapper
from ordinate.pretrained.find_family import family_of
from ordinate.pretrained.generation_settings import read_generation_settings
from ordinate.pretrained.qwen_vl_like import QwenVlLike
from ordinate.pretrained.weights import load, published_shape, save

transformers = pytest.importorskip("transformers")
DRAWN = runpy.run_path(str(Path(__file__).with_name("fidelity.py")))
PUBLISHED = runpy.run_path(str(Path(__file__).with_name("published.py")))
FIELDS, IDS = DRAWN["FIELDS"], DRAWN["IDS"]
VISION = {"hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}
VISION |= {"image_size": 8, "patch_size": 4, "num_key_value_heads": 2}
QWEN_VISION = {"depth": 1, "num_heads": 2, "out_hidden_size": 16, "num_position_embeddings": 16}
QWEN_VISION |= {"embed_dim": 16, "deepstack_visual_indexes": [0]}
# whose axes have consecutive channel pairs, and in which they take turns
CONSECUTIVE, INTERLEAVED = ("qwen2_vl", "qwen2_5_vl"), ("qwen3_vl", "qwen3_vl_moe")
# the families of language models that a wrapper may have
INNER = {
    "aya_vision": ("cohere2", "cohere"),
    "gemma3": ("gemma3_text",),
    "gemma4": ("gemma4_text",),
    "gemma4_unified": ("gemma4_unified_text",),
    "got_ocr2": ("qwen2",),
    "idefics3": ("llama", "mistral"),
    "internvl": ("qwen2", "qwen3", "qwen3_moe", "gpt_oss", "llama"),
    "llava": ("llama", "mistral", "qwen2", "phi3", "gemma"),
    "llava_next": ("llama", "mistral", "qwen2", "granite", "falcon"),
    "llava_onevision": ("qwen2", "qwen3"),
    "mistral3": ("mistral", "ministral3", "llama"),
    "paligemma": ("gemma2", "gemma"),
    "qwen2_5_vl": ("qwen2",),
    "qwen2_vl": ("qwen2",),
    "qwen3_5": ("qwen3_5_text",),
    "qwen3_5_moe": ("qwen3_5_moe_text",),
    "qwen3_vl": ("qwen3",),
    "qwen3_vl_moe": ("qwen3_moe",),
    "smolvlm": ("llama",),
    "vipllava": ("llama",),
}
# transformers does not run the whole: test_llama4.py compares the language model inside
APART = ("llama4",)
VISUAL = {
    "aya_vision": "siglip_vision_model",
    "gemma3": "siglip_vision_model",
    "gemma4": "gemma4_vision",
    "gemma4_unified": "gemma4_unified_vision",
    "got_ocr2": "got_ocr2_vision",
    "idefics3": "idefics3_vision",
    "internvl": "internvl_vision",
    "llava": "clip_vision_model",
    "llava_next": "clip_vision_model",
    "llava_onevision": "siglip_vision_model",
    "mistral3": "pixtral",
    "paligemma": "siglip_vision_model",
    "smolvlm": "smolvlm_vision",
    "vipllava": "clip_vision_model",
}
CAUSAL = {("paligemma", "gemma"): {"use_bidirectional_attention": False}}
# whose config.json says False where it does not say, and those of them that the language model may tie
QWENS = (*CONSECUTIVE, *INTERLEAVED, "qwen3_5", "qwen3_5_moe")
UNTIED = ("idefics3", "llava", "llava_next", "llava_onevision", "smolvlm", "vipllava", *QWENS)
TEXT_TIES = ("llava", "llava_onevision", *CONSECUTIVE)
CASES = [(kind, inner) for kind, families in INNER.items() for inner in families]
FEW = 3
# another name of the number of experts
MISSING = {"qwen3_moe": ("num_local_experts",)}


@pytest.fixture(autouse=True)
def quiet():
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity(50)
    yield
    transformers.logging.set_verbosity(level)


def config_of(kind, inner, **text):
    visual = {"model_type": VISUAL[kind]} if kind in VISUAL else QWEN_VISION
    named = f"{kind}_text" if kind in (*CONSECUTIVE, *INTERLEAVED) else inner
    own = FIELDS[inner][0] | {"model_type": named, "pad_token_id": 0, "image_token_id": 3}
    own |= CAUSAL.get((kind, inner), {}) | text
    if kind in CONSECUTIVE:
        pairs = own["hidden_size"] // own["num_attention_heads"] // 2
        key = next((key for key in ("rope_scaling", "rope_parameters") if own.get(key)), "rope_parameters")
        own[key] = {"mrope_section": [pairs - 2, 1, 1]} | (own.get(key) or {})
    return {"text_config": own, "vision_config": VISION | visual, "mm_tokens_per_image": 1}


def flat(config):
    """As published files have it, with the settings of the language model beside those of the whole."""
    text = {name: value for name, value in config["text_config"].items() if name != "model_type"}
    return text | {name: value for name, value in config.items() if name != "text_config"}


def model_of(config, kind, *, head=True):
    auto = transformers.AutoModelForImageTextToText if head else transformers.AutoModel
    torch.manual_seed(0)
    made = auto.from_config(transformers.CONFIG_MAPPING[kind].from_dict(json.loads(json.dumps(config)))).eval()
    # other kernels of experts need rows of a multiple of 16 bytes
    made.set_experts_implementation("eager")
    for parameter in made.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    return made


def written(folder, kind, config, *, head=True):
    """Write a checkpoint with its config.json as it is given; return the model."""
    made = model_of(config, kind, head=head)
    made.save_pretrained(folder)
    about = {"model_type": kind, "architectures": [type(made).__name__]}
    (folder / "config.json").write_text(json.dumps(config | about))
    (folder / "generation_config.json").unlink(missing_ok=True)
    return made


def read(folder):
    with pytest.warns(
        UserWarning,
        match="only the language model of a .* is read; not read: .*(projector|connector|visual|embed_vision)",
    ):
        return load(folder)


def near(out, expected):
    assert DRAWN["judged"]([out], [expected]) == "equal"


def check_settings(wrapper, theirs):
    """Each setting that the family reads has the default value of transformers, or has no effect there."""
    family, usual = family_of(wrapper.family), theirs(mlp_only_layers=None)
    told = {field.name: field.default for field in dataclasses.fields(theirs) if field.init}
    told |= {"rope_theta": usual.default_theta} if usual.default_theta else {}
    read = {name: told[name] for name in told if name in {*family.defaults, *family.aliases, "rope_theta"}}
    # these are completed, or are those of the whole
    without = {"rope_parameters", "tie_word_embeddings"}
    assert {name: read[name] for name in read.keys() - without} == dict(wrapper.text_settings)
    beyond = {"token_classification_bias", "head_dim", *without, *MISSING.get(wrapper.family, ())}
    assert family.defaults.keys() - wrapper.text_settings.keys() - wrapper.fixed_settings.keys() <= beyond


def test_every_wrapper_is_tested():
    assert {*INNER, *APART} == set(catalog.names("ordinate.pretrained.wrappers"))
    for name in (*INNER, *APART):
        wrapper = catalog.load("ordinate.pretrained.wrappers", Wrapper, name)()
        whole = transformers.CONFIG_MAPPING[name]
        theirs = whole.sub_configs_defaults["text_config"]
        fixed = theirs.config_class is not transformers.AutoConfig
        assert wrapper.text_type_fixed is fixed
        assert wrapper.text_type == (theirs.config_class if fixed else theirs).model_type
        assert wrapper.tied is whole().tie_word_embeddings
        if isinstance(wrapper, QwenVlLike):
            check_settings(wrapper, theirs.config_class)
        told = {key: theirs.init_kwargs[key] for key in wrapper.text_defaults}
        assert dict(wrapper.text_defaults) == told
        inert = {"attention_dropout", "initializer_range", "use_cache", "model_type"}
        inert |= {"is_encoder_decoder"}
        assert theirs.init_kwargs.keys() - inert == wrapper.text_defaults.keys()


@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize(("kind", "inner"), CASES)
@torch.no_grad()
def test_the_language_model_is_read(kind, inner, head, tmp_path):
    theirs = written(tmp_path, kind, config_of(kind, inner), head=head)
    model, came = read(tmp_path), theirs(input_ids=IDS)
    near(model(IDS) if head else model.hidden_states(IDS), came.logits if head else came.last_hidden_state)
    again = tmp_path / "again"
    save(model, again, inner)
    # outputs may differ in the last bit, by where weights lie in memory
    torch.testing.assert_close(load(again).state_dict(), model.state_dict(), rtol=0, atol=0)
    assert published_shape(again) == published_shape(tmp_path)


@pytest.mark.parametrize("tied", [None, True, False])
@pytest.mark.parametrize("kind", INNER)
@torch.no_grad()
def test_the_config_around_both_says_whether_the_head_is_tied(kind, tied, tmp_path):
    for other in (True, False):
        config = config_of(kind, INNER[kind][0], tie_word_embeddings=other)
        config |= {} if tied is None else {"tie_word_embeddings": tied}
        theirs = written(tmp_path, kind, config)
        model = read(tmp_path)
        wanted = kind not in UNTIED if tied is None else tied
        assert model.shape.tie_embeddings is (wanted or (kind in TEXT_TIES and other))
        assert model.shape.tie_embeddings is theirs.config.tie_word_embeddings or kind in TEXT_TIES
        near(model(IDS), theirs(input_ids=IDS).logits)


@pytest.mark.parametrize("kind", INNER)
def test_a_checkpoint_without_a_head_of_its_own_is_read_if_it_is_tied(kind, tmp_path):
    written(
        tmp_path, kind, config_of(kind, INNER[kind][0], tie_word_embeddings=False) | {"tie_word_embeddings": True}
    )
    config = json.loads((tmp_path / "config.json").read_text())
    config.pop("tie_word_embeddings")
    (tmp_path / "config.json").write_text(json.dumps(config))
    if kind not in UNTIED:
        assert read(tmp_path).shape.tie_embeddings
        return
    with pytest.raises(ValueError, match=r"must contain every tensor .*; missing lm_head.weight; download it again"):
        read(tmp_path)


@pytest.mark.parametrize("kind", ["llava", "llava_next"])
@torch.no_grad()
def test_a_language_model_whose_family_ties_the_head_may_tie_it(kind, tmp_path):
    theirs = written(tmp_path, kind, config_of(kind, "gemma"))
    model = read(tmp_path)
    assert model.shape.tie_embeddings is (kind in TEXT_TIES)
    near(model(IDS), theirs(input_ids=IDS).logits)


@pytest.mark.parametrize(
    ("kind", "inner", "told"),
    [
        ("llava_next", "granite", {"logits_scaling": 3.0}),
        ("aya_vision", "cohere2", {"logit_scale": 3.0}),
        ("gemma3", "gemma3_text", {"final_logit_softcapping": 1.0}),
        ("mistral3", "granite", {"logits_scaling": 3.0}),
    ],
)
@torch.no_grad()
def test_what_changes_logits_of_the_language_model_alone_has_no_effect(kind, inner, told, tmp_path):
    theirs = written(tmp_path, kind, config_of(kind, inner, **told))
    near(read(tmp_path)(IDS), theirs(input_ids=IDS).logits)
    assert (read(tmp_path).shape.logit_softcap, read(tmp_path).shape.logit_scale) == (None, 1.0)


def early(name, kind):
    """The names of earlier versions, which published files have."""
    head = name.startswith("lm_head")
    if kind in CONSECUTIVE:
        return name.replace("model.language_model.", "model.").replace("model.visual.", "visual.")
    return (
        f"language_model.{name}"
        if head
        else name.removeprefix("model.").replace("guage_model.", "guage_model.model.")
    )


def today(name, kind):
    """The names of transformers 5."""
    if kind in CONSECUTIVE and name.startswith("model.") and not name.startswith("model.visual."):
        return "model.language_model." + name.removeprefix("model.").removeprefix("language_model.")
    inner = name.replace("language_model.model.", "language_model.")
    bare = inner.replace("language_model.lm_head", "lm_head")
    return bare if bare.startswith(("lm_head", "model.")) else f"model.{bare}"


# idefics3 and smolvlm have always had the same names
NAMED = [(kind, inner[0]) for kind, inner in INNER.items() if kind not in ("idefics3", "smolvlm")]
NAMED += [("llava_next", "falcon")]


@pytest.mark.parametrize("names", [early, today])
@pytest.mark.parametrize(("kind", "inner"), NAMED)
@torch.no_grad()
def test_tensors_with_names_of_earlier_versions_and_of_today_are_read(kind, inner, names, tmp_path):
    config = config_of(kind, inner) | {"tie_word_embeddings": False}
    theirs = written(tmp_path, kind, config)
    stored = {
        names(today(name, kind), kind): tensor for name, tensor in load_file(tmp_path / "model.safetensors").items()
    }
    save_file(stored, tmp_path / "model.safetensors", metadata={"format": "pt"})
    near(read(tmp_path)(IDS), theirs(input_ids=IDS).logits)


@torch.no_grad()
def test_layers_of_qwen3_5_that_predict_later_tokens_are_not_read(tmp_path):
    theirs = written(tmp_path, "qwen3_5", config_of("qwen3_5", "qwen3_5_text"))
    path = tmp_path / "model.safetensors"
    later = {"mtp.layers.0.self_attn.q_proj.weight": torch.ones(3), "mtp.norm.weight": torch.ones(3)}
    save_file(load_file(path) | later, path, metadata={"format": "pt"})
    with pytest.warns(UserWarning, match=r"not read: mtp \(2 tensors\), visual \("):
        near(load(tmp_path)(IDS), theirs(input_ids=IDS).logits)


def drawn(kind, inner, seed):
    """A configuration with random settings of the language model."""
    rng = random.Random(f"{kind} {inner} {seed}")
    fields = FIELDS[inner][1]
    names = rng.sample(sorted(fields), rng.randint(0, 6))
    chosen = {name: rng.choice(fields[name]) for name in names}
    given = {name: value for name, value in chosen.items() if value is not DRAWN["OUT"]}
    told = {"tie_word_embeddings": rng.choice([True, False])} if rng.random() < 0.5 else {}
    config = config_of(kind, inner, **given) | told
    text = config["text_config"]
    if kind in CONSECUTIVE:
        rope = text["rope_scaling" if text.get("rope_scaling") else "rope_parameters"]
        rope |= {"type": "mrope"} if not rope.keys() & {"type", "rope_type"} and rng.random() < 0.5 else {}
        return flat(config) if rng.random() < 0.5 else config
    if kind in INTERLEAVED:
        sections = {"mrope_interleaved": True, "mrope_section": rng.choice([[2, 1, 1], [5, 0, 9], [1, 1, 1, 1]])}
        text |= {"rope_scaling": sections | text["rope_scaling"]} if text.get("rope_scaling") else {}
    return config


@torch.no_grad()
def outcome(kind, inner, seed, folder):
    config = drawn(kind, inner, seed)
    try:
        theirs = written(folder, kind, config)
        expected = theirs(input_ids=IDS).logits
        if not expected.isfinite().all():
            return "not theirs", config
    except Exception:
        return "not theirs", config
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mine = load(folder)
    except ValueError as error:
        return f"refused: {error}", config
    return DRAWN["judged"]([mine(IDS)], [expected]), config


@pytest.mark.parametrize(("kind", "inner"), CASES)
def test_random_settings_of_the_language_model_give_the_outputs_of_transformers(kind, inner, tmp_path):
    found = [outcome(kind, inner, seed, tmp_path) for seed in range(FEW)]
    assert not [one for one in found if one[0].startswith("WRONG")]
    assert [one for one in found if one[0] == "equal"]


MROPE = {"type": "mrope", "mrope_section": [16, 24, 24]}
# as published: heads of 128 channels
QWEN_2_VL = {"hidden_size": 256, "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-6}
QWEN_2_VL |= {"rope_scaling": MROPE, "rope_theta": 1e6, "max_window_layers": 1, "use_sliding_window": False}


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("kind", CONSECUTIVE)
@torch.no_grad()
def test_settings_of_the_language_model_beside_those_of_the_whole_are_read(kind, told, tmp_path):
    config = flat(config_of(kind, "qwen2", **QWEN_2_VL, sliding_window=3))
    # the first is without effect there, and the sections are those of transformers where they are left out
    config |= {"head_dim": 12, "tie_word_embeddings": True}
    config |= {} if told else {"rope_scaling": None, "rope_parameters": {"type": "mrope"}}
    theirs = written(tmp_path, kind, config)
    model = read(tmp_path)
    assert (model.shape.scheme, model.shape.tie_embeddings) == ("rope:theta=1000000.0", True)
    near(model(IDS), theirs(input_ids=IDS).logits)


@pytest.mark.parametrize("kind", [*CONSECUTIVE, *INTERLEAVED, "qwen3_5", "qwen3_5_moe"])
@torch.no_grad()
def test_sections_have_no_effect_where_positions_are_the_same_on_all_axes(kind):
    config = config_of(kind, INNER[kind][0])
    text = config["text_config"]
    theirs = model_of(config, kind, head=False).language_model.rotary_emb
    places = torch.arange(40).view(1, 1, -1)
    same = [x[0] for x in theirs(torch.zeros(1), places.expand(3, 1, -1))]
    # angles of plain RoPE, of both halves of the rotated channels
    width = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
    rotated = width // 4 if kind.startswith("qwen3_5") else width
    rates = theirs.config.rope_parameters["rope_theta"] ** -(torch.arange(0, rotated, 2) / rotated)
    angles = torch.outer(torch.arange(40), rates).repeat(1, 2)
    torch.testing.assert_close(same, [angles.cos(), angles.sin()], rtol=1e-5, atol=1e-5)
    # and the axes are those of other channels
    for axis in range(3):
        moved = places.expand(3, 1, -1).clone()
        moved[axis] += 1
        assert rotated < 6 or not theirs(torch.zeros(1), moved)[1][0].equal(same[1])


@pytest.mark.parametrize(
    ("kind", "sections", "match"),
    [
        (
            "qwen2_vl",
            [2, 1, 2],
            "mrope_section of rope_parameters must have each of the 4 channel pairs .* got .2, 1, 2",
        ),
        ("qwen2_5_vl", ..., r"must have each of the 4 channel pairs of a head; got \[16, 24, 24\]; correct it"),
        ("qwen2_vl", 4, "must be a list of whole numbers, for three axes or more; got 4; correct it"),
        ("qwen3_vl", [2, 1], r"must be a list of whole numbers, for three axes or more; got \[2, 1\]"),
        ("qwen3_vl_moe", [1, 2.0, 1], "must be a list of whole numbers"),
        ("qwen3_vl", None, "must be a list of whole numbers, for three axes or more; got None"),
    ],
)
def test_sections_with_which_transformers_does_not_run_are_refused(kind, sections, match, tmp_path):
    config = config_of(kind, INNER[kind][0])
    written(tmp_path, kind, config)
    rope = {"rope_theta": 1e4} | ({} if sections is ... else {"mrope_section": sections})
    config["text_config"]["rope_parameters"] = rope
    changed(tmp_path, **config)
    with pytest.raises(ValueError, match=match):
        load(tmp_path)
    if sections != 4:
        with pytest.raises((RuntimeError, IndexError, TypeError)):
            model_of(config, kind)(input_ids=IDS)


@pytest.mark.parametrize("inner", [10, 8, 16])
@pytest.mark.parametrize("published", [True, False])
@torch.no_grad()
def test_experts_are_read_transposed_as_published_and_as_transformers_has_them(inner, published, tmp_path):
    theirs = written(tmp_path, "qwen3_vl_moe", config_of("qwen3_vl_moe", "qwen3_moe", moe_intermediate_size=inner))
    path, own = tmp_path / "model.safetensors", theirs.state_dict()
    stored = load_file(path)
    for name in [name for name in stored if ".experts." in name]:
        stored[name] = (own[name].mT if published else own[name]).contiguous()
    save_file(stored, path, metadata={"format": "pt"})
    again = type(theirs).from_pretrained(tmp_path).eval()
    again.set_experts_implementation("eager")
    near(read(tmp_path)(IDS), again(input_ids=IDS).logits)


@pytest.mark.parametrize("outer", [None, 7])
@pytest.mark.parametrize("kind", ["qwen3_vl", "qwen3_5", "mistral3"])
def test_end_tokens_of_the_language_model_are_those_of_transformers(kind, outer, tmp_path):
    config = config_of(kind, INNER[kind][0], eos_token_id=[3, 5], repetition_penalty=1.5)
    theirs = written(tmp_path, kind, config | ({} if outer is None else {"eos_token_id": outer}))
    told = transformers.GenerationConfig.from_model_config(theirs.config)
    found = read_generation_settings(tmp_path, 19)
    ends = told.eos_token_id if isinstance(told.eos_token_id, list) else [told.eos_token_id]
    assert list(found.end_tokens) == ends == ([3, 5] if outer is None else [7])
    # other settings of text_config have no effect
    assert (found.rules.repetition_penalty, told.repetition_penalty) == (1.0, None)


# their config.json leaves out what the default of the language model is
SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
WHOLE = {name: config for name, config in PUBLISHED["models"]().items() if config.get("model_type") in INNER}


@pytest.mark.parametrize("name", WHOLE)
@torch.no_grad()
def test_a_published_configuration_gives_the_logits_of_transformers(name, tmp_path):
    config, kind = WHOLE[name], WHOLE[name]["model_type"]
    usual = transformers.CONFIG_MAPPING[config["text_config"]["model_type"]]().to_dict()
    # one layer of a gemma3 attends to the whole text
    text = PUBLISHED["shrunk"]({key: usual[key] for key in SIZES} | config["text_config"]) | {"num_hidden_layers": 7}
    small = config | {"vision_config": VISION | {"model_type": VISUAL[kind]}}
    small |= {"mm_tokens_per_image": 1, "text_config": text}
    # rounded to 16 bits, two ways differ
    for part in (small, text):
        part.pop("torch_dtype", None)
    theirs = written(tmp_path, kind, small)
    near(read(tmp_path)(IDS), theirs(input_ids=IDS).logits)


def changed(folder, **told):
    config = json.loads((folder / "config.json").read_text()) | told
    (folder / "config.json").write_text(json.dumps(config))


def test_what_cannot_be_read_is_refused_by_its_name(tmp_path):
    written(tmp_path, "mistral3", config_of("mistral3", "mistral"))
    with pytest.raises(ValueError, match=r"verify compares a language model alone; got a mistral3, .*; save it by"):
        verify(tmp_path)
    whole = json.loads((tmp_path / "config.json").read_text()) | {"tie_word_embeddings": True}
    for told, match in (
        (
            {"architectures": ["Mistral3ForSequenceClassification"]},
            "read from the classes Mistral3For.* and Mistral3Mo",
        ),
        ({"architectures": 5}, "architectures in config.json must be a list of names; got 5; correct config.json"),
        (
            {"tie_word_embeddings": None},
            "tie_word_embeddings in config.json must be true or false; got None; correct",
        ),
        (
            {"text_config": {"model_type": 5}},
            "model_type of text_config in config.json must be a text; got 5; correct",
        ),
        ({"text_config": [1]}, r"text_config in config.json must be an object; got \[1\]; correct config"),
        ({"architectures": {"a": 1}}, r"architectures in config.json must be .*; got {'a': 1}"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings in config.json must be true or false; got 'no'"),
        (
            {"text_config": {"model_type": "bert"}},
            "must be a decoder; got text_config with model_type bert, a family of Encoder models; load",
        ),
        (
            {"text_config": {"model_type": "gemma3_text", "use_bidirectional_attention": True}},
            "must be a decoder; got text_config with model_type gemma3_text, a family of Encoder models; load",
        ),
        ({"text_config": {"model_type": "mistral3"}}, "must be one of .*; got 'mistral3'"),
        ({"text_config": whole["text_config"] | {"hidden_act": "prelu"}}, "no hidden_act is named 'prelu'"),
    ):
        changed(tmp_path, **(whole | told))
        with pytest.raises(ValueError, match=match):
            load(tmp_path)
    changed(tmp_path, **whole)
    stored = load_file(tmp_path / "model.safetensors")
    inner = {name: tensor for name, tensor in stored.items() if "language_model" in name}
    for tensors, match in (
        ({name: stored[name] for name in stored.keys() - inner.keys()}, "must have the tensors of a language model"),
        (
            stored | {today(name, "mistral3"): tensor.clone() for name, tensor in inner.items()} | inner,
            "stored under one name",
        ),
    ):
        kept = (
            tensors
            if tensors.keys() != stored.keys()
            else stored | {early(name, "mistral3"): inner[name] for name in inner}
        )
        save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(ValueError, match=match):
            load(tmp_path)


@torch.no_grad()
def test_a_paligemma_is_read_where_its_attention_over_a_text_is_causal(tmp_path):
    other = IDS.clone()
    other[:, -1] = 3 + (other[:, -1] - 2) % 8
    for inner, ways, causal in (("gemma2", None, True), ("gemma2", True, True), ("gemma", None, False)):
        theirs = written(tmp_path, "paligemma", config_of("paligemma", inner, use_bidirectional_attention=ways))
        came = theirs(input_ids=IDS).logits
        assert torch.allclose(came[:, :-1], theirs(input_ids=other).logits[:, :-1], atol=1e-5) is causal
        if causal:
            near(read(tmp_path)(IDS), came)
            continue
        with pytest.raises(
            ValueError, match="with use_bidirectional_attention=False if it is a gemma; got None; set"
        ):
            load(tmp_path)


@torch.no_grad()
def test_the_class_around_a_gemma_2_in_a_paligemma_caps_logits_too(tmp_path):
    theirs = written(tmp_path, "paligemma", config_of("paligemma", "gemma2", final_logit_softcapping=1.0))
    model = read(tmp_path)
    assert model.shape.logit_softcap == 1.0
    near(model(IDS), theirs(input_ids=IDS).logits)


@pytest.mark.parametrize(
    ("kind", "inner", "told", "match"),
    [
        ("paligemma", "llama", {}, "no language model of a paligemma is named 'llama'; there are: gemma, gemma2"),
        (
            "paligemma",
            "gemma",
            {"final_logit_softcapping": 3.0},
            "must have no final_logit_softcapping; got 3.0; load",
        ),
        (
            "paligemma",
            "gemma2",
            {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
            "no rope_type .*; got 'dynamic'",
        ),
        ("llava", "phi", {}, "the head of a llava must have no bias; got a language model whose head has one; load"),
    ],
)
def test_language_models_that_a_model_cannot_have_are_refused(kind, inner, told, match, tmp_path):
    written(tmp_path, "llava", config_of("llava", inner))
    changed(tmp_path, model_type=kind, architectures=None, text_config=config_of(kind, inner, **told)["text_config"])
    with pytest.raises(ValueError, match=match):
        load(tmp_path)
