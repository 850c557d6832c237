"""The factor of the token embeddings and their initial standard deviation, in every kind of model."""

from dataclasses import replace

import pytest
import torch

from ordinate import Decoder, Geometry, Shape
from ordinate.core.seeds import derive_seed
from ordinate.models.cache import Cache
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.vision import VisionShape, VisionTransformer
from ordinate.pretrained.weights import load, save

SIZES = {"vocabulary": 11, "width": 16, "layers": 2, "heads": 4, "max_length": 32}
SCHEMES = ["sinusoidal", "learned", "concatenated", "rope", "learned+alibi"]
FACTOR = 4.0


def build(kind, **choices):
    torch.manual_seed(0)
    return kind[0](kind[1](**SIZES | choices)).double().eval()


DECODER, ENCODER = (Decoder, Shape), (Encoder, EncoderShape)


def ids(*shape):
    return torch.randint(0, 11, shape, generator=torch.Generator().manual_seed(0))


def with_factor(model):
    """The same weights, in a model that multiplies its token embeddings."""
    other = type(model)(replace(model.shape, embedding_scale=FACTOR)).double().eval()
    other.load_state_dict(model.state_dict())
    return other


@pytest.mark.parametrize("kind", [DECODER, ENCODER], ids=["decoder", "encoder"])
@pytest.mark.parametrize("scheme", SCHEMES)
@torch.no_grad()
def test_a_factor_is_a_table_so_much_larger_before_the_first_layer(kind, scheme):
    model, text = build(kind, scheme=scheme), ids(2, 7)
    other, larger = with_factor(model), build(kind, scheme=scheme)
    larger.tokens.weight.mul_(FACTOR)
    hidden = [one.hidden_states(text) if kind is DECODER else one(text) for one in (model, other, larger)]
    assert torch.equal(hidden[1], hidden[2])
    assert not torch.allclose(hidden[0], hidden[1])


@pytest.mark.parametrize(
    ("kind", "width", "factor"),
    [
        (torch.bfloat16, 3072, 55.5),
        (torch.float16, 3072, 55.4375),
        (torch.bfloat16, 2048, 45.25),
        (torch.float64, 3072, 3072**0.5),
        (torch.float32, 3072, float(torch.tensor(3072**0.5))),
    ],
)
def test_a_rounded_factor_has_the_digits_of_the_type(kind, width, factor):
    shape = Shape(**SIZES | {"width": width}, embedding_scale=width**0.5, round_embedding_scale=True)
    assert shape.embedding_factor(kind) == factor == float(torch.tensor(width**0.5, dtype=kind))
    assert replace(shape, round_embedding_scale=False).embedding_factor(kind) == width**0.5


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
@torch.no_grad()
def test_embeddings_are_multiplied_by_the_rounded_factor(kind):
    text, factor = ids(2, 7), torch.tensor(3.3, dtype=kind)
    model = build(DECODER, embedding_scale=3.3, round_embedding_scale=True).to(kind)
    assert torch.equal(model.embed_tokens(text), model.tokens(text) * factor)
    both = EncoderDecoder(EncoderDecoderShape(**SIZES, embedding_scale=3.3, round_embedding_scale=True)).to(kind)
    larger = EncoderDecoder(replace(both.shape, embedding_scale=float(factor), round_embedding_scale=False)).to(kind)
    larger.load_state_dict(both.state_dict())
    assert torch.equal(both.eval()(text, text), larger.eval()(text, text))


@pytest.mark.parametrize("scheme", ["sinusoidal", "concatenated"])
@torch.no_grad()
def test_a_tied_head_uses_the_table_without_the_factor(scheme):
    model, text = with_factor(build(DECODER, scheme=scheme)), ids(2, 7)
    table = model.tokens.weight
    assert torch.equal(model(text), model.hidden_states(text)[..., : table.shape[1]] @ table.T)
    masked = with_factor(build(ENCODER, scheme=scheme))
    x = masked(text)
    assert torch.equal(masked.logits(x), masked.masked.logits(x, masked.tokens.weight))


def test_at_factor_1_nothing_is_computed_and_initial_weights_are_those_of_0_02():
    torch.manual_seed(3)
    seed = int(torch.randint(2**62, (), device="cpu"))
    torch.manual_seed(3)
    model = Decoder(Shape(**SIZES))
    generator = torch.Generator().manual_seed(derive_seed(seed, "tokens.weight"))
    expected = torch.nn.init.normal_(torch.empty(11, 16), std=0.02, generator=generator)
    assert torch.equal(model.tokens.weight, expected)
    seen = []
    model.tokens.register_forward_hook(lambda _, __, out: seen.append(out))
    assert model.embed_tokens(ids(1, 3)) is seen[0]


@pytest.mark.parametrize(
    ("kind", "shape"), [(Decoder, Shape), (Encoder, EncoderShape), (EncoderDecoder, EncoderDecoderShape)]
)
def test_the_initial_standard_deviation_is_that_after_the_factor(kind, shape):
    sizes = SIZES | {"vocabulary": 4000}
    if kind is EncoderDecoder:
        sizes |= {"source_vocabulary": 4000}
    torch.manual_seed(0)
    model = kind(shape(**sizes, scheme="sinusoidal", embedding_scale=4.0, embedding_std=1.0))
    tables = [model.tokens, *([model.source_tokens] if kind is EncoderDecoder else [])]
    for table in tables:
        assert float(table.weight.detach().std()) == pytest.approx(0.25, rel=0.02)
    schemes = model.encoder.schemes if kind is EncoderDecoder else model.schemes
    assert schemes[0].scale == 1.0
    others = [x for name, x in model.named_parameters() if x.ndim == 2 and "tokens" not in name]
    assert all(float(x.detach().std()) < 0.03 for x in others)


class FirstStepsOnly(Decoder):
    """A mutant that forgets the factor where single tokens follow a cache."""

    def embed_tokens(self, ids):
        return self.tokens(ids) if ids.shape[1] == 1 else super().embed_tokens(ids)


@torch.no_grad()
def decoding_differs(kind, scheme):
    model = build((kind, Shape), scheme=scheme, embedding_scale=FACTOR, embedding_std=1.0)
    text, cache = ids(2, 9), Cache()
    parts = [model(text[:, :5], cache=cache), *(model(text[:, [place]], cache=cache) for place in range(5, 9))]
    return float((torch.cat(parts, 1) - model(text)).abs().max())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_decoding_with_a_cache_equals_the_whole_forward_pass(scheme):
    assert decoding_differs(Decoder, scheme) < 1e-12
    assert decoding_differs(FirstStepsOnly, scheme) > 1e-3


@torch.no_grad()
def test_an_encoder_decoder_multiplies_both_sides():
    torch.manual_seed(0)
    model = EncoderDecoder(EncoderDecoderShape(**SIZES, tie_embeddings=False, scheme="sinusoidal")).double().eval()
    other = with_factor(model)
    model.tokens.weight.mul_(FACTOR)
    assert torch.equal(other(ids(2, 7), ids(2, 5)), model(ids(2, 7), ids(2, 5)))


def test_saved_models_keep_both(tmp_path):
    model = build(DECODER, scheme="sinusoidal", embedding_scale=FACTOR, embedding_std=1.0).float()
    model.save_pretrained(tmp_path)
    other = Decoder.from_pretrained(str(tmp_path), local_files_only=True).eval()
    assert other.shape == model.shape
    with torch.no_grad():
        assert torch.equal(other(ids(2, 7)), model(ids(2, 7)))


LLAMA = {"feedforward": "swiglu", "norm_eps": 1e-5, "hidden": 24}


def test_a_family_without_the_factor_does_not_write_it(tmp_path):
    save(build(DECODER, **LLAMA), tmp_path, "llama")
    with pytest.raises(
        ValueError, match=r"must be able to represent the model; embedding_scale=4.0 would become 1.0"
    ):
        save(build(DECODER, **LLAMA, embedding_scale=FACTOR), tmp_path, "llama")


def test_a_family_does_not_depend_on_the_initial_standard_deviation(tmp_path):
    model = build(DECODER, **LLAMA, embedding_std=1.0)
    save(model, tmp_path, "llama")
    assert torch.equal(load(tmp_path).tokens.weight, model.tokens.weight)


def test_a_family_with_the_factor_writes_it(tmp_path):
    bias = "softmax:variant.bias=true"
    shape = EncoderDecoderShape(
        **SIZES, scheme="sinusoidal:form=concatenated,scale=1.0", mixer=bias, cross_mixer=bias, norm="layer",
        norm_position="post", bias=("norm", "feedforward"), logit_bias=True, embedding_scale=4.0, embedding_std=1.0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = EncoderDecoder(shape).eval()
    save(model, tmp_path, "marian")
    other = load(tmp_path)
    assert other.shape.embedding_scale == 4.0
    with torch.no_grad():
        assert torch.equal(other(ids(2, 7), ids(2, 5)), model(ids(2, 7), ids(2, 5)))


@pytest.mark.parametrize("choice", [{"embedding_scale": 2.0}, {"embedding_std": 1.0}])
def test_a_vision_model_has_no_token_table(choice):
    sizes = {"vocabulary": 3, "width": 16, "layers": 1, "heads": 2, "image": (8, 8), "patch": (4, 4)}
    assert not VisionTransformer(VisionShape(**sizes)).shape.has_token_table
    with pytest.raises(ValueError, match="are those of a token table, which a vision model does not have; got"):
        VisionShape(**sizes, **choice)


@pytest.mark.parametrize("name", ["embedding_scale", "embedding_std"])
@pytest.mark.parametrize("kind", [Shape, EncoderShape, EncoderDecoderShape])
def test_both_must_be_above_zero(kind, name):
    with pytest.raises(ValueError, match=f"{name} must be above zero; got 0"):
        kind(**SIZES, **{name: 0.0})


def test_padding_is_not_changed_by_the_factor():
    model, real = with_factor(build(ENCODER, scheme="sinusoidal")), torch.tensor([[True] * 5 + [False] * 2])
    padded = model(ids(1, 7), Geometry.padded(real, causal=False))
    torch.testing.assert_close(padded[:, :5], model(ids(1, 7)[:, :5]))
