"""A small study of each kind of model: prepare data, train and evaluate a run, build the report."""

import os

import numpy as np
import pytest
import torch

from ordinate.core.atomic_files import read_checksummed
from ordinate.core.folder_lock import FolderLockedError, exclusive_lock
from ordinate.core.progress import ignore
from ordinate.pretrained.read_model import read_model
from ordinate.report.build import build_report
from ordinate.report.read import load_study
from ordinate.study.data_source import source_of
from ordinate.study.initial_model import adapted_shape
from ordinate.study.initial_model import initial_model as start
from ordinate.study.plan import Plan
from ordinate.study.resolve import resolve
from ordinate.study.runner import run_study
from ordinate.study.study_folder import StudyFolder
from ordinate.study.worker import train_and_evaluate

SIZES = {
    "steps": 3,
    "batch": 4,
    "width": 16,
    "layers": 1,
    "heads": 2,
    "warmup_steps": 1,
    "eval_length_multiples": (1, 2),
    "eval_samples": 8,
}
SIZES |= {"precision": "fp32"}
COLOURS = {"dark": 40, "light": 200}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Data of each kind."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "text").mkdir()
    for number in range(20):
        lines = (f"the {word} of line {number * word} is {word * 7 % 13}\n" for word in range(40))
        (folder / "text" / f"{number}.txt").write_text("".join(lines))
    pairs = (f"say {number} and {number % 7}\t{number % 7} und {number}\n" for number in range(200))
    (folder / "pairs.tsv").write_text("".join(pairs))
    image = pytest.importorskip("PIL.Image")
    for name, level in COLOURS.items():
        (folder / "images" / name).mkdir(parents=True)
        for number in range(30):
            pixels = np.random.default_rng(number).integers(level - 30, level + 30, (8, 8, 3), np.uint8)
            image.fromarray(pixels).save(folder / "images" / name / f"{number}.png")
    return folder


OPTIONS = {
    "encoder": {"text": "text", "length": 16, "shuffle_samples": 4},
    "encoder-decoder": {"pairs": "pairs.tsv", "length": 32, "generated_texts": 2},
    "vision": {"images": "images", "image_size": 8, "patch_size": 2, "schemes": ("learned_grid",)},
}


def plan_of(model, made, **changes):
    own = {name: str(made / value) if isinstance(value, str) else value for name, value in OPTIONS[model].items()}
    return resolve(Plan(model=model, **({"schemes": ("rope",)} | SIZES | own | changes)))


def begin(plan, path):
    folder = StudyFolder(path)
    folder.path.mkdir()
    source = source_of(plan)(plan, folder.data)
    source.prepare(ignore)
    folder.open(plan, source.identity, "ordinate study")
    return folder


@pytest.fixture(scope="module", params=OPTIONS)
def done(request, made, tmp_path_factory):
    plan = plan_of(request.param, made)
    folder = begin(plan, tmp_path_factory.mktemp(request.param) / "study")
    (run,) = plan.runs()
    train_and_evaluate(folder, plan, run)
    return plan, folder, read_checksummed(folder.result(run)), folder.run(run) / "model"


def test_a_run_is_trained_and_measured_on_what_was_held_out(done):
    plan, _, result, _ = done
    assert result["status"] == "done"
    assert result["training"]["steps"] == [1, 2, 3]
    for row in result["lengths"]:
        kind = "bits_per_token" if plan.model == "encoder" else "bits_per_byte"
        value = row["accuracy"] if plan.model == "vision" else row[kind]
        assert row["interval"][0] - 1e-9 <= value <= row["interval"][1] + 1e-9
    sizes = [row.get("asked") or [one.get("asked") for one in row["documents"]] for row in result["lengths"]]
    if plan.model != "encoder-decoder":
        assert sizes[0] == sizes[1], "the same is asked at each length"
    assert [row["times"] for row in result["lengths"]] == [1, 2]


@pytest.mark.parametrize(("model", "kind"), [("encoder-decoder", "pairs"), ("vision", "images")])
def test_too_few_examples_to_tune_learning_rates_are_refused_before_training(model, kind, made, tmp_path):
    few = tmp_path / "few"
    if model == "vision":
        for name in COLOURS:
            (few / name).mkdir(parents=True)
            for path in sorted((made / "images" / name).iterdir())[:6]:
                (few / name / path.name).write_bytes(path.read_bytes())
    else:
        few = few.with_suffix(".tsv")
        few.write_text("".join(f"say {number}\t{number} und\n" for number in range(10)))
    plan = plan_of(model, made, tune_lr=(1e-3, 2e-3), **{kind: str(few)})
    with pytest.raises(ValueError, match=rf"must have at least 10 {kind}, of which every tenth .* has [0-9]+; give"):
        source_of(plan)(plan, tmp_path / "data").prepare(ignore)


@pytest.mark.parametrize("model", OPTIONS)
def test_a_second_process_in_a_folder_is_rejected_with_the_owners_name(model, made, tmp_path, untyped):
    plan = plan_of(model, made)
    with (
        exclusive_lock(tmp_path),
        pytest.raises(FolderLockedError, match=f"process {os.getpid()} on .* is writing to"),
    ):
        run_study(plan, tmp_path, None, "ordinate train", None)
    # nothing was read or written before that
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == []


def test_the_saved_model_is_of_the_kind_and_names_the_command_that_uses_it(done):
    plan, _, _, model = done
    assert read_model(model, plan.model).shape.width == 16
    if plan.model == "vision":
        assert read_model(model).shape.labels == ("dark", "light")
    with pytest.raises(ValueError, match=r"use it with `ordinate (fill|translate|classify)`"):
        read_model(model, "decoder")
    assert (model / "tokenizer.json").exists() == (plan.model != "vision")


@pytest.mark.extended
def test_the_report_has_the_metric_of_the_kind(done):
    plan, folder, _, _ = done
    page = build_report(folder.path).path.read_text(encoding="utf-8")
    study = load_study(folder.path)
    assert study.damaged == []
    assert f"1 compared on {study.data_title}" in page
    words = {
        "encoder": ("bits per masked token", "masked-token accuracy", "pairs shuffled", "Encoders of 1 layers"),
        "encoder-decoder": (
            "Accuracy by source length",
            "Cross-attention weights",
            "pairs of up to 32 tokens",
            "Encoder-decoders of",
            "copying the source gives",
        ),
        "vision": (
            "Accuracy by class",
            "images / s",
            "images of 8 x 8 pixels",
            "at the trained size (8 pixels)",
            "Accuracy on larger images",
            "so there is nothing to choose from",
        ),
    }
    for part in words[plan.model]:
        assert part.lower() in page.lower()
    silent = {"encoder": "task_samples", "encoder-decoder": "shuffle_samples", "vision": "tokenizer"}
    assert f"<dt>{silent[plan.model]}</dt>" not in page


def test_the_same_tokens_are_masked_at_every_length(done):
    plan, _, result, _ = done
    if plan.model == "encoder":
        asked = [[document["asked"] for document in row["documents"]] for row in result["lengths"]]
        assert asked[0] == asked[1]
        assert sum(asked[0]) == 8 * round(0.15 * 32)
        assert [row["window"] for row in result["order"]] == [1, 2, 4, 8, 16]


def test_translations_are_generated_and_rows_of_the_attention_pattern_sum_to_one(done):
    plan, _, result, _ = done
    if plan.model == "encoder-decoder":
        assert [set(sample) for sample in result["samples"]] == [{"prompt", "text", "wanted"}] * 2
        assert 0 <= result["lengths"][0]["exact"] <= 1
        first, second = result["lengths"]
        assert 0 < first["chrf_copied"] < 100
        for row in (first, second):
            parts, tokens = row["slices"]["source length"], sum(one["asked"] for one in row["documents"])
            assert sum(part["asked"] for part in parts) == tokens
            assert sum(part["asked"] * part["accuracy"] for part in parts) == pytest.approx(row["accuracy"] * tokens)
        # two concatenated sources, and the separator
        assert second["slices"]["source length"][0]["from"] > first["slices"]["source length"][-1]["to"]
        found = result["crossing"]
        assert np.array(found["weights"]).shape == (len(found["target"]), len(found["source"]))
        assert np.array(found["weights"]).sum(1) == pytest.approx(1, abs=1e-2)


@pytest.mark.extended
def test_a_stopped_run_resumes_and_ends_identically(done, made, tmp_path):
    plan, folder, result, _ = done
    (run,) = plan.runs()
    again = begin(plan, tmp_path / "study")
    half = plan.model_copy(update={"checkpoint_every": 1})
    place = again.run(run)
    (place / "checkpoints").mkdir(parents=True)
    for name in ("metrics.jsonl", *(path.name for path in (folder.run(run) / "checkpoints").glob("step-*"))):
        found = folder.run(run) / "checkpoints" / name
        if found.is_dir():
            (place / "checkpoints" / name).mkdir()
            for part in found.iterdir():
                (place / "checkpoints" / name / part.name).write_bytes(part.read_bytes())
        else:
            (place / "checkpoints" / name).write_bytes(found.read_bytes())
    train_and_evaluate(again, half, run)
    other = read_checksummed(again.result(run))
    for one in (result, other):
        one.pop("cost", None)
    assert other == result


def going_on(plan, made, model, **changes):
    free = {"width", "layers", "heads", "image_size", "patch_size"}
    own = {
        name: str(made / value) if isinstance(value, str) else value for name, value in OPTIONS[plan.model].items()
    }
    given = {name: value for name, value in (SIZES | own).items() if name not in free}
    return resolve(Plan(model=plan.model, **given | {"steps": 0, "base": str(model), "schemes": None} | changes))


@pytest.mark.extended
def test_a_trained_model_is_evaluated_as_it_is_and_its_scheme_is_replaced(done, made, tmp_path):
    plan, _, result, model = done
    as_it_is = going_on(plan, made, model)
    assert resolve(as_it_is) == as_it_is
    folder = begin(as_it_is, tmp_path / "study")
    (run,) = as_it_is.runs()
    train_and_evaluate(folder, as_it_is, run)
    again = read_checksummed(folder.result(run))
    assert again["lengths"] == result["lengths"]
    other = going_on(
        plan,
        made,
        model,
        schemes=("none",),
        scheme_location=("encoder",) if plan.model == "encoder-decoder" else None,
    )
    (run,) = other.runs()
    shape = adapted_shape(other, run)
    lines = {name: side.shape.scheme for name, side in shape.scheme_locations.items()}
    kept = {"encoder": "none", "decoder": "rope", "cross": "none"}
    assert lines == (kept if plan.model == "encoder-decoder" else {"layers": "none"})
    began = start(other, run, shape).state_dict()
    assert all(torch.equal(x, began[name]) for name, x in read_model(model).state_dict().items() if name in began)


@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        (
            "encoder",
            {"generated_texts": 3},
            "task masked predicts masked tokens of a text; got --generated-texts; leave them out",
        ),
        ("encoder", {"task": "masked:mlm_probabilty=0.3"}, "did you mean 'mlm_probability'"),
        ("encoder", {"task": "text"}, "task text needs a model of kind decoder; got --model encoder"),
        ("encoder-decoder", {"text": "docs"}, "task translation translates sentence pairs; got --text"),
        ("vision", {"length": 64}, "task images classifies images; got --length"),
        ("vision", {"patch_size": 3}, "the patch size must divide the image size; got --patch-size 3 for 8 pixels"),
    ],
)
def test_options_without_effect_or_that_do_not_fit_are_rejected(made, model, changes, message):
    with pytest.raises(ValueError, match=message):
        plan_of(model, made, **changes)


def published(folder, model, words, end):
    """A transformers folder with a word-level tokenizer.json and its special tokens."""
    tokenizers = pytest.importorskip("tokenizers")
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.add_special_tokens([word for word in words if word.startswith("<")])
    single = f"$A {end}"
    inner.post_processor = tokenizers.processors.TemplateProcessing(single=single, special_tokens=[(end, words[end])])
    inner.enable_truncation(3)
    model.save_pretrained(folder)
    inner.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.extended
def test_published_models_keep_their_special_tokens(made, tmp_path):
    transformers = pytest.importorskip("transformers")
    signs = ["<pad>", "</s>", "<unk>", "<mask>"]
    words = {word: place for place, word in enumerate([*signs, "say", "und", "the", "line", *map(str, range(40))])}
    sizes = {"vocab_size": len(words) + 4, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    t5 = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, decoder_start_token_id=0))
    folder = published(tmp_path / "t5", t5, words, "</s>")
    given = {
        "base": str(folder),
        "steps": 0,
        "eval_samples": 4,
        "length": 12,
        "eval_length_multiples": (1, 2),
        "generated_texts": 1,
    }
    plan = resolve(Plan(model="encoder-decoder", pairs=str(made / "pairs.tsv"), precision="fp32", **given))
    study = begin(plan, tmp_path / "pairs")
    task = source_of(plan)(plan, study.data).task
    row = task.batch(task.usable[:1])
    assert (task.start, task.end) == (0, 1)
    # all words of a sentence, and one end token
    assert row.source[0, 0] == words["say"]
    assert (row.source[0] == 1).nonzero().tolist() == [[row.source.shape[1] - 1]]
    assert row.source.shape[1] == 5
    assert (row.targets[0] == 1).sum() == 1
    train_and_evaluate(study, plan, plan.runs()[0])
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    bert = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=len(words), **sizes))
    folder = published(tmp_path / "bert", bert, words, "</s>")
    given = {
        "base": str(folder),
        "steps": 0,
        "eval_samples": 4,
        "length": 12,
        "eval_length_multiples": (1,),
        "shuffle_samples": 2,
    }
    plan = resolve(Plan(model="encoder", text=str(made / "text"), precision="fp32", **given))
    study = begin(plan, tmp_path / "text")
    task = source_of(plan)(plan, study.data).task
    assert (task.vocabulary, task.mask) == (len(words), words["<mask>"])
    train_and_evaluate(study, plan, plan.runs()[0])
