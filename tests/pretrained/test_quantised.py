"""Checkpoints with quantised weights: read as their format says, and as transformers dequantises them."""

import json
import math
import runpy
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ordinate import attach, load, save
from ordinate.pretrained import quantised_tensors, scaled_blocks, verify
from ordinate.pretrained.quantisations import mxfp4
from ordinate.pretrained.weights import published_shape
from ordinate.probing import record

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:activations are not quantised")
QUANTISING = runpy.run_path(str(Path(__file__).with_name("quantising.py")))
e2m1, in_fp8, in_mxfp4, put = (QUANTISING[name] for name in ("e2m1", "in_fp8", "in_mxfp4", "put"))
TEXT = torch.randint(1, 50, (2, 9), generator=torch.Generator().manual_seed(1))
SIZES = {
    "vocab_size": 50,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
}
EXPERTS = {"moe_intermediate_size": 32, "num_experts_per_tok": 2}
LATENT = {
    "num_key_value_heads": 4, "kv_lora_rank": 32, "q_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16,
    "v_head_dim": 16, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
}  # fmt: skip
CLASSES = {
    "llama": ("Llama", {}),
    "qwen3": ("Qwen3", {}),
    "qwen3_moe": ("Qwen3Moe", {**EXPERTS, "num_experts": 4}),
    "deepseek_v3": ("DeepseekV3", {**EXPERTS, **LATENT}),
    "gpt_oss": ("GptOss", {"num_experts_per_tok": 2, "num_local_experts": 4}),
}
DYNAMIC = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}
STORED = {"type": "float", "num_bits": 8, "symmetric": True, "dynamic": False, "group_size": None}
PACKED = {"quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed"}
PROJECTION = "model.layers.0.self_attn.q_proj.weight"
EXPERT = "model.layers.0.mlp.experts.gate_up_proj"


def compressed(**weights):
    group = {"targets": ["Linear"], "weights": {**STORED, **weights}, "input_activations": None}
    return {**PACKED, "config_groups": {"group_0": group}, "ignore": ["lm_head"], "kv_cache_scheme": None}


@pytest.fixture(autouse=True)
def quiet():
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity(50)
    yield
    transformers.logging.set_verbosity(level)


@torch.no_grad()
def written(name, folder, sizes=()):
    """Write a small model with large weights, so that wrong ones are seen."""
    torch.manual_seed(0)
    kind, more = CLASSES[name]
    config = transformers.CONFIG_MAPPING[name](**{**SIZES, **more, **dict(sizes)}, pad_token_id=None)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    for tensor in model.parameters():
        tensor.normal_(std=0.2)
    model.save_pretrained(folder)
    return load_file(folder / "model.safetensors")


def e4m3(code):
    """The number of a code by the definition: sign, 4 bits of exponent with a bias of 7, 3 bits of mantissa."""
    sign, exponent, mantissa = -1 if code & 128 else 1, code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    return sign * (mantissa * 2.0**-9 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))


def put_exact(folder, source, exact):
    """Write the model with the weights that the quantised ones stand for, without quantisation."""
    folder.mkdir()
    config = json.loads((source / "config.json").read_text())
    del config["quantization_config"]
    (folder / "config.json").write_text(json.dumps(config))
    save_file(exact, folder / "model.safetensors", metadata={"format": "pt"})


def theirs(folder, dtype=torch.float32):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


@torch.no_grad()
def check_equal(folder, exact):
    """Ours equals ours with the exact weights bit by bit, and transformers, in float32 and in bfloat16."""
    put_exact(folder / "exact", folder, exact)
    mine, wanted = load(folder), load(folder / "exact")
    assert next(mine.parameters()).dtype == torch.float32
    assert all(torch.equal(x, wanted.state_dict()[name]) for name, x in mine.state_dict().items())
    half, rounded = load(folder, dtype=torch.bfloat16), load(folder / "exact", dtype=torch.bfloat16)
    assert all(torch.equal(x, rounded.state_dict()[name]) for name, x in half.state_dict().items())
    return mine


CASES = {
    "qwen3, float32 scales": ("qwen3", (32, 32), torch.float32, {}),
    "qwen3, bfloat16 scales": ("qwen3", (16, 32), torch.bfloat16, {}),
    "qwen3, powers of two": ("qwen3", (32, 32), torch.float8_e8m0fnu, {"scale_fmt": "ue8m0"}),
    "deepseek_v3": ("deepseek_v3", (16, 16), torch.float32, {}),
    "qwen3_moe": ("qwen3_moe", (32, 32), torch.float32, {"modules_to_not_convert": ["lm_head"]}),
}


@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
def test_fp8_is_read_as_transformers_dequantises_it(case, tmp_path):
    name, sides, kind, fields = CASES[case]
    stored, exact = in_fp8(written(name, tmp_path), *sides, kind=kind)
    put(tmp_path, stored, {**DYNAMIC, "weight_block_size": list(sides), **fields})
    mine = check_equal(tmp_path, exact)
    torch.testing.assert_close(mine(TEXT), theirs(tmp_path)(TEXT).logits)


@torch.no_grad()
@pytest.mark.parametrize("name", ["qwen3", "deepseek_v3"])
@pytest.mark.parametrize("sides", [(128, 128), (40, 24)])
def test_last_blocks_may_be_smaller_which_transformers_does_not_read(name, sides, tmp_path):
    sizes = {"hidden_size": 144, "intermediate_size": 200}
    stored, exact = in_fp8(written(name, tmp_path, sizes), *sides)
    put(tmp_path, stored, {**DYNAMIC, "weight_block_size": list(sides)})
    check_equal(tmp_path, exact)
    with pytest.raises(ValueError, match=r"got .*_proj\.weight, which is divided into blocks of equal size there"):
        verify(tmp_path)


@torch.no_grad()
def test_mxfp4_is_read_as_transformers_dequantises_it(tmp_path):
    stored, exact = in_mxfp4(written("gpt_oss", tmp_path))
    put(
        tmp_path, stored, {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    )
    mine = check_equal(tmp_path, exact)
    torch.testing.assert_close(mine(TEXT), theirs(tmp_path)(TEXT).logits)
    their = theirs(tmp_path, torch.bfloat16).state_dict()[EXPERT]
    assert torch.equal(their.float(), exact[EXPERT].bfloat16().float())


@torch.no_grad()
@pytest.mark.parametrize(
    ("sides", "weights"),
    [
        ((0, 0), {"strategy": "tensor"}),
        ((1, 0), {"strategy": "channel"}),
        ((128, 128), {"strategy": "block", "block_structure": [128, 128]}),
    ],
)
def test_compressed_tensors_in_fp8_are_read(sides, weights, tmp_path):
    stored, exact = in_fp8(written("llama", tmp_path), *sides, end="_scale", kind=torch.bfloat16)
    if weights["strategy"] == "tensor":
        stored = {name: x.reshape(1) if name.endswith("_scale") else x for name, x in stored.items()}
    put(tmp_path, stored, compressed(**weights))
    check_equal(tmp_path, exact)
    with pytest.raises(
        ValueError, match=r"_proj\.weight, whose numbers are rounded there to the 16 bits of its scales"
    ):
        verify(tmp_path)


def test_shards_and_the_scale_of_a_whole_weight_are_read(tmp_path):
    stored, exact = in_fp8(written("qwen3", tmp_path), 0, 0)
    scales = {name: x.reshape(()) if name.endswith("_inv") else x for name, x in stored.items()}
    fixed = {
        name.replace("weight_scale_inv", "activation_scale"): x.clone()
        for name, x in scales.items()
        if "_inv" in name
    }
    names = sorted(scales | fixed)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    put(tmp_path, stored, {**DYNAMIC, "activation_scheme": "static", "weight_block_size": None})
    (tmp_path / "model.safetensors").unlink()
    for file, held in parts.items():
        save_file({name: (scales | fixed)[name] for name in held}, tmp_path / file, metadata={"format": "pt"})
    places = {name: file for file, held in parts.items() for name in held}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    check_equal(tmp_path, exact)


@torch.no_grad()
def test_save_writes_no_quantisation(tmp_path):
    stored, exact = in_mxfp4(written("gpt_oss", tmp_path))
    put(tmp_path, stored, {"quant_method": "mxfp4"})
    mine = load(tmp_path)
    save(mine, tmp_path, "gpt_oss")
    assert "quantization_config" not in json.loads((tmp_path / "config.json").read_text())
    again = load_file(tmp_path / "model.safetensors")
    assert again.keys() == exact.keys()
    assert all(torch.equal(again[name], exact[name]) for name in exact)


def test_every_code_of_e4m3_and_e2m1_has_its_number():
    codes = torch.arange(256).byte().view(torch.float8_e4m3fn).float()
    wanted = torch.tensor([e4m3(code) for code in range(256)])
    assert torch.equal(codes.isnan(), wanted.isnan())
    assert torch.equal(codes[~codes.isnan()], wanted[~wanted.isnan()])
    assert torch.equal(codes.signbit()[:128].int(), torch.zeros(128).int())
    pairs = mxfp4.pairs_of_bytes()
    wanted = torch.tensor([[e2m1(byte % 16), e2m1(byte // 16)] for byte in range(256)])
    assert torch.equal(pairs, wanted)
    assert torch.equal(pairs.signbit(), wanted.signbit())


def test_every_code_of_e8m0_is_a_power_of_two():
    found = scaled_blocks.power_of_two(torch.arange(256).byte())
    assert found[:255].double().tolist() == [2.0 ** (code - 127) for code in range(255)]
    assert found[255].isnan()
    assert torch.equal(scaled_blocks.power_of_two(torch.arange(255).byte().view(torch.float8_e8m0fnu)), found[:255])


def swapped_nibbles():
    return REAL_PAIRS().flip(1)


def without_bias(codes):
    return REAL_POWERS(codes) * 2.0


REAL_PAIRS, REAL_POWERS = mxfp4.pairs_of_bytes, scaled_blocks.power_of_two


@pytest.mark.parametrize("mutant", [("pairs_of_bytes", swapped_nibbles), ("power_of_two", without_bias)])
def test_a_wrong_reading_of_mxfp4_is_noticed(mutant, tmp_path, monkeypatch):
    stored, exact = in_mxfp4(written("gpt_oss", tmp_path))
    put(tmp_path, stored, {"quant_method": "mxfp4"})
    monkeypatch.setattr(mxfp4, *mutant)
    with pytest.raises(AssertionError):
        check_equal(tmp_path, exact)


def test_transposed_scales_are_noticed(tmp_path, monkeypatch):
    stored, exact = in_fp8(written("qwen3", tmp_path), 32, 32)
    put(tmp_path, stored, {**DYNAMIC, "weight_block_size": [32, 32]})
    check = scaled_blocks.need_scales
    monkeypatch.setattr(
        scaled_blocks, "need_scales", lambda name, x: check(name, x.copy_(x.mT.reshape(x.shape).clone()))
    )
    with pytest.raises(AssertionError):
        check_equal(tmp_path, exact)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (None, None),
        ([], r"quantization_config in config.json must be an object with a quant_method; got \[\]"),
        ({}, "must be an object with a quant_method"),
        ({"quant_method": "gptq"}, "quant_method of compressed-tensors, fp8, mxfp4; got 'gptq'; load the original"),
        ({"quant_method": "bitsandbytes"}, "got 'bitsandbytes'"),
        ({"quant_method": "mxfp4"}, "with quant_method mxfp4 in config.json must have quantised weights; got none"),
        ({"quant_method": "fp8", "fmtt": "e4m3"}, "no field .* of fp8 is named 'fmtt'; .*did you mean 'fmt'"),
        ({"quant_method": "fp8", "fmt": "e5m2"}, "fmt in quantization_config must be 'e4m3'; got 'e5m2'"),
        ({"quant_method": "fp8", "activation_scheme": "x"}, "activation_scheme .* must be 'dynamic' or 'static'"),
        ({"quant_method": "fp8", "scale_fmt": 1}, "scale_fmt in .* must be 'float' or 'ue8m0'; got 1"),
        ({"quant_method": "fp8", "expert_dtype": "fp4"}, "expert_dtype in .* must be 'fp8'; got 'fp4'"),
        ({"quant_method": "fp8", "weight_block_size": [0, 32]}, "two whole numbers above zero, or null; got"),
        ({"quant_method": "fp8", "modules_to_not_convert": "x"}, "modules_to_not_convert in .* must be a list"),
        ({"quant_method": "fp8", "modules_to_convert": "x"}, "modules_to_convert in .* must be a list"),
        ({"quant_method": "fp8", "dequantize": 1}, "dequantize in .* must be False or True; got 1"),
        ({"quant_method": "mxfp4", "dequantize": 1}, "dequantize in .* must be False or True; got 1"),
        (
            {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.self_attn"]},
            r"modules_to_not_convert lists must not have quantised weights; model\.layers\.0\.self_attn is listed",
        ),
        (
            {"quant_method": "fp8", "ignored_layers": ["lm_head", "model.layers.*.mlp.up_proj"]},
            r"ignored_layers lists must not have .*; model\.layers\.\*\.mlp\.up_proj is listed, and model\.layers\.0",
        ),
        ({**compressed(strategy="channel"), "format": "pack-quantized"}, "format in .* must be 'float-quantized'"),
        ({**compressed(strategy="channel"), "kv_cache_scheme": {"a": 1}}, "kv_cache_scheme in .* must be None"),
        ({**compressed(strategy="channel"), "transform_config": {"a": 1}}, "transform_config in .* must be None or"),
        ({**compressed(strategy="channel"), "config_groups": {}}, "config_groups in .* must have one group"),
        (compressed(strategy="group"), "no strategy of weights is named 'group'"),
        (compressed(strategy="channel", num_bits=4), "num_bits of weights in .* must be 8; got 4"),
        (compressed(strategy="channel", symmetric=False), "symmetric of weights in .* must be True; got False"),
        (compressed(strategy="channel", zero=1), "no field of the weights of a group is named 'zero'"),
        (compressed(strategy="channel", block_structure=[2, 2]), "block_structure must be null without blocks"),
        (compressed(strategy="block"), "block_structure must be two whole numbers above zero; got None"),
        (compressed(strategy="channel"), r"the quantised .*_proj\.weight needs its weight_scale; there is no"),
    ],
)
def test_what_is_not_supported_is_refused_by_its_field(fields, message, tmp_path):
    stored, _ = in_fp8(written("qwen3", tmp_path), 128, 128)
    put(tmp_path, stored, fields)
    message = message or "quantised weights need a quantization_config in config.json, .*of F8_E4M3"
    with pytest.raises(ValueError, match=message):
        load(tmp_path)
    with pytest.raises(ValueError, match=message):
        published_shape(tmp_path)


@pytest.mark.parametrize(
    ("end", "change", "message"),
    [
        ("", lambda x: x.float(), r"unexpected model\.layers\.0\.self_attn\.q_proj\.weight_scale_inv"),
        ("", lambda x: x.view(torch.uint8).fill_(127).view(x.dtype), f"finite .* numbers; {PROJECTION} has others"),
        ("_scale_inv", lambda _: None, f"the quantised {PROJECTION} needs its weight_scale_inv; there is no"),
        ("_scale_inv", lambda x: x[:1], rf"{PROJECTION}_scale_inv must have shape \(2, 2\), .*got \(1, 2\)"),
        ("_scale_inv", lambda x: x.double(), f"{PROJECTION}_scale_inv must have one of the types BF16, .*got F64"),
        ("_scale_inv", lambda x: x.byte(), f"{PROJECTION}_scale_inv must have one of the types BF16, .*got U8"),
        ("_scale_inv", lambda x: x * math.nan, f"finite and not below zero; {PROJECTION}_scale_inv has others"),
        ("_scale_inv", lambda x: x / 0, f"finite and not below zero; {PROJECTION}_scale_inv has others"),
        ("_scale_inv", lambda x: -x, f"finite and not below zero; {PROJECTION}_scale_inv has others"),
    ],
)
def test_damaged_fp8_is_named(end, change, message, tmp_path):
    stored, _ = in_fp8(written("qwen3", tmp_path), 32, 32)
    came = change(stored[PROJECTION + end])
    stored = {name: x for name, x in stored.items() if name != PROJECTION + end}
    put(
        tmp_path,
        stored | ({} if came is None else {PROJECTION + end: came.contiguous()}),
        {**DYNAMIC, "weight_block_size": [32, 32]},
    )
    with pytest.raises(ValueError, match=message):
        load(tmp_path)


@pytest.mark.parametrize(
    ("end", "change", "message"),
    [
        ("_blocks", lambda x: x[..., :8], rf"{EXPERT}_blocks must have shape .*got \(4, 192, 2, 8\)"),
        ("_blocks", lambda x: x.int(), f"must be bytes .*{EXPERT}_blocks has I32"),
        ("_blocks", lambda _: None, f"unexpected {EXPERT}_scales|missing {EXPERT}"),
        ("_scales", lambda _: None, f"the quantised {EXPERT}_blocks needs its gate_up_proj_scales; there is no"),
        ("_scales", lambda x: x[:, :1], rf"{EXPERT}_scales must have shape \(4, 192, 2\)"),
        ("_scales", lambda x: x.fill_(255), f"finite and not below zero; {EXPERT}_scales has others"),
        ("_scales", lambda x: x.fill_(254), f"finite floating-point numbers; {EXPERT} has others"),
        ("", lambda _: torch.zeros(1), f"a weight must be stored once; .*{EXPERT}"),
    ],
)
def test_damaged_mxfp4_is_named(end, change, message, tmp_path):
    stored, _ = in_mxfp4(written("gpt_oss", tmp_path))
    came = change(stored.pop(EXPERT + end) if end else None)
    put(tmp_path, stored | ({} if came is None else {EXPERT + end: came.contiguous()}), {"quant_method": "mxfp4"})
    with pytest.raises(ValueError, match=message):
        load(tmp_path)


def test_blocks_without_a_format_are_refused(tmp_path):
    stored, _ = in_mxfp4(written("gpt_oss", tmp_path))
    put(tmp_path, stored, None)
    with pytest.raises(ValueError, match=r"need a quantization_config in config\.json, .*_blocks, of U8"):
        load(tmp_path)


def test_sizes_are_those_of_dequantised_weights(tmp_path):
    stored, exact = in_mxfp4(written("gpt_oss", tmp_path))
    put(tmp_path, stored, {"quant_method": "mxfp4"})
    tensors = quantised_tensors.open_tensors(tmp_path, json.loads((tmp_path / "config.json").read_text()))
    assert {name: tensors.shape(name) for name in tensors} == {name: tuple(x.shape) for name, x in exact.items()}


def test_quantised_activations_are_told(tmp_path):
    stored, _ = in_fp8(written("qwen3", tmp_path), 32, 32)
    put(tmp_path, stored, {**DYNAMIC, "weight_block_size": [32, 32]})
    with pytest.warns(UserWarning, match=r"activations are not quantised: .*\(activation_scheme dynamic"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["gpt_oss", pytest.param("qwen3", marks=pytest.mark.extended)])
def test_verify_compares_with_the_dequantised_model(name, tmp_path):
    made = written(name, tmp_path)
    if name == "gpt_oss":
        put(tmp_path, in_mxfp4(made)[0], {"quant_method": "mxfp4"})
    else:
        put(tmp_path, in_fp8(made, 32, 32)[0], {**DYNAMIC, "weight_block_size": [32, 32]})
    found = verify(tmp_path)
    assert found.agrees, [(check.name, check.note) for check in found.checks]


@pytest.mark.parametrize("name", ["gpt_oss", "qwen3"])
def test_the_lab_attaches_to_the_dequantised_model(name, tmp_path):
    made = written(name, tmp_path)
    if name == "gpt_oss":
        stored, exact = in_mxfp4(made)
        put(tmp_path, stored, {"quant_method": "mxfp4"})
    else:
        stored, exact = in_fp8(made, 32, 32)
        put(tmp_path, stored, {**DYNAMIC, "weight_block_size": [32, 32]})
    put_exact(tmp_path / "exact", tmp_path, exact)
    quantised, wanted = (record(attach(folder), TEXT, "z", logits=True) for folder in (tmp_path, tmp_path / "exact"))
    torch.testing.assert_close(quantised.logits, wanted.logits)
    torch.testing.assert_close(quantised["z", 1], wanted["z", 1])


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_the_lab_refuses_what_transformers_does_not_dequantise(kind, tmp_path, monkeypatch):
    # None in its place: the package that transformers needs for this format cannot be imported
    monkeypatch.setitem(sys.modules, "compressed_tensors", None)
    stored, _ = in_fp8(written("llama", tmp_path), 128, 128, "_scale", kind)
    put(tmp_path, stored, compressed(strategy="block", block_structure=[128, 128]))
    message = "rounded there to the 16 bits" if kind == torch.bfloat16 else "it says: compressed-tensors"
    with pytest.raises(ValueError, match=message):
        attach(tmp_path)
