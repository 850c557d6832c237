import pytest
import torch

from ordinate import Geometry
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.text_head import mean_pool


def build(**choices):
    given = {"vocabulary": 11, "width": 16, "layers": 2, "heads": 4, "max_length": 32} | choices
    return Encoder(EncoderShape(**given)).double().eval()


def ids(*shape):
    return torch.randint(0, 11, shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("mixer", ["softmax", "linear", "s4d", "sinkhorn", "lstm", "linformer:summaries=4"])
@pytest.mark.parametrize("order", ["pre", "post"])
@torch.no_grad()
def test_padding_and_packing_change_nothing(order, mixer):
    model, lengths = build(norm_position=order, mixer=mixer, scheme="none"), [7, 3]
    texts = [ids(1, length) for length in lengths]
    alone = [model(text)[0] for text in texts]
    real = torch.arange(7) < torch.tensor(lengths)[:, None]
    together = model(
        torch.cat([texts[0], torch.nn.functional.pad(texts[1], (0, 4))]), Geometry.padded(real, causal=False)
    )
    packed = model(torch.cat(texts, 1), Geometry.packed(lengths, causal=False))[0].split(lengths)
    for row in range(2):
        assert torch.allclose(together[row, : lengths[row]], alone[row], atol=1e-12)
        assert torch.allclose(packed[row], alone[row], atol=1e-12)
    assert (together[1, 3:] == 0).all()
    assert torch.allclose(mean_pool(together, real)[1], alone[1].mean(0))


def test_a_token_knows_those_after_it():
    model, text = build(), ids(1, 6)
    changed = text.clone()
    changed[0, 5] = (text[0, 5] + 1) % 11
    assert not torch.allclose(model(text)[0, 0], model(changed)[0, 0])


def test_token_types_are_distinguished():
    model, text = build(token_types=2), ids(1, 4)
    assert torch.equal(model(text), model(text, token_types=torch.zeros_like(text)))
    assert not torch.allclose(model(text), model(text, token_types=torch.ones_like(text)))


def test_what_is_saved_comes_back_bit_by_bit(tmp_path):
    for top in ("masked", "pooler", "none"):
        model = build(head=top, token_types=2, norm_position="post", norm="layer", embedding_norm=True).float()
        model.save_pretrained(tmp_path / top)
        again = Encoder.from_pretrained(str(tmp_path / top), local_files_only=True).eval()
        assert again.shape == model.shape
        assert torch.equal(again(ids(1, 5)), model(ids(1, 5)))


@pytest.mark.extended
def test_masked_tokens_can_be_learned_by_heart():
    torch.manual_seed(0)
    # each token is the one before it plus one; 0 is the mask token
    model, text = build(layers=1, width=32).train(), 1 + (torch.arange(12) + torch.arange(10)[:, None]) % 10
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    masked = torch.rand(text.shape) < 0.2
    for _ in range(60):
        logits = model.logits(model(text.masked_fill(masked, 0)))
        loss = torch.nn.functional.cross_entropy(logits[masked], text[masked])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    # a guess would cost ln 11 = 2.4
    assert loss < 1


@pytest.mark.parametrize(
    ("ask", "match"),
    [
        (
            lambda: build()(ids(1, 4), Geometry.causal(4)),
            "an encoder needs a bidirectional geometry; got a causal one",
        ),
        (
            lambda: build()(ids(1, 4), Geometry.full(5)),
            "the geometry must have the new tokens as queries and as keys",
        ),
        (lambda: build()(ids(1, 4), token_types=ids(1, 4)), "this model has no token types; got token_types"),
        (
            lambda: build(token_types=2)(ids(1, 4), token_types=ids(1, 3)),
            r"token_types needs the shape of ids; got \(1, 3\)",
        ),
        (
            lambda: build(head="none").logits(torch.zeros(1, 2, 16).double()),
            "the model needs a masked head; it has none",
        ),
        (lambda: build().pool(torch.zeros(1, 2, 16).double()), "the model needs a pooler; it has none"),
        (
            lambda: build(head="pooler", tie_embeddings=True).pool(torch.zeros(1, 2, 8).double()),
            "x has the 16 columns of the model; got 8; give what the model itself returned",
        ),
        (lambda: build(head="maske"), "no head is named 'maske'; .*did you mean 'masked'"),
        (
            lambda: build(mixer="triangular_mlp", scheme="none"),
            "a bidirectional model needs a mixer .*; mixer 'triangular_mlp' has no",
        ),
        (lambda: build(token_types=-1), "token_types must not be negative"),
    ],
)
def test_what_does_not_fit_is_refused(ask, match, untyped):
    with pytest.raises(ValueError, match=match):
        ask()


def test_the_shape_of_another_model_is_refused():
    from ordinate import Shape

    with pytest.raises(TypeError, match="EncoderShape"):
        Encoder(Shape(vocabulary=11))
