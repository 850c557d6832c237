import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordinate.core.atomic_files import write_checksummed
from ordinate.data.corpora import files
from ordinate.data.corpora.files import PIECE_BYTES, Files
from ordinate.data.resolve_corpus import resolve_corpus


def told(path):
    return [(document.name, document.text) for document in Files(path=path).documents()]


def test_a_folder_yields_its_files_by_name_and_skips_binary_files(tmp_path):
    (tmp_path / "b.txt").write_text("second\r\nline", newline="")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "ümläut 文.md").write_text("erste", encoding="utf-8")
    (tmp_path / "binary.txt").write_bytes(b"text\0more")
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / ".hidden").write_text("no")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("no")
    assert told(tmp_path) == [("a/ümläut 文.md", "erste"), ("b.txt", "second\r\nline")]


def test_a_long_file_is_split_at_line_ends_without_loss(tmp_path):
    text = "".join(f"{number} {'x' * (number % 97)}\n" for number in range(5000))
    (tmp_path / "long.txt").write_text(text)
    parts = told(tmp_path / "long.txt")
    assert len(parts) > 2
    assert "".join(part for _, part in parts) == text
    assert all(part.endswith("\n") for _, part in parts)
    assert all(len(part.encode()) <= 2 * PIECE_BYTES for _, part in parts)
    assert [name for name, _ in parts[:2]] == ["long.txt", "long.txt#1"]


def test_a_short_single_file_is_split_so_that_some_can_be_held_out(tmp_path):
    text = "".join(f"line {number} of a diary\n" for number in range(1000))
    (tmp_path / "diary.txt").write_text(text)
    parts = [part for _, part in told(tmp_path / "diary.txt")]
    assert 8 <= len(parts) <= 12
    assert "".join(parts) == text
    assert len(told(tmp_path)) == 1


def test_a_file_without_line_ends_is_split_too(tmp_path):
    (tmp_path / "one.txt").write_text("é" * 200_000, encoding="utf-8")
    parts = told(tmp_path / "one.txt")
    assert len(parts) > 2
    assert "".join(part for _, part in parts) == "é" * 200_000


@given(text=st.text(alphabet="aé文\U0001f600\n\r", min_size=1, max_size=60), size=st.integers(1, 9))
def test_characters_survive_splits_anywhere(tmp_path_factory, text, size):
    path = tmp_path_factory.mktemp("cut") / "text.txt"
    path.write_bytes(text.encode())
    corpus = Files(path=path)
    corpus.piece = size
    assert "".join(document.text for document in corpus.documents()) == text


@pytest.mark.parametrize(("text", "encoding"), [("文" * 30_000, "utf-8"), ("text " * 20_000, "utf-16")])
def test_documents_without_line_ends_have_their_size_in_bytes(tmp_path, text, encoding):
    (tmp_path / "line.txt").write_bytes(text.encode(encoding))
    parts = [document.text for document in Files(path=tmp_path / "line.txt", encoding=encoding).documents()]
    assert "".join(parts) == text
    assert 20 <= len(parts) <= 21


def test_a_file_that_is_binary_late_is_skipped_entirely(tmp_path):
    (tmp_path / "late.txt").write_bytes(b"line\n" * 40_000 + b"\xff\xfe")
    (tmp_path / "good.txt").write_text("good")
    assert told(tmp_path) == [("good.txt", "good")]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"abc\0def", "is not \\(byte 3 is NUL"),
        (b"abc\xff", "byte 3 is invalid"),
        ("é".encode()[:1], "the last character is truncated"),
        (b"x" * PIECE_BYTES + b"\0", f"byte {PIECE_BYTES} is NUL"),
    ],
)
def test_a_single_file_must_be_utf8_and_the_byte_is_named(tmp_path, raw, message):
    (tmp_path / "bad.txt").write_bytes(raw)
    with pytest.raises(ValueError, match=message):
        told(tmp_path / "bad.txt")


def test_a_folder_without_files_is_refused(tmp_path):
    with pytest.raises(ValueError, match="a text needs at least one file"):
        Files(path=tmp_path)


def test_the_fingerprint_notices_a_change(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    before = Files(path=tmp_path).fingerprint()
    assert Files(path=tmp_path).fingerprint() == before
    (tmp_path / "a.txt").write_text("other")
    assert Files(path=tmp_path).fingerprint() != before


def test_what_is_left_out_is_counted_by_reason_with_the_first_names(tmp_path):
    (tmp_path / "good.txt").write_text("good")
    for number in range(5):
        (tmp_path / f"{number}.bin").write_bytes(b"a\0b")
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    (tmp_path / "again").symlink_to(tmp_path / "good.txt")
    (tmp_path / "folder").symlink_to("/usr")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("no")
    os.mkfifo(tmp_path / "pipe")
    assert told(tmp_path) == [("good.txt", "good")]
    left_out = Files(path=tmp_path).left_out
    assert left_out.describe() == (
        "5 binary (0.bin, 1.bin, 2.bin, ...), 1 broken link (broken), 1 empty (empty.txt), 1 hidden (.git), "
        "1 link into the folder itself (again), 1 link to a folder (folder), 1 no regular file (pipe), "
        "1 not UTF-8 (latin.txt)"
    )
    assert Files(path=tmp_path / "good.txt").left_out.describe() == ""


def test_an_unreadable_file_is_left_out(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("good")
    (tmp_path / "b.txt").write_text("secret")
    pieces = files._pieces

    def refused(file, source, size, encoding):
        if file.name == "b.txt":
            raise PermissionError(13, "Permission denied")
        return pieces(file, source, size, encoding)

    monkeypatch.setattr(files, "_pieces", refused)
    assert told(tmp_path) == [("a.txt", "good")]
    assert Files(path=tmp_path).left_out.describe() == "1 unreadable (Permission denied) (b.txt)"


def test_results_of_ordinate_are_left_out(tmp_path):
    (tmp_path / "good.txt").write_text("good")
    for name in ("study", "begun", "probe", "own"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").write_text("notes")
    write_checksummed(tmp_path / "study" / "study.json", {"format": 2})
    (tmp_path / "begun" / ".owner.json").write_text("{}")
    (tmp_path / "probe" / "subject.json").write_text("{}")
    (tmp_path / "probe" / "findings").mkdir()
    # a file of the same name that is not ours
    (tmp_path / "own" / "study.json").write_text('{"subjects": 3}')
    assert [name for name, _ in told(tmp_path)] == ["good.txt", "own/notes.txt", "own/study.json"]
    assert Files(path=tmp_path).left_out.describe() == "3 results of Ordinate (begun, probe, study)"


def test_names_that_are_not_utf8_are_escaped(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")
    with open(path, "w") as file:
        file.write("text")
    assert told(tmp_path) == [("caf\\xe9.txt", "text")]
    assert Files(path=tmp_path).fingerprint()
    assert Files(path=Path(path)).name.endswith("caf\\xe9.txt")


def test_texts_in_another_encoding_are_read_when_it_is_given(tmp_path):
    for name, encoding in (("latin.txt", "latin-1"), ("wide.txt", "utf-16"), ("plain.txt", "utf-8")):
        (tmp_path / name).write_bytes("café\n".encode(encoding) * (1 if encoding == "utf-16" else 9))
    found = Files(path=tmp_path / "latin.txt", encoding="Latin1")
    assert "".join(document.text for document in found.documents()) == "café\n" * 9
    assert found.fingerprint() != Files(path=tmp_path / "latin.txt").fingerprint()
    wide = Files(path=tmp_path, encoding="utf-16")
    assert [document.text for document in wide.documents() if document.source == "wide.txt"] == ["café\n"]
    with pytest.raises(
        ValueError, match=r"a text must be UTF-8; latin.txt is not .*; convert it, or name its encoding"
    ):
        list(Files(path=tmp_path / "latin.txt").documents())


@pytest.mark.parametrize(
    ("name", "hint"), [("latin2x", "did you mean 'latin2'"), ("rot13", "give one such"), ("", "give one")]
)
def test_an_unknown_encoding_is_refused(tmp_path, name, hint):
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(ValueError, match=f"an encoding must be one that Python has; got {name!r}; {hint}"):
        Files(path=tmp_path / "a.txt", encoding=name)


def test_an_encoding_of_a_corpus_by_name_is_refused():
    with pytest.raises(
        ValueError, match="an encoding is given for files; got latin-1 for docs; leave --encoding out"
    ):
        resolve_corpus("docs", "latin-1")
