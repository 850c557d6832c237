import answers
import pytest
from pages import ROOT, stale

ENTRIES = answers.entries()


def test_the_page_is_that_of_its_entries():
    assert not stale(answers.pages())


def test_each_question_stands_once_and_names_what_exists():
    assert len({entry["question"] for entry in ENTRIES}) == len({entry["place"] for entry in ENTRIES}) == len(ENTRIES)
    for entry in ENTRIES:
        assert entry["question"].endswith("?")
        assert "{number}" in entry["answer"]
        assert (answers.FOLDER / entry["page"]).is_file()
        assert (ROOT / entry["file"]).is_file()
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
