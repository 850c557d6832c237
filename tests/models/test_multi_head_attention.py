import pytest
import torch

from ordinate import Geometry, attend
from ordinate.attention._attend import explain
from ordinate.attention._backend import ScoreOptions
from ordinate.mixers._mixer import KVCache
from ordinate.mixers._qk_norms import AcrossHeadsNorm, PerHeadLayerNorm
from ordinate.models.multi_head_attention import AttentionOptions, MultiHeadAttention
from ordinate.ops.rms_norm import RMSNorm
from ordinate.schemes import T5, Alibi, Learned, NoPosition, Rope, Sum
from ordinate.testing.backend import GEOMETRIES, random_qkv

VARIANTS = {
    "plain": AttentionOptions(),
    "bias": AttentionOptions(bias=True),
    "norms": AttentionOptions(qk_norm=True),
    "norms of all heads": AttentionOptions(qk_norm=True, qk_norm_across=True, norm_eps=1e-3),
    "layer norms": AttentionOptions(qk_norm=True, qk_norm_kind="layer", norm_eps=1e-3),
    "norms without weights": AttentionOptions(qk_norm=True, qk_norm_kind="nonparametric_rms", norm_eps=1e-3),
    "norms of each head": AttentionOptions(qk_norm=True, qk_norm_kind="layer_per_head", norm_eps=1e-3),
    "zero-centred norms": AttentionOptions(qk_norm=True, qk_norm_zero_centred=True, norm_eps=1e-3),
    "zero-centred norms of all heads": AttentionOptions(
        qk_norm=True, qk_norm_across=True, qk_norm_zero_centred=True, norm_eps=1e-3
    ),
    "cap": AttentionOptions(softcap=2.0),
    "sinks": AttentionOptions(sinks=True),
    "narrow": AttentionOptions(head_width=6, scale=0.3),
    "clip": AttentionOptions(bias=True, clip_qkv=0.4),
    "clip before norms": AttentionOptions(qk_norm=True, qk_norm_across=True, clip_qkv=0.4),
    "gate": AttentionOptions(output_gate=True, bias=True),
    "gate without a bias": AttentionOptions(output_gate=True, bias=True, gate_bias=False),
    "narrow values": AttentionOptions(value_width=5, value_scale=0.7, clip_qkv=0.4),
    "wide gated values": AttentionOptions(value_width=9, output_gate=True, bias=True),
    "values of keys": AttentionOptions(values_of_keys=True, bias=True, clip_qkv=0.4),
    "normed values of normed keys": AttentionOptions(
        values_of_keys=True, qk_norm=True, value_norm=True, norm_eps=1e-3, value_scale=0.7
    ),
    "normed values": AttentionOptions(value_norm=True, norm_eps=1e-3, value_width=5, clip_qkv=0.4),
    "softplus gates": AttentionOptions(output_gate=True, gate_kind="softplus", gate_per_head=True, value_width=5),
    "narrow gate": AttentionOptions(output_gate=True, qk_norm=True, head_width=6),
    "clip after norms": AttentionOptions(qk_norm=True, qk_norm_across=True, clip_qkv=0.4, clip_after_norm=True),
}
SCHEMES = {
    "none": lambda d: None,
    "rope": lambda d: Rope(head_width=d),
    "alibi": lambda d: Alibi(heads=4),
    "rope + t5": lambda d: Sum(Rope(head_width=d), T5(heads=4)),
}


def made(variant="plain", scheme="none", **options):
    chosen = VARIANTS[variant]
    marks = SCHEMES[scheme](chosen.head_width or 8)
    module = MultiHeadAttention(32, 4, kv_heads=2, scheme=marks, variant=chosen, **options).double()
    for parameter in module.parameters():
        # norms, sinks, biases and tables are initialised with ones or zeros, which would hide errors
        torch.nn.init.normal_(parameter, std=0.5)
    return module


def tokens(count, batch=2):
    return torch.randn(batch, count, 32, dtype=torch.float64)


def normed(y, norm):
    """Queries or keys, normalised one head and one token at a time if it is by LayerNorm."""
    if isinstance(norm, RMSNorm):
        given = torch.ones(()) if norm.weight is None else norm.weight
        factor = 1 + given if norm.zero_centred else given
        return y / (y.square().mean(-1, keepdim=True) + norm.eps).sqrt() * factor
    if not isinstance(norm, torch.nn.LayerNorm | PerHeadLayerNorm):
        return norm(y)
    out = torch.zeros_like(y)
    for b, h, i in torch.cartesian_prod(*map(torch.arange, y.shape[:3])):
        x = y[b, h, i] - y[b, h, i].mean()
        x = x / (x.square().mean() + 1e-3).sqrt()
        shared = isinstance(norm, torch.nn.LayerNorm)
        out[b, h, i] = x * norm.weight + norm.bias if shared else x * norm.weight[h]
    return out


def clipped(y, limit):
    return y.sign() * y.abs().minimum(torch.tensor(limit, dtype=y.dtype))


def valued(y, variant, width):
    """Values of each head from their columns, normalised and scaled."""
    v = y.unflatten(-1, (-1, width)).transpose(1, 2)
    v = v / (v.square().mean(-1, keepdim=True) + 1e-3).sqrt() if variant.value_norm else v
    return v * variant.value_scale


def looped(module, name, x, context, where):
    """The module by the formula, one head and one query at a time."""
    d, marks = module.head_width, module.scheme
    weights = module.project.weight.split(module.widths)
    biases = (0.0, 0.0, 0.0) if module.project.bias is None else module.project.bias.split(module.widths)
    projected = [y @ w.T + b for y, w, b in zip((x, context, context), weights, biases, strict=True)]
    variant = VARIANTS[name]
    projected[2] = projected[1 if variant.values_of_keys else 2]
    if variant.clip_qkv is not None and not variant.clip_after_norm:
        projected = [clipped(y, variant.clip_qkv) for y in projected]
    norms = module.q_norm, module.k_norm
    if isinstance(module.q_norm, AcrossHeadsNorm):
        projected = [*map(normed, projected, norms), projected[2]]
    if variant.clip_after_norm:
        projected = [clipped(y, variant.clip_qkv) for y in projected]
    q, k = (y.unflatten(-1, (-1, d)).transpose(1, 2) for y in projected[:2])
    v = valued(projected[2], variant, variant.value_width or d)
    if not isinstance(module.q_norm, AcrossHeadsNorm):
        q, k = normed(q, module.q_norm), normed(k, module.k_norm)
    q, k = marks.encode_query(q, where.q_pos), marks.encode_key(k, where.k_pos)
    bias, out = marks.bias(where), []
    for h in range(4):
        for i in range(x.shape[1]):
            scores = (q[:, h, i, None] * k[:, h // 2]).sum(-1) * module.scale
            if module.softcap is not None:
                scores = module.softcap * torch.tanh(scores / module.softcap)
            if bias is not None:
                scores = scores + bias[:, h, i]
            powers = scores.exp() * where.visible[:, i]
            total = powers.sum(-1, keepdim=True) + (0.0 if module.sinks is None else module.sinks[h].exp())
            out.append(((powers / total)[..., None] * v[:, h // 2]).sum(1))
    y = torch.stack(out, 1).unflatten(1, (4, -1)).transpose(1, 2).flatten(2)
    gate = module.output_gate
    if variant.output_gate:
        given = x @ gate.weight.T + (0.0 if gate.bias is None else gate.bias)
        factor = (1 + given.exp()).log() if variant.gate_kind == "softplus" else 1 / (1 + (-given).exp())
        y = y * (factor.repeat_interleave(5, -1) if variant.gate_per_head else factor)
    return module.out(y)


@pytest.mark.covering(1)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_it_is_the_formula_one_query_at_a_time(variant, scheme, causal):
    module, x = made(variant, scheme, causal=causal), tokens(7)
    y, state = module(x)
    where = Geometry.causal(7) if causal else Geometry.full(7)
    assert torch.allclose(y, looped(module, variant, x, x, where), atol=1e-12)
    assert state.k.shape == (2, 2, 7, module.head_width)


@pytest.mark.covering(1)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_cross_attention_keys_have_their_own_positions(variant, scheme):
    module, x, context = made(variant, scheme), tokens(3), tokens(5)
    where = Geometry.cross(3, 5)
    y, state = module(x, context)
    assert torch.allclose(y, looped(module, variant, x, context, where), atol=1e-12)
    assert torch.equal(module(x, context, where)[0], y)
    # the keys need not be computed again
    assert torch.equal(module(x, state)[0], y)
    assert torch.allclose(module(x[:, :2], state)[0], y[:, :2], atol=1e-13)


@pytest.mark.covering(1)
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("cut", [0, 1, 4, 7])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_chunks_agree_with_one_pass(variant, scheme, cut, window):
    module, x = made(variant, scheme, window=window), tokens(7)
    whole, _ = module(x)
    first, state = module(x[:, :cut])
    rest, state = module(x[:, cut:], state=state)
    assert torch.allclose(torch.cat([first, rest], 1), whole, atol=1e-12)
    assert state.k.shape[2] == 7


@pytest.mark.parametrize("variant", VARIANTS)
def test_packed_documents_and_padding_are_hidden(variant):
    module, x = made(variant, "rope"), tokens(7, batch=1)
    packed, _ = module(x, where=Geometry.packed([3, 4]))
    alone = torch.cat([module(x[:, :3])[0], module(x[:, 3:])[0]], 1)
    assert torch.allclose(packed, alone, atol=1e-12)
    real = torch.tensor([[False, False, True, True, True, True, True]])
    padded, _ = module(x, where=Geometry.padded(real))
    assert torch.allclose(padded[:, 2:], module(x[:, 2:])[0], atol=1e-12)


def test_a_token_sees_the_keys_of_its_window():
    module, x = made(window=2), tokens(5, batch=1).requires_grad_()
    module(x)[0][0, 4].sum().backward()
    assert (x.grad[0] != 0).any(-1).tolist() == [False, False, False, True, True]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_parameter_gets_a_gradient(variant):
    module = made(variant, "rope + t5")
    module(tokens(7))[0].square().sum().backward()
    assert all(parameter.grad.isfinite().all() and parameter.grad.any() for parameter in module.parameters())


def test_dropout_acts_in_training_only():
    module, x = made(dropout=0.5), tokens(9)
    assert not torch.equal(module(x)[0], module(x)[0])
    module.eval()
    assert torch.equal(module(x)[0], module(x)[0])


@pytest.mark.extended
@pytest.mark.covering(0)
@pytest.mark.parametrize("changes", [{"softcap": 1.5}, {"sinks": True}, {"softcap": 1.5, "sinks": True}])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_gradients_of_a_varied_formula_agree_with_finite_differences(geometry, changes):
    where = GEOMETRIES[geometry](3)
    q, k, v = random_qkv(where, width=2, dtype=torch.float64)
    sinks = torch.randn(4, dtype=torch.float64, requires_grad=True) if "sinks" in changes else None

    def run(q, k, v, *sinks):
        return attend(q, k, v, NoPosition().at(where), score_options=ScoreOptions(changes.get("softcap"), *sinks))

    assert torch.autograd.gradcheck(run, (q, k, v) if sinks is None else (q, k, v, sinks))


def test_a_row_without_visible_keys_is_zero_and_gives_sinks_no_gradient():
    where = Geometry.padded(torch.tensor([[False, True, True]]))
    q, k, v = (torch.randn(1, 2, 3, 4, requires_grad=True) for _ in range(3))
    sinks = torch.randn(2, requires_grad=True)
    out = attend(q, k, v, NoPosition().at(where), score_options=ScoreOptions(sinks=sinks))
    assert (out[:, :, 0] == 0).all()
    out[:, :, 0].sum().backward()
    assert not any(x.grad.any() for x in (q, k, v, sinks))


def test_backends_without_soft_caps_and_sinks_give_the_reason():
    q, k, v = random_qkv(Geometry.causal(300), dtype=torch.float32)
    at = NoPosition().at(Geometry.causal(300))
    for name, formula in (("softcap", ScoreOptions(softcap=5.0)), ("sinks", ScoreOptions(sinks=torch.zeros(4)))):
        said = explain(q, k, v, at, score_options=formula)
        assert said.unsupported["sdpa"] == f"{name} of the formula is not supported"
        assert said.unsupported["offset_bias"] == f"{name} of the formula is not supported"
        with pytest.raises(ValueError, match=f"it does not: {name} of the formula is not supported"):
            attend(q, k, v, at, score_options=formula, backend="sdpa")


def test_a_large_cap_and_very_negative_sinks_change_nothing():
    where = Geometry.causal(9)
    q, k, v = random_qkv(where, dtype=torch.float64)
    at = Alibi(heads=4).at(where)
    formula = ScoreOptions(1e7, torch.full((4,), float("-inf"), dtype=torch.float64))
    assert torch.allclose(attend(q, k, v, at, score_options=formula), attend(q, k, v, at), atol=1e-12)


def test_half_precision_follows_autocast():
    module, x = made("sinks", "rope").float(), tokens(9).float()
    with torch.autocast("cpu", torch.bfloat16):
        y, _ = module(x)
    assert y.dtype == torch.bfloat16
    exact, _ = module(x)
    assert (y.float() - exact).abs().max() < 0.03 * exact.abs().max()
    half = module.bfloat16()
    assert half(x.bfloat16())[0].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: MultiHeadAttention(30, 4), "heads must divide width; got width 30, heads 4"),
        (lambda: MultiHeadAttention(32, 4, kv_heads=3), "kv_heads must divide heads"),
        (lambda: MultiHeadAttention(32, 0), "heads must be above zero"),
        (lambda: MultiHeadAttention(32, 4, window=0), "a window holds at least the token itself"),
        (lambda: MultiHeadAttention(32, 4, dropout=1.0), r"dropout must lie in \[0, 1\)"),
        (lambda: MultiHeadAttention(32, 4, scheme=Alibi(heads=8)), "built for heads 8; got 4"),
        (lambda: MultiHeadAttention(32, 4, scheme=Rope(head_width=16)), "built for head_width 16; got 8"),
        (lambda: MultiHeadAttention(32, 4, scheme=Learned(width=32, max_length=9)), "apply it to the input instead"),
        (lambda: AttentionOptions(softcap=0.0), "softcap must be above zero"),
        (lambda: AttentionOptions(clip_qkv=0.0), "clip_qkv must be above zero"),
        (
            lambda: AttentionOptions(norm_eps=1e-5),
            "norm_eps has an effect only with qk_norm or value_norm; got neither; give one",
        ),
        (
            lambda: AttentionOptions(clip_after_norm=True, qk_norm=True, clip_qkv=1.0),
            "clip_after_norm has an effect only with clip_qkv and qk_norm_across; got clip_qkv=1.0, qk_norm_across=F",
        ),
        (
            lambda: AttentionOptions(gate_bias=True),
            "gate_bias has an effect only with output_gate; got output_gate=F",
        ),
        (lambda: AttentionOptions(gate_per_head=True), "gate_per_head has an effect only with output_gate; got"),
        (lambda: AttentionOptions(gate_kind="softplus"), "gate_kind has an effect only with output_gate; got"),
        (lambda: AttentionOptions(value_width=0), "value_width must be above zero"),
        (
            lambda: AttentionOptions(values_of_keys=True, value_width=5),
            "values_of_keys needs values as wide as keys; got value_width=5; leave one of them out",
        ),
        (
            lambda: AttentionOptions(value_scale=float("nan")),
            "value_scale must be a finite number; got nan; leave it",
        ),
        (lambda: AttentionOptions(qk_norm_across=True), "qk_norm_across has an effect only with qk_norm; got"),
        (lambda: AttentionOptions(qk_norm_kind="layer"), "qk_norm_kind has an effect only with qk_norm; got"),
        (lambda: AttentionOptions(qk_norm=True, qk_norm_kind="lay"), "no qk_norm_kind is named 'lay'; .*'layer'"),
        (
            lambda: AttentionOptions(qk_norm=True, qk_norm_across=True, qk_norm_kind="layer"),
            "qk_norm_across needs qk_norm_kind='rms'; got 'layer'; leave one of them out",
        ),
        (lambda: AttentionOptions(qk_norm_zero_centred=True), "qk_norm_zero_centred has an effect only with qk_norm"),
        (lambda: AttentionOptions(head_width=-1), "head_width must be above zero"),
        (lambda: AttentionOptions(scale=float("inf")), "scale must be finite"),
        (lambda: ScoreOptions(softcap=-1.0), "softcap must be above zero"),
        (lambda: ScoreOptions(sinks=torch.zeros(2, 2)), "sinks needs the axes"),
        (lambda: made()(torch.randn(2, 5)), r"x needs the axes \(batch, tokens, width\)"),
        (lambda: made()(torch.randn(2, 5, 31).double()), "x must be 32 columns wide"),
        (lambda: made()(tokens(5), tokens(5)[..., 1:]), "context must be 32 columns wide"),
        (lambda: made()(tokens(5), where=Geometry.causal(4)), "q must have as many tokens as the geometry"),
        (lambda: made()(tokens(5), where=Geometry.full(5)), "has causal=True; got a geometry with False"),
        (lambda: made(window=3)(tokens(5), where=Geometry.causal(5)), "has window=3; got a geometry with None"),
        (lambda: made()(tokens(5), tokens(6), Geometry.cross(5, 5)), "context must have as many tokens"),
        (lambda: made()(tokens(5), tokens(6), Geometry.cross(4, 6)), "x must have as many tokens"),
        (lambda: made()(tokens(5), tokens(5), state=made()(tokens(5))[1]), "got both"),
        (lambda: made(causal=False)(tokens(5), state=made()(tokens(5))[1]), "got a state"),
        (lambda: made()(tokens(5), tokens(6, batch=3)), "q and k need the same batch"),
        (
            lambda: made()(tokens(5), state=KVCache(*torch.zeros(2, 2, 3, 4, 8).double())),
            "the same batch size, heads",
        ),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_inputs_that_do_not_match_raise_a_clear_error(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.usefixtures("untyped")
def test_sinks_must_match_the_heads():
    q, k, v = random_qkv(Geometry.causal(3), dtype=torch.float32)
    with pytest.raises(ValueError, match="each head needs a sink; got 3 for 4 heads"):
        attend(q, k, v, NoPosition().at(Geometry.causal(3)), score_options=ScoreOptions(sinks=torch.zeros(3)))


def test_options_and_states_of_another_type_raise_an_error(untyped):
    with pytest.raises(TypeError, match="variant must be AttentionOptions or None; got dict; give AttentionOptions"):
        MultiHeadAttention(32, 4, variant={"bias": True})
    with pytest.raises(TypeError, match="state must be KVCache or None; got Tensor; give what the call"):
        MultiHeadAttention(32, 4)(torch.randn(1, 3, 32), state=torch.randn(1, 4, 3, 8))
