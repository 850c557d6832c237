"""A study of each kind of model in small: data prepared, a run trained and measured, a report built."""

import os

import numpy as np
import pytest
import torch

from ordinate.checkpoints.read import read_model
from ordinate.files import read_sealed
from ordinate.lock import OccupiedError, only_writer
from ordinate.report.build import build
from ordinate.report.read import read
from ordinate.study.beginning import begin as start
from ordinate.study.beginning import new_shape
from ordinate.study.conduct import conduct
from ordinate.study.folder import Folder
from ordinate.study.plan import Plan
from ordinate.study.settle import settle
from ordinate.study.source import source_of
from ordinate.study.worker import carry_out

SIZES = {"steps": 3, "batch": 4, "width": 16, "layers": 1, "heads": 2, "warmup": 1, "multiples": (1, 2), "windows": 8}
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
    "encoder": {"text": "text", "length": 16, "shuffled": 4},
    "encoder-decoder": {"pairs": "pairs.tsv", "length": 32, "samples": 2},
    "vision": {"images": "images", "pixels": 8, "patch": 2, "schemes": ("learned_grid",)},
}


def plan_of(model, made, **changes):
    own = {name: str(made / value) if isinstance(value, str) else value for name, value in OPTIONS[model].items()}
    return settle(Plan(model=model, **({"schemes": ("rope",)} | SIZES | own | changes)))


def begin(plan, path):
    folder = Folder(path)
    folder.path.mkdir()
    source = source_of(plan)(plan, folder.data)
    source.prepare(lambda what: None)
    folder.open(plan, source.identity, "ordinate study")
    return folder


@pytest.fixture(scope="module", params=OPTIONS)
def done(request, made, tmp_path_factory):
    plan = plan_of(request.param, made)
    folder = begin(plan, tmp_path_factory.mktemp(request.param) / "study")
    (run,) = plan.runs()
    carry_out(folder, plan, run)
    return plan, folder, read_sealed(folder.result(run)), folder.run(run) / "model"


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


@pytest.mark.parametrize("model", OPTIONS)
def test_who_trains_into_a_folder_where_another_is_at_work_is_told_who_it_is(model, made, tmp_path, untyped):
    plan = plan_of(model, made)
    with only_writer(tmp_path), pytest.raises(OccupiedError, match=f"process {os.getpid()} on .* is at work in"):
        conduct(plan, tmp_path, None, "ordinate train", None)
    # nothing was read or written before that
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == []


def test_its_model_is_of_the_kind_and_says_which_command_uses_it(done):
    plan, _, _, model = done
    assert read_model(model, plan.model).shape.width == 16
    if plan.model == "vision":
        assert read_model(model).shape.labels == ("dark", "light")
    with pytest.raises(ValueError, match=r"use it by `ordinate (fill|translate|classify)`"):
        read_model(model, "decoder")
    assert (model / "tokenizer.json").exists() == (plan.model != "vision")


def test_its_report_is_of_its_own_quantity(done):
    plan, folder, _, _ = done
    page = build(folder.path).path.read_text(encoding="utf-8")
    study = read(folder.path)
    assert study.damaged == []
    assert f"1 compared on {study.source}" in page
    words = {
        "encoder": ("bits per hidden token", "hidden tokens right", "pairs shuffled", "Encoders of 1 layers"),
        "encoder-decoder": (
            "Right tokens by source length",
            "What it looks at",
            "pairs of up to 32 tokens",
            "Encoder-decoders of",
            "the source, copied, scores",
        ),
        "vision": (
            "Right answers by class",
            "images / s",
            "images of 8 x 8 pixels",
            "at the trained size (8 pixels)",
            "Images larger than in training",
            "if the model must see larger ones than in training",
        ),
    }
    for part in words[plan.model]:
        assert part.lower() in page.lower()
    silent = {"encoder": "fresh", "encoder-decoder": "shuffled", "vision": "tokenizer"}
    assert f"<dt>{silent[plan.model]}</dt>" not in page


def test_the_same_tokens_are_hidden_whatever_the_length(done):
    plan, _, result, _ = done
    if plan.model == "encoder":
        asked = [[document["asked"] for document in row["documents"]] for row in result["lengths"]]
        assert asked[0] == asked[1]
        assert sum(asked[0]) == 8 * round(0.15 * 32)
        assert [row["window"] for row in result["order"]] == [1, 2, 4, 8, 16]


def test_translations_are_written_and_the_map_has_rows_that_sum_to_one(done):
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
        # two sources behind each other, and what stands between them
        assert second["slices"]["source length"][0]["from"] > first["slices"]["source length"][-1]["to"]
        found = result["crossing"]
        assert np.array(found["weights"]).shape == (len(found["target"]), len(found["source"]))
        assert np.array(found["weights"]).sum(1) == pytest.approx(1, abs=1e-2)


def test_a_run_that_was_stopped_goes_on_and_ends_alike(done, made, tmp_path):
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
    carry_out(again, half, run)
    other = read_sealed(again.result(run))
    for one in (result, other):
        one.pop("cost", None)
    assert other == result


def going_on(plan, made, model, **changes):
    free = {"width", "layers", "heads", "pixels", "patch"}
    own = {
        name: str(made / value) if isinstance(value, str) else value for name, value in OPTIONS[plan.model].items()
    }
    given = {name: value for name, value in (SIZES | own).items() if name not in free}
    return settle(Plan(model=plan.model, **given | {"steps": 0, "base": str(model), "schemes": None} | changes))


def test_a_trained_model_is_measured_as_it_is_and_its_scheme_is_exchanged(done, made, tmp_path):
    plan, _, result, model = done
    as_it_is = going_on(plan, made, model)
    assert settle(as_it_is) == as_it_is
    folder = begin(as_it_is, tmp_path / "study")
    (run,) = as_it_is.runs()
    carry_out(folder, as_it_is, run)
    again = read_sealed(folder.result(run))
    assert again["lengths"] == result["lengths"]
    other = going_on(
        plan, made, model, schemes=("none",), sides=("encoder",) if plan.model == "encoder-decoder" else None
    )
    (run,) = other.runs()
    shape = new_shape(other, run)
    lines = {name: side.shape.scheme for name, side in shape.sides.items()}
    kept = {"encoder": "none", "decoder": "rope", "cross": "none"}
    assert lines == (kept if plan.model == "encoder-decoder" else {"layers": "none"})
    began = start(other, run, shape).state_dict()
    assert all(torch.equal(x, began[name]) for name, x in read_model(model).state_dict().items() if name in began)


@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        ("encoder", {"samples": 3}, "masked says hidden tokens of a text; got --samples; leave them out"),
        ("encoder", {"task": "masked:shar=0.3"}, "did you mean 'share'"),
        ("encoder", {"task": "text"}, "text is learned by a model of the kind decoder; got --model encoder"),
        ("encoder-decoder", {"text": "docs"}, "translation learns pairs of sentences; got --text"),
        ("vision", {"length": 64}, "images looks at images; got --length"),
        ("vision", {"patch": 3}, "patches must cover an image; got --patch 3 for 8 pixels"),
    ],
)
def test_what_has_no_effect_or_does_not_fit_is_refused(made, model, changes, message):
    with pytest.raises(ValueError, match=message):
        plan_of(model, made, **changes)


def published(folder, model, words, end):
    """A folder of transformers, with a tokenizer.json that knows these words, and what it puts around them."""
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


def test_published_models_go_on_with_their_own_signs(made, tmp_path):
    transformers = pytest.importorskip("transformers")
    signs = ["<pad>", "</s>", "<unk>", "<mask>"]
    words = {word: place for place, word in enumerate([*signs, "say", "und", "the", "line", *map(str, range(40))])}
    sizes = {"vocab_size": len(words) + 4, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    t5 = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, decoder_start_token_id=0))
    folder = published(tmp_path / "t5", t5, words, "</s>")
    given = {"base": str(folder), "steps": 0, "windows": 4, "length": 12, "multiples": (1, 2), "samples": 1}
    plan = settle(Plan(model="encoder-decoder", pairs=str(made / "pairs.tsv"), precision="fp32", **given))
    study = begin(plan, tmp_path / "pairs")
    task = source_of(plan)(plan, study.data).task
    row = task.batch(task.fitting[:1])
    assert (task.start, task.end) == (0, 1)
    # all words of a sentence, and its end once
    assert row.source[0, 0] == words["say"]
    assert (row.source[0] == 1).nonzero().tolist() == [[row.source.shape[1] - 1]]
    assert row.source.shape[1] == 5
    assert (row.targets[0] == 1).sum() == 1
    carry_out(study, plan, plan.runs()[0])
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    bert = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=len(words), **sizes))
    folder = published(tmp_path / "bert", bert, words, "</s>")
    given = {"base": str(folder), "steps": 0, "windows": 4, "length": 12, "multiples": (1,), "shuffled": 2}
    plan = settle(Plan(model="encoder", text=str(made / "text"), precision="fp32", **given))
    study = begin(plan, tmp_path / "text")
    task = source_of(plan)(plan, study.data).task
    assert (task.vocabulary, task.mask) == (len(words), words["<mask>"])
    carry_out(study, plan, plan.runs()[0])
