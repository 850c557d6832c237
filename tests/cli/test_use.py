"""`ordinate classify` and `ordinate fill`, with models trained by Ordinate and published ones."""

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch

from ordinate import Decoder, Encoder, EncoderShape, Shape, save
from ordinate.cli.classify import classify
from ordinate.cli.fill import fill
from ordinate.cli.generate import generate
from ordinate.cli.translate import translate
from ordinate.data.tokenizers.bytes import Bytes
from ordinate.models.vision import VisionShape, VisionTransformer

Image = pytest.importorskip("PIL.Image")
SIZES = {"width": 16, "layers": 1, "heads": 2}
SEEN = {"vocabulary": 3, "image": (8, 8), "patch": (4, 4), "labels": ("eel", "[bold]newt[/bold]", "owl")}
LIKE_VIT = {
    "norm": "layer",
    "norm_eps": 1e-6,
    "mixer": "softmax:variant.bias=true",
    "class_position": True,
    "bias": ("norm", "feedforward", "head"),
}
LIKE_BERT = {
    "norm": "layer",
    "norm_eps": 1e-12,
    "mixer": "softmax:variant.bias=true",
    "bias": ("norm", "feedforward"),
    "norm_position": "post",
    "embedding_norm": True,
    "token_types": 2,
    "scheme": "learned",
    "max_length": 32,
}


@pytest.fixture
def pictures(tmp_path):
    made = []
    for name, grey in (("dark.png", 20), ("bright.jpg", 230)):
        Image.fromarray(np.full((9, 12, 3), grey, np.uint8)).save(tmp_path / name)
        made.append(str(tmp_path / name))
    return made


def leaning(model):
    """A classifier that always predicts the second class."""
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.copy_(torch.tensor([0.0, 2.0, 1.0]))
    return model


@pytest.mark.parametrize("published", [False, True])
def test_images_are_classified_by_ordinates_and_published_models(published, pictures, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "model"
    # a short path fits into the table
    monkeypatch.chdir(tmp_path)
    pictures = [Path(picture).name for picture in pictures]
    model = leaning(VisionTransformer(VisionShape(**SEEN, **SIZES, **(LIKE_VIT if published else {}))))
    save(model, folder, "vit") if published else model.save_pretrained(folder)
    assert classify(folder, *pictures, top=2) == 0
    out = capsys.readouterr().out
    shares = torch.tensor([0.0, 2.0, 1.0]).softmax(0)
    # names that look like markup are printed as they are
    assert out.count("[bold]newt[/bold]") == out.count(f"{shares[1]:.1%}") == 2
    assert out.count(f"{shares[2]:.1%}") == 2
    assert "eel" not in out
    assert "dark.png" in out


def test_classes_have_the_names_beside_the_model_or_numbers(pictures, tmp_path, capsys):
    leaning(VisionTransformer(VisionShape(**SEEN | {"labels": ()}, **SIZES))).save_pretrained(tmp_path / "model")
    classify(tmp_path / "model", pictures[0], top=9)
    rows = [line.split("│") for line in capsys.readouterr().out.splitlines() if "%" in line]
    assert [row[2].strip() for row in rows] == ["1", "2", "0"]
    (tmp_path / "model" / "classes.json").write_text('["ant", "bee", "cat"]')
    classify(tmp_path / "model", pictures[0], top=9)
    rows = [line.split("│") for line in capsys.readouterr().out.splitlines() if "%" in line]
    assert [row[2].strip() for row in rows] == ["bee", "cat", "ant"]
    (tmp_path / "model" / "classes.json").write_text('["ant"]')
    with pytest.raises(ValueError, match=r"classes.json must be a list of 3 names; .* is not"):
        classify(tmp_path / "model", pictures[0])


def test_images_that_cannot_be_classified_are_named(pictures, tmp_path):
    leaning(VisionTransformer(VisionShape(**SEEN, **SIZES))).save_pretrained(tmp_path / "model")
    (tmp_path / "broken.png").write_text("no picture")
    with pytest.raises(ValueError, match=r"broken.png is not"):
        classify(tmp_path / "model", str(tmp_path / "broken.png"))
    with pytest.raises(ValueError, match="classify needs images or texts; got none; give files"):
        classify(tmp_path / "model")
    VisionTransformer(VisionShape(**SEEN | {"labels": ()}, **SIZES, head="none")).save_pretrained(
        tmp_path / "headless"
    )
    with pytest.raises(
        ValueError, match=r"classify needs a model with a head for classes .*; .*less has head='none', of"
    ):
        classify(tmp_path / "headless", pictures[0])


def worded(folder):
    """The folder, with a tokenizer of five words."""
    words = {"[UNK]": 0, "eels": 1, "swim": 2, "newts": 3, "not": 4}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "[UNK]"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.save(str(folder / "tokenizer.json"))
    return folder


def rows(capsys):
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines()][3:-1]


def reader(folder, head, labels, problem=None):
    """A classifier of the embedding of its last token, or of each: `eels` is a vote for the first class."""
    sizes = {"vocabulary": 5, "feedforward": "swiglu", "norm_eps": 1e-6, "tie_embeddings": False, **SIZES}
    bias = ("norm",) if head == "classes" else ("norm", "head")
    model = Decoder(Shape(**sizes, head=head, labels=labels, bias=bias))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if "norm" in name else 0.0)
        # normed to a length of 4
        model.tokens.weight[:, 0] = 1.0
        model.tokens.weight[1] = torch.eye(16)[1]
        model.classes.weight[0, 1] = 0.5
    save(model, folder, "llama")
    config = json.loads((folder / "config.json").read_text()) | {"problem_type": problem}
    (folder / "config.json").write_text(json.dumps(config))
    return worded(folder)


def test_texts_are_classified_by_their_last_token(tmp_path, capsys):
    folder = reader(tmp_path, "classes", ("eel", "[bold]newt[/bold]"))
    assert classify(folder, "newts not eels", "eels not newts", top=1) == 0
    sure = torch.tensor([2.0, 0.0]).softmax(0)[0]
    assert rows(capsys) == [["newts not eels", "eel", f"{sure:.1%}"], ["eels not newts", "eel", "50.0%"]]
    classify(folder, "eels")
    assert [row[1] for row in rows(capsys)] == ["eel", "[bold]newt[/bold]"]
    with pytest.raises(ValueError, match="a text to classify must have a token; got ''; give another text"):
        classify(folder, "")


@pytest.mark.parametrize(
    ("labels", "problem", "values"),
    [
        (("good",), None, ["2"]),
        (("up", "down"), "regression", ["2", "0"]),
        (("eel", "newt"), "multi_label_classification", ["88.1%", "50.0%"]),
        (("eel", "newt"), "single_label_classification", ["88.1%", "11.9%"]),
    ],
)
def test_rewards_are_scores_and_classes_may_hold_together(labels, problem, values, tmp_path, capsys):
    classify(reader(tmp_path, "classes", labels, problem), "eels")
    assert [row[2] for row in rows(capsys)] == values


def test_each_token_is_classified(tmp_path, capsys):
    classify(reader(tmp_path, "token_classes", ("eel", "other")), "not eels", top=1)
    assert rows(capsys) == [["not", "eel", "50.0%"], ["eels", "eel", "88.1%"]]


def test_models_without_classes_are_named_with_their_command(tmp_path, capsys):
    sizes = {"vocabulary": 5, "tie_embeddings": False, **SIZES}
    uses = {"next_token": "use it with `ordinate generate`", "spans": "give another", "none": "give another"}
    for head, use in uses.items():
        Decoder(Shape(**sizes, head=head)).save_pretrained(worded(tmp_path))
        with pytest.raises(ValueError, match=f"has head='{head}', of kind decoder; {use}"):
            classify(tmp_path, "eels")
    with pytest.raises(ValueError, match=r"generate needs a decoder that predicts the next token; .* head='none'"):
        generate(tmp_path, "eels")
    assert capsys.readouterr().out == ""


def sure(model, token):
    """An encoder that always predicts this token."""
    with torch.no_grad():
        model.masked.norm.weight.zero_()
        model.masked.bias.zero_()
        model.masked.bias[token] = 4.0
    return model


def published(folder):
    sizes = {"feedforward": "swiglu", "norm_eps": 1e-6, "max_length": 64, **SIZES}
    torch.manual_seed(3)
    model = Decoder(Shape(vocabulary=256, **sizes))
    with torch.no_grad():
        model.tokens.weight.mul_(12)
    save(model, folder, "llama")
    Bytes().save(folder)


def test_settings_of_generation_of_the_folder_are_applied_and_told(tmp_path, capsys):
    published(tmp_path)

    def written(settings, **options):
        (tmp_path / "generation_config.json").write_text(json.dumps(settings))
        assert generate(tmp_path, "abcab", max_new_tokens=20, **options) == 0
        return capsys.readouterr()

    note = "note: generation_config.json sets {}; --no-generation-config leaves it out\n"
    free = written({}, temperature=0)
    assert free.err == ""
    ruled = written({"repetition_penalty": 5.0}, temperature=0)
    assert ruled.err == note.format("repetition_penalty=5.0")
    assert ruled.out != free.out
    assert written({"repetition_penalty": 5.0}, temperature=0, generation_config=False) == free
    # in config.json too, where there is no other file
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "generation_config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(config | {"repetition_penalty": 5.0, "min_length": 0}))
    generate(tmp_path, "abcab", max_new_tokens=20, temperature=0)
    again = capsys.readouterr()
    assert (again.out, again.err) == (ruled.out, ruled.err.replace("generation_config", "config", 1))
    assert written({"stop_strings": ["eel"], "num_beams": 1}, temperature=0) == (
        free.out,
        "note: generation_config.json has stop_strings=['eel'], which this command does not apply\n",
    )
    # the last token is forced, and ends the text
    assert written({"eos_token_id": 10, "forced_eos_token_id": 10}, temperature=0).out.endswith("\n\n")


def test_settings_of_sampling_are_those_given_then_those_of_the_folder(tmp_path, capsys):
    published(tmp_path)

    def written(settings, **options):
        (tmp_path / "generation_config.json").write_text(json.dumps(settings))
        generate(tmp_path, "abcab", max_new_tokens=20, seed=5, **options)
        out, err = capsys.readouterr()
        return out, err.removeprefix("note: generation_config.json sets ").partition(";")[0]

    plain, greedy = written({})[0], written({}, temperature=0)[0]
    sampled = {"do_sample": True, "temperature": 2.0, "top_k": 9}
    told, named = written(sampled)
    assert named == "temperature=2.0, top_k=9"
    assert told == written({}, temperature=2.0, top_k=9)[0] != written({}, temperature=2.0)[0]
    assert (
        written({"do_sample": True})[0] == written({}, temperature=1.0)[0] != plain == written({}, temperature=0.8)[0]
    )
    for given, left in (
        ({"temperature": 0.5}, "top_k=9"),
        ({"top_k": 4}, "temperature=2.0"),
        ({"top_p": 0.3}, "temperature=2.0, top_k=9"),
        ({"temperature": 0.5, "top_k": 4}, ""),
    ):
        kept = {name: value for name, value in sampled.items() if name != "do_sample"}
        assert written(sampled, **given) == (written({}, **(kept | given))[0], left)
    # greedy decoding does not truncate; a truncation asks for sampling
    assert written(sampled, temperature=0) == (greedy, "")
    assert written({"do_sample": False, "top_k": 9}) == (greedy, "temperature=0.0")
    assert written({"do_sample": False}, top_k=4) == (written({}, top_k=4)[0], "")
    assert written(sampled, generation_config=False) == (plain, "")


def test_ordinates_encoder_fills_each_mask(tmp_path, capsys):
    model = Encoder(EncoderShape(vocabulary=257, scheme="rope", **SIZES))
    with torch.no_grad():
        sure(model, ord("e")).masked.bias[256] = 99.0
    model.save_pretrained(tmp_path)
    Bytes().save(tmp_path)
    assert fill(tmp_path, "[MASK]els sw[MASK]m [up]", top=2) == 0
    out = capsys.readouterr().out
    share = torch.cat([torch.full((1,), 4.0), torch.zeros(255)]).softmax(0)[0]
    assert out.count(f"{share:.1%}") == 2
    assert "eels swem [up]" in out


@pytest.mark.parametrize(("family", "mask"), [("bert", "[MASK]"), ("roberta", "<mask>")])
def test_a_published_encoder_fills_with_its_own_mask(family, mask, tmp_path, capsys):
    words = {word: place for place, word in enumerate(["[UNK]", "eels", "swim", "fast", mask, "[CLS]"])}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens([mask, "[CLS]"])
    inner.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 5)])
    padding = 1 if family == "roberta" else None
    model = sure(Encoder(EncoderShape(vocabulary=6, padding=padding, **SIZES, **LIKE_BERT)), words["swim"])
    save(model, tmp_path, family)
    inner.save(str(tmp_path / "tokenizer.json"))
    assert fill(tmp_path, "eels [MASK] fast") == 0
    out = capsys.readouterr().out
    assert "eels swim fast" in out
    assert mask not in out


def test_a_text_or_a_model_without_a_mask_is_rejected(tmp_path):
    with pytest.raises(ValueError, match=r"the text must contain \[MASK\]; got 'eels'; write \[MASK\] for each"):
        fill(tmp_path, "eels")
    Encoder(EncoderShape(vocabulary=257, scheme="rope", head="none", **SIZES)).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"a text model's folder must contain tokenizer.json; .* does not; add the"):
        fill(tmp_path, "[MASK]")
    Bytes().save(tmp_path)
    with pytest.raises(ValueError, match=r"fill needs an encoder with a masked-token head; .* has none"):
        fill(tmp_path, "[MASK]")
    for known, came in ((100, "256 tokens for a model of 100"), (256, "token 256 for a vocabulary of 256")):
        Encoder(EncoderShape(vocabulary=known, scheme="rope", **SIZES)).save_pretrained(tmp_path)
        with pytest.raises(ValueError, match=f"must be in the model's vocabulary; got {came}"):
            fill(tmp_path, "[MASK]")
    VisionTransformer(VisionShape(**SEEN, **SIZES)).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"kind encoder is needed; .* of kind vision; use it with `ordinate class"):
        fill(tmp_path, "[MASK]")


def test_a_folder_of_models_names_them_and_a_model_of_another_kind_its_command(tmp_path):
    seer = tmp_path / "runs" / "axial-s0" / "model"
    VisionTransformer(VisionShape(**SEEN, **SIZES)).save_pretrained(seer)
    uses = {
        classify: ("eel.png", "vision"),
        fill: ("[MASK]", "encoder"),
        generate: ("a", "decoder"),
        translate: ("a", "encoder-decoder"),
    }
    for use, (given, kind) in uses.items():
        with pytest.raises(ValueError, match=rf"a model folder must contain config.json; .* give one of: {seer}"):
            use(tmp_path, given)
        # the kind of model is reported before the missing tokenizer
        if use is not classify:
            with pytest.raises(ValueError, match=f"of kind {kind} is needed; .* use it with `ordinate classify`"):
                use(seer, given)
