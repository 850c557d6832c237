import pytest
import torch

from ordinate import Decoder, Geometry, Shape
from ordinate.mixers import Softmax
from ordinate.mixers.fox import ForgettingAttention
from ordinate.models._generate import generate
from ordinate.schemes import Alibi, NoPosition, Rope
from ordinate.testing.assert_close import assert_max_close


def paper(mixer, scheme, x):
    """Equations 3 to 9 of the paper, one query after another."""
    heads, width, tokens = mixer.forget.out_features, mixer.head_width, len(x)
    q, k, v = (part.view(tokens, heads, width).transpose(0, 1) for part in (x @ mixer.project.weight.T).chunk(3, 1))
    q, k = mixer.q_norm(q), mixer.k_norm(k)
    pos = torch.arange(tokens)[None, :, None]
    q, k = scheme.encode_query(q[None], pos)[0], scheme.encode_key(k[None], pos)[0]
    gates = torch.sigmoid(x @ mixer.forget.weight.T + mixer.forget.bias).T
    rows = []
    for i in range(tokens):
        scores = torch.stack([(q[:, i] * k[:, j]).sum(1) / width**0.5 for j in range(i + 1)], 1)
        kept = torch.stack([gates[:, j + 1 : i + 1].log().sum(1) for j in range(i + 1)], 1)
        rows.append(((scores + kept).softmax(1)[:, :, None] * v[:, : i + 1]).sum(1))
    y = torch.stack(rows)
    if mixer.gate is not None:
        y = y / torch.sqrt((y * y).mean(2, keepdim=True) + 1e-5) * mixer.norm_scale.view(heads, -1)
        y = y * torch.sigmoid(x @ mixer.gate.weight.T).view(tokens, heads, -1)
    return y.flatten(1) @ mixer.out.weight.T


@pytest.mark.parametrize(
    ("scheme", "options"), [(NoPosition(), {}), (Rope(head_width=4), {"qk_norm": True, "output_gate": True})]
)
def test_it_is_what_the_paper_writes_gradients_too(scheme, options):
    mixer = ForgettingAttention(width=12, heads=3, **options).double()
    x = torch.randn(2, 17, 12, dtype=torch.float64, requires_grad=True)
    ours, _ = mixer(x, scheme.at(Geometry.causal(17)))
    theirs = torch.stack([paper(mixer, scheme, row) for row in x])
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)
    leaves, asked = [x, *mixer.parameters()], torch.randn_like(ours)
    for one, other in zip(
        torch.autograd.grad(ours, leaves, asked), torch.autograd.grad(theirs, leaves, asked), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def test_with_gates_that_do_not_depend_on_the_token_it_is_alibi():
    mixer, plain, alibi = ForgettingAttention(width=32, heads=4), Softmax(width=32, heads=4), Alibi(heads=4)
    plain.load_state_dict({name: mixer.state_dict()[name] for name in plain.state_dict()})
    slopes = -alibi.bias(Geometry.causal(2))[0, :, 1, 0]
    with torch.no_grad():
        mixer.forget.weight.zero_()
        # sigmoid(b) = e^-slope
        mixer.forget.bias.copy_(-torch.log(torch.expm1(slopes)))
    x, where = torch.randn(2, 40, 32), Geometry.causal(40)
    torch.testing.assert_close(
        mixer(x, NoPosition().at(where))[0], plain(x, alibi.at(where))[0], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("autocast", [False, True])
def test_in_16_bits_the_sums_of_gates_keep_their_digits(autocast):
    # a bfloat16 column alone would round sums of a thousand to multiples of four or eight
    mixer, x = ForgettingAttention(width=16, heads=2), torch.randn(1, 1500, 16)
    exact = mixer.double()(x.double(), NoPosition().at(Geometry.causal(1500)))[0]
    mixer = mixer.to(torch.float32 if autocast else torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        out = mixer(x if autocast else x.bfloat16(), NoPosition().at(Geometry.causal(1500)))[0]
    assert_max_close(out.double(), exact, 0.03, "bfloat16")


@pytest.mark.parametrize("autocast", [False, True])
def test_in_16_bits_gradients_of_gates_do_not_drown_in_rounding_errors(autocast):
    # each gate sums the nearly cancelling gradients of 500 keys: of 16-bit ones, the error would be 0.8 of the bias
    mixer, x = ForgettingAttention(width=16, heads=2).bfloat16(), torch.randn(1, 500, 16).bfloat16()
    upstream, at = torch.randn_like(x), NoPosition().at(Geometry.causal(500))
    exact = torch.autograd.grad(mixer.double()(x.double(), at)[0], list(mixer.parameters()), upstream.double())
    mixer = mixer.to(torch.float32 if autocast else torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        y = mixer(x.to(mixer.out.weight.dtype), at)[0]
    assert y.dtype == torch.bfloat16
    for found, one in zip(torch.autograd.grad(y, list(mixer.parameters()), upstream), exact, strict=True):
        assert_max_close(found.double(), one, 0.03, "gradients")


@torch.no_grad()
def test_training_continues_a_cache_that_was_filled_without_gradients():
    mixer, x = ForgettingAttention(width=16, heads=2).bfloat16(), torch.randn(1, 60, 16).bfloat16()
    whole = mixer(x, NoPosition().at(Geometry.causal(60)))[0]
    _, cache = mixer(x[:, :40], NoPosition().at(Geometry.causal(40)))
    with torch.enable_grad():
        rest, after = mixer(x[:, 40:], NoPosition().at(Geometry.causal(20, cached=40)), cache)
    assert_max_close(rest, whole[:, 40:], 0.03, "outputs")
    last, _ = mixer(x[:, :1], NoPosition().at(Geometry.causal(1, cached=60)), after)
    assert (after.k.dtype, last.dtype) == (torch.bfloat16, torch.bfloat16)


def test_documents_that_take_turns_are_kept_apart():
    mixer, x = ForgettingAttention(width=8, heads=2).double(), torch.randn(1, 6, 8, dtype=torch.float64)
    document = torch.tensor([[1, 0, 1, -1, 0, 1]])
    pos = torch.tensor([[0, 0, 1, 0, 1, 2]])[..., None]
    together, _ = mixer(x, NoPosition().at(Geometry(pos, pos, True, q_document=document, k_document=document)))
    for name in (0, 1):
        own = document[0] == name
        alone, _ = mixer(x[:, own], NoPosition().at(Geometry.causal(int(own.sum()))))
        torch.testing.assert_close(together[:, own], alone)


def test_padding_does_not_pass_the_output_gate():
    mixer, x = ForgettingAttention(width=8, heads=2, output_gate=True).double(), torch.randn(1, 6, 8).double()
    x[:, :2] = float("nan")
    real = torch.tensor([[False, False, True, True, True, True]])
    y, _ = mixer(x, NoPosition().at(Geometry.padded(real)))
    assert torch.equal(y[:, :2], torch.zeros_like(y[:, :2]))
    slopes = torch.autograd.grad(y.sum(), list(mixer.parameters()))
    assert all(slope.isfinite().all() for slope in slopes)


def test_a_window_may_cut_it():
    mixer, x = ForgettingAttention(width=8, heads=2).double(), torch.randn(1, 9, 8, dtype=torch.float64)
    near, _ = mixer(x, NoPosition().at(Geometry.causal(9, window=1)))
    whole, _ = mixer(x.view(9, 1, 8), NoPosition().at(Geometry.causal(1)))
    torch.testing.assert_close(near, whole.view(1, 9, 8))


def test_another_document_after_a_cache_is_refused():
    mixer, x, scheme = ForgettingAttention(width=8, heads=2), torch.randn(1, 4, 8), NoPosition()
    whole = Geometry.packed([2, 2])
    _, cache = mixer(x[:, :2], scheme.at(whole.block(slice(0, 2), slice(0, 2))))
    with pytest.raises(ValueError, match="with a cache, all new tokens must continue the last document of the past"):
        mixer(x[:, 2:], scheme.at(whole.block(slice(2, 4))), cache)


def test_it_has_no_bidirectional_form():
    with pytest.raises(ValueError, match="needs a causal geometry"):
        ForgettingAttention(width=8, heads=2)(torch.randn(1, 3, 8), NoPosition().at(Geometry.full(3)))


def test_a_model_decodes_with_it_as_in_one_pass():
    model = Decoder(Shape(vocabulary=30, width=32, layers=2, heads=4, mixer="fox", scheme="none")).eval()
    ids = torch.randint(30, (2, 12))
    assert (model.blocks[0].mixer.forget.bias == 0).all()
    # without gradients, so that the cache writes into its buffer
    new = torch.cat(list(generate(model, ids, 3, temperature=0)), 1)
    with torch.no_grad():
        whole = model(torch.cat([ids, new], 1))[:, 11:-1].argmax(-1)
    assert new.equal(whole)
