import json

import numpy as np
import pytest
import torch

from ordinate.cli.main import app
from ordinate.cli.probe import _listed
from ordinate.lab import model as trained
from ordinate.models.decoder import Decoder
from ordinate.models.shape import Shape
from ordinate.tokenizers.bytes import Bytes


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
    sizes = ["--sequences", "6", "--length", "16", "--text", str(place)]
    words = [str(word) for word in (place / "tiny", "--out", out, *sizes, *more)]
    return app(["probe", *words], result_action="return_value")


def test_a_folder_is_questioned_reported_and_left_alone_the_second_time(place, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(place, out, "--questions", "order:windows=2;8,extrapolation") == 0
    said = capsys.readouterr().out
    assert "order measured" in said
    assert f"report: {out / 'report.html'}" in said.replace("\n", "")
    assert json.loads((out / "subject.json").read_text())["about"]["facts"]["name"] == "tiny"
    assert {path.name for path in (out / "findings").iterdir()} == {"order.json", "extrapolation.json"}
    assert run(place, out, "--questions", "order:windows=2;8") == 0
    assert "order answered before" in capsys.readouterr().out
    with pytest.raises(ValueError, match="seed: 0 -> 1"):
        run(place, out, "--questions", "order", "--seed", "1")
    app(["report", str(out)], result_action="return_value")
    assert "report.html" in capsys.readouterr().out


def test_bad_input_is_refused_before_anything_is_read(place, tmp_path):
    for more, message in (
        (["--questions", "ordr"], "did you mean 'order'"),
        (["--images", tmp_path / "a.npy"], "images have the axes"),
    ):
        np.save(tmp_path / "a.npy", np.zeros((2, 2)))
        with pytest.raises(ValueError, match=message):
            run(place, tmp_path / "other", *more)


def test_names_come_between_spaces_or_commas_with_their_options():
    assert _listed(("order,roles", "survival")) == ["order", "roles", "survival"]
    assert _listed(("order:windows=2;8,other=3,roles",)) == ["order:windows=2;8,other=3", "roles"]


def test_without_a_model_the_best_of_the_last_study_is_taken(tmp_path):
    assert trained.last_trained(tmp_path) is None
    for run_name, loss in (("a", 2.0), ("b", 1.0), ("c", None)):
        folder = tmp_path / "study" / "runs" / run_name
        (folder / "model").mkdir(parents=True)
        (folder / "model" / "tokenizer.json").write_text("{}")
        result = {"status": "done" if loss else "diverged", "training": {"loss": [3.0, loss]}}
        (folder / "result.json").write_text(json.dumps(result))
    (tmp_path / "study" / "study.json").write_text("{}")
    assert trained.last_trained(tmp_path) == tmp_path / "study" / "runs" / "b" / "model"
