"""Probing of Ordinate models: hooks on the reference formula, for all mixers and schemes."""

from dataclasses import replace

import pytest
import torch

from ordinate import Decoder, Geometry, Shape, load
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.vision import VisionShape, VisionTransformer
from ordinate.probing._adapter import Hooks, Inputs, NotApplicable
from ordinate.probing._attach import attach

SIZES = {"vocabulary": 40, "width": 32, "layers": 3, "heads": 4}
MODELS = {
    "rope": {"scheme": "rope"},
    "learned, groups": {"scheme": "learned", "kv_heads": 2, "max_length": 32},
    "alibi, window": {"scheme": "alibi", "mixer": "window:window=4"},
    "shaw, tied": {"scheme": "shaw", "mixer": "shared_qk"},
    "t5, norms, sinks": {
        "scheme": "t5",
        "mixer": "softmax:variant.qk_norm=true,variant.sinks=true,variant.softcap=5",
    },
    "sinusoidal, parallel": {"scheme": "sinusoidal", "norm_position": "parallel", "bias": ("norm", "feedforward")},
    "concatenated, post": {"scheme": "concatenated", "norm_position": "post"},
    "rope, norms after": {"scheme": "rope", "norm_position": "res_post"},
    "alibi, norms around": {"scheme": "alibi", "norm_position": "peri"},
    "narrow table": {"scheme": "learned", "embedding_width": 8, "embedding_scale": 2.0},
    "alibi, zero-centred norms around, capped logits": {
        "scheme": "alibi",
        "norm_position": "peri",
        "zero_centred_norm": True,
        "mixer": "softmax:variant.qk_norm=true,variant.qk_norm_zero_centred=true",
        "logit_softcap": 0.5,
    },
    "rope, a factor of branches": {
        "scheme": "rope",
        "residual_scale": 0.3,
        "embedding_scale": 5.7,
        "round_embedding_scale": True,
    },
    "no first norm": {"scheme": "rope", "first_norm": False},
    "merged": {"scheme": "none", "mixer": "merged_qk"},
    "sigmoid": {"scheme": "rope", "mixer": "sigmoid"},
}


class All(Hooks):
    def __init__(self):
        self.streams, self.seen, self.branches, self.raws = {}, {}, {}, {}

    def residual(self, layer, x):
        self.streams[layer] = x

    def attention(self, layer, seen):
        self.seen[layer] = seen

    def attention_output(self, layer, a):
        self.branches[layer] = a

    def qk_before_rope(self, layer, q, k):
        self.raws[layer] = q, k


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    torch.manual_seed(0)
    model = Decoder(Shape(**SIZES, **MODELS[request.param])).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


@pytest.fixture(scope="module")
def subject(model):
    return attach(model, name="own")


@pytest.fixture(scope="module")
def ids():
    return torch.randint(40, (2, 9), generator=torch.Generator().manual_seed(1))


def test_what_is_read_is_what_the_model_computes(model, subject, ids):
    watch = All()
    reading = subject.forward(Inputs(ids), watch)
    with torch.no_grad():
        expected = model.eval()(ids)
    torch.testing.assert_close(reading.logits, expected)
    assert sorted(watch.streams) == [0, 1, 2, 3]
    for layer, seen in watch.seen.items():
        x, a, block = watch.streams[layer], watch.branches[layer], model.blocks[layer]
        made = torch.einsum("bhie,hew->biw", seen.out, subject.projection(layer).out)
        made = block.mixer_out_norm(made).detach()
        torch.testing.assert_close(made - made[:, :1], a - a[:, :1], rtol=1e-6, atol=1e-9)
        if model.shape.norm_position in ("pre", "res_post", "peri"):
            with torch.no_grad():
                fed = block.feedforward_out_norm(block.feedforward_branch(x + a))
                torch.testing.assert_close(x + a + fed, watch.streams[layer + 1])
    assert bool(watch.raws) == (model.shape.scheme == "rope")


def test_matrices_make_the_queries_before_they_are_marked(model, subject, ids):
    watch = All()
    subject.forward(Inputs(ids), watch)
    found = subject.projection(1)
    if model.shape.norm_position == "post" or "variant" in model.shape.mixer:
        return
    with torch.no_grad():
        normed = model.blocks[1].mixer_norm(watch.streams[1])
    q, k = watch.raws.get(1, (watch.seen[1].q, watch.seen[1].k))
    torch.testing.assert_close(torch.einsum("bnw,hwd->bhnd", normed, found.query), q)
    torch.testing.assert_close(torch.einsum("bnw,gwd->bgnd", normed, found.key), k)
    torch.testing.assert_close(torch.einsum("bnw,gwd->bgnd", normed, found.value), watch.seen[1].v)


# in these mixers memory order decides too which tokens are visible
@pytest.mark.where(lambda model: not MODELS[model].get("mixer", "").startswith(("window", "sigmoid")))
def test_permuted_tokens_positions_and_sight_permute_the_result(model, subject, ids):
    order = torch.randperm(9, generator=torch.Generator().manual_seed(2))
    sight = torch.ones(9, 9, dtype=torch.bool).tril()[order][:, order][None]
    usual = subject.forward(Inputs(ids)).residual
    both = subject.forward(Inputs(ids[:, order], order.expand(2, -1), sight)).residual
    torch.testing.assert_close(both, usual[:, order], rtol=1e-11, atol=1e-11)
    if model.shape.scheme != "none":
        alone = subject.forward(Inputs(ids[:, order], mask=sight)).residual
        assert (alone - usual[:, order]).abs().max() > 1e-3


def test_sight_takes_the_place_of_causality(subject, ids):
    alone = torch.eye(9, dtype=torch.bool)[None]
    other = torch.cat([ids[:, :3], (ids[:, 3:4] + 1) % 40, ids[:, 4:]], 1)
    rest = [0, 1, 2, 4, 5, 6, 7, 8]
    first, second = (subject.forward(Inputs(x, mask=alone)).residual[:, rest] for x in (ids, other))
    assert first.equal(second)


class Severed(Hooks):
    def attention_output(self, layer, a):
        return torch.zeros_like(a)


def test_without_branches_no_token_learns_of_another(subject, ids):
    other = torch.cat([ids[:, :3], (ids[:, 3:4] + 1) % 40, ids[:, 4:]], 1)
    first, second = (subject.forward(Inputs(x), Severed()).residual for x in (ids, other))
    assert first[:, 4:].equal(second[:, 4:])
    assert not first[:, 3].equal(second[:, 3])


def test_vectors_stand_in_the_place_of_tokens(subject, ids):
    table = subject.token_table()
    assert table.shape == (40, 32)
    vectors, tokens = (subject.forward(x).residual for x in (Inputs(embeddings=table[ids]), Inputs(ids)))
    # a narrow table is projected: as a whole, or the rows of the tokens, which may be rounded otherwise
    torch.testing.assert_close(vectors, tokens, rtol=0, atol=1e-12)


def test_the_table_of_positions_is_what_is_added():
    torch.manual_seed(0)
    model = Decoder(Shape(**SIZES, scheme="learned", max_length=32))
    one = attach(model)
    assert one.position_table(5).equal(model.schemes[0].table[:5])
    assert one.info.max_length == 32
    with pytest.raises(NotApplicable, match="adds no position embeddings to its tokens"):
        attach(Decoder(Shape(**SIZES))).position_table(3)


def test_an_encoder_reads_from_both_sides(tmp_path):
    torch.manual_seed(0)
    model = Encoder(EncoderShape(**SIZES, scheme="learned", max_length=32)).double()
    one = attach(model)
    ids = torch.randint(40, (2, 9))
    with torch.no_grad():
        expected = model.logits(model.eval()(ids, Geometry.full(9)))
    torch.testing.assert_close(one.forward(Inputs(ids), All()).logits, expected)
    order = torch.randperm(9)
    both, usual = one.forward(Inputs(ids[:, order], order.expand(2, -1))), one.forward(Inputs(ids))
    torch.testing.assert_close(both.residual, usual.residual[:, order], rtol=1e-13, atol=1e-13)
    assert one.info.kind == "encoder"


def test_a_model_without_attention_is_skipped_with_the_reason():
    one = attach(Decoder(Shape(**SIZES, mixer="rwkv7,softmax,rwkv7", scheme="none")))
    with pytest.raises(NotApplicable, match="no attention to instrument in layers of Rwkv7"):
        one.forward(Inputs(torch.zeros(1, 3, dtype=torch.long)), All())
    with pytest.raises(NotApplicable, match="no attention"):
        one.projection(0)
    assert one.projection(1).query.shape == (4, 32, 8)
    with pytest.raises(NotApplicable, match="two residual streams"):
        attach(Decoder(Shape(**SIZES, blocks="reversible"))).forward(
            Inputs(torch.zeros(1, 3, dtype=torch.long)), All()
        )
    with pytest.raises(NotApplicable, match="takes texts"):
        one.forward(Inputs(images=torch.zeros(1, 3, 4, 4)))
    with pytest.raises(NotApplicable, match="no tokenizer"):
        one.tokenize("a")


def test_layers_with_other_numbers_of_heads_and_channels_have_matrices_of_their_own():
    torch.manual_seed(0)
    mixer = "softmax:variant.value_width=5,softmax:heads=6"
    model = Decoder(Shape(**SIZES | {"layers": 2}, kv_heads=2, head_width=6, mixer=mixer))
    one, ids = attach(model.double()), torch.zeros(1, 3, dtype=torch.long)
    found = [one.projection(layer) for layer in range(2)]
    assert [(each.query.shape, each.value.shape, each.out.shape) for each in found] == [
        ((4, 32, 6), (2, 32, 5), (4, 5, 32)),
        ((6, 32, 6), (2, 32, 6), (6, 6, 32)),
    ]
    with torch.no_grad():
        torch.testing.assert_close(one.forward(Inputs(ids)).logits, model.eval()(ids))


def test_an_image_is_read_with_its_leading_tokens():
    torch.manual_seed(0)
    shape = VisionShape(vocabulary=5, width=32, layers=2, heads=4, image=(16, 16), patch=(4, 4), registers=1)
    model = VisionTransformer(replace(shape, layer_scale=0.1)).double()
    one, images = attach(model), torch.randn(2, 3, 16, 16, dtype=torch.float64)
    reading, watch = one.forward(Inputs(images=images), All()), All()
    with torch.no_grad():
        torch.testing.assert_close(reading.logits[:, 0], model.logits(model.eval()(images)))
    assert (one.info.prefix, one.info.grid, one.info.max_length) == (2, (4, 4), 18)
    one.forward(Inputs(images=images), watch)
    made = torch.einsum("bhie,hew->biw", watch.seen[0].out, one.projection(0).out)
    torch.testing.assert_close(made, watch.branches[0])
    order = torch.cat([torch.arange(2), torch.arange(17, 1, -1)])
    patches = images.unflatten(2, (4, 4)).unflatten(4, (4, 4)).permute(0, 2, 4, 1, 3, 5).flatten(1, 2).flip(1)
    turned = patches.unflatten(1, (4, 4)).permute(0, 3, 1, 4, 2, 5).flatten(2, 3).flatten(3, 4)
    both = one.forward(Inputs(images=turned, positions=order.expand(2, -1))).residual
    torch.testing.assert_close(both, reading.residual[:, order], rtol=1e-12, atol=1e-12)
    assert (one.forward(Inputs(images=turned)).residual - reading.residual[:, order]).abs().max() > 1e-3


def test_of_an_encoder_decoder_the_encoder_is_read(tmp_path):
    torch.manual_seed(0)
    model = EncoderDecoder(EncoderDecoderShape(**SIZES, embedding_scale=2.0))
    model.save_pretrained(tmp_path)
    one, ids = attach(tmp_path, name="both"), torch.randint(40, (2, 9))
    reading = one.forward(Inputs(ids), All())
    with torch.no_grad():
        torch.testing.assert_close(model.encoder.norm(reading.residual), model.eval().encode(ids))
        torch.testing.assert_close(one.forward(Inputs(embeddings=one.token_table()[ids])).residual, reading.residual)
    assert reading.logits is None
    assert one.info.kind == "encoder-decoder"


@pytest.mark.parametrize(("kind", "shape"), [(Decoder, Shape), (Encoder, EncoderShape)])
def test_embeddings_in_place_of_ids_have_the_factor_of_the_token_table(kind, shape):
    torch.manual_seed(0)
    model = kind(shape(**SIZES, scheme="sinusoidal", embedding_scale=4.0, embedding_std=1.0))
    one, ids = attach(model), torch.randint(40, (2, 9))
    by_ids, by_vectors = (
        one.forward(inputs).residual for inputs in (Inputs(ids), Inputs(embeddings=one.token_table()[ids]))
    )
    torch.testing.assert_close(by_vectors, by_ids)
    assert float(one.token_table().std()) > 0.9


@pytest.mark.parametrize("scheme", ["deberta", "learned:width=8"])
def test_embeddings_of_a_narrow_table_are_those_of_the_width_of_the_model(scheme):
    torch.manual_seed(0)
    model = Encoder(EncoderShape(**SIZES | {"scheme": scheme}, embedding_width=8, embedding_scale=2.0))
    one, ids = attach(model), torch.randint(40, (2, 9))
    table, plain = one.token_table(), one.forward(Inputs(ids))
    torch.testing.assert_close(table, model.widen_embeddings(2 * model.tokens.weight).detach())
    torch.testing.assert_close(one.forward(Inputs(embeddings=table[ids])).residual, plain.residual)
    moved = one.forward(Inputs(embeddings=table[ids] + torch.randn(9, 32)))
    assert not moved.residual.allclose(plain.residual)
    if scheme == "deberta":
        return
    positions = one.position_table(9)
    torch.testing.assert_close(positions, model.widen_embeddings(model.first_scheme.table[:9]).detach())


def test_embeddings_that_are_normalised_before_they_are_widened_are_said_to_be():
    shape = EncoderShape(**SIZES | {"scheme": "learned:width=8"}, embedding_width=8, narrow_norm=True)
    one, ids = attach(Encoder(shape)), torch.randint(40, (2, 9))
    for ask in (
        one.token_table,
        lambda: one.position_table(9),
        lambda: one.forward(Inputs(embeddings=torch.randn(2, 9, 32))),
    ):
        with pytest.raises(NotApplicable, match="have 8 columns, not the 32 of the model, and no linear map alone"):
            ask()
    assert one.forward(Inputs(ids)).residual.shape == (2, 9, 32)


@pytest.mark.parametrize("hook", ["attention_scores", "attention_pattern", "head_output"])
def test_what_hooks_compute_in_a_wider_type_is_used_in_that_of_the_model(hook):
    torch.manual_seed(0)
    model = Decoder(Shape(vocabulary=50, width=32, heads=4, layers=2, scheme="t5", max_length=64))
    one, ids = attach(model.bfloat16().eval()), torch.arange(9)[None]

    class Wide(Hooks):
        pass

    setattr(Wide, hook, lambda self, layer, x: x.float())
    assert one.forward(Inputs(ids), Wide()).residual.dtype == torch.bfloat16


def test_positions_of_a_roberta_may_be_any(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    config = transformers.RobertaConfig(**sizes, vocab_size=60, max_position_embeddings=42, pad_token_id=1)
    model = transformers.RobertaForMaskedLM(config).eval()
    model.save_pretrained(tmp_path)
    ours, theirs = attach(load(tmp_path)), attach(model)
    ids = torch.randint(4, 60, (2, 9), generator=torch.Generator().manual_seed(0))
    for places in (torch.arange(9) + 20, torch.arange(9).flip(0), torch.zeros(9, dtype=torch.long)):
        given = Inputs(ids, positions=places.expand(2, -1))
        torch.testing.assert_close(ours.forward(given).residual, theirs.forward(given).residual, rtol=1e-4, atol=1e-5)


def test_a_pass_without_a_head_ends_with_the_last_layer():
    class Headless(Hooks):
        skip_head = True

    model = Decoder(Shape(vocabulary=20, width=16, heads=2, layers=2)).eval()
    one, inputs = attach(model), Inputs(torch.arange(12).reshape(2, 6))
    whole, reading = one.forward(inputs), one.forward(inputs, Headless())
    assert reading.logits is None
    assert torch.equal(reading.residual, whole.residual)
    assert torch.equal(one.forward(inputs).logits, whole.logits)


def test_a_mixer_that_adds_columns_to_keys_has_no_projection():
    model = attach(Decoder(Shape(vocabulary=11, width=16, layers=1, heads=2, mixer="fox", scheme="none")))
    with pytest.raises(NotApplicable, match="queries and keys of layer 0 are not linear maps of its input"):
        model.projection(0)


def test_a_mask_that_a_second_mixer_would_not_see_is_refused():
    model = Decoder(Shape(**SIZES, scheme="rope", second_mixer="mamba2")).eval()
    subject, ids, watch = attach(model), torch.arange(6)[None], All()
    subject.forward(Inputs(ids), watch)
    # the attention pattern is that of the first mixer
    assert watch.seen.keys() == {0, 1, 2}
    with pytest.raises(NotApplicable, match="another attention mask does not reach the second mixer of a layer"):
        subject.forward(Inputs(ids, mask=torch.ones(1, 6, 6, dtype=torch.bool)))
