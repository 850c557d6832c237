import json

import numpy as np
import pytest
import torch

from ordinate.cli.application import app
from ordinate.cli.probe import _listed
from ordinate.core import catalog
from ordinate.core.atomic_files import write_checksummed
from ordinate.data.tokenizers.bytes import Bytes
from ordinate.models.decoder import Decoder
from ordinate.models.shape import Shape
from ordinate.models.vision import VisionShape, VisionTransformer
from ordinate.probing.runner import default_model as trained


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model and a text."""
    root = tmp_path_factory.mktemp("probe")
    torch.manual_seed(0)
    shape = Shape(vocabulary=256, width=16, heads=2, layers=2, scheme="learned", max_length=32)
    Decoder(shape).save_pretrained(root / "tiny")
    Bytes().save(root / "tiny")
    for number in range(20):
        (root / f"{number}.txt").write_text("".join(f"{number} {line} some words\n" for line in range(20)))
    return root


def run(place, out, *more):
    sizes = ["--samples", "6", "--length", "16", "--text", str(place)]
    words = [str(word) for word in (place / "tiny", "--out", out, *sizes, *more)]
    return app(["probe", *words], result_action="return_value")


def test_a_folder_is_probed_reported_and_skipped_the_second_time(place, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(place, out, "--probes", "order_sensitivity:windows=2;8,extrapolation") == 0
    said = capsys.readouterr().out
    assert "input: 6 samples of 16 tokens from" in said
    assert "order_sensitivity  measured: " in said
    assert f"report: {out / 'report.html'}" in said.replace("\n", "")
    assert json.loads((out / "subject.json").read_text())["about"]["facts"]["name"] == "tiny"
    assert {path.name for path in (out / "findings").iterdir()} == {"order_sensitivity.json", "extrapolation.json"}
    assert run(place, out, "--probes", "order_sensitivity:windows=2;8") == 0
    assert "order_sensitivity  already done\n" in capsys.readouterr().out
    with pytest.raises(ValueError, match="seed: 0 -> 1"):
        run(place, out, "--probes", "order_sensitivity", "--seed", "1")
    with pytest.raises(ValueError, match=r"budget: 6200000000000\.0 -> 1000000000\.0"):
        run(place, out, "--probes", "order_sensitivity", "--budget", "1e9")
    app(["report", str(out)], result_action="return_value")
    assert "report.html" in capsys.readouterr().out


def test_bad_input_is_refused_before_anything_is_read(place, tmp_path):
    for more, message in (
        (["--probes", "order_sensitivty"], "did you mean 'order_sensitivity'"),
        (["--images", tmp_path / "a.npy"], "images must have the axes"),
        (["--budget", "0"], "budget must be above zero"),
    ):
        np.save(tmp_path / "a.npy", np.zeros((2, 2)))
        with pytest.raises(ValueError, match=message):
            run(place, tmp_path / "other", *more)


def test_a_file_that_holds_no_images_is_rejected(place, tmp_path):
    file = tmp_path / "a.npy"
    np.savez(tmp_path / "many.npz", a=np.zeros((2, 3, 4, 4)))
    for content in (b"", b"no array", (tmp_path / "many.npz").read_bytes()):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"numeric array in an \.npy file; .*a\.npy is not; write it"):
            run(place, tmp_path / "other", "--images", file)
    for wrong, message in ((np.full((2, 3, 4, 4), np.nan), "finite"), (np.array(["a"]), "numeric array in an")):
        np.save(file, wrong)
        with pytest.raises(ValueError, match=message):
            run(place, tmp_path / "other", "--images", file)
    with pytest.raises(ValueError, match=r"missing\.npy is not"):
        run(place, tmp_path / "other", "--images", tmp_path / "missing.npy")


def test_images_of_another_size_are_refused_before_anything_is_asked(tmp_path):
    sizes = {"width": 16, "heads": 2, "layers": 1, "image": (16, 16), "patch": (4, 4)}
    VisionTransformer(VisionShape(vocabulary=3, **sizes)).save_pretrained(tmp_path / "seer")
    for wrong in ((4, 3, 16, 20), (4, 3, 20, 16), (4, 1, 16, 16)):
        np.save(tmp_path / "a.npy", np.zeros(wrong))
        words = ["probe", str(tmp_path / "seer"), "--images", str(tmp_path / "a.npy"), "--out", str(tmp_path / "out")]
        with pytest.raises(
            ValueError,
            match=r"seer takes images of 3 channels and 16 by 16 pixels; got .* pixels in 4 images of a\.npy",
        ):
            app(words, result_action="return_value")
        assert not (tmp_path / "out" / "subject.json").exists()


def test_names_come_between_spaces_or_commas_with_their_options():
    assert _listed(("order_sensitivity,qk_roles", "position_retention")) == [
        "order_sensitivity",
        "qk_roles",
        "position_retention",
    ]
    assert _listed(("order_sensitivity:windows=2;8,other=3,qk_roles",)) == [
        "order_sensitivity:windows=2;8,other=3",
        "qk_roles",
    ]


def test_without_a_model_the_best_of_the_last_study_is_taken(tmp_path):
    assert trained.last_trained(tmp_path) is None
    for run_name, loss in (("a", 2.0), ("b", 1.0), ("c", None)):
        folder = tmp_path / "study" / "runs" / run_name
        (folder / "model").mkdir(parents=True)
        (folder / "model" / "tokenizer.json").write_text("{}")
        result = {"format": 2, "status": "done" if loss else "diverged", "training": {"loss": [3.0, loss]}}
        write_checksummed(folder / "result.json", result | {"run": {"name": run_name}})
    (tmp_path / "study" / "study.json").write_text("{}")
    assert trained.last_trained(tmp_path) == tmp_path / "study" / "runs" / "b" / "model"


def llama(folder, *, dtype=torch.float32, **changed):
    """A tiny random Llama, with other words in its config.json."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 256}
    config = transformers.LlamaConfig(**sizes, intermediate_size=24, max_position_embeddings=32)
    transformers.LlamaForCausalLM(config).to(dtype).save_pretrained(folder)
    _finished(folder, **changed)


def xlnet(folder):
    """A model whose blocks pass something else on."""
    transformers = pytest.importorskip("transformers")
    sizes = {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24, "vocab_size": 256}
    transformers.XLNetLMHeadModel(transformers.XLNetConfig(**sizes)).save_pretrained(folder)
    _finished(folder)


def own(folder, **shape):
    """A model of ours."""
    Decoder(Shape(vocabulary=256, width=16, heads=2, layers=2, max_length=32, **shape)).save_pretrained(folder)
    _finished(folder)


def _finished(folder, **changed):
    Bytes().save(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changed))


QUANTISED = {"quant_method": "bitsandbytes", "load_in_8bit": True}
ODD = {
    "without positions": (lambda folder: own(folder, scheme="none"), None, ()),
    "without attention": (
        lambda folder: own(folder, scheme="none", mixer="rwkv6"),
        "no attention",
        ("positional_heads", "qk_roles"),
    ),
    "an unknown block": (xlnet, "must be a vector for each token", "all"),
    "in 16 bits": (lambda folder: llama(folder, dtype=torch.bfloat16), None, ()),
    "attends by flash alone": (lambda folder: llama(folder, _attn_implementation="flash_attention_2"), None, ()),
    "quantised": (lambda folder: llama(folder, quantization_config=QUANTISED), "quantised", "all"),
}


@pytest.mark.extended
@pytest.mark.covering(0)
@pytest.mark.parametrize("what", ODD)
def test_odd_models_are_measured_or_skipped_with_the_reason_in_the_report(what, place, tmp_path):
    make, reason, skipped = ODD[what]
    make(tmp_path / "model")
    out, names = tmp_path / "out", catalog.names("ordinate.probing.probes")
    # a model that is read like any other need not be asked everything again
    names = ["order_sensitivity", "qk_roles"] if "flash" in what else names
    words = [str(word) for word in (tmp_path / "model", "--out", out, "--text", place)]
    code = app(
        ["probe", *words, "--samples", "15", "--length", "16", "--probes", *names], result_action="return_value"
    )
    assert code == (1 if skipped == "all" else 0)
    report = (out / "report.html").read_text()
    for name in names:
        found = json.loads((out / "findings" / f"{name}.json").read_text())["finding"]
        expected = "skipped" if skipped == "all" or name in skipped else "measured"
        assert found["status"] == expected, f"{name}: {found['answer']}"
        assert reason is None or expected == "measured" or reason in found["answer"]
    assert reason is None or reason in report


def test_a_text_that_is_too_short_is_an_error(place, tmp_path):
    (tmp_path / "short.txt").write_text("a few words, and no more\n")
    words = [str(word) for word in (place / "tiny", "--out", tmp_path / "out", "--text", tmp_path / "short.txt")]
    with pytest.raises(ValueError, match="must have two samples of 32 tokens"):
        app(["probe", *words, "--probes", "order_sensitivity,qk_roles"], result_action="return_value")
    assert not (tmp_path / "out" / "report.html").exists()


@pytest.mark.extended
def test_each_stage_of_a_model_is_probed_by_its_number(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    sizes = {"embed_dim": 8, "depths": [1, 2], "num_heads": [2, 2], "window_size": 2, "image_size": 16}
    transformers.SwinModel(transformers.SwinConfig(patch_size=2, **sizes)).save_pretrained(tmp_path / "swin")
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(3, 3, 16, 16)))

    def asked(*more):
        words = ["probe", "swin", "--images", "a.npy", "--probes", "qk_roles", *more]
        return app(words, result_action="return_value")

    def facts(folder):
        return json.loads((folder / "subject.json").read_text())["about"]["facts"]

    assert asked() == asked("--layer-stack", "1") == 0
    whole, first = facts(tmp_path / "runs" / "probe-swin"), facts(tmp_path / "runs" / "probe-swin-stage-1")
    assert (whole["layers"], whole["grid"]) == (2, [4, 4])
    assert (first["layers"], first["grid"]) == (1, [8, 8])
    assert "stage 1 of 2" in (tmp_path / "runs" / "probe-swin-stage-1" / "report.html").read_text()
    with pytest.raises(ValueError, match="stage: 1 -> 2"):
        asked("--layer-stack", "2", "--out", "runs/probe-swin-stage-1")
    with pytest.raises(ValueError, match="stages of this model are 1 to 2; got stage 3"):
        asked("--layer-stack", "3")
