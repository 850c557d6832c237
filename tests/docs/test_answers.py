from itertools import groupby

import answers
import pytest
from generated_parts import stale

from ordinate.explorer._panel import Citation, Number

ENTRIES = answers.entries()


def test_the_page_is_that_of_its_entries():
    assert not stale(answers.pages())


def test_each_question_stands_once_and_names_what_exists():
    assert len({entry["question"] for entry in ENTRIES}) == len({entry["place"] for entry in ENTRIES}) == len(ENTRIES)
    for entry in ENTRIES:
        assert entry["question"].endswith("?")
        assert "{number}" in entry["answer"]
        assert (answers.FOLDER / entry["page"]).is_file()
        assert answers.source(entry["file"]).is_file()
        assert "assert " in entry["cell"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('word = "Yes"', 'word = "Maybe"'), r"word of one\.toml"),
        (('change = "x"\n', ""), r"one\.toml must have every field of an entry; it lacks \['change'\]"),
        (('change = "x"', 'change = "x"\nchnge = "y"'), r"field of one\.toml"),
    ],
)
def test_an_entry_that_says_too_little_is_refused(tmp_path, change, message):
    fields = ("group", "question", "answer", "file", "name", "page", "change", "cell")
    text = 'place = 1\nword = "Yes"\n' + "".join(f'{field} = "x"\n' for field in fields)
    path = tmp_path / "one.toml"
    path.write_text(text)
    assert len(answers.entries(tmp_path)) == 1
    path.write_text(text.replace(*change))
    with pytest.raises(ValueError, match=message):
        answers.entries(tmp_path)


def test_there_are_fifty_questions_and_the_groups_are_not_mixed():
    assert len(ENTRIES) >= 50
    groups = [entry["group"] for entry in ENTRIES]
    assert [group for group, _ in groupby(groups)] == list(dict.fromkeys(groups))


def test_a_number_that_no_result_has_is_refused():
    mixers = "studies/mixers-text/results.csv"
    assert answers.read(Citation(mixers, "mixer=softmax:bits_per_byte_1x")).low > 2
    with pytest.raises(ValueError, match=r"mixer=nothing must be one row of .*; it is 0; name more columns"):
        answers.read(Citation(mixers, "mixer=nothing:bits_per_byte_1x"))
    with pytest.raises(ValueError, match="must be one row of studies/baselines/results"):
        answers.read(Citation("studies/baselines/results.csv", "scheme=rope,status=1 done:bits_per_byte_1x"))
    with pytest.raises(ValueError, match="number of benchmarks/results/questions"):
        answers.read(Citation("benchmarks/results/questions", "nothing"))


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (Number(767.0), "767"),
        (Number(12345.0), "12,345"),
        (Number(0.0), "0"),
        (Number(1.0, 1.0, 1.0), "1"),
        (Number(2.5e-16), "2.5e-16"),
        (Number(0.5, 0.4, 0.6), "0.5 [0.4, 0.6]"),
    ],
)
def test_a_number_is_shown_with_its_interval_if_it_has_one(number, shown):
    assert answers.formatted(number) == shown


def test_a_row_without_its_entry_or_panel_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(answers, "FOLDER", tmp_path)
    row = '[[row]]\nquestion = "x"\npanel = "{}"\nentries = ["{}"]\n'
    for panel, entry, message in (("order", "nothing", "entry of walk.toml"), ("nothing", "merged", "panel of walk")):
        (tmp_path / "walk.toml").write_text(row.format(panel, entry))
        with pytest.raises(ValueError, match=message):
            answers.walk(ENTRIES)


def test_an_entry_in_no_row_is_refused_and_one_in_two_rows_is_shown_once(monkeypatch):
    rows = answers.walked()
    monkeypatch.setattr(answers, "walked", lambda: [*rows, {"panel": "further", "entries": ["merged"]}])
    by_panel = answers.related(ENTRIES)
    shown = [one["question"] for part in by_panel.values() for one in part]
    # below the panel of its first row
    assert "Could W_Q and W_K be merged into one matrix?" in [one["question"] for one in by_panel["qkv"]]
    assert sorted(shown) == sorted(entry["question"] for entry in ENTRIES)
    monkeypatch.setattr(answers, "walked", lambda: rows[1:])
    with pytest.raises(
        ValueError, match=r"must stand in a row of walk.toml; \['attention_and_order', 'causal_mask'\]"
    ):
        answers.related(ENTRIES)
