"""Classifiers of texts and tokens, and heads for answers: the same logits here and in transformers, and back."""

import inspect
import json
import runpy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from ordinate import Decoder, Geometry, Shape
from ordinate.core import catalog
from ordinate.models import decoder as decoders
from ordinate.models import encoder as encoders
from ordinate.models.encoder import Encoder
from ordinate.pretrained import verify
from ordinate.pretrained._family import Family
from ordinate.pretrained.roberta_like import RobertaLike
from ordinate.pretrained.t5_encoder_like import T5EncoderLike
from ordinate.pretrained.verification.gradient_check import GradientCheck
from ordinate.pretrained.weights import family_of, load, save

transformers = pytest.importorskip("transformers")
FAMILIES = runpy.run_path(str(Path(__file__).with_name("families.py")))
CASES, ENDS, with_head, no_worse, comparable = (
    FAMILIES[name] for name in ("TEXT_HEADS", "ENDS", "with_head", "no_worse", "comparable")
)
TEXTS, TOKENS, SPANS = ENDS
_FOLDER = "ordinate.pretrained.families"
PADDING = 1


def has_class(name, end):
    """Whether transformers has a class for the family of a case, with a name that ends so."""
    auto = getattr(transformers, f"AutoModelFor{end}")
    return transformers.CONFIG_MAPPING[family_of(name.partition(",")[0]).model_type] in auto._model_mapping


# none of these tokens is padding
TEXT = torch.randint(2, 29, (3, 9), generator=torch.Generator().manual_seed(0))
LENGTHS = torch.tensor([[9], [6], [1]])
SIDES = {"right": torch.arange(9) < LENGTHS, "left": torch.arange(9) >= 9 - LENGTHS}
SMALL = {"vocabulary": 29, "width": 16, "layers": 2, "heads": 2, "tie_embeddings": False}
# transformers does not have all classes for all families
HEADS = [(name, end) for name in CASES for end in ENDS if has_class(name, end)]
# the others share their code with these
FIRST = ("llama", "bert")
each_family = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name.startswith(FIRST) else pytest.mark.extended) for name in CASES]
)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """The folder of each case, and the model of transformers that wrote it."""
    made = {}

    def pair(name, end):
        if (name, end) not in made:
            other, folder = with_head(name, end), tmp_path_factory.mktemp("checkpoint")
            other.save_pretrained(folder)
            made[name, end] = folder, other
        return made[name, end]

    return pair


def near(out, expected, share=2e-5):
    assert out.dtype == expected.dtype
    assert (out - expected).abs().max() <= share * expected.abs().max()


def ends_of(name):
    return [end for case, end in HEADS if case == name]


def ours(model, end, ids, where=None):
    """The logits of our model, a row for each text or token."""
    return model.span_logits(ids, where).mT if end == SPANS else model.class_logits(ids, where)


def theirs(model, end, ids, **told):
    came = model(ids, **told)
    return torch.stack([came.start_logits, came.end_logits], -1) if end == SPANS else came.logits


def padded(model, real):
    """A batch with padding on one side, its geometry, and what transformers needs to know of it."""
    where = Geometry.padded(real, causal=isinstance(model, Decoder))
    told = {"attention_mask": real.long()}
    places = {"position_ids": (real.long().cumsum(1) - 1).clamp(min=0)}
    return TEXT.masked_fill(~real, PADDING), where, told, places


def compare_padded(model, other, end, side):
    real = SIDES[side]
    counted = model.shape.padding is not None and not isinstance(model, Decoder)
    ids, where, told, places = padded(model, real)
    # models with ALiBi count by the mask, RoBERTa by the padding token; the others get position ids
    free = "position_ids" in inspect.signature(other.forward).parameters and not counted
    kept = ... if end == TEXTS else real
    expected = theirs(other, end, ids, **told, **(places if free else {}))
    near(ours(model, end, ids, where)[kept], expected[kept])


def test_every_family_of_texts_is_tested():
    families = [catalog.load(_FOLDER, Family, name) for name in catalog.names(_FOLDER)]
    texts = [one for one in families if one.model_class in (Decoder, Encoder) and not issubclass(one, T5EncoderLike)]
    named = {one.model_type.replace("-", "_") for one in texts}
    # transformers has no such class for a cohere2, and those of T5 have a decoder
    expected = {name for name in named if any(has_class(name, end) for end in ENDS)}
    assert {name.partition(",")[0] for name in CASES} == expected


@each_family
@torch.no_grad()
def test_the_logits_are_those_of_transformers(name, pairs):
    for end in ends_of(name):
        folder, other = pairs(name, end)
        model = load(folder)
        assert model.shape.labels == (() if end == SPANS else tuple(ENDS[end].values()))
        near(ours(model, end, TEXT), theirs(other, end, TEXT))


@each_family
@torch.no_grad()
def test_padded_rows_give_the_same_logits(name, pairs):
    for end in ends_of(name):
        folder, other = pairs(name, end)
        model = load(folder)
        for side in SIDES:
            # the first column, which the classifiers of most encoders read, is padding
            if isinstance(model, Decoder) or end != TEXTS or side == "right" or model.shape.pool == "mean":
                compare_padded(model, other, end, side)


@each_family
@torch.no_grad()
def test_there_and_back_gives_the_same_bits(name, pairs, tmp_path):
    for end in ends_of(name):
        folder, other = pairs(name, end)
        model, again = load(folder), tmp_path / end
        save(model, again, name.split(",")[0])
        assert load(again).shape == model.shape
        written, first = (load_file(place / "model.safetensors") for place in (again, folder))
        written, first = comparable(written, first, family_of(name.split(",")[0]), model.shape)
        assert written.keys() == first.keys()
        for key in first:
            # the rows of the tables of RoBERTa and OPT that no token takes are not kept
            counted = isinstance(family_of(name.split(",")[0]), RobertaLike) and "position_embeddings" in key
            rows = slice(2 if counted or key.endswith("embed_positions.weight") else 0, None)
            kept, given = (torch.atleast_1d(one[key])[rows] for one in (written, first))
            assert kept.equal(given)
        read = type(other).from_pretrained(again).eval()
        near(theirs(read, end, TEXT), theirs(other, end, TEXT))
        assert end == SPANS or read.config.id2label == ENDS[end]
        compare_padded(model, read, end, "right")


@each_family
@torch.no_grad()
def test_16_bit_weights_give_nearly_the_same_logits(name, pairs):
    for end in ends_of(name):
        folder, other = pairs(name, end)
        narrow = type(other).from_pretrained(folder, dtype=torch.bfloat16).eval()
        out = ours(load(folder, dtype=torch.bfloat16), end, TEXT)
        no_worse(out, theirs(narrow, end, TEXT), theirs(other, end, TEXT))


@pytest.mark.extended
@pytest.mark.parametrize("name", ["gpt2, text heads", "bert, text heads", "roberta, text heads"])
@torch.no_grad()
def test_in_float64_nothing_but_rounding_is_left(name, pairs):
    for end in ends_of(name):
        folder, other = pairs(name, end)
        wide = type(other).from_pretrained(folder, dtype=torch.float64).eval()
        near(ours(load(folder, dtype=torch.float64), end, TEXT), theirs(wide, end, TEXT), share=1e-12)


@pytest.mark.parametrize("name", ["llama, text heads", "gpt2, text heads", "bloom, text heads", "gptj, text heads"])
@pytest.mark.parametrize("tied", [True, False])
@torch.no_grad()
def test_tied_embeddings_make_no_difference(name, tied, tmp_path):
    other = with_head(name, TEXTS, tie_word_embeddings=tied)
    other.save_pretrained(tmp_path)
    model = load(tmp_path)
    assert not model.shape.tie_embeddings
    near(ours(model, TEXTS, TEXT), theirs(other, TEXTS, TEXT))


@torch.no_grad()
def test_the_token_that_is_read_is_the_last_one_other_than_padding(pairs):
    folder, other = pairs("gpt2, text heads", TEXTS)
    model = load(folder)
    assert model.shape.padding == PADDING
    # a text may contain the padding token, and end with it: some tokenizers pad with the end of a text
    ids = TEXT.clone()
    ids[0, 3:], ids[1, -2:], ids[2, :] = PADDING, PADDING, PADDING
    ids[0, 6] = 5
    near(ours(model, TEXTS, ids), theirs(other, TEXTS, ids))
    near(ours(model, TEXTS, ids)[0], ours(model, TEXTS, ids[:, :7])[0])


@torch.no_grad()
def test_without_a_padding_token_the_last_token_is_that_of_the_geometry(tmp_path):
    other = with_head("llama, text heads", TEXTS, pad_token_id=None)
    other.save_pretrained(tmp_path)
    model = load(tmp_path)
    assert model.shape.padding is None
    for real in SIDES.values():
        ids, where, _, _ = padded(model, real)
        rows = [ids[row, real[row]] for row in range(3)]
        expected = torch.cat([theirs(other, TEXTS, row[None]) for row in rows])
        near(ours(model, TEXTS, ids, where), expected)
    # as in checkpoints whose padding token is no token
    config = json.loads((tmp_path / "config.json").read_text()) | {"pad_token_id": -1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load(tmp_path).shape == model.shape


def last_column(x, real=None):
    """A mutant: the last column is read, padding or not."""
    return x[:, -1]


def every_column(x, real=None):
    """A mutant: the mean counts padding."""
    return x.mean(1)


@pytest.mark.extended
@torch.no_grad()
def test_what_reads_another_token_is_noticed(pairs, monkeypatch):
    for name, owner, attribute, mutant in (
        ("llama, text heads", decoders, "last_token", last_column),
        ("modernbert, text heads of the mean", encoders, "mean_pool", every_column),
    ):
        folder, other = pairs(name, TEXTS)
        with monkeypatch.context() as patch:
            patch.setattr(owner, attribute, mutant)
            with pytest.raises(AssertionError):
                compare_padded(load(folder), other, TEXTS, "right")
            assert "differs" in {check.state for check in verify(folder, checks=["outputs", "right padding"]).checks}


@torch.no_grad()
@pytest.mark.parametrize("name", ["gpt2, text heads", "modernbert, text heads"])
def test_a_bias_too_many_and_a_norm_left_out_are_noticed(name, pairs):
    folder, other = pairs(name, TEXTS)
    model = load(folder)
    model.classes.bias = nn.Parameter(torch.full((1,), 0.1))
    with pytest.raises(AssertionError):
        near(ours(model, TEXTS, TEXT), theirs(other, TEXTS, TEXT))
    model = load(folder)
    if isinstance(model, Encoder):
        model.head_transform.norm = nn.Identity()
    else:
        model.norm = nn.Identity()
    with pytest.raises(AssertionError):
        near(ours(model, TEXTS, TEXT), theirs(other, TEXTS, TEXT))


@pytest.mark.parametrize(
    ("name", "end", "count"),
    [
        ("llama, text heads", TEXTS, 5),
        ("modernbert, text heads of the mean", TEXTS, 5),
        pytest.param("bert, text heads", TEXTS, 4, marks=pytest.mark.extended),
        pytest.param("qwen3, text heads", TOKENS, 6, marks=pytest.mark.extended),
        pytest.param("gpt_neox, text heads", SPANS, 5, marks=pytest.mark.extended),
        pytest.param("deberta_v2, text heads", SPANS, 5, marks=pytest.mark.extended),
    ],
)
def test_a_checkpoint_agrees_in_every_check_that_applies(name, end, count, pairs):
    found = verify(pairs(name, end)[0])
    assert found.agrees, found.to_dict()
    assert len(found.applied) == count
    assert all(check.note for check in found.checks if check.state == "does not apply")


@pytest.mark.extended
def test_a_decoder_without_a_padding_token_is_verified_one_text_at_a_time(tmp_path):
    with_head("gpt2, text heads", TEXTS, pad_token_id=None).save_pretrained(tmp_path)
    found = verify(tmp_path)
    assert found.agrees, found.to_dict()
    assert [check.name for check in found.applied] == ["outputs", "gradients", "bfloat16"]
    notes = [check.note for check in found.checks if "padding" in check.name]
    assert notes == ["config.json has no pad_token_id: transformers classifies one text at a time"] * 2


def test_the_gradients_of_a_reward_are_compared(pairs, monkeypatch):
    # one logit of a softmax has no gradient: the check compares texts with each other
    folder, _ = pairs("gpt2, text heads", TEXTS)
    plain = GradientCheck.ours

    def louder(self, model):
        model.norm.weight.register_hook(lambda gradient: gradient * 1.001)
        return plain(self, model)

    monkeypatch.setattr(GradientCheck, "ours", louder)
    assert verify(folder, checks=["gradients"]).checks[0].state == "differs"


@pytest.mark.parametrize("end", ENDS)
@torch.no_grad()
def test_a_model_of_ours_is_read_by_transformers(end, tmp_path):
    import transformers

    head = {TEXTS: "classes", TOKENS: "token_classes", SPANS: "spans"}[end]
    labels = {} if end == SPANS else {"labels": ("eel", "newt")}
    bias = ("norm",) if end == TEXTS else ("norm", "head")
    padding = {"padding": PADDING} if end == TEXTS else {}
    model = Decoder(Shape(**SMALL, feedforward="swiglu", head=head, bias=bias, **labels, **padding)).eval()
    save(model, tmp_path, "llama")
    other = getattr(transformers, f"AutoModelFor{end}").from_pretrained(tmp_path).eval()
    for side in SIDES:
        compare_padded(model, other, end, side)


def test_heads_that_transformers_does_not_have_are_refused(tmp_path):
    sizes = SMALL | {"scheme": "learned", "mixer": "softmax:variant.bias=true", "norm": "layer"}
    biased = Decoder(Shape(**sizes, head="classes", labels=("good",), bias=("norm", "feedforward", "head")))
    with pytest.raises(ValueError, match=r"bias=\('feedforward', 'head', 'norm'\) would become"):
        save(biased, tmp_path, "gpt2")
    shape = Shape(**SMALL, head="token_classes", labels=("eel",), norm_position="shared", scheme="rope")
    with pytest.raises(ValueError, match=r"a gptj has one of the heads .*; got head='token_classes'; use save_pre"):
        save(Decoder(shape), tmp_path, "gptj")
    assert not list(tmp_path.iterdir())


def test_an_unknown_pooling_is_refused_by_name(pairs, tmp_path):
    folder, _ = pairs("modernbert, text heads", TEXTS)
    config = json.loads((folder / "config.json").read_text()) | {"classifier_pooling": "max"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(ValueError, match="no classifier_pooling is named 'max'; there are: cls, mean"):
        load(tmp_path)
