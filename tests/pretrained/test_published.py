"""Published configurations, made small: each gives the outputs of transformers, or is refused by name.

`fidelity.py` draws each value of a key as often as the others; here are the combinations that people meet, with the
names that tensors have in their files.
"""

import json
import runpy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ordinate.core import catalog
from ordinate.pretrained import load
from ordinate.pretrained.families import gpt2
from ordinate.pretrained.weights import family_of

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:config.json names code")
PUBLISHED, DRAWN, QUANTISING = (
    runpy.run_path(str(Path(__file__).with_name(f"{name}.py"))) for name in ("published", "fidelity", "quantising")
)
REFUSED = PUBLISHED["REFUSED"]
CONFIGS = {name: PUBLISHED["shrunk"](config) for name, config in PUBLISHED["models"]().items()}
KNOWN = {family_of(name).model_type for name in catalog.names("ordinate.pretrained.families")}
LOADED = [name for name, config in CONFIGS.items() if config.get("model_type") in KNOWN and name not in REFUSED]
# models around a language model, which tests/pretrained/test_wrappers.py reads
WRAPPERS = set(catalog.names("ordinate.pretrained.wrappers"))
WRAPPED = [name for name, config in CONFIGS.items() if config.get("model_type") in WRAPPERS]
OTHERS = [name for name, config in CONFIGS.items() if config.get("model_type", "bert") not in KNOWN | WRAPPERS]
# the first of each family
FIRST = {CONFIGS[name]["model_type"]: name for name in reversed(LOADED)}
# heads by the ends of class names
HEADS = {
    f"For{DRAWN[head]}": DRAWN[head] for head in ("LM", "MASKED", "CLASSES", "TEXT_CLASSES", "TOKEN_CLASSES", "SPANS")
}
HEADS |= {"LMHeadModel": DRAWN["LM"], **dict.fromkeys(("MTModel", "ForConditionalGeneration"), DRAWN["PAIRS"])}
HEADS |= {"T5WithLMHeadModel": DRAWN["PAIRS"], "EncoderModel": DRAWN["TEXTS"]}
HEADS |= {"BartModel": DRAWN["PAIRS"], "ElectraForPreTraining": DRAWN["REPLACED"]}


@pytest.fixture(autouse=True)
def quiet():
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity(50)
    yield
    transformers.logging.set_verbosity(level)


@torch.no_grad()
def written(name, folder):
    """Write the checkpoint of a small model, with its published config.json; return its head and its outputs."""
    config = CONFIGS[name]
    named, plain = config.get("architectures", [""])[0], {**config}
    packed = plain.pop("quantization_config", None)
    head = next((head for end, head in reversed(HEADS.items()) if named.endswith(end)), DRAWN["BASE"])
    torch.manual_seed(0)
    model = DRAWN["model_of"](transformers.CONFIG_MAPPING[config["model_type"]].from_dict(plain), head)
    for parameter in model.parameters():
        if parameter.requires_grad:
            # numbers that float32 represents well enough to compare them
            parameter.mul_(0.5)
    model.save_pretrained(folder)
    stored, exact = QUANTISING["in_mxfp4"](load_file(folder / "model.safetensors")) if packed else ({}, {})
    if packed:
        save_file(exact, folder / "model.safetensors", metadata={"format": "pt"})
    # what a model computes from its config.json in bfloat16, as Gemma its factor, would stay rounded in model.float()
    wide = type(model).from_pretrained(folder, dtype=torch.float32).eval()
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if packed:
        save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    return head, DRAWN["outputs"](wide, head)


@torch.no_grad()
def read(folder, head):
    return DRAWN["ours"](load(folder, dtype=torch.float32), head)


def test_the_table_has_every_family_and_many_models():
    # a Ministral is published as a mistral; no well-known model is a Granite with a shared network
    without = {"ministral", "granitemoeshared"}
    # none of their config.json files was at hand as it was published
    without |= {"arcee", "nemotron", "persimmon", "seed_oss", "vaultgemma"}
    without |= {"apertus", "cohere", "ernie4_5_moe", "flex_olmo", "hunyuan_v1_dense", "minimax_m2", "ministral3"}
    without |= {"falcon_mamba", "jamba", "mamba2", "deepseek_v2", "deepseek_v3", "glm4_moe_lite"}
    without |= {
        "qwen3_next",
        "qwen3_5_text",
        "qwen3_5_moe_text",
        "olmo_hybrid",
        "granitemoehybrid",
        "bamba",
        "falcon_h1",
        "gemma4_text",
        "gemma4_unified_text",
        "nemotron_h",
        "lfm2",
        "lfm2_moe",
        "lfm3",
        "kimi_linear",
        "llama4_text",
    }
    without |= {"phimoe", "nanochat", "exaone_moe", "granite_swa", "granitemoe_swa", "internlm3", "xglm", "biogpt"}
    without |= {"hunyuan_v1_moe", "dbrx", "jais2", "solar_open", "afmoe", "mimo_v2_flash", "cohere2_moe", "laguna"}
    without |= {"minicpm3", "youtu", "exaone", "cwm", "iquestcoder", "hyperclovax"}
    without |= {"hy_v3", "sarvam_moe", "sarvam_mla", "mellum", "modernbert-decoder"}
    without |= {"esm", "eurobert", "mbart", "mpnet", "nomic_bert", "pegasus", "roberta-prelayernorm", "roformer"}
    without |= {
        "m2m_100",
        "dinov3_vit",
        "data2vec-text",
        "xlm-roberta-xl",
        "megatron-bert",
        "ernie",
        "plbart",
        "blenderbot",
    }
    assert set(FIRST) == KNOWN - without
    read = len(LOADED) + len(WRAPPED)
    assert WRAPPED == ["google/gemma-3-4b-it"]
    assert read + len(OTHERS) + len(REFUSED) == len(CONFIGS)
    page = (Path(__file__).parents[2] / "docs" / "published.md").read_text(encoding="utf-8")
    told = (
        f"{len(CONFIGS)} well-known models",
        f"{read} give the outputs",
        f"{len(OTHERS) + len(REFUSED)} are refused",
    )
    assert all(words in page for words in told)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FIRST.values() else pytest.mark.extended) for name in LOADED]
)
def test_a_published_configuration_gives_the_outputs_of_transformers(name, tmp_path):
    head, expected = written(name, tmp_path)
    assert DRAWN["judged"](read(tmp_path, head), expected) == "equal"


def test_a_wrong_number_is_noticed(tmp_path, monkeypatch):
    # a mutant: scores are not scaled by layer
    monkeypatch.setattr(gpt2, "_mixer", lambda *sizes, **scaling: gpt2.MIXER)
    head, expected = written("codeparrot/codeparrot", tmp_path)
    assert DRAWN["judged"](read(tmp_path, head), expected).startswith("WRONG: by")


@pytest.mark.parametrize("name", OTHERS)
def test_another_family_is_refused_by_its_name(name, tmp_path):
    kind = CONFIGS[name]["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[name]))
    with pytest.raises(ValueError, match=f"model_type in config.json must be one of .*; got '{kind}'"):
        load(tmp_path)


@pytest.mark.parametrize("name", REFUSED)
def test_what_else_is_refused_is_named(name, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[name]))
    tensors = {f"layers.{place}": torch.zeros(2000) for place in range(4)}
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=REFUSED[name]):
        load(tmp_path)


def early(kind, tensors):
    """The tensors with names of older files, and what older versions stored beside them."""
    names = dict(tensors)
    if kind == "bert":
        names = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
            for name, tensor in tensors.items()
        }
        names["cls.seq_relationship.weight"] = torch.ones(2, 3)
    if kind in ("gpt2", "bloom", "opt"):
        prefix = family_of(kind).prefix
        names = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    return names | {
        new: stored
        for name, tensor in tensors.items()
        for end, added in BESIDE.get(kind, {}).items()
        if name.endswith(end)
        for new, stored in ((name.removesuffix(end) + more, made(tensor)) for more, made in added.items())
    }


def mask(_):
    return torch.ones(1, 1, 4, 4, dtype=torch.uint8).tril()


def masked(_):
    return torch.tensor(-1e9)


def rates(_):
    return torch.ones(3)


def places(_):
    return torch.arange(32)[None]


BUFFERS = {"bias": mask, "masked_bias": masked}
RATES = {"self_attn.q_proj.weight": {"self_attn.rotary_emb.inv_freq": rates}}
POSITIONS = {
    "embeddings.word_embeddings.weight": {"embeddings.position_ids": places, "embeddings.token_type_ids": places}
}
SIDES = {f"{side}.embed_tokens.weight": torch.clone for side in ("encoder", "decoder")}
BESIDE = {
    "bert": POSITIONS,
    "roberta": POSITIONS
    | {"lm_head.bias": {"lm_head.decoder.bias": torch.clone}, "lm_head.dense.bias": {"seq_relationship.bias": rates}},
    "gpt2": {"attn.c_attn.weight": {f"attn.{name}": made for name, made in BUFFERS.items()}},
    "gpt_neo": {"attn.attention.q_proj.weight": {f"attn.attention.{name}": made for name, made in BUFFERS.items()}},
    "opt": {"model.decoder.embed_tokens.weight": {"lm_head.weight": torch.clone, "decoder.version": rates}},
    "gpt_bigcode": {"attn.c_attn.weight": {f"attn.{name}": made for name, made in BUFFERS.items()}},
    "openai-gpt": {"attn.c_attn.weight": {"attn.bias": mask}, "tokens_embed.weight": {"position_ids": places}},
    "codegen": {"attn.qkv_proj.weight": {"attn.causal_mask": mask}},
    "gptj": {"attn.q_proj.weight": {f"attn.{name}": made for name, made in BUFFERS.items()}},
    "gpt_neox": {
        "attention.dense.weight": {f"attention.{name}": made for name, made in BUFFERS.items()}
        | {"attention.rotary_emb.inv_freq": rates}
    },
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "olmo", "phi", "stablelm", "glm"), RATES),
    "t5": {
        "shared.weight": SIDES | {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": rates}
    },
    "marian": {
        "model.shared.weight": {f"model.{name}": made for name, made in SIDES.items()}
        | {"lm_head.weight": torch.clone}
    },
    "deberta-v2": {"embeddings.word_embeddings.weight": {"lm_predictions.lm_head.bias": rates}},
    "falcon": {"transformer.word_embeddings.weight": {"lm_head.weight": torch.clone}},
    "mpt": {"transformer.wte.weight": {"lm_head.weight": torch.clone}},
}


@pytest.mark.parametrize("kind", [*BESIDE, "bloom"])
def test_tensors_with_the_names_of_older_files_are_read(kind, tmp_path):
    head, expected = written(FIRST[kind], tmp_path)
    stored = early(kind, load_file(tmp_path / "model.safetensors"))
    changed = {name: tensor.contiguous().clone() for name, tensor in stored.items()}
    assert changed.keys() != load_file(tmp_path / "model.safetensors").keys()
    save_file(changed, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert DRAWN["judged"](read(tmp_path, head), expected) == "equal"
