import shutil
from dataclasses import replace

import pytest

from ordinate.cli.application import app
from ordinate.report.build import build_side_by_side
from ordinate.report.read import load_study
from ordinate.report.side_by_side import agreement_lines
from ordinate.report.summary import summarise

SCHEMES = ("none", "sinusoidal", "rope", "alibi")


@pytest.fixture
def two(write, result, tmp_path):
    """Two studies of which the second has the best two in the other order."""
    first = tmp_path / "first"
    shutil.copytree(write([result(label, 0) for label in SCHEMES]), first)
    swapped = {"rope": 2.6, "alibi": 2.5}
    runs = [result(label, 0, level=swapped.get(label)) for label in SCHEMES]
    return first, write(runs)


def test_decisions_values_and_ranks_stand_beside_each_other(two, tmp_path, capsys):
    out = tmp_path / "both.html"
    app(["report", *map(str, two), "--out", str(out)], result_action="return_value")
    said = " ".join(capsys.readouterr().out.split())
    assert "first: Provisionally (one seed), use “rope” if" in said
    assert "study: Provisionally (one seed), use “alibi”" in said
    page = out.read_text(encoding="utf-8")
    assert page.count("Provisionally (one seed), use") == 2
    # of six pairs, one is in another order: tau = (5 - 1) / 6
    assert "alike in 5 of 6 pairs (Kendall&#39;s tau 0.67 [" in page


def test_few_common_labels_have_no_rank_correlation(two):
    (first, other) = ((folder.name, study, summarise(study)) for folder in two for study in [load_study(folder)])
    lines = agreement_lines(first, other)
    assert [line.partition(" length")[0] for line in lines] == ["At the trained", "At the longest"]
    about = first[1].manifest
    fewer = replace(first[1], manifest={**about, "plan": {**about["plan"], "schemes": list(SCHEMES[1:])}})
    assert agreement_lines((first[0], fewer, first[2]), other) == []


def test_one_study_twice_is_an_error(two, tmp_path):
    with pytest.raises(ValueError, match="each study is given once"):
        build_side_by_side([two[0], two[0]], tmp_path / "out.html")
