import math

import pytest
import torch

from ordinate import Cache, Geometry
from ordinate.core import catalog
from ordinate.data.batch import IGNORE_INDEX, Batch
from ordinate.mixers._mixer import Mixer
from ordinate.models.cross_attention_weights import cross_attention_weights
from ordinate.models.encoded_source import cross_geometry
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.next_token_rules import NextTokenRules
from ordinate.models.stored_shape import read_shape
from ordinate.schemes.none import NoPosition

SIZES = {"vocabulary": 13, "width": 16, "layers": 2, "heads": 4, "max_length": 32}
CROSSING = [
    name
    for name in catalog.names("ordinate.mixers")
    if catalog.load("ordinate.mixers", Mixer, name).supports_cross_attention
]


def build(**choices):
    return stirred(EncoderDecoder(EncoderDecoderShape(**SIZES | choices)).double().eval())


def stirred(model):
    """Randomise all parameters: initial norms and biases of ones and zeros would hide errors."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def ids(*shape):
    return torch.randint(0, 13, shape, generator=torch.Generator().manual_seed(sum(shape)))


SOURCE, TARGET = ids(2, 7), ids(2, 5)
REAL, WRITTEN = torch.arange(7) < torch.tensor([[7], [4]]), torch.arange(5) < torch.tensor([[5], [3]])
KINDS = {
    "plain": {},
    "first": {
        "norm_position": "post",
        "norm": "layer",
        "feedforward": "relu",
        "bias": ("norm", "feedforward"),
        "mixer": "softmax:variant.bias=true",
        "cross_mixer": "softmax:variant.bias=true",
        "scheme": "sinusoidal",
        "embedding_scale": 4.0,
    },
    "norms after": {"norm_position": "res_post", "scheme": "t5"},
    "norms around": {"norm_position": "peri", "norm": "layer"},
    "as in Gemma 2": {
        "norm_position": "peri",
        "zero_centred_norm": True,
        "embedding_scale": 4.0,
        "logit_softcap": 0.1,
        "mixer": "softmax:variant.qk_norm=true,variant.qk_norm_zero_centred=true,variant.softcap=2.0",
    },
    "with a factor": {"residual_scale": 0.3, "scheme": "t5"},
    "parallel": {"norm_position": "parallel", "scheme": "t5", "source_scheme": "alibi", "logit_bias": True},
    "shared": {"norm_position": "shared", "kv_heads": 2, "logit_scale": 0.25, "tie_embeddings": False},
    "of two sizes": {"source_layers": 1, "source_vocabulary": 13, "source_scheme": "concatenated"},
    "other heads in the encoder": {
        "source_heads": 2,
        "source_kv_heads": 1,
        "source_hidden": 20,
        "scheme": "t5",
        "source_scheme": "rope",
    },
    "a plan": {
        "scheme": "rope,none",
        "mixer": "softmax,linear",
        "cross_mixer": "softmax,shared_qk",
        "sliding_windows": (4, None),
    },
    "mixers of one form": {"source_mixer": "sinkhorn", "mixer": "lstm", "scheme": "none", "source_scheme": "none"},
    "shared axis": {"cross_scheme": "rope", "scheme": "none"},
    "shared axis, biased": {"cross_scheme": "t5,none"},
    "scaled axis": {"cross_scheme": "rope", "cross_axis": "scaled", "cross_ratio": 1.5},
    "scaled to the length": {"cross_scheme": "alibi", "cross_axis": "scaled"},
}


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_padding_changes_nothing(kind):
    model = build(**KINDS[kind])
    together = model(SOURCE, TARGET, Geometry.padded(REAL, causal=False), Geometry.padded(WRITTEN))
    for row in range(2):
        source, target = (x[row : row + 1, real[row]] for x, real in ((SOURCE, REAL), (TARGET, WRITTEN)))
        assert torch.allclose(together[row, WRITTEN[row]], model(source, target)[0], atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_writing_in_pieces_is_writing_at_once(kind):
    model, cache = build(**KINDS[kind]), Cache()
    where = Geometry.padded(REAL, causal=False)
    memory = model.encode_source(SOURCE, where, 5 if model.needs_target_length else None)
    pieces = [model.target_logits(piece, memory, cache=cache) for piece in TARGET.split([2, 1, 1, 1], 1)]
    assert torch.allclose(torch.cat(pieces, 1), model(SOURCE, TARGET, where), atol=1e-10)
    assert len(cache) == 5


def test_the_encoder_has_heads_and_a_hidden_width_of_its_own():
    model = build(source_heads=2, source_hidden=20)
    here, there = model.encoder.blocks[0], model.decoder.blocks[0]
    assert (here.mixer.head_width, there.mixer.head_width, there.cross.head_width) == (8, 4, 4)
    assert (here.feedforward.narrow.in_features, there.feedforward.narrow.in_features) == (20, 64)
    for choices in ({"source_heads": 2}, {"source_heads": 2, "head_width": 4}, {"source_heads": 8, "head_width": 4}):
        shape = build(**choices).shape
        full = shape.with_defaults()
        assert full.encoder_shape.with_defaults() == shape.encoder_shape.with_defaults()
        assert EncoderDecoder(full).state_dict().keys() == EncoderDecoder(shape).state_dict().keys()
        for (_, a), (_, b) in zip(
            EncoderDecoder(full).named_parameters(), EncoderDecoder(shape).named_parameters(), strict=True
        ):
            assert a.shape == b.shape


def test_key_and_value_heads_are_those_of_the_sides_that_have_them():
    model = build(kv_heads=2, mixer="fox", source_mixer="softmax", scheme="none")
    here, there = model.encoder.blocks[0].mixer, model.decoder.blocks[0].cross
    assert here.widths == there.widths == [16, 8, 8]
    sides = {name: side.shape.kv_heads for name, side in model.shape.scheme_locations.items()}
    assert sides == {"encoder": 2, "decoder": None, "cross": 2}
    assert EncoderDecoder(model.shape.with_defaults()).shape.with_defaults() == model.shape.with_defaults()


@torch.no_grad()
def test_a_target_knows_all_of_the_source_and_nothing_of_its_own_future():
    model = build()
    out = model(SOURCE, TARGET)
    for changed in range(7):
        other = SOURCE.clone()
        other[:, changed] = (other[:, changed] + 1) % 13
        assert not torch.isclose(model(other, TARGET), out).all(-1).any()
    later = TARGET.clone()
    later[:, 3] = (later[:, 3] + 1) % 13
    assert torch.allclose(model(SOURCE, later)[:, :3], out[:, :3], atol=1e-12)
    assert not torch.isclose(model(SOURCE, later)[:, 3:], out[:, 3:]).all(-1).any()


@pytest.mark.parametrize("mixer", CROSSING)
@torch.no_grad()
def test_looking_at_ones_own_tokens_is_attention(mixer):
    made = build(cross_mixer=mixer, scheme="none").decoder.blocks[0].cross
    x, scheme, where = torch.randn(2, 5, 16).double(), NoPosition(), Geometry.full(5)
    expected, _ = made(x, scheme.at(where))
    seen = made.project_context(x, scheme, where.k_pos)
    assert torch.allclose(made.cross_attention(x, seen, scheme.at(where)), expected, atol=1e-12)


@torch.no_grad()
def test_cross_attention_is_the_formula():
    model = build(layers=1, cross_scheme="rope", cross_axis="scaled", cross_ratio=2.0)
    cross, x, y = model.decoder.blocks[0].cross, torch.randn(1, 3, 16).double(), torch.randn(1, 5, 16).double()
    rope = model.cross_schemes[0]
    weights = cross.project.weight.split(16)
    q, k, v = ((z[0] @ w.T).unflatten(-1, (4, 4)) for z, w in zip((x, y, y), weights, strict=True))
    out = torch.zeros(3, 4, 4).double()
    for h in range(4):
        for i in range(3):
            # source token j is at position 2 j
            scores = torch.stack([turned(rope, q[i, h], i) @ turned(rope, k[j, h], 2 * j) / 2 for j in range(5)])
            out[i, h] = scores.softmax(0) @ v[:, h]
    expected = out.flatten(1) @ cross.out.weight.T
    where = cross_geometry(Geometry.causal(3), model._scaled(Geometry.full(5), None))
    found = cross.cross_attention(x, cross.project_context(y, rope, where.k_pos), rope.at(where))
    assert torch.allclose(found[0], expected, atol=1e-10)


def turned(rope, vector, position):
    return rope.encode_query(vector[None, None, None], torch.tensor([[[float(position)]]]).double())[0, 0, 0]


@pytest.mark.parametrize("kv_heads", [4, 2])
@torch.no_grad()
def test_the_weights_of_a_look_are_those_it_reads_by(kv_heads):
    model = build(layers=1, cross_scheme="t5", kv_heads=kv_heads, norm_position="post", norm="layer")
    memory, block = model.encode_source(SOURCE, Geometry.padded(REAL, causal=False)), model.decoder.blocks[0]
    (weights,) = cross_attention_weights(model, TARGET, memory)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 4, 5).double())
    assert (weights[1, :, :, 4:] == 0).all()
    x, where = model.tokens(TARGET), Geometry.causal(5)
    mixed, _ = block.mixer(x, model.decoder.bind_schemes(where)[0])
    found = model.cross_attention_inputs(where, memory)[0].attend(block.cross, block.mixer_norm(x + mixed))
    read = weights @ memory.layers[0].v.repeat_interleave(4 // kv_heads, 1)
    assert torch.allclose(block.cross.output_projection(read), found, atol=1e-10)


@torch.no_grad()
def test_a_source_scaled_to_the_length_ends_where_the_target_does():
    model = build(cross_scheme="rope", cross_axis="scaled")
    memory = model.encode_source(SOURCE, Geometry.padded(REAL, causal=False), torch.tensor([14, 6]))
    assert memory.where.k_pos[0, :, 0].tolist() == [2 * j for j in range(7)]
    assert memory.where.k_pos[1, :4, 0].tolist() == [1.5 * j for j in range(4)]


@torch.no_grad()
def test_packed_pairs_attend_to_their_own_sources():
    model = build(scheme="rope", cross_scheme="t5")
    lengths, asked = [4, 3], [2, 3]
    packed = model(SOURCE[:1], TARGET[:1], Geometry.packed(lengths, causal=False), Geometry.packed(asked))[0].split(
        asked
    )
    parts = zip(SOURCE[:1].split(lengths, 1), TARGET[:1].split(asked, 1), packed, strict=True)
    for source, target, found in parts:
        assert torch.allclose(model(source, target)[0], found, atol=1e-10)


@torch.no_grad()
def test_rows_are_taken_in_any_order():
    model, cache, rows = build(cross_scheme="rope"), Cache(), torch.tensor([1, 0, 1])
    memory = model.encode_source(SOURCE, Geometry.padded(REAL, causal=False))
    model.target_logits(TARGET[:, :3], memory, cache=cache)
    then = model.target_logits(TARGET[rows, 3:], memory.select_rows(rows), cache=cache.select_rows(rows))
    assert torch.allclose(then, model.target_logits(TARGET, memory)[rows, 3:], atol=1e-10)


def test_a_batch_is_answered_as_it_is_padded():
    model = build()
    batch = Batch(TARGET, TARGET.masked_fill(~WRITTEN, IGNORE_INDEX), {}, WRITTEN, SOURCE, REAL)
    expected = model(SOURCE, TARGET, Geometry.padded(REAL, causal=False), Geometry.padded(WRITTEN))
    assert torch.equal(model.batch_logits(batch), expected)
    with pytest.raises(ValueError, match="needs a source; got a batch without one"):
        model.batch_logits(Batch(TARGET, TARGET))


def test_every_number_is_trained():
    model = build(cross_scheme="t5", tie_embeddings=False, logit_bias=True, source_vocabulary=13)
    logits = model(SOURCE, TARGET)
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), TARGET.flatten()).backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
    # of a table of distances, those that came up
    assert all((parameter.grad != 0).any() for parameter in model.parameters())


RULES = NextTokenRules(
    suppress_tokens=(3,), bad_words_ids=((4,), (5, 6)), sequence_bias=(((7, 8), -1.5),), forced_eos_token_id=(9,)
)


def test_what_is_saved_comes_back_bit_by_bit(tmp_path):
    signs = {"first": {"end": (1, 2)}, "shared": {"start": None, "end": (), "padding": None}}
    for kind in ("first", "of two sizes", "shared", "other heads in the encoder"):
        model = build(**KINDS[kind], **signs.get(kind, {}), rules=RULES).float()
        model.save_pretrained(tmp_path / kind)
        again = EncoderDecoder.from_pretrained(str(tmp_path / kind), local_files_only=True).eval()
        assert again.shape == model.shape
        assert torch.equal(again(SOURCE, TARGET), model(SOURCE, TARGET))


@pytest.mark.parametrize(
    ("rules", "match"),
    [
        (5, "rules of a shape must be NextTokenRules; got 5; correct it, or write the model again"),
        ({"repetition_penalty": "x"}, "repetition_penalty must be float; got 'x'; give a number"),
        ({"repetition_penalties": 1.2}, "no option of NextTokenRules is named .*; did you mean 'repetition_penalty'"),
        ({"suppress_tokens": [13]}, "tokens of suppress_tokens must lie in 0 to 12; got 13"),
    ],
)
def test_rules_of_a_saved_shape_are_checked(rules, match):
    with pytest.raises(ValueError, match=match):
        read_shape(EncoderDecoderShape, SIZES | {"rules": rules})


@pytest.mark.extended
def test_reversing_can_be_learned_by_heart():
    torch.manual_seed(0)
    model = EncoderDecoder(EncoderDecoderShape(**SIZES | {"width": 32, "layers": 1}))
    source = torch.randint(2, 13, (16, 4))
    said = source.flip(1)
    target = torch.cat([torch.zeros(16, 1).long(), said[:, :-1]], 1)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(50):
        loss = torch.nn.functional.cross_entropy(model(source, target).flatten(0, 1), said.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    # a guess would cost ln 11
    assert loss < math.log(11) / 3


@pytest.mark.parametrize(
    ("ask", "match"),
    [
        (
            lambda: build()(SOURCE, TARGET, Geometry.causal(7)),
            "an encoder needs a bidirectional geometry; got a causal",
        ),
        (lambda: build()(SOURCE, TARGET, None, Geometry.full(5)), "a target needs a causal geometry"),
        (
            lambda: build()(SOURCE, TARGET, Geometry.full(6)),
            "the geometry must have the new tokens as queries and as keys",
        ),
        (lambda: build()(SOURCE + 9, TARGET), "token ids must lie in 0 to 12; got"),
        (
            lambda: build()(SOURCE, TARGET[:1]),
            "each target needs one source; got 1 targets and 2 sources; give memory.select_rows",
        ),
        (lambda: build().encode_source(SOURCE, None, 5), "to the target's length; got one; leave length out"),
        (
            lambda: build(cross_scheme="rope", cross_axis="scaled").encode_source(SOURCE),
            "target's length; got none; give length",
        ),
        (lambda: build(mixer="sinkhorn"), "needs a mixer with a causal form; mixer 'sinkhorn' has none"),
        (
            lambda: build(source_mixer="triangular_mlp", scheme="none"),
            "a bidirectional model needs .*; mixer 'triangular_mlp' has no",
        ),
        (lambda: build(cross_mixer="window"), "must support cross-attention; mixer 'window' does not"),
        (lambda: build(cross_scheme="sinusoidal"), "cross_scheme must act inside attention; Sinusoidal uses embed"),
        (
            lambda: build(source_mixer="latent", source_scheme="none", source_kv_heads=2),
            "source_kv_heads needs a mixer with the option kv_heads, .*; got source_kv_heads=2, which no mixer",
        ),
        (lambda: build(cross_axis="scaled"), "cross_axis has an effect only with a cross_scheme"),
        (
            lambda: build(cross_scheme="rope", cross_ratio=2.0),
            "cross_ratio has an effect only with a scaled axis; got cross_ratio=2.0",
        ),
        (lambda: build(cross_axis="scale"), "no cross_axis is named 'scale'; .*did you mean 'scaled'"),
        (lambda: build(cross_scheme="learned"), "cross_scheme must act inside attention; Learned uses embed"),
        (lambda: build(end=13), "special tokens must lie in 0 to 12; got 13"),
        (
            lambda: build(rules=NextTokenRules(forced_bos_token_id=13)),
            "tokens of forced_bos_token_id must lie in 0 to 12; got 13; take them from the tokenizer",
        ),
        (
            lambda: build(end=(), rules=NextTokenRules(min_length=3)),
            r"min_length needs an end token; got min_length=3 without one; give an end token",
        ),
        (lambda: build(blocks="reversible"), "an encoder-decoder needs plain blocks"),
        (lambda: build(source_scheme="concatenated"), "a shared token table needs schemes that append equally many"),
        (lambda: build(embedding_scale=0.0), "embedding_scale must be above zero"),
    ],
)
def test_what_does_not_fit_is_refused(ask, match, untyped):
    with pytest.raises(ValueError, match=match):
        ask()
