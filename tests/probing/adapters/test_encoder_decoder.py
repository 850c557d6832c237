"""The decoder and the cross-attention of encoder-decoders, beside what the models themselves return."""

import copy

import pytest
import torch

from ordinate.core.geometry import Geometry
from ordinate.models.cross_attention_weights import cross_attention_weights
from ordinate.models.decoder import Decoder
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.shape import Shape
from ordinate.probing import ablate, activation_names, patch, record
from ordinate.probing._adapter import Inputs, NotApplicable
from ordinate.probing._attach import attach

hf = pytest.importorskip("transformers")
SIZES = {
    "d_model": 16,
    "vocab_size": 60,
    "decoder_start_token_id": 2,
    "pad_token_id": 1,
    "max_position_embeddings": 40,
}
SIZES |= {"encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
SIZES |= {"encoder_attention_heads": 4, "decoder_attention_heads": 2}
T5 = {
    "d_model": 16,
    "d_kv": 6,
    "num_layers": 1,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "d_ff": 24,
    "vocab_size": 60,
}
FAMILIES = {
    "t5": lambda: hf.T5Config(**T5, decoder_start_token_id=0),
    "bart": lambda: hf.BartConfig(**SIZES),
    "marian": lambda: hf.MarianConfig(**SIZES),
    "pegasus": lambda: hf.PegasusConfig(**SIZES),
    "mbart": lambda: hf.MBartConfig(**SIZES),
}
NAMES = [pytest.param(x, marks=() if x == "t5" else pytest.mark.extended) for x in FAMILIES]
OURS = {
    "none": {"scheme": "learned", "max_length": 32, "kv_heads": 2},
    "rope": {"scheme": "rope", "cross_scheme": "rope", "source_vocabulary": 50, "source_layers": 1},
    "alibi, post": {"scheme": "alibi", "cross_scheme": "rope", "norm_position": "post"},
    "rope, norms around, a factor": {"scheme": "rope", "norm_position": "peri", "residual_scale": 0.3},
    "a factor": {"scheme": "rope", "cross_scheme": "rope", "residual_scale": 0.3},
    "scaled, parallel": {
        "scheme": "rope",
        "cross_scheme": "rope",
        "cross_axis": "scaled",
        "norm_position": "parallel",
    },
}
NOISE = torch.Generator().manual_seed(0)
SOURCE = torch.randint(4, 50, (2, 7), generator=NOISE)
TARGET = torch.randint(4, 50, (2, 5), generator=NOISE)
GIVEN = Inputs(TARGET, source=SOURCE)
PARTS = pytest.mark.parametrize("part", [pytest.param("decoder", marks=pytest.mark.extended), "cross"])
CLOSE = {"atol": 1e-12, "rtol": 0}


def shaken(model):
    """The model in float64 with random numbers in all weights, so that no part of it is 0 or 1."""
    torch.manual_seed(0)
    with torch.no_grad():
        for own in model.double().parameters():
            own.add_(torch.randn_like(own) * 0.1)
    return model.eval()


@pytest.fixture(scope="module", params=NAMES)
def published(request):
    torch.manual_seed(0)
    model = shaken(hf.AutoModelForSeq2SeqLM.from_config(FAMILIES[request.param]()))
    model.set_attn_implementation("eager")
    return model


@pytest.fixture(
    scope="module", params=[pytest.param(x, marks=() if x == "rope" else pytest.mark.extended) for x in OURS]
)
def ours(request):
    torch.manual_seed(0)
    return shaken(
        EncoderDecoder(EncoderDecoderShape(vocabulary=60, width=16, heads=4, layers=2, **OURS[request.param]))
    )


def told(model):
    """What a transformers model itself returns."""
    with torch.no_grad():
        return model(input_ids=SOURCE, decoder_input_ids=TARGET, output_attentions=True, output_hidden_states=True)


def modules(model, part):
    """The attention modules of a transformers decoder by their names in its code."""
    layers = model.get_decoder().layers if hasattr(model.get_decoder(), "layers") else model.get_decoder().block
    if hasattr(layers[0], "encoder_attn"):
        return [layer.encoder_attn if part == "cross" else layer.self_attn for layer in layers]
    return [layer.layer[1].EncDecAttention if part == "cross" else layer.layer[0].SelfAttention for layer in layers]


@PARTS
def test_patterns_streams_and_logits_are_those_that_transformers_returns(published, part):
    lab, want = attach(published, part=part), told(published)
    seen = record(lab, GIVEN, ["pattern", "resid_pre"], logits=True)
    patterns = want.decoder_attentions if part == "decoder" else want.cross_attentions
    torch.testing.assert_close(seen.layers("pattern"), torch.stack(patterns, 1), **CLOSE)
    torch.testing.assert_close(seen.layers("resid_pre"), torch.stack(want.decoder_hidden_states[:-1], 1), **CLOSE)
    torch.testing.assert_close(seen.logits, want.logits, **CLOSE)
    assert lab.info.causal == (part == "decoder")


@pytest.mark.extended
@pytest.mark.parametrize("part", ["decoder", "cross"])
def test_queries_keys_values_and_outputs_are_those_of_the_modules_of_transformers(published, part):
    caught, stop = [], []
    for module in modules(published, part):
        own = {}
        names = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "q": "q", "k": "k", "v": "v"}
        for name, child in module.named_children():
            if name in names:
                stop.append(
                    child.register_forward_hook(
                        lambda _, __, out, own=own, name=names[name]: own.__setitem__(name, out)
                    )
                )
        stop.append(module.register_forward_hook(lambda _, __, out, own=own: own.__setitem__("attn_out", out[0])))
        caught.append(own)
    lab = attach(published, part=part)
    told(published)
    want = [dict(own) for own in caught]
    for one in stop:
        one.remove()
    seen = record(lab, GIVEN, ["q", "k", "v", "z", "attn_scores", "pattern", "attn_out"])
    for layer, own in enumerate(want):
        for name in ("q", "k", "v"):
            torch.testing.assert_close(seen[name, layer].transpose(1, 2).flatten(2), own[name], **CLOSE)
        torch.testing.assert_close(seen["attn_out", layer], own["attn_out"], **CLOSE)
        torch.testing.assert_close(seen["pattern", layer] @ seen["v", layer], seen["z", layer], **CLOSE)
        torch.testing.assert_close(seen["attn_scores", layer].softmax(-1), seen["pattern", layer], **CLOSE)


def test_patterns_and_logits_are_those_of_our_models(ours):
    length = TARGET.shape[1] if ours.needs_target_length else None
    memory = ours.encode_source(SOURCE, length=length)
    want = torch.stack(cross_attention_weights(ours, TARGET, memory), 1)
    seen = record(attach(ours, part="cross"), GIVEN, "pattern", logits=True)
    torch.testing.assert_close(seen.layers("pattern"), want, **CLOSE)
    torch.testing.assert_close(seen.logits, ours(SOURCE, TARGET), **CLOSE)
    own = record(attach(ours, part="decoder"), GIVEN, "pattern", logits=True)
    assert own["pattern", 1].shape == (2, 4, 5, 5)
    assert not own["pattern", 1].triu(1).any()
    torch.testing.assert_close(own.logits, seen.logits, **CLOSE)


@pytest.mark.extended
def test_stream_and_both_attention_outputs_of_our_layer_add_up(ours):
    names = ["resid_pre", "resid_post", "attn_out"]
    own, across = (record(attach(ours, part=part), GIVEN, names) for part in ("decoder", "cross"))
    block = ours.decoder.blocks[1]
    x, post = own["resid_pre", 1], ours.shape.norm_position == "post"
    with torch.no_grad():
        if ours.shape.norm_position == "parallel":
            fed = block.feedforward(block.feedforward_norm(x))
            whole = x + own["attn_out", 1] + across["attn_out", 1] + fed
        else:
            x = x + own["attn_out", 1]
            x = (block.mixer_norm(x) if post else x) + across["attn_out", 1]
            x = block.cross_norm(x) if post else x
            fed = block.feedforward_out_norm(block.feedforward(x if post else block.feedforward_norm(x)))
            whole = x + fed * ours.shape.residual_scale
            whole = block.feedforward_norm(whole) if post else whole
    torch.testing.assert_close(whole, own["resid_post", 1], **CLOSE)


@pytest.mark.extended
def test_queries_and_keys_of_our_cross_attention_are_projections_rotated_where_the_scheme_rotates(ours):
    lab = attach(ours, part="cross")
    seen, names = record(lab, GIVEN, ["q", "k", "v", "z", "pattern"]), activation_names(lab)
    with torch.no_grad():
        k, v = ours.decoder.blocks[1].cross.project_keys_values(ours.encode(SOURCE))
    torch.testing.assert_close(seen["k", 1], k, **CLOSE)
    torch.testing.assert_close(seen["v", 1], v, **CLOSE)
    rotates = ours.shape.cross_scheme == "rope"
    assert ("rot_k" in names) == rotates
    if rotates:
        rotated = record(lab, GIVEN, ["rot_q", "rot_k", "attn_scores"])
        assert not torch.allclose(rotated["rot_k", 1], k)
        product = rotated["rot_q", 1] @ rotated["rot_k", 1].mT * ours.decoder.blocks[1].cross.scale
        torch.testing.assert_close(rotated["attn_scores", 1], product, **CLOSE)
    # what is replaced by itself changes nothing
    for name in ("q", "k", "v", "z", "pattern"):
        same = record(patch(lab, name, seen), GIVEN, "z", logits=True)
        torch.testing.assert_close(same.logits, ours(SOURCE, TARGET), **CLOSE)
    # keys that are replaced are rotated like the keys of the model
    louder = record(patch(lab, "k", lambda k: 2 * k), GIVEN, "attn_scores")["attn_scores", 0]
    torch.testing.assert_close(louder, 2 * record(lab, GIVEN, "attn_scores")["attn_scores", 0], **CLOSE)


def without_head(model, part, layer, head):
    """A copy of a T5 or of ours whose head writes nothing: its columns of W_O are 0."""
    other = copy.deepcopy(model)
    if isinstance(model, EncoderDecoder):
        layers = (other.encoder if part == "encoder" else other.decoder).blocks
        module = layers[layer].cross if part == "cross" else layers[layer].mixer
        size, weight = module.head_width, module.out.weight
    else:
        found = [x.layer[0].SelfAttention for x in other.encoder.block] if part == "encoder" else modules(other, part)
        size, weight = found[layer].key_value_proj_dim, found[layer].o.weight
    with torch.no_grad():
        weight[:, head * size : (head + 1) * size] = 0
    return other


def logits_of(model):
    with torch.no_grad():
        return model(SOURCE, TARGET) if isinstance(model, EncoderDecoder) else told(model).logits


@pytest.fixture(scope="module", params=["ours", pytest.param("t5", marks=pytest.mark.extended)])
def either(request):
    torch.manual_seed(0)
    if request.param == "t5":
        return shaken(hf.T5ForConditionalGeneration(hf.T5Config(**T5, decoder_start_token_id=0)))
    return shaken(EncoderDecoder(EncoderDecoderShape(vocabulary=60, width=16, heads=4, layers=2, **OURS["rope"])))


@pytest.mark.extended
@pytest.mark.parametrize("part", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("through", ["decoder", "cross"])
def test_an_ablated_head_is_that_of_a_model_without_it_seen_through_every_part(either, part, through):
    given = {} if part == "encoder" else {"source": SOURCE}
    bare = ablate(attach(either, part=part, **given), "z", layers=0, heads=2)
    seen = record(attach(bare, part=through, source=SOURCE), TARGET, ["z", "pattern"], logits=True)
    want = without_head(either, part, 0, 2)
    torch.testing.assert_close(seen.logits, logits_of(want), **CLOSE)
    patterns = record(attach(want, part=through, source=SOURCE), TARGET, "pattern")
    torch.testing.assert_close(seen["pattern", 1], patterns["pattern", 1], **CLOSE)


def test_changes_in_several_parts_add_up(either):
    one = ablate(ablate(attach(either), "z", layers=0, heads=1), "z", layers=0, heads=3)
    two = ablate(attach(one, part="cross", source=SOURCE), "z", layers=1, heads=3)
    seen = record(attach(two, part="decoder", source=SOURCE), TARGET, "z", logits=True)
    want = without_head(without_head(without_head(either, "encoder", 0, 1), "encoder", 0, 3), "cross", 1, 3)
    torch.testing.assert_close(seen.logits, logits_of(want), **CLOSE)
    # nothing is left behind in the model
    torch.testing.assert_close(
        record(attach(either, part="decoder"), GIVEN, "z", logits=True).logits, logits_of(either)
    )


PLACES = ("q", "k", "v", "attn_scores", "pattern", "z", "attn_out", "resid_pre", "resid_post")


def check_slopes(model, part, names):
    """Compare gradients of a number with finite differences of patched activations."""
    lab = attach(model, part=part, source=SOURCE)
    for name in names:
        seen = record(lab, TARGET, name, logits=True, gradients=True)
        way = torch.randn(seen.logits.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        (seen.logits * way).sum().backward()
        slope, step = seen[name, 0].grad, 1e-5
        to = torch.randn(slope.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        up, down = (
            record(patch(lab, name, lambda x, to=sign * step * to: x + to, layers=0), TARGET, "z", logits=True)
            for sign in (1, -1)
        )
        moved = ((up.logits - down.logits) * way).sum() / (2 * step)
        torch.testing.assert_close(moved, (slope * to).sum(), rtol=1e-5, atol=1e-7)
        model.zero_grad()


@pytest.mark.extended
@pytest.mark.parametrize("part", ["decoder", "cross"])
def test_gradients_are_those_of_finite_differences(part):
    torch.manual_seed(0)
    model = shaken(EncoderDecoder(EncoderDecoderShape(vocabulary=60, width=16, heads=4, layers=2, **OURS["rope"])))
    check_slopes(model, part, PLACES)


@pytest.mark.extended
@pytest.mark.parametrize("part", ["decoder", "cross"])
@pytest.mark.parametrize("family", ["bart", "pegasus"])
def test_gradients_of_published_models_are_those_of_finite_differences(family, part):
    torch.manual_seed(0)
    check_slopes(shaken(hf.AutoModelForSeq2SeqLM.from_config(FAMILIES[family]())), part, PLACES)


@pytest.mark.extended
@pytest.mark.parametrize("part", ["decoder", "cross"])
def test_gradients_of_the_logits_reach_the_encoder(either, part):
    steer = torch.zeros(16, dtype=torch.float64, requires_grad=True)
    steered = patch(attach(either), "resid_pre", lambda x: x + steer, layers=0)
    lab = attach(steered, part=part, source=SOURCE)
    lab.forward(Inputs(TARGET, gradients=True)).logits[:, -1, 5].sum().backward()
    either.zero_grad()
    up, down = (
        attach(patch(attach(either), "resid_pre", lambda x, to=to: x + to, layers=0), part=part, source=SOURCE)
        for to in (1e-4 * torch.ones(16), -1e-4 * torch.ones(16))
    )
    moved = sum(s * one.forward(Inputs(TARGET)).logits[:, -1, 5].sum() for s, one in ((1, up), (-1, down))) / 2e-4
    # T5 computes the variance of its norms in float32
    torch.testing.assert_close(steer.grad.sum(), moved, rtol=1e-2, atol=1e-4)
    assert steer.grad.abs().max() > 1e-3


def test_embeddings_replace_those_of_the_target_only(either):
    lab = attach(either, part="decoder", source=SOURCE)
    vectors = lab.token_table()[TARGET]
    given = Inputs(embeddings=vectors)
    torch.testing.assert_close(record(lab, given, "z", logits=True).logits, logits_of(either), **CLOSE)


@pytest.mark.extended
def test_positions_are_those_of_the_target_in_both_attentions(ours):
    lab = attach(ours, part="decoder", source=SOURCE)
    places = torch.tensor([[0, 2, 3, 7, 8]]).expand(2, -1)
    seen = record(lab, Inputs(TARGET, places), "z", logits=True).logits
    length = TARGET.shape[1] if ours.needs_target_length else None
    memory = ours.encode_source(SOURCE, length=length)
    want = ours.target_logits(TARGET, memory, Geometry.from_positions(places[..., None], causal=True))
    torch.testing.assert_close(seen, want, **CLOSE)
    assert not torch.allclose(seen, logits_of(ours))


@PARTS
def test_a_mask_hides_a_token_of_the_target_or_of_the_source(either, part):
    keys = 5 if part == "decoder" else 7
    mask = torch.ones(1, 5, keys, dtype=torch.bool)
    mask[:, 1:, 1] = False
    seen = record(attach(either, part=part), Inputs(TARGET, mask=mask, source=SOURCE), "pattern").layers("pattern")
    assert seen[..., 1:, 1].max() < 1e-12
    torch.testing.assert_close(seen.sum(-1), torch.ones_like(seen.sum(-1)), **CLOSE)


@pytest.mark.extended
def test_one_source_serves_all_targets_and_a_named_one_comes_first(either):
    lab = attach(either, part="cross", source=SOURCE[:1])
    whole = record(lab, TARGET, "pattern")["pattern", 0]
    each = record(lab, Inputs(TARGET, source=SOURCE[:1].expand(2, -1)), "pattern")["pattern", 0]
    assert torch.equal(whole, each)
    assert not torch.equal(record(lab, GIVEN, "pattern")["pattern", 0][1], whole[1])


def test_parts_that_a_model_lacks_and_sources_that_do_not_fit_are_refused(either):
    plain = Decoder(Shape(vocabulary=20, width=16, heads=4, layers=1))
    with pytest.raises(NotApplicable, match="Decoder has no cross-attention: only encoder-decoders have"):
        attach(plain, part="cross")
    with pytest.raises(NotApplicable, match="Decoder has no encoder; it has its decoder only; leave part out"):
        attach(plain, part="encoder")
    assert attach(plain, part="decoder").info.kind == "decoder"
    with pytest.raises(ValueError, match=r"no part is named 'decodr'.*did you mean 'decoder'"):
        attach(either, part="decodr")
    with pytest.raises(ValueError, match="a source is read by the decoder and the cross-attention; got one for enc"):
        attach(either, part="encoder", source=SOURCE)
    with pytest.raises(NotApplicable, match="has no tokenizer; give the source as token ids"):
        attach(either, part="cross", source="a sentence")
    lab = attach(either, part="decoder")
    with pytest.raises(ValueError, match="reads a source; got none; give Inputs"):
        record(lab, TARGET, "z")
    with pytest.raises(ValueError, match="each target needs a source, or all of them one; got 2 targets and 3 sour"):
        record(attach(either, part="cross", source=SOURCE[:1].repeat(3, 1)), TARGET, "z")
    with pytest.raises(ValueError, match=r"token ids of the source of .* are 0 to"):
        record(lab, Inputs(TARGET, source=SOURCE + 60), "z")
    with pytest.raises(NotApplicable, match="come from different streams"):
        attach(either, part="cross").projection(0)
