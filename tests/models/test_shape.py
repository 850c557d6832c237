import pytest
import torch

from ordinate import Decoder, Geometry, Shape
from ordinate.core import catalog
from ordinate.mixers import Softmax
from ordinate.models.block import BLOCK_CLASSES
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape
from ordinate.models.feedforward import FEEDFORWARD_KINDS, GATED
from ordinate.models.vision import VisionShape


def shape_of(**choices):
    return Shape(**{"vocabulary": 11, "width": 16, "layers": 2, "heads": 4, "max_length": 32} | choices)


def build(**choices):
    return Decoder(shape_of(**choices)).double().eval()


def ids(*shape):
    return torch.randint(0, 11, shape, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def by_hand(model, text):
    """Reference logits, with norms and branches in explicit order."""
    shape = model.shape
    x, at = model.tokens(text), model.schemes[0].at(Geometry.causal(text.shape[1]))
    for block in model.blocks:
        one, two, think = block.mixer_norm, block.feedforward_norm, block.feedforward
        if shape.norm_position == "pre":
            x = x + block.mixer(one(x), at)[0]
            x = x + think(two(x))
        elif shape.norm_position == "post":
            x = one(x + block.mixer(x, at)[0])
            x = two(x + think(x))
        elif shape.norm_position in ("res_post", "peri"):
            x = x + block.mixer_out_norm(block.mixer(one(x), at)[0])
            x = x + block.feedforward_out_norm(think(two(x)))
        elif shape.norm_position == "residual":
            x = one(x) + block.mixer(one(x), at)[0]
            x = two(x) + think(two(x))
        elif shape.norm_position == "parallel":
            x = x + block.mixer(one(x), at)[0] + think(two(x))
        else:
            x = x + block.mixer(one(x), at)[0] + think(one(x))
    return model.norm(x) @ model.tokens.weight.T


@pytest.mark.parametrize("order", BLOCK_CLASSES)
def test_norms_are_placed_by_norm_position(order):
    model = build(norm_position=order, norm="layer")
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    assert torch.allclose(model(ids(2, 7)), by_hand(model, ids(2, 7)), atol=1e-12)
    names = model.state_dict()
    assert ("norm.weight" in names) == (order != "post")
    assert ("blocks.0.feedforward_norm.weight" in names) == (order not in ("shared", "res_post"))
    assert ("blocks.0.mixer_norm.weight" in names) == (order != "res_post")
    assert ("blocks.0.mixer_out_norm.weight" in names) == (order in ("res_post", "peri"))


@pytest.mark.parametrize("tied", [True, False])
def test_the_logits_are_scaled(tied):
    torch.manual_seed(0)
    model = build(logit_scale=0.25, tie_embeddings=tied)
    torch.manual_seed(0)
    plain = build(tie_embeddings=tied)
    plain.load_state_dict(model.state_dict())
    assert torch.equal(model(ids(2, 7)), plain(ids(2, 7)) / 4)
    assert torch.equal(model.next_token_logits(ids(2, 7)), plain.next_token_logits(ids(2, 7)) / 4)
    assert torch.equal(model.hidden_states(ids(2, 7)), plain.hidden_states(ids(2, 7)))


@pytest.mark.parametrize("tied", [True, False])
def test_the_logits_are_capped(tied):
    torch.manual_seed(0)
    model = build(logit_softcap=0.1, logit_scale=3.0, tie_embeddings=tied)
    plain = build(tie_embeddings=tied)
    plain.load_state_dict(model.state_dict())
    for capped, free in (
        (model(ids(2, 7)), plain(ids(2, 7))),
        (model.next_token_logits(ids(2, 7)), plain.next_token_logits(ids(2, 7))),
    ):
        assert torch.allclose(capped, 0.1 * torch.tanh(3 * free / 0.1), atol=1e-12)
        assert (capped - 3 * free).abs().max() > 1e-3
    assert torch.equal(model.hidden_states(ids(2, 7)), plain.hidden_states(ids(2, 7)))


def test_a_tied_head_may_have_a_bias(tmp_path):
    model, plain, text = build(bias=("norm", "head")), build(), ids(2, 7)
    with torch.no_grad():
        model.head_bias.copy_(torch.randn(11))
    left = plain.load_state_dict(model.state_dict(), strict=False)
    assert left.unexpected_keys == ["head_bias"]
    out = model(text)
    assert torch.allclose(out, plain(text) + model.head_bias, atol=1e-12, rtol=0)
    assert torch.allclose(model.next_token_logits(text), out[:, -1], atol=1e-12, rtol=0)
    weights = torch.randn_like(out)
    found = torch.autograd.grad((out * weights).sum(), [model.head_bias, model.tokens.weight])
    (table,) = torch.autograd.grad((plain(text) * weights).sum(), [plain.tokens.weight])
    assert torch.allclose(found[0], weights.sum((0, 1)), atol=1e-12, rtol=0)
    assert torch.allclose(found[1], table, atol=1e-12, rtol=0)
    model.float().save_pretrained(tmp_path)
    again = Decoder.from_pretrained(tmp_path)
    assert torch.equal(again(text), model(text))
    assert again.shape == model.shape


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_zero_centred_norms_are_norms_whose_weights_are_one_more(kind):
    model = build(norm=kind, zero_centred_norm=True, norm_position="peri", embedding_norm=True)
    plain = build(norm=kind, norm_position="peri", embedding_norm=True)
    plain.load_state_dict(model.state_dict())
    norms = [name for name, _ in model.named_parameters() if "norm" in name and name.endswith("weight")]
    assert len(norms) == 10
    with torch.no_grad():
        for name in norms:
            assert not model.get_parameter(name).any()
            model.get_parameter(name).normal_()
            plain.get_parameter(name).copy_(1 + model.get_parameter(name))
    assert torch.allclose(model(ids(2, 7)), plain(ids(2, 7)), atol=1e-12)


def test_each_layer_has_its_window():
    text = ids(1, 12)
    for windows, reach in (((3, None), 12), ((3,), 5), ((3, 2), 4), ((None,), 12)):
        model = build(sliding_windows=windows)
        first = torch.zeros(1, 12, 16, dtype=torch.float64, requires_grad=True)
        hook = model.tokens.register_forward_hook(lambda _, __, out, first=first: out + first)
        (gradient,) = torch.autograd.grad(model(text)[:, -1].sum(), first)
        hook.remove()
        felt = (gradient[0] != 0).any(-1)
        assert felt[-reach:].all()
        assert not felt[:-reach].any()


def test_the_narrower_of_two_windows_counts():
    model, wide, text = build(sliding_windows=(4,)), build(), ids(1, 9)
    wide.load_state_dict(model.state_dict())
    assert torch.allclose(model(text, Geometry.causal(9, window=6)), wide(text, Geometry.causal(9, window=4)))
    assert torch.allclose(model(text, Geometry.causal(9, window=2)), wide(text, Geometry.causal(9, window=2)))


def test_heads_may_be_wider_than_their_share():
    model = build(head_width=8, kv_heads=2)
    assert model.blocks[0].mixer.project.weight.shape == (32 + 16 + 16, 16)
    assert model.schemes[0].head_width == 8
    assert model(ids(1, 4)).shape == (1, 4, 11)


def test_biases_are_added_where_the_shape_has_them():
    names = {
        name for name, _ in build(norm="layer", tie_embeddings=False).named_parameters() if name.endswith("bias")
    }
    assert names == {f"blocks.{layer}.{part}_norm.bias" for layer in "01" for part in ("mixer", "feedforward")} | {
        "norm.bias"
    }
    model = build(norm="layer", tie_embeddings=False, bias=("feedforward", "head"), mixer="softmax:variant.bias=true")
    names = {name for name, _ in model.named_parameters() if name.endswith("bias")}
    parts = ("mixer.project", "mixer.out", "feedforward.widen", "feedforward.narrow")
    assert names == {f"blocks.{layer}.{part}.bias" for layer in "01" for part in parts} | {"head.bias"}


def test_the_bias_of_the_second_layer_of_a_feed_forward_may_be_left_out():
    model = build(norm="layer", bias=("norm", "feedforward_in"))
    inner = model.blocks[1].feedforward
    assert inner.widen.bias.shape == (64,)
    assert inner.narrow.bias is None


@torch.no_grad()
def test_nonparametric_norms_have_no_parameters():
    model, layer = build(norm="nonparametric", norm_eps=1e-3), build(norm="layer", norm_eps=1e-3)
    assert not [name for name, _ in model.named_parameters() if "norm" in name]
    layer.load_state_dict(model.state_dict(), strict=False)
    assert torch.equal(model(ids(1, 4)), layer(ids(1, 4)))


@torch.no_grad()
def test_final_hidden_states_need_not_be_normalised():
    model, normed = build(final_norm=False), build()
    normed.load_state_dict(model.state_dict() | {"norm.weight": normed.norm.weight})
    assert "norm.weight" not in model.state_dict()
    assert torch.equal(normed.hidden_states(ids(1, 4)), normed.norm(model.hidden_states(ids(1, 4))))


@torch.no_grad()
def test_nonparametric_norms_by_the_root_mean_square_have_no_parameters():
    options = {"norm_eps": 1e-3, "embedding_norm": True}
    mixer = "softmax:variant.qk_norm=true,variant.norm_eps=1e-3"
    model = build(norm="nonparametric_rms", mixer=f"{mixer},variant.qk_norm_kind=nonparametric_rms", **options)
    rms = build(norm="rms", mixer=mixer, **options)
    assert not [name for name, _ in model.named_parameters() if "norm" in name]
    rms.load_state_dict(model.state_dict(), strict=False)
    assert torch.equal(model(ids(1, 4)), rms(ids(1, 4)))
    x = torch.randn(2, 16, dtype=torch.float64)
    assert torch.allclose(model.norm(x), x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt(), atol=1e-12)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("scheme", ["learned", "rope", "concatenated:position_width=4"])
@torch.no_grad()
def test_a_narrow_token_table_is_widened_before_positions_and_final_states_narrowed(scheme, tied):
    model = build(embedding_width=6, scheme=scheme, tie_embeddings=tied, embedding_scale=2.0)
    wide = build(scheme=scheme, tie_embeddings=False, embedding_scale=2.0)
    state, narrow = model.state_dict(), model.narrow_states.weight
    table, head = state["tokens.weight"], model.tokens.weight if tied else model.head.weight
    appended = model.first_scheme.appended_width
    assert table.shape == (11, 6 - appended)
    kept = {name: value for name, value in state.items() if name in wide.state_dict()}
    widened = table @ model.widen_embeddings.weight.T
    product = head @ narrow[: head.shape[1]]
    wide.load_state_dict(kept | {"tokens.weight": widened, "head.weight": product})
    assert torch.allclose(model(ids(2, 5)), wide(ids(2, 5)), atol=1e-12)
    assert torch.allclose(model.hidden_states(ids(2, 5)), wide.hidden_states(ids(2, 5)) @ narrow.T, atol=1e-12)


def test_other_models_have_no_narrow_token_table():
    sizes = {"vocabulary": 11, "width": 16, "layers": 1, "heads": 2, "embedding_width": 6}
    with pytest.raises(
        ValueError, match="the token table of an encoder-decoder has its width; got embedding_width=6"
    ):
        EncoderDecoderShape(**sizes)
    with pytest.raises(ValueError, match=r"which a vision model does not have; got 1, 0\.02 and 6; leave them out"):
        VisionShape(**sizes)
    with pytest.raises(ValueError, match="embedding_width must be above zero; got 0"):
        build(embedding_width=0)
    with pytest.raises(ValueError, match="must leave columns beside the 4 that the scheme appends; got 4; give more"):
        build(embedding_width=4, scheme="concatenated:position_width=4")


def test_token_vectors_may_be_normed():
    model = build(embedding_norm=True)
    assert model.embedding_norm.weight.shape == (16,)
    model.embedding_norm.weight.data.mul_(3)
    assert not torch.allclose(model(ids(1, 4)), build()(ids(1, 4)))


def test_mixers_may_be_planned_for_the_layers():
    plain, planned = build(), build(mixer="softmax,softmax:variant.qk_norm=true")
    assert set(planned.state_dict()) - set(plain.state_dict()) == {
        "blocks.1.mixer.q_norm.weight",
        "blocks.1.mixer.k_norm.weight",
    }


@pytest.mark.parametrize("order", BLOCK_CLASSES)
def test_scales_multiply_the_columns_of_each_branch(order):
    torch.manual_seed(0)
    model, text = build(norm_position=order, layer_scale=1.0, scheme="none"), ids(1, 4)
    torch.manual_seed(0)
    plain = build(norm_position=order, scheme="none")
    assert torch.equal(model(text), plain(text))
    scales = {name: x for name, x in model.named_parameters() if name.endswith("_scale.weight")}
    assert len(scales) == 4
    with torch.no_grad():
        for name, x in scales.items():
            x.copy_(torch.linspace(0.5, 1.5, 16) * (2 if "mixer" in name else 3))
    for layer, block in enumerate(plain.blocks):
        for branch, out in (("mixer", block.mixer.out), ("feedforward", block.feedforward.narrow)):
            out.weight.data.mul_(scales[f"blocks.{layer}.{branch}_scale.weight"][:, None])
    assert torch.allclose(model(text), plain(text), atol=1e-12)
    model(text).sum().backward()
    assert all(bool((x.grad != 0).any()) for x in scales.values())


@pytest.mark.parametrize("blocks", ["plain", "reversible"])
@pytest.mark.parametrize("order", BLOCK_CLASSES)
@torch.no_grad()
def test_a_factor_multiplies_the_output_of_each_branch(order, blocks):
    if blocks == "reversible" and order != "pre":
        pytest.skip("reversible layers are pre-norm layers")
    text = ids(1, 4)
    model, plain = (build(norm_position=order, blocks=blocks, residual_scale=factor) for factor in (0.25, 1.0))
    plain.load_state_dict(model.state_dict())
    assert not torch.allclose(model(text), plain(text))
    for block in plain.blocks:
        # the last linear map of each branch: its output projection, or the norm behind it
        for part in (
            (block.mixer_out_norm, block.feedforward_out_norm)
            if block.norms_outputs
            else (block.mixer.out, block.feedforward.narrow)
        ):
            part.weight.mul_(0.25)
    assert torch.allclose(model(text), plain(text), atol=1e-12)


def test_the_first_layer_can_go_without_a_norm():
    model = build(first_norm=False)
    assert isinstance(model.blocks[0].mixer_norm, torch.nn.Identity)
    assert isinstance(model.blocks[0].feedforward_norm, torch.nn.RMSNorm)
    assert isinstance(model.blocks[1].mixer_norm, torch.nn.RMSNorm)


@pytest.mark.parametrize("kind", FEEDFORWARD_KINDS)
def test_any_feedforward_is_supported(kind):
    model = build(feedforward=kind)
    assert model(ids(1, 4)).isfinite().all()
    assert model.blocks[0].feedforward.widen.weight.shape[0] == (84 if kind in GATED else 64)


@pytest.mark.parametrize(
    ("choices", "match"),
    [
        ({"mixer": "rnn,gated_deltanet", "head_width": 8}, "got head_width=8 for GatedDeltaNet, Rnn; leave it out"),
        (
            {"sliding_windows": (3, 4, 5)},
            "the number of sliding windows must divide the number of layers; got 3 for 2 layers",
        ),
        ({"sliding_windows": ()}, "the number of sliding windows must divide"),
        ({"sliding_windows": (0,)}, "a window holds at least the token itself; got 0"),
        ({"mixer": "softmax,softmax,softmax"}, "the number of mixers must divide"),
        ({"norm_position": "prae"}, "no norm_position is named 'prae'; .*did you mean 'pre'"),
        ({"bias": ("heads",)}, "no bias location is named 'heads'; .*did you mean 'head'"),
        ({"norm_eps": -1e-6}, r"norm_eps must lie in \[0, 1\); got -1e-06"),
        ({"norm_eps": 1e5}, r"norm_eps must lie in \[0, 1\); got 100000"),
        ({"head_width": 0}, "head_width must be above zero"),
        ({"mixer": "rnn", "head_width": 8}, r"head_width needs a mixer with that option.*; got head_width=8 for Rnn"),
        (
            {"mixer": "softmax:head_width=16", "head_width": 8},
            "a mixer with that option, and without another value of it; got head_width=8 for Softmax",
        ),
        ({"mixer": Softmax(width=16, heads=4), "head_width": 8}, "and without another value of it; got head_width=8"),
        ({"mixer": Softmax(width=16, heads=4), "kv_heads": 2}, "kv_heads needs a mixer with the option kv_heads"),
        (
            {"mixer": "softmax:kv_heads=1", "kv_heads": 2},
            "kv_heads needs a mixer with the option kv_heads, and without another value of it; got kv_heads=2, which",
        ),
        ({"mixer": "fox", "kv_heads": 0}, "kv_heads must be above zero; got 0"),
        (
            {"round_embedding_scale": True},
            "round_embedding_scale has an effect only with an embedding_scale; got embedding_scale=1.0; give one",
        ),
        ({"layer_scale": 0.0}, "layer_scale must be above zero"),
        ({"logit_scale": 0.0}, "logit_scale must be above zero"),
        ({"logit_softcap": 0.0}, "logit_softcap must be above zero"),
        ({"residual_scale": -0.5}, "residual_scale must be above zero"),
        (
            {"norm_position": "post", "final_norm": False},
            "final_norm=False has no effect in post-norm layers, .*; got norm_position='post' with .*; leave it out",
        ),
        (
            {"logit_softcap": 30.0, "head": "none", "tie_embeddings": False},
            "logit_softcap has an effect only with head='next_token'; got logit_softcap=30.0 with head='none'; leave",
        ),
        (
            {"norm": "nonparametric", "zero_centred_norm": True},
            "zero_centred_norm is an option of norms with weights; got norm='nonparametric' with .*=True; give",
        ),
        (
            {"logit_scale": 0.5, "head": "none", "tie_embeddings": False},
            "logit_scale has an effect only with head='next_token'; got logit_scale=0.5 with head='none'; leave",
        ),
        (
            {"norm_position": "post", "first_norm": False},
            "first_norm=False needs pre-norm layers; got norm_position='post'",
        ),
        (
            {"norm_position": "post", "blocks": "reversible"},
            "reversible blocks need pre-norm layers; got norm_position='post'",
        ),
    ],
)
def test_what_does_not_fit_is_refused(choices, match, untyped):
    with pytest.raises(ValueError, match=match):
        build(scheme="none", **choices)


@pytest.mark.parametrize("name", catalog.names("ordinate.mixers"))
def test_key_and_value_heads_change_the_mixer_or_are_refused(name):
    sizes = {"mixer": name, "scheme": "none", "max_length": 8}
    with torch.device("meta"):
        plain = shape_of(**sizes).make_mixer(0)
        if "kv_heads" in catalog.options(type(plain)):
            grouped = shape_of(**sizes, kv_heads=2).make_mixer(0)
            assert sum(p.numel() for p in grouped.parameters()) < sum(p.numel() for p in plain.parameters())
            return
    with pytest.raises(ValueError, match=r"kv_heads needs a mixer with the option kv_heads.*; got kv_heads=2, which"):
        shape_of(**sizes, kv_heads=2)
    # as many as query heads is the default, which saved models say
    assert shape_of(**sizes, kv_heads=4).with_defaults() == shape_of(**sizes).with_defaults()


def test_key_and_value_heads_of_some_layers_are_enough():
    assert shape_of(mixer="softmax,gru", scheme="none", kv_heads=2).make_mixer(0).widths == [16, 8, 8]
    assert shape_of(mixer=[Softmax(width=16, heads=4, kv_heads=2), "gru"], scheme="none", kv_heads=2).kv_heads == 2
