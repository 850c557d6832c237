import errno
import tracemalloc

import numpy as np
import pytest

from ordinate.data import token_store as module
from ordinate.data.corpora.files import Files
from ordinate.data.heldout_segments import segments
from ordinate.data.resolve_corpus import resolve_corpus
from ordinate.data.token_store import open_store, prepare_tokens
from ordinate.data.tokenizers.bpe import Bpe
from ordinate.data.tokenizers.bytes import Bytes
from ordinate.data.tokenizers.published import Published


@pytest.fixture
def text(tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    for number in range(30):
        (folder / f"file{number}.txt").write_text(f"document {number}\n" * (number + 5))
    return folder


def make(text, out, tokenizer=None):
    return prepare_tokens(Files(path=text), out, tokenizer or Bytes())


def test_every_document_is_complete_and_on_one_side(text, tmp_path):
    store = make(text, tmp_path / "out")
    found = {}
    for split in ("train", "validation"):
        tokens = store.tokens(split)
        for piece in store.documents(split):
            assert piece.name not in found
            found[piece.name] = store.tokenizer.decode(tokens[piece.start : piece.stop].tolist())
    assert found == {path.name: path.read_text() for path in text.iterdir()}
    assert store.manifest["tokens"] == store.manifest["bytes"] == len(store.train) + len(store.validation)
    assert store.manifest["validation_documents"] == len(store.documents("validation")) > 0
    assert store.train.dtype == np.uint8


def test_the_hash_is_of_the_text(text, tmp_path):
    one = make(text, tmp_path / "a").manifest["sha256"]
    assert make(text, tmp_path / "b").manifest["sha256"] == one
    (text / "file3.txt").write_text("document 4\n" * 8)
    assert make(text, tmp_path / "c").manifest["sha256"] != one


def test_a_second_time_nothing_is_done_until_a_file_changes(text, tmp_path):
    out = tmp_path / "out"
    make(text, out)
    before = (out / "train.npy").stat().st_mtime_ns
    make(text, out)
    assert (out / "train.npy").stat().st_mtime_ns == before
    (text / "file0.txt").write_text("changed")
    make(text, out)
    assert (out / "train.npy").stat().st_mtime_ns != before


@pytest.mark.parametrize("name", ["train.npy", "validation.json", "tokenizer.json", "manifest.json"])
@pytest.mark.parametrize("how", ["missing", "short", "flipped"])
def test_a_corrupt_folder_is_detected_and_rebuilt(text, tmp_path, name, how):
    out = tmp_path / "out"
    whole = np.array(make(text, out).train)
    path = out / name
    if how == "missing":
        path.unlink()
    elif how == "short":
        path.write_bytes(path.read_bytes()[:-3])
    else:
        raw = path.read_bytes()
        path.write_bytes(raw[:-20] + bytes([raw[-20] ^ 1]) + raw[-19:])
    # a bit is looked for once a study, not once a run
    if how != "flipped":
        with pytest.raises(ValueError, match="must be complete"):
            open_store(out)
    assert np.array_equal(make(text, out).train, whole)


def test_a_full_disk_is_one_clear_error_and_leaves_nothing(text, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "_write", full)
    with pytest.raises(OSError, match="do not fit on the disk; free space and try again"):
        make(text, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_empty_text_is_refused(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(ValueError, match=r"empty\.txt is empty"):
        make(tmp_path / "empty.txt", tmp_path / "out")


def test_a_folder_without_any_text_says_what_it_has(tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "latin.txt").write_bytes("é".encode("latin-1"))
    (tmp_path / "text" / "binary.txt").write_bytes(b"\0")
    message = r"left out of .*text: 1 binary \(binary.txt\), 1 not UTF-8 \(latin.txt\); convert files to UTF-8"
    with pytest.raises(ValueError, match=message):
        make(tmp_path / "text", tmp_path / "out")


def test_an_empty_name_is_no_text():
    with pytest.raises(ValueError, match="a text must be named; got ''; give a corpus or a path"):
        resolve_corpus("")


def test_bpe_is_trained_on_the_training_documents_only(text, tmp_path):
    store = make(text, tmp_path / "plain")
    held = store.documents("validation")[0].name
    (text / held).write_text("zqzqzqzq " * 400)
    store = make(text, tmp_path / "out", Bpe(size=300))
    assert "zqzq" not in str(store.tokenizer.state())
    assert store.train.dtype == np.uint16
    piece = next(piece for piece in store.documents("validation") if piece.name == held)
    assert store.tokenizer.decode(store.validation[piece.start : piece.stop].tolist()) == "zqzqzqzq " * 400


def test_a_text_larger_than_memory_is_streamed(tmp_path):
    path = tmp_path / "large.txt"
    with path.open("w") as file:
        for number in range(400_000):
            file.write(f"line {number} of a long text that nobody wants in memory\n")
    size = path.stat().st_size
    assert size > 20_000_000
    tracemalloc.start()
    store = prepare_tokens(Files(path=path), tmp_path / "out", Bytes())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3_000_000
    assert len(store.train) + len(store.validation) == size
    assert store.documents("validation")[0].start == 0


def test_held_out_pieces_come_from_as_many_documents_as_there_are(text, tmp_path):
    store = make(text, tmp_path / "out")
    documents = {piece.name: piece for piece in store.documents("validation")}
    found = segments(store, 40, 1000)
    long_enough = [name for name, piece in documents.items() if piece.stop - piece.start > 40]
    assert [item.name for item in found[: len(long_enough)]] == long_enough
    for item in found:
        inside = store.tokenizer.decode(item.tokens.tolist())
        assert len(item.tokens) == 41
        assert inside in (text / item.name).read_text()
    starts = [(item.name, tuple(item.tokens)) for item in segments(store, 40, 3)]
    assert len(starts) == 3
    assert len({name for name, _ in starts}) == 3
    assert segments(store, 10_000, 5) == []


def test_find_takes_names_and_paths_and_names_the_nearest(text):
    assert resolve_corpus("stdlib").name == "stdlib"
    assert resolve_corpus(str(text)).name == str(text)
    with pytest.raises(ValueError, match="did you mean 'stdlib'"):
        resolve_corpus("stdlb")
    with pytest.raises(ValueError, match=r"docs, stdlib.*'/nowhere/at/all' is neither; check the path"):
        resolve_corpus("/nowhere/at/all")


def test_a_folder_with_other_files_is_left_alone(text, tmp_path):
    out = tmp_path / "mine"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(
        ValueError, match=r"prepared data need a folder of their own; .*mine contains thesis.tex; give an empty"
    ):
        make(text, out)
    assert (out / "thesis.tex").read_text() == "years of work"
    (out / "thesis.tex").unlink()
    # what a killed run leaves is not in the way
    (out / ".manifest.json.abc").write_text("half")
    (out / "train.npy").write_text("half")
    assert make(text, out).manifest["files"] == 30


def test_segments_with_unknown_tokens_are_not_evaluated(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0, "red": 1, "blue": 2}, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    folder = tmp_path / "text"
    folder.mkdir()
    for number in range(40):
        other = "grey" if number % 2 else "blue"
        (folder / f"file{number}.txt").write_text(" ".join(["red", "blue"] * 5 + [other] + ["red"] * 10))
    store = prepare_tokens(Files(path=folder), tmp_path / "out", Published(inner=inner), share=0.2, fitted=True)
    assert 0 in store.validation
    short = segments(store, 5, 100, bytes_known=True)
    assert all(store.tokenizer.knows(one.tokens) for one in short)
    # around the unknown token the rest of a document is evaluated
    assert {one.name for one in short} == {span.name for span in store.documents("validation")}
    long = {one.name for one in segments(store, 20, 100, bytes_known=True)}
    assert long == {
        span.name for span in store.documents("validation") if 0 not in store.validation[span.start : span.stop]
    }
    # as many as asked for, where so many are left
    assert len(segments(store, 5, 3, bytes_known=True)) == 3
    assert {one.name for one in segments(store, 20, 100)} == {one.name for one in short}
