"""Options of an encoder: a decoder of its own, causal attention, narrower embeddings, a convolution."""

import pytest
import torch

from ordinate import Geometry
from ordinate.models.convolution import TokenConvolution
from ordinate.models.counted_positions import without_counting
from ordinate.models.encoder import Encoder
from ordinate.models.encoder_shape import EncoderShape

DEBERTA = {"norm": "layer", "norm_position": "post", "embedding_norm": True, "bias": ("norm", "feedforward")}


def build(**choices):
    given = {"vocabulary": 11, "width": 16, "layers": 2, "heads": 4, "max_length": 32, "scheme": "learned"} | choices
    model = Encoder(EncoderShape(**given)).double().eval()
    for parameter in model.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    return model


def ids(*shape):
    return torch.randint(0, 11, shape, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def test_a_decoder_of_its_own_takes_the_place_of_the_token_table():
    model, text = build(tie_embeddings=False), ids(2, 5)
    x, head = model(text), model.masked
    assert torch.allclose(model.logits(x), head(x) @ head.decoder.weight.T + head.bias, atol=1e-12)
    tied = build()
    assert tied.masked.decoder is None
    assert torch.allclose(tied.logits(x), tied.masked(x) @ tied.tokens.weight.T + tied.masked.bias, atol=1e-12)


@torch.no_grad()
def test_logits_may_go_without_a_bias():
    model = build(logit_bias=False)
    x = model(ids(2, 5))
    assert model.masked.bias is None
    assert torch.allclose(model.logits(x), model.masked(x) @ model.tokens.weight.T, atol=1e-12)


@torch.no_grad()
def test_a_causal_encoder_reads_earlier_tokens_only():
    model, text = build(causal=True), ids(2, 7)
    whole, both = model(text), build(causal=False)
    for length in (1, 4, 6):
        assert torch.allclose(model(text[:, :length]), whole[:, :length], atol=1e-12)
        assert not torch.allclose(both(text[:, :length]), both(text)[:, :length], atol=1e-3)
    real = torch.arange(7) < torch.tensor([[7], [4]])
    for causal in (False, True):
        padded = model(text, Geometry.padded(real, causal=causal))
        assert torch.allclose(padded[real], whole[real], atol=1e-12)
    assert torch.equal(model(text, Geometry.causal(7)), whole)


@pytest.mark.parametrize("scheme", ["none", "learned", "learned+deberta", "deberta"])
@torch.no_grad()
def test_narrow_embeddings_are_those_of_their_products(scheme):
    narrow = build(embedding_width=6, token_types=3, scheme=scheme.replace("learned", "learned:width=6"), head="none")
    wide = build(token_types=3, scheme=scheme, head="none")
    state, product = narrow.state_dict(), narrow.widen_embeddings.weight.T
    tables = ["tokens.weight", "kinds.weight"]
    if "learned" in scheme:
        tables.append("schemes.0.parts.0.table" if "+" in scheme else "schemes.0.table")
    state |= {name: state[name] @ product for name in tables}
    del state["widen_embeddings.weight"]
    wide.load_state_dict(state)
    text, kinds = ids(2, 5), torch.arange(5).clamp(max=2).expand(2, -1)
    assert narrow.tokens.weight.shape == (11, 6)
    assert torch.allclose(narrow(text, token_types=kinds), wide(text, token_types=kinds), atol=1e-12)


@torch.no_grad()
def test_narrow_embeddings_may_be_normalised_before_they_are_widened():
    choices = {"embedding_width": 6, "token_types": 3, "scheme": "learned:width=6", "head": "none", "norm": "layer"}
    model, text, kinds = build(narrow_norm=True, **choices), ids(2, 5), torch.arange(5).clamp(max=2).expand(2, -1)
    x = model.tokens(text) + model.kinds(kinds) + model.schemes[0].table[:5]
    x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
    x = x * model.narrow_norm.weight + model.narrow_norm.bias
    x = x @ model.widen_embeddings.weight.T + model.widen_embeddings.bias
    expected, _ = model.run_layers(x, model.bind_schemes(Geometry.full(5)), None)
    assert torch.allclose(model(text, token_types=kinds), expected, atol=1e-12)
    # a mutant: the map without the norm
    model.narrow_norm = torch.nn.Identity()
    assert (model(text, token_types=kinds) - expected).abs().max() > 1e-3


@torch.no_grad()
def test_the_transform_of_a_head_may_go_without_a_norm():
    model = build(head="token_classes", labels=("replaced",), head_transform=True, head_norm=False)
    text, linear = ids(2, 5), model.head_transform.transform
    expected = model.classes(torch.nn.functional.gelu(model(text) @ linear.weight.T + linear.bias))
    assert torch.allclose(model.class_logits(text), expected, atol=1e-12)
    assert not any("norm" in name for name, _ in model.head_transform.named_parameters())


@torch.no_grad()
def test_the_logits_of_masked_tokens_may_go_without_a_transform():
    model, text = build(masked_transform=False, tie_embeddings=False, logit_bias=False), ids(2, 5)
    x = model(text)
    assert torch.allclose(model.logits(x), x @ model.masked.decoder.weight.T, atol=1e-12)
    assert [name for name, _ in model.masked.named_parameters()] == ["decoder.weight"]


@torch.no_grad()
def test_a_late_mean_is_that_of_the_vectors_of_the_pooler():
    model, text = build(head="classes", labels=("eel", "newt"), pool="late", pool_activation="gelu"), ids(2, 5)
    real, pooler = torch.arange(5) < torch.tensor([[5], [3]]), model.pooler
    where = Geometry.padded(real, causal=False)
    x = torch.nn.functional.gelu(model(text, where) @ pooler.weight.T + pooler.bias)
    pooled = torch.stack([x[row, real[row]].mean(0) for row in range(2)])
    assert torch.allclose(model.class_logits(text, where), model.classes(pooled), atol=1e-12)
    # a mutant: the mean before the pooler
    early = model.classes(
        torch.nn.functional.gelu(
            pooler(torch.stack([model(text, where)[row, real[row]].mean(0) for row in range(2)]))
        )
    )
    assert (model.class_logits(text, where) - early).abs().max() > 1e-3


@torch.no_grad()
def test_the_masked_head_of_narrow_embeddings_ends_at_their_width():
    model = build(embedding_width=6, scheme="none")
    x = model(ids(1, 4))
    assert model.masked(x).shape == (1, 4, 6)
    assert torch.allclose(model.logits(x), model.masked(x) @ model.tokens.weight.T + model.masked.bias)


def convolved(x, layer):
    """The convolution, one number at a time."""
    weight, bias, groups = layer.conv.weight, layer.conv.bias, layer.conv.groups
    columns, kernel, tokens = x.shape[-1], weight.shape[-1], x.shape[1]
    share, out = columns // groups, torch.zeros_like(x)
    for b in range(x.shape[0]):
        for i in range(tokens):
            for c in range(columns):
                total, first = bias[c], c // share * share
                for m in range(kernel):
                    j = i + m - kernel // 2
                    if 0 <= j < tokens:
                        total = total + sum(weight[c, e, m] * x[b, j, first + e] for e in range(share))
                out[b, i, c] = total
    return layer.activation(out)


@pytest.mark.parametrize(("kernel", "groups"), [(1, 1), (3, 1), (3, 2), (5, 6)])
def test_a_convolution_equals_its_formula_number_by_number(kernel, groups):
    layer, x = TokenConvolution(6, kernel, groups, torch.tanh).double(), torch.randn(2, 4, 6).double()
    with torch.no_grad():
        expected = convolved(x, layer)
    assert torch.allclose(layer(x, Geometry.full(4)), expected, atol=1e-12)
    assert torch.autograd.gradcheck(lambda x: layer(x, Geometry.packed([3, 1], causal=False)), x.requires_grad_())


def test_a_convolution_reads_its_own_document_only():
    layer, lengths = TokenConvolution(4, 5, 1, torch.tanh).double(), [3, 1, 2]
    texts = [torch.randn(1, length, 4).double() for length in lengths]
    alone = [layer(text, Geometry.full(text.shape[1])) for text in texts]
    packed = layer(torch.cat(texts, 1), Geometry.packed(lengths, causal=False))
    assert torch.allclose(packed, torch.cat(alone, 1), atol=1e-12)
    real = torch.tensor([[False, False, True, True, True], [True, True, True, False, False]])
    # what stands in padding is no number
    row = torch.full((2, 5, 4), float("nan")).double()
    row[real] = texts[0][0].repeat(2, 1)
    padded = layer(row, Geometry.padded(real, causal=False))
    assert torch.allclose(padded[real], alone[0][0].repeat(2, 1), atol=1e-12)


@torch.no_grad()
def test_the_first_layer_adds_the_convolution_of_its_input():
    model, text = (
        build(convolution=3, convolution_activation="mish", head="none", scheme="none", **DEBERTA),
        ids(2, 6),
    )
    plain = build(head="none", scheme="none", **DEBERTA)
    state = {name: x for name, x in model.state_dict().items() if "convolution" not in name}
    plain.load_state_dict(state)
    x, where = model.embedding_norm(model.tokens(text)), Geometry.full(6)
    at = model.schemes[0].at(where)
    first, second = model.blocks
    assert first.convolution.activation is torch.nn.functional.mish
    y = plain.blocks[0](x, at)[0] + convolved(x, first.convolution)
    assert torch.allclose(model(text), second(first.convolution_norm(y), at)[0], atol=1e-12)
    assert not torch.allclose(model(text), plain(text), atol=1e-3)


@torch.no_grad()
def test_padding_and_packing_change_nothing_beside_a_convolution():
    model, lengths = build(convolution=3, scheme="learned+deberta:version.shared=true", **DEBERTA), [7, 3]
    texts = [ids(1, length) for length in lengths]
    alone = [model(text)[0] for text in texts]
    real = torch.arange(7) < torch.tensor(lengths)[:, None]
    rows = torch.cat([texts[0], torch.nn.functional.pad(texts[1], (0, 4))])
    together = model(rows, Geometry.padded(real, causal=False))
    packed = model(torch.cat(texts, 1), Geometry.packed(lengths, causal=False))[0].split(lengths)
    for row, length in enumerate(lengths):
        assert torch.allclose(together[row, :length], alone[row], atol=1e-12)
        assert torch.allclose(packed[row], alone[row], atol=1e-12)


@torch.no_grad()
def test_positions_leave_out_the_padding_token_in_a_text():
    model, text = build(padding=3, head="none", layers=1), torch.tensor([[5, 3, 7, 3, 3, 2]])
    table, row = model.schemes[0].table, model.padding_position.weight[0]
    rows = torch.stack([table[0], row, table[1], row, row, table[2]])
    other = build(head="none", layers=1, scheme="none")
    state = {
        name: x
        for name, x in model.state_dict().items()
        if name not in ("schemes.0.table", "padding_position.weight")
    }
    # tokens that are positions already
    state["tokens.weight"] = torch.cat([model.tokens(text[0]) + rows, torch.zeros(5, 16).double()])
    other.load_state_dict(state)
    expected = other(torch.arange(6)[None])
    assert torch.allclose(model(text), expected, atol=1e-12)
    packed = model(torch.cat([text, text], 1), Geometry.packed([6, 6], causal=False))
    assert torch.allclose(packed, torch.cat([expected, expected], 1), atol=1e-12)
    for side in ((2, 0), (0, 3)):
        real = torch.nn.functional.pad(torch.ones(1, 6), side).bool()
        padded = torch.nn.functional.pad(text, side, value=3)
        assert torch.allclose(model(padded, Geometry.padded(real, causal=False))[real], expected[0], atol=1e-12)
    # without the option the token is one as others
    assert build(head="none").padding_position is None


@torch.no_grad()
@pytest.mark.parametrize("scheme", ["concatenated", "sinusoidal+concatenated"])
def test_the_padding_token_has_its_own_vector_in_columns_that_a_scheme_appends(scheme):
    model = build(padding=3, head="none", layers=1, scheme=scheme, tie_embeddings=True)
    text, found = torch.tensor([[5, 3, 7]]), []
    model.blocks[0].register_forward_pre_hook(lambda _, given: found.append(given[0]))
    model(text)
    table, row = model.tokens.weight, model.padding_position.weight[0]
    appended = model.first_scheme.appended_width
    assert appended > 0
    expected = torch.nn.functional.pad(table[3], (0, appended)) + row
    torch.testing.assert_close(found[0][0, 1], expected)
    at = model.first_scheme.at(Geometry.full(2))
    torch.testing.assert_close(found[0][:, [0, 2]], at.embed(table[[5, 7]][None]))


def test_a_geometry_without_some_tokens_counts_the_others():
    where = Geometry.packed([4, 3], causal=False)
    left_out = torch.tensor([[False, True, False, False, True, False, False]])
    assert without_counting(where, left_out).q_pos[0, :, 0].tolist() == [0, 1, 1, 2, 0, 0, 1]
    whole = without_counting(Geometry.full(7), left_out)
    assert whole.q_pos[0, :, 0].tolist() == [0, 1, 1, 2, 3, 3, 4]
    assert not whole.consecutive


ALL = {"embedding_width": 6, "convolution": 3, "convolution_groups": 2, "logit_bias": False, "tie_embeddings": False}


@pytest.mark.parametrize("choices", [ALL | {"scheme": "none"} | DEBERTA, {"causal": True, "padding": 2}])
def test_what_is_saved_comes_back(choices, tmp_path):
    model = build(**choices).float()
    model.save_pretrained(tmp_path)
    again = Encoder.from_pretrained(str(tmp_path), local_files_only=True).eval()
    assert again.shape == model.shape
    assert torch.equal(again.logits(again(ids(1, 5))), model.logits(model(ids(1, 5))))


@pytest.mark.parametrize(
    ("choices", "match"),
    [
        ({"convolution": 4}, "convolution is an odd number of tokens, .*; got 4; 3 is usual"),
        ({"convolution": -3}, "convolution is an odd number of tokens, .*; got -3"),
        ({"convolution": 3}, "a convolution needs post-norm layers that see both sides; got norm_position='pre'"),
        ({"convolution": 3, "causal": True, **DEBERTA}, "post-norm layers that see both sides; got .*causal=True"),
        ({"convolution": 3, "convolution_groups": 3, **DEBERTA}, "divides the width, .*; got 3 for a width of 16"),
        ({"convolution_groups": 2}, "has an effect with a convolution only; got 2 for a width of 16, convolution=0"),
        (
            {"convolution_activation": "relu"},
            "has an effect with a convolution only; got convolution=0; leave it out, or",
        ),
        ({"bias": ("norm", "head"), "tie_embeddings": False}, "the head bias is set by logit_bias; got bias='head'"),
        ({"convolution_activation": "tan"}, "no convolution_activation is named 'tan'; .*did you mean 'tanh'"),
        (
            {"masked_transform": False, "head": "none"},
            "masked_transform=False needs head='masked' and token embeddings",
        ),
        (
            {"masked_transform": False, "head_bias": False},
            "head_norm and head_bias have an effect only with masked_tr",
        ),
        (
            {"pool": "late", "head": "classes", "labels": ("eel",), "head_transform": True},
            "pool='late' is an option of the pooler; got head_transform=True; leave one",
        ),
        ({"narrow_norm": True}, "narrow_norm needs an embedding_width other than .*; got embedding_width=None"),
        (
            {"narrow_norm": True, "embedding_width": 16},
            "narrow_norm needs an embedding_width other .*; got embedding_width=16 and a width of 16; give it",
        ),
        ({"head_norm": False, "head": "none"}, "head_norm has an effect only with head='masked' or head_transform"),
        ({"embedding_width": 0}, "embedding_width must be above zero; got 0"),
        (
            {"embedding_width": 6},
            "this Learned was built for width 16; got 6 in the token embeddings; build one for 6",
        ),
        ({"padding": 11}, "padding is a token from 0 to 10; got 11; give the one of the tokenizer"),
        ({"head": "none", "tie_embeddings": False}, "tie_embeddings and logit_bias have an effect only with head="),
        ({"head": "pooler", "logit_bias": False}, "have an effect only with head='masked'; got True and False with"),
        ({"causal": True, "mixer": "mlp", "scheme": "none"}, "mixer 'mlp' has none"),
    ],
)
def test_what_does_not_fit_is_refused(choices, match, untyped):
    with pytest.raises(ValueError, match=match):
        build(**choices)
