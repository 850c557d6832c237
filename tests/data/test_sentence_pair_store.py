import os
import struct

import pytest

from ordinate.data.sentence_pair_sources import Docstrings, SentencePair, resolve_parallel_corpus
from ordinate.data.sentence_pair_store import open_pairs, prepare_pairs
from ordinate.data.tokenizers.bytes import Bytes
from ordinate.data.tokenizers.published import Published


@pytest.fixture
def tsv(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"house {n}\tHaus {n}\n" for n in range(60)) + "\nhouse 1\tHaus 1\nsame\tsame\n")
    return path


def compiled(path, pairs):
    texts = [[one.encode() for one in pair] for pair in pairs]
    head, body = struct.pack("<7I", 0x950412DE, 0, len(texts), 28, 28 + 8 * len(texts), 0, 0), b""
    start, tables = 28 + 16 * len(texts), [b"", b""]
    for pair in texts:
        for side in (0, 1):
            tables[side] += struct.pack("<2I", len(pair[side]), start + len(body))
            body += pair[side] + b"\0"
    path.write_bytes(head + tables[0] + tables[1] + body)


def test_every_pair_is_on_one_side_once_and_can_be_read_again(tsv, tmp_path):
    store = prepare_pairs(resolve_parallel_corpus(str(tsv)), tmp_path / "out", Bytes())
    found = []
    for split in ("train", "validation"):
        source, target = (store.sequences(split, side) for side in ("source", "target"))
        assert len(source) == len(target) == store.manifest[f"{split}_pairs"] > 0
        said = [[store.tokenizer.decode(line.tolist()) for line in side] for side in (source, target)]
        found += zip(*said, strict=True)
        assert source.lengths.tolist() == [len(text) for text in said[0]]
    assert sorted(found) == sorted((f"house {n}", f"Haus {n}") for n in range(60))
    assert open_pairs(tmp_path / "out").identity == store.identity


def test_a_second_time_nothing_is_done_until_the_file_changes(tsv, tmp_path):
    def made():
        prepare_pairs(resolve_parallel_corpus(str(tsv)), tmp_path / "out", Bytes())
        return (tmp_path / "out" / "manifest.json").stat().st_mtime_ns

    first = made()
    assert made() == first
    tsv.write_text("".join(f"tree {n}\tBaum {n}\n" for n in range(60)))
    assert made() != first
    (tmp_path / "out" / "train-source.npy").write_bytes(b"half")
    with pytest.raises(ValueError, match="the tokens of pairs must be complete"):
        open_pairs(tmp_path / "out")


def test_gettext_is_read_compiled_and_not(tmp_path):
    compiled(tmp_path / "a.mo", [("", "Content-Type: text"), ("file", "Datei"), ("menu\x04open", "Öffnen")])
    (tmp_path / "b.po").write_text(
        'msgid ""\nmsgstr "head"\n\n#, fuzzy\nmsgid "old"\nmsgstr "alt"\n\nmsgid "one "\n"line"\nmsgstr "eine\\n"\n\n'
        'msgid "tree"\nmsgid_plural "trees"\nmsgstr[0] "Baum"\nmsgstr[1] "Bäume"\n'
    )
    found = [pair for pair in resolve_parallel_corpus(str(tmp_path)).pairs() if pair.source]
    assert found == [
        SentencePair("file", "Datei"),
        SentencePair("open", "Öffnen"),
        SentencePair("one line", "eine\n"),
        SentencePair("tree", "Baum"),
    ]


def test_functions_are_paired_with_their_docstrings(tmp_path):
    (tmp_path / "a.py").write_text('def add(a, b=1):\n    """Add them.\n\n    More."""\n\ndef silent(): pass\n')
    sentences = Docstrings()
    assert sentences.files
    sentences.files = [tmp_path / "a.py"]
    assert list(sentences.pairs()) == [SentencePair("add(a, b=1)", "Add them.")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", b"no tab here\n", "a source, a tab and its translation; line 1 of .*a.tsv is 'no tab here'"),
        ("a.tsv", b"\xff\xfe\t1\n", "pairs must be UTF-8"),
        ("a.tsv", b"one\teins\n", "gives 1 and 0|gives 0 and 1"),
        ("a.mo", b"not at all", "an .mo file must be a compiled gettext catalogue"),
        ("a.mo", struct.pack("<7I", 0x950412DE, 0, 9, 28, 28, 0, 0), "is truncated"),
        ("a.po", b"msgid broken\n", "line 1 of .*a.po is 'msgid broken'"),
        ("a.csv", b"a,b\n", "pairs must be in files with a suffix of .tsv, .po, .mo; got"),
    ],
)
def test_files_that_are_no_pairs_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        prepare_pairs(resolve_parallel_corpus(str(tmp_path / name)), tmp_path / "out", Bytes())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "message"), [("docstring", "is none of them"), ("gettext:xx-none", "none for 'xx-none'")]
)
def test_an_unknown_source_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        resolve_parallel_corpus(text)


def test_what_is_left_out_is_counted_by_reason(tmp_path):
    folder = tmp_path / "pairs"
    folder.mkdir()
    lines = [f"word {number}\tWort {number}" for number in range(60)] + ["a\ta", "word 1\tWort 1", "b\t"]
    (folder / "a.tsv").write_text("\n".join(lines))
    (folder / "notes.txt").write_text("x")
    (folder / ".a.tsv").write_text("x")
    store = prepare_pairs(resolve_parallel_corpus(str(folder)), tmp_path / "out", Bytes())
    assert store.manifest["left_out"] == (
        "1 hidden (.a.tsv), 1 no file of pairs by its name (notes.txt), "
        "1 pairs with an empty side, 1 pairs repeated, 1 pairs with equal sides"
    )


def test_held_out_targets_have_no_unknown_tokens(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = {"<unk>": 0, "word": 1, "Wort": 2} | {str(number): 3 + number for number in range(60)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    lines = [f"word {number}\tWort {'neu' if number % 3 == 0 else number}" for number in range(60)]
    (tmp_path / "a.tsv").write_text("\n".join(lines))
    corpus = resolve_parallel_corpus(str(tmp_path / "a.tsv"))
    known, every = (
        prepare_pairs(corpus, tmp_path / name, tokenizer, share=0.5, fitted=True)
        for name, tokenizer in (("known", Published(inner=inner)), ("all", Bytes()))
    )
    targets = known.sequences("validation", "target")
    lost = every.manifest["validation_pairs"] - known.manifest["validation_pairs"]
    assert lost > 0
    assert known.manifest["left_out"] == f"{lost} held-out pairs with unknown tokens in their targets"
    assert 0 not in targets.tokens
    assert len(targets) == known.manifest["validation_pairs"] > 0
    # a model may be trained on them
    assert known.manifest["train_pairs"] == every.manifest["train_pairs"]
    assert 0 in known.sequences("train", "target").tokens


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path):
    (tmp_path / "a.tsv").write_bytes(b"\xef\xbb\xbfred\trot\n")
    (tmp_path / "b.po").write_bytes(b'\xef\xbb\xbfmsgid "blue"\nmsgstr "blau"\n')
    found = [(pair.source, pair.target) for pair in resolve_parallel_corpus(str(tmp_path)).pairs()]
    assert found == [("red", "rot"), ("blue", "blau")]


def test_names_that_are_not_utf8_are_escaped(tmp_path):
    file = tmp_path / os.fsdecode(b"caf\xe9.tsv")
    file.write_text("no tab")
    with pytest.raises(ValueError, match=r"line 1 of .*caf\\xe9\.tsv is"):
        list(resolve_parallel_corpus(str(file)).pairs())
    assert resolve_parallel_corpus(str(file)).name.encode()


@pytest.mark.parametrize("text", ["", " "])
def test_no_name_is_no_folder(text):
    with pytest.raises(ValueError, match=r"pairs must be .*; . is this folder"):
        resolve_parallel_corpus(text)
