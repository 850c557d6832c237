import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordinate.data.corpus import Document
from ordinate.data.heldout_split import held_out_rule


def sides(parts, share=0.1):
    rule, words = held_out_rule(sorted(parts.items()), share)
    documents = [Document(source, part, "x") for source, count in parts.items() for part in range(count)]
    return [d for d in documents if not rule(d)], [d for d in documents if rule(d)], words


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.integers(1, 4), min_size=2, max_size=60))
def test_both_sides_have_something_and_whole_files_stay_together(parts):
    train, held, words = sides(parts)
    assert train
    assert held
    if "by a hash" in words or "by name" in words:
        assert not {d.source for d in train} & {d.source for d in held}


def test_about_the_share_is_held_out_by_name():
    parts = {f"file{number}.py": 1 for number in range(2000)}
    _, held, words = sides(parts)
    assert 150 < len(held) < 250
    assert "10% of the files, by a hash of their names" in words
    _, more, _ = sides({**parts, "another.py": 1})
    assert {d.source for d in held} <= {d.source for d in more}


def test_of_a_single_file_the_last_part_is_held_out():
    train, held, words = sides({"book.txt": 20})
    assert [d.part for d in held] == [18, 19]
    assert [d.part for d in train] == list(range(18))
    assert "last 10% of each file" in words


def test_files_of_a_single_document_stay_in_training_where_another_has_several():
    train, held, words = sides({"c.txt": 3, "one": 1, "two": 1, "three": 1})
    assert [d.name for d in held] == ["c.txt#2"]
    assert [d.name for d in train] == ["c.txt", "c.txt#1", "one", "two", "three"]
    assert words == "the last documents of each file that has several: 1 of 6 documents"


def test_a_large_file_that_the_hash_selects_is_not_held_out_as_a_whole():
    # of these names the hash selects file11.py only
    names = [f"file{number}.py" for number in range(8, 13)]
    train, held, words = sides({name: 20 if name == "file11.py" else 1 for name in names})
    assert {d.name for d in held} == {"file11.py#18", "file11.py#19"}
    assert len(train) == 22
    assert words == "the last documents of each file that has several: 2 of 24 documents"


@pytest.mark.parametrize("first", [8, 12])
def test_at_least_two_documents_are_held_out_where_there_are_enough(first):
    # of 8 to 13 the hash selects file11.py only, of 12 to 17 none
    names = [f"file{number}.py" for number in range(first, first + 6)]
    train, held, words = sides(dict.fromkeys(names, 1))
    assert (len(held), len(train)) == (2, 4)
    assert words == "2 of 6 files, by a hash of their names"
    _, two, _ = sides(dict.fromkeys(names[:3], 1))
    assert len(two) == 1


def test_the_share_is_said_where_files_have_few_documents():
    _, held, words = sides({"b.txt": 2, "c.txt": 2, "one": 2})
    assert len(held) == 3
    assert "3 of 6 documents" in words


def test_one_document_cannot_be_split():
    with pytest.raises(ValueError, match="at least two documents"):
        sides({"short.txt": 1})


@pytest.mark.parametrize("share", [0, 1, -0.5])
def test_an_invalid_share_is_refused(share):
    with pytest.raises(ValueError, match="must be between 0 and 1"):
        sides({"a": 1, "b": 1}, share)
