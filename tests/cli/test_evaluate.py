"""`ordinate evaluate`: folders of models on a folder of texts."""

import json

import numpy as np
import pytest
import tokenizers
import torch

from ordinate import attach, evaluate
from ordinate.cli.application import app
from ordinate.core.atomic_files import read_checksummed
from ordinate.data.tokenizers.bytes import Bytes
from ordinate.models.decoder import Decoder
from ordinate.models.shape import Shape
from ordinate.probing._adapter import Inputs
from ordinate.probing.runner.evaluate_pairs import evaluate_pairs
from ordinate.report.metric import metric_of
from ordinate.study.data_source import source_of
from ordinate.study.plan import Plan

SIZES = {"vocabulary": 256, "width": 16, "heads": 2, "layers": 1}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two models and a folder of texts."""
    root = tmp_path_factory.mktemp("evaluate")
    torch.manual_seed(0)
    shapes = {"alibi": Shape(**SIZES, scheme="alibi"), "table": Shape(**SIZES, scheme="learned", max_length=32)}
    for name, shape in shapes.items():
        Decoder(shape).save_pretrained(root / name)
        Bytes().save(root / name)
    (root / "text").mkdir()
    for number in range(8):
        (root / "text" / f"{number}.txt").write_text("".join(f"{number} {line} some words\n" for line in range(20)))
    return root


def run(place, *words):
    return app(["evaluate", *map(str, words), "--text", str(place / "text")], result_action="return_value")


def test_models_are_evaluated_side_by_side_and_written_to_a_file(place, tmp_path, capsys):
    file = tmp_path / "new" / "result.json"
    words = (place / "alibi", place / "table", "--tokens", 16, 32, 64, "--trained-length", 16, "--json", file)
    assert run(place, *words) == 0
    said = capsys.readouterr().out
    assert said.startswith("At the trained length, ")
    assert "left out: table at 64 tokens: table has positions for at most 32 tokens" in said
    assert "95 % intervals over 8 documents of" in said
    assert "Whether the text was in the training data is not known." in said
    written = json.loads(file.read_text())
    assert (written["format"], written["kind"], written["count"]) == (1, "evaluation", 8)
    one, other = written["models"]
    assert [row["length"] for row in one["rows"]] == [16, 32, 64]
    assert [row["length"] for row in other["lengths"]] == [16, 32]
    assert {(each["first"], each["second"], each["length"]) for each in written["differences"]} == {
        ("alibi", "table", 16),
        ("alibi", "table", 32),
    }
    assert one["positions"]["position"][0] == 0


def test_the_python_twin_computes_the_losses_of_the_model_itself(place):
    ids = torch.arange(20)[None]
    model = Decoder.from_pretrained(str(place / "alibi"))
    assert torch.equal(attach(place / "alibi").predict(Inputs(ids)), model(ids))
    found = evaluate(place / "alibi", text=str(place / "text"), tokens=[16, 32])
    text = (place / "text" / "3.txt").read_text().encode()
    documents = {one["name"]: one for one in found.models[0].rows[1]["documents"]}
    # windows of 32 tokens that begin at words: the loss of the document is that of some of them
    tokens = torch.tensor(list(text))
    starts = [0, *(place + 1 for place, byte in enumerate(text[:-33]) if byte in b" \n")]
    windows = torch.stack([tokens[start : start + 33] for start in starts])
    with torch.no_grad():
        logits = model(windows[:, :-1])
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten(), reduction="none")
    sums = losses.view(len(windows), -1).sum(1)
    one = documents["3.txt"]
    low, high = float(sums.min()), float(sums.max())
    assert low <= one["nats"] / (one["tokens"] / 32) <= high
    assert "beyond 16 tokens" in str(found) or "over 16 tokens" in str(found)
    with pytest.raises(ValueError, match="multiples of the trained length, or tokens"):
        evaluate(place / "alibi", lengths=[1], tokens=[16])


@pytest.mark.extended
@pytest.mark.filterwarnings("ignore")
def test_an_evaluated_model_stays_in_its_mode(place):
    one = attach(place / "alibi")
    for training in (False, True):
        one.model.train(training)
        one.model.norm.eval()
        before = [module.training for module in one.model.modules()]
        evaluate(one, text=str(place / "text"), tokens=[16])
        assert [module.training for module in one.model.modules()] == before


def test_published_models_are_evaluated(tmp_path, place, capsys):
    transformers = pytest.importorskip("transformers")
    inner = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    signs = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=90, special_tokens=signs, show_progress=False)
    inner.train_from_iterator([(place / "text" / f"{number}.txt").read_text() for number in range(8)], trainer)
    marks = [("[CLS]", 2), ("[SEP]", 3)]
    inner.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=marks)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    shape = {**sizes, "vocab_size": inner.get_vocab_size(), "max_position_embeddings": 32}
    models = {
        "bert": transformers.BertForMaskedLM(transformers.BertConfig(**shape)),
        "roberta": transformers.RobertaForMaskedLM(
            transformers.RobertaConfig(**{**shape, "max_position_embeddings": 33}, pad_token_id=0)
        ),
        "llama": transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape)),
    }
    for name, model in models.items():
        model.save_pretrained(tmp_path / name)
        inner.save(str(tmp_path / name / "tokenizer.json"))
        assert run(place, tmp_path / name, "--lengths", 1, 2) == 0
        # none of them is the padding token, which RoBERTa leaves out when it counts positions
        ids = torch.arange(5, 13)[None]
        assert torch.equal(attach(tmp_path / name).predict(Inputs(ids)), model.eval()(ids).logits)
    said = capsys.readouterr().out
    assert "bits per masked token at 32 tokens; no longer length could be evaluated" in said
    assert "left out: bert at 64 tokens: bert has positions for at most 32 tokens" in said
    assert "trained length of roberta: 32 tokens (its table of positions)" in said
    assert "32 tokens (max_position_embeddings of its config.json)" in said
    assert run(place, tmp_path / "llama", place / "alibi", "--tokens", 16, 32) == 0
    assert "llama - alibi" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["LlamaForSequenceClassification", "LlamaForQuestionAnswering", "own"])
def test_models_that_do_not_predict_tokens_are_refused(kind, place, tmp_path):
    if kind == "own":
        Decoder(Shape(**SIZES, tie_embeddings=False, head="classes", labels=("good",))).save_pretrained(tmp_path)
    else:
        transformers = pytest.importorskip("transformers")
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        config = transformers.LlamaConfig(vocab_size=256, num_labels=256, **sizes)
        getattr(transformers, kind)(config).save_pretrained(tmp_path)
    Bytes().save(tmp_path)
    with pytest.raises(
        ValueError, match=r"a model must predict tokens to be evaluated on a text; .* has no head for"
    ):
        evaluate(tmp_path, text=str(place / "text"), tokens=[16, 32], trained_length=16)


def test_bad_options_are_errors_before_a_model_is_read(place, tmp_path):
    for words, message in (
        ((), "evaluate needs a model; got none"),
        ((place / "alibi", "--images", "digits"), "one kind of data; got --text and --images"),
        ((place / "alibi", "--lengths", "1", "--tokens", "16"), "multiples of the trained length, or tokens"),
        ((place / "alibi", "--json", tmp_path), "--json must be a file"),
        ((tmp_path,), "a model folder must have config.json"),
        ((place / "alibi",), "alibi does not record it; give --trained-length, or lengths in tokens by --tokens"),
        (
            (place / "alibi", "--tokens", "8192"),
            "2 documents must be long enough .* 8,193 tokens; an interval needs 2",
        ),
        ((place / "alibi", "--tokens", "16", "--samples", "0"), "samples must be above zero"),
    ):
        with pytest.raises(ValueError, match=message):
            run(place, *words)
    with pytest.raises(ValueError, match="--images has no such option; got --tokens"):
        app(["evaluate", str(place / "alibi"), "--images", "digits", "--tokens", "16"], result_action="return_value")
    Decoder(Shape(**SIZES)).save_pretrained(tmp_path / "bare")
    with pytest.raises(ValueError, match=r"bare has none; give its folder, with tokenizer\.json"):
        run(place, tmp_path / "bare", "--tokens", 16)


@pytest.mark.parametrize("task", ["text", "masked", "translation", "images", "recall"])
def test_a_report_and_a_logger_read_the_same_quantity(task):
    kind = {"masked": "encoder", "translation": "encoder-decoder", "images": "vision"}.get(task, "decoder")
    assert source_of(Plan(task=task, model=kind)).quantity is metric_of({"task": task}).quantity


@pytest.mark.extended
@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("decoder", ["--lengths", "1", "2"]),
        ("encoder", ["--lengths", "1", "2"]),
        ("encoder-decoder", ["--pairs", "docstrings"]),
        ("vision", ["--images", "digits", "--lengths", "1", "2"]),
    ],
)
def test_a_model_of_a_study_has_the_values_of_its_study(kind, given, tmp_path):
    sizes = [
        "--steps",
        "3",
        "--layers",
        "1",
        "--width",
        "16",
        "--eval-samples",
        "16",
        "--eval-length-multiples",
        "1",
        "2",
    ]
    app(["train", "--model", kind, *sizes, "--out", str(tmp_path / "study")], result_action="return_value")
    (result,) = (tmp_path / "study").glob("runs/*/result.json")
    file = tmp_path / "found.json"
    words = ["evaluate", str(result.parent / "model"), *given, "--json", str(file)]
    assert app(words, result_action="return_value") == 0
    (model,) = json.loads(file.read_text())["models"]
    for row, one in zip(read_checksummed(result)["lengths"], model["lengths"], strict=True):
        assert one["value"] == pytest.approx(row[model["field"]], rel=1e-12)
        assert one["interval"] == pytest.approx(row["interval"], rel=1e-9)
    assert np.isfinite(one["degradation"])


def test_pairs_of_a_published_model_have_the_loss_of_transformers_and_the_bytes_of_the_text(tmp_path):
    transformers = pytest.importorskip("transformers")
    words = [f"w{number}" for number in range(30)]
    names = ["<pad>", "</s>", "<unk>", *(f"▁{word}" for word in words)]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram([(name, -1.0) for name in names], unk_id=2))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    end = [("</s>", 1)]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("$A </s>", special_tokens=end)
    tokenizer.add_special_tokens(names[:2])
    sizes = {"d_model": 32, "d_kv": 8, "num_layers": 2, "num_heads": 4, "d_ff": 48, "vocab_size": 40}
    torch.manual_seed(0)
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, decoder_start_token_id=0)).eval()
    model.save_pretrained(tmp_path / "t5")
    tokenizer.save(str(tmp_path / "t5" / "tokenizer.json"))
    draw = np.random.default_rng(0)
    pairs = [[" ".join(draw.choice(words, count)) for count in draw.integers(2, 9, 2)] for _ in range(12)]
    (tmp_path / "pairs.tsv").write_text("\n".join("\t".join(pair) for pair in pairs) + "\n")
    found = evaluate_pairs(tmp_path / "t5", pairs=str(tmp_path / "pairs.tsv"), lengths=[1], trained_length=64)
    nats = size = 0.0
    for source, target in pairs:
        asked, labels = (torch.tensor([tokenizer.encode(text).ids]) for text in (source, target))
        with torch.no_grad():
            nats += float(model(input_ids=asked, labels=labels).loss) * labels.shape[1]
        size += len(target.encode())
    assert found.models[0].lengths[0].value == pytest.approx(nats / np.log(2) / size, rel=1e-5)
