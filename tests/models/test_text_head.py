"""Heads of texts: classes of texts and tokens, and answers, of decoders and encoders."""

import pytest
import torch

from ordinate import Decoder, Encoder, EncoderShape, Geometry, Shape
from ordinate.data.batch import Batch
from ordinate.models.text_head import last_token, mean_pool, span_logits
from ordinate.pretrained.read_model import read_model

SIZES = {"vocabulary": 11, "width": 16, "layers": 1, "heads": 2, "max_length": 32}
LABELS = ("eel", "newt", "frog")
REAL = torch.tensor([[1, 1, 1, 1, 0], [0, 0, 1, 1, 1], [1, 0, 0, 0, 0], [0, 0, 0, 0, 1]]).bool()


def decoder(head, **choices):
    labels = {} if head in ("spans", "none") else {"labels": LABELS}
    return Decoder(Shape(**SIZES, tie_embeddings=False, head=head, **labels | choices)).double().eval()


def encoder(head, **choices):
    labels = {} if head in ("spans", "none") else {"labels": LABELS}
    return Encoder(EncoderShape(**SIZES, scheme="rope", head=head, **labels | choices)).double().eval()


KINDS = {"decoder": decoder, "encoder": encoder}
MODELS = {
    "decoder, classes": lambda: decoder("classes"),
    "decoder, tokens": lambda: decoder("token_classes", bias=("norm", "head")),
    "decoder, spans": lambda: decoder("spans", bias=("norm", "head")),
    "decoder, classes of the transform": lambda: decoder("classes", head_transform=True),
    "encoder, classes": lambda: encoder("classes"),
    "encoder, mean": lambda: encoder("classes", pool="mean"),
    "encoder, mean of the transform": lambda: encoder("classes", pool="mean", head_transform=True),
    "encoder, tokens": lambda: encoder("token_classes"),
    "encoder, spans of the transform": lambda: encoder("spans", head_transform=True),
}


def ids(*shape):
    return torch.randint(1, 11, shape, generator=torch.Generator().manual_seed(0))


def test_the_last_token_and_the_mean_are_those_of_a_loop():
    x = torch.randn(4, 5, 3, dtype=torch.float64)
    places = [max(place for place in range(5) if row[place]) for row in REAL.tolist()]
    assert places == [3, 4, 0, 4]
    assert torch.equal(last_token(x, REAL), torch.stack([x[row, place] for row, place in enumerate(places)]))
    assert torch.equal(last_token(x), x[:, 4])
    assert torch.allclose(mean_pool(x, REAL), torch.stack([x[row, REAL[row]].mean(0) for row in range(4)]))
    # a row without a token, as in a batch that is filled up
    assert torch.equal(last_token(x, torch.zeros(4, 5).bool()), x[:, 0])


def test_the_ends_of_an_answer_are_never_padding():
    logits = span_logits(torch.randn(4, 5, 2), REAL)
    assert logits.shape == (4, 2, 5)
    assert torch.equal(logits.softmax(-1) > 0, REAL[:, None].expand(4, 2, 5))


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_padding_changes_nothing(name):
    model, kind = MODELS[name](), name.partition(",")[0]
    text = ids(1, 4)
    compute = model.span_logits if "spans" in name else model.class_logits
    alone = compute(text)
    for left in (0, 3):
        # the first column, which is read here, is not padding
        if left and name == "encoder, classes":
            continue
        real = (torch.arange(9) >= left) & (torch.arange(9) < left + 4)
        batch = torch.zeros(2, 9, dtype=torch.long)
        batch[0, real], batch[1] = text[0], ids(1, 9)[0]
        where = Geometry.padded(torch.stack([real, torch.ones(9).bool()]), causal=kind == "decoder")
        out = compute(batch, where)[0]
        out = out[:, real] if "spans" in name else out[real] if "tokens" in name else out
        assert torch.allclose(out, alone[0], atol=1e-12)


def test_the_last_token_other_than_padding_is_read():
    model, text = decoder("classes", padding=7), ids(2, 6).masked_fill(ids(2, 6) == 7, 1)
    text[0, 4:], text[1, 3] = 7, 7
    with torch.no_grad():
        expected = torch.cat([model.class_logits(text[:1, :4]), model.class_logits(text[1:])])
        assert torch.allclose(model.class_logits(text), expected, atol=1e-12)
        assert not torch.allclose(decoder("classes").class_logits(text)[0], expected[0])


@pytest.mark.covering(0)
@pytest.mark.parametrize("name", MODELS)
def test_a_head_learns(name):
    torch.manual_seed(0)
    model, text = MODELS[name]().train(), ids(8, 6)
    real = torch.arange(6) < torch.tensor([6, 5, 4, 6, 3, 6, 2, 6])[:, None]
    # the class of a text is that of its first token; an answer begins at its first token and ends at its second
    first, spans = text[:, 0] % 3, torch.tensor([0, 1]).expand(8, 2)
    targets = spans if "spans" in name else (text % 3).masked_fill(~real, -100) if "tokens" in name else first
    batch = Batch(text, targets, token_mask=real)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.02)
    losses = []
    for _ in range(30):
        logits = model.batch_logits(batch)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())
        optimiser.zero_grad()
        loss.backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


@pytest.mark.parametrize("name", MODELS)
def test_models_are_written_and_read(name, tmp_path):
    model = MODELS[name]()
    model.save_pretrained(tmp_path)
    again = read_model(tmp_path)
    assert again.shape == model.shape
    for parameter, other in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(parameter, other)


@pytest.mark.parametrize(
    ("kind", "choices", "match"),
    [
        (Shape, {"head": "masked"}, "no head is named 'masked'; there are: classes, next_token, "),
        (EncoderShape, {"head": "next_token"}, "no head is named 'next_token'; there are: classes, masked, "),
        (Shape, {"head": "classes", "tie_embeddings": False}, "labels names the classes .*; got 0 labels with head="),
        (Shape, {"labels": ("eel",)}, "labels names the classes .*; got 1 labels with head='next_token'"),
        (Shape, {"head": "spans", "labels": ("a", "b"), "tie_embeddings": False}, "got 2 labels with head='spans'"),
        (Shape, {"head": "spans"}, "head='spans' needs tie_embeddings=False; got tie_embeddings=True.*; give tie_"),
        (Shape, {"padding": 3}, "padding is a token from 0 to 10 that .* leaves out; got padding=3 with head='next"),
        (EncoderShape, {"pool": "mean"}, "pool has an effect only with head='pooler' or head='classes'; got pool="),
        (EncoderShape, {"pool": "last"}, "no pool is named 'last'; there are: first, late, mean"),
        (EncoderShape, {"head_transform": True}, "head_transform is an option of the heads classes, token_classes, "),
    ],
)
def test_options_that_do_not_fit_are_refused(kind, choices, match, untyped):
    with pytest.raises(ValueError, match=match):
        kind(**SIZES | {"scheme": "rope"} | choices)
    classes = {"head": "classes", "labels": ("eel",), "tie_embeddings": False}
    with pytest.raises(ValueError, match="got padding=11 with head='classes'; leave it out, or give the one of the"):
        Shape(**SIZES, **classes, padding=11)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_of_another_head_are_refused(kind):
    with pytest.raises(
        ValueError, match=r"class logits need a model with head='classes' or .*; this one has head='sp"
    ):
        KINDS[kind]("spans").class_logits(ids(1, 3))
    with pytest.raises(ValueError, match="span logits need a model with head='spans'; this one has head='classes'"):
        KINDS[kind]("classes").span_logits(ids(1, 3))
    with pytest.raises(
        ValueError, match="next-token logits need a decoder with head='next_token'; this one has head"
    ):
        decoder("classes")(ids(1, 3))


@pytest.mark.parametrize("name", [name for name in MODELS if "tokens" not in name])
def test_texts_that_share_a_row_are_refused(name):
    model, causal = MODELS[name](), name.startswith("decoder")
    compute = model.span_logits if "spans" in name else model.class_logits
    with pytest.raises(ValueError, match="a head that reads whole texts needs one text in each row; got a geometry"):
        compute(ids(1, 7), Geometry.packed((3, 4), causal=causal))
