"""Recurrent mixers in float32 with decays of almost 0 and almost 1, compared with loops in float64."""

import copy

import pytest
import torch
from torch.nn.functional import softplus

from ordinate import Geometry
from ordinate.mixers.deltanet import DeltaNet
from ordinate.mixers.gated_deltanet import GatedDeltaNet
from ordinate.mixers.gla import GatedLinearAttention
from ordinate.mixers.kimi_delta_attention import KimiDeltaAttention
from ordinate.mixers.mamba import Mamba
from ordinate.mixers.mamba2 import Mamba2
from ordinate.mixers.rwkv4 import Rwkv4
from ordinate.mixers.rwkv6 import Rwkv6
from ordinate.mixers.rwkv7 import Rwkv7
from ordinate.ops.native import build, scan
from ordinate.schemes import NoPosition

TOKENS, WIDTH = 130, 8


def root_mean_square(y):
    return y / torch.sqrt((y * y).mean(-1, keepdim=True) + 1e-5)


def read(state, q):
    return torch.einsum("hk,hkv->hv", q, state) / q.shape[1] ** 0.5


def filtered(x, weight, bias=0.0):
    """Causal convolution and SiLU."""
    taps = weight.shape[1]
    rows = torch.cat([x.new_zeros(taps - 1, x.shape[1]), x])
    y = sum(rows[lag : lag + len(x)] * weight[:, lag] for lag in range(taps)) + bias
    return y * torch.sigmoid(y)


def gla(mixer, x):
    q, k, v = (y.unflatten(1, (mixer.heads, -1)) for y in mixer.project(x).split(mixer.widths, 1))
    kept = torch.sigmoid(mixer.decay_out(mixer.decay_in(x))) ** (1 / mixer.temperature)
    state, rows = 0, []
    for t, decay in enumerate(kept.unflatten(1, (mixer.heads, -1))):
        state = decay[..., None] * state + k[t][..., None] * v[t][:, None]
        rows.append((root_mean_square(read(state, q[t])) * mixer.norm_scale).flatten())
    gate = mixer.gate(x)
    return mixer.out(torch.stack(rows) * gate * torch.sigmoid(gate))


def delta_rule(mixer, x):
    sizes, gate = mixer.sizes, None if mixer.gate is None else mixer.gate(x)
    rows = filtered(mixer.project(x), mixer.convolution.weight).split(mixer.widths, 1)
    q, k, v = (y.unflatten(1, (sizes.heads, -1)) for y in rows)
    q, k = (y / torch.sqrt((y * y).sum(-1, keepdim=True) + 1e-6) for y in (q, k))
    rate = (2 if sizes.negative_eigenvalues else 1) * torch.sigmoid(mixer.rate(x))
    decay = torch.ones_like(rate)
    if hasattr(mixer, "decay"):
        step = softplus(mixer.step(x) + mixer.decay.bias.flatten()).unflatten(1, (sizes.heads, -1))
        decay = torch.exp(-mixer.decay.log_rate.exp()[:, None] * step)
    state, out = x.new_zeros(sizes.heads, sizes.key_width, sizes.value_width), []
    for t in range(len(x)):
        state = decay[t].reshape(sizes.heads, -1, 1) * state
        change = v[t] - torch.einsum("hk,hkv->hv", k[t], state)
        state = state + rate[t][:, None, None] * k[t][..., None] * change[:, None]
        out.append((root_mean_square(read(state, q[t])) * mixer.norm_scale).flatten())
    y = torch.stack(out)
    if gate is not None:
        y = y * torch.sigmoid(gate) * (gate if sizes.gate_activation == "silu" else 1)
    return mixer.out(y)


def mamba(mixer, x):
    values, z = mixer.project(x).chunk(2, 1)
    values = filtered(values, mixer.convolution.weight, mixer.convolution.bias)
    low, b, c = mixer.select(values).split(mixer.sizes, 1)
    step, state, rows = softplus(low @ mixer.step.T + mixer.step_bias), 0, []
    for t in range(len(x)):
        decay = torch.exp(-mixer.log_rate.exp() * step[t][:, None])
        state = decay * state + (step[t] * values[t])[:, None] * b[t]
        rows.append(state @ c[t] + mixer.skip * values[t])
    return mixer.out(torch.stack(rows) * z * torch.sigmoid(z))


def mamba2(mixer, x):
    inner, states, _ = mixer.widths
    z, mixed, steps = mixer.project(x).split([inner, inner + 2 * states, mixer.heads], 1)
    values, b, c = filtered(mixed, mixer.convolution.weight, mixer.convolution.bias).split(mixer.widths, 1)
    values, step = values.unflatten(1, (mixer.heads, -1)), softplus(steps + mixer.decay.bias)
    decay, state, rows = torch.exp(-mixer.decay.log_rate.exp() * step), 0, []
    for t in range(len(x)):
        state = decay[t][:, None, None] * state + b[t][:, None] * (step[t][:, None] * values[t])[:, None]
        rows.append((torch.einsum("s,hsv->hv", c[t], state) + mixer.skip[:, None] * values[t]).flatten())
    y = torch.stack(rows) * z * torch.sigmoid(z)
    return mixer.out(root_mean_square(y) * mixer.norm_scale)


def rwkv4(mixer, x):
    before = torch.cat([torch.zeros_like(x[:1]), x[:-1]])
    shares = (mixer.gate_share, mixer.key_share, mixer.value_share)
    weights = (mixer.gate, mixer.key, mixer.value)
    r, k, v = ((m * x + (1 - m) * before) @ w.T for m, w in zip(shares, weights, strict=True))
    above, under, rows = 0, 0, []
    for t in range(len(x)):
        own, kept = torch.exp(mixer.bonus + k[t]), torch.exp(-torch.exp(mixer.decay))
        rows.append((above + own * v[t]) / (under + own))
        above, under = kept * above + torch.exp(k[t]) * v[t], kept * under + torch.exp(k[t])
    return (torch.sigmoid(r) * torch.stack(rows)) @ mixer.out.T


def channel_norm(mixer, rows):
    y = torch.stack(rows)
    y = (y - y.mean(-1, keepdim=True)) / torch.sqrt(y.var(-1, keepdim=True, correction=0) + 64e-5)
    return y.flatten(1) * mixer.norm_scale + mixer.norm_shift


def rwkv6(mixer, x):
    change = torch.cat([torch.zeros_like(x[:1]), x[:-1]]) - x
    low = torch.tanh((x + change * mixer.share) @ mixer.mix_in).chunk(5, 1)
    mixed = [x + change * (m + y @ out) for m, y, out in zip(mixer.shares, low, mixer.mix_out, strict=True)]
    r, k, v = (mixed[0] @ mixer.receptance.T, mixed[2] @ mixer.key.T, mixed[3] @ mixer.value.T)
    decay = torch.exp(-torch.exp(mixer.decay + torch.tanh(mixed[1] @ mixer.decay_in) @ mixer.decay_out))
    r, k, v, decay = (y.unflatten(1, (mixer.heads, -1)) for y in (r, k, v, decay))
    state, rows = 0, []
    for t in range(len(x)):
        new = k[t][..., None] * v[t][:, None]
        rows.append(torch.einsum("hk,hkv->hv", r[t], state + mixer.bonus[..., None] * new))
        state = decay[t][..., None] * state + new
    gate = mixed[4] @ mixer.gate.T
    return (channel_norm(mixer, rows) * gate * torch.sigmoid(gate)) @ mixer.out.T


def rwkv7(mixer, x):
    change = torch.cat([torch.zeros_like(x[:1]), x[:-1]]) - x
    r, w, k, v, a, g = (x + change * share for share in mixer.shares)
    r, k, v = r @ mixer.receptance.T, k @ mixer.key.T, v @ mixer.value.T
    decay = torch.exp(
        -(torch.e**-0.5) * torch.sigmoid(mixer.decay + torch.tanh(w @ mixer.decay_in) @ mixer.decay_out)
    )
    a, g = torch.sigmoid(mixer.rate + a @ mixer.rate_in @ mixer.rate_out), torch.sigmoid(g @ mixer.gate_in)
    c, k = k * mixer.erased, k * (1 + (a - 1) * mixer.replaced)
    r, k, v, decay, a, c = (y.unflatten(1, (mixer.heads, -1)) for y in (r, k, v, decay, a, c))
    c = c / c.norm(dim=-1, keepdim=True)
    state, rows = torch.zeros_like(v[0])[..., None] * v[0][:, None], []
    for t in range(len(x)):
        erased = (a[t] * c[t])[..., None] * torch.einsum("hk,hkv->hv", c[t], state)[:, None]
        state = decay[t][..., None] * state - erased + k[t][..., None] * v[t][:, None]
        rows.append(torch.einsum("hk,hkv->hv", r[t], state))
    y = channel_norm(mixer, rows) + ((r * k * mixer.bonus).sum(-1, keepdim=True) * v).flatten(1)
    return (y * (g @ mixer.gate_out)) @ mixer.out.T


LOOPS = {
    "gla": (lambda: GatedLinearAttention(width=WIDTH, heads=2, temperature=1.0), gla),
    "deltanet": (lambda: DeltaNet(width=WIDTH, heads=2, negative_eigenvalues=True), delta_rule),
    "gated_deltanet": (lambda: GatedDeltaNet(width=WIDTH, heads=2), delta_rule),
    "kimi_delta_attention": (lambda: KimiDeltaAttention(width=WIDTH, heads=2), delta_rule),
    "mamba": (lambda: Mamba(width=WIDTH, states=4), mamba),
    "mamba2": (lambda: Mamba2(width=WIDTH, states=4, head_dim=8), mamba2),
    "rwkv4": (lambda: Rwkv4(width=WIDTH), rwkv4),
    "rwkv6": (lambda: Rwkv6(width=WIDTH, heads=2), rwkv6),
    "rwkv7": (lambda: Rwkv7(width=WIDTH, heads=2), rwkv7),
}
DELTAS = "gated_deltanet", "kimi_delta_attention"
# the mixer, a parameter that sets its decays or rates, and the value of all its entries; None: far apart
CASES = [
    *(("gla", "decay_out.bias", value) for value in (30.0, -30.0, None)),
    *(("deltanet", "rate.weight", value) for value in (9.0, None)),
    *((name, "decay.bias", value) for name in DELTAS for value in (-25.0, 25.0, None)),
    *((name, "decay.log_rate", value) for name in (*DELTAS, "mamba2") for value in (-15.0, 90.0)),
    *(("mamba", "log_rate", value) for value in (-15.0, 90.0, None)),
    *(("mamba", "step_bias", value) for value in (-25.0, 25.0, None)),
    *(("mamba2", "decay.bias", value) for value in (-25.0, None)),
    *((name, "decay", value) for name in ("rwkv4", "rwkv6") for value in (-15.0, 4.0, 90.0, None)),
    *(("rwkv7", name, value) for name in ("decay", "rate") for value in (-20.0, 20.0, None)),
]


def built(name, parameter, value):
    """The mixer with other values of the parameter, and of those that are 0 at first."""
    mixer = LOOPS[name][0]()
    with torch.no_grad():
        for one in mixer.parameters():
            one.add_(0.2 * torch.randn_like(one))
        one = mixer.get_parameter(parameter)
        one.copy_(8 * torch.randn_like(one) if value is None else torch.full_like(one, value))
    return mixer


def outcome(mix, mixer, x, upstream):
    x = x.to(next(mixer.parameters()).dtype).requires_grad_()
    y = mix(mixer, x)
    names, leaves = zip(*mixer.named_parameters(), strict=True)
    return {"y": y, **dict(zip(("x", *names), torch.autograd.grad(y, [x, *leaves], upstream.to(y)), strict=True))}


@pytest.mark.covering(1)
@pytest.mark.parametrize("in_cpp", [False, True])
@pytest.mark.parametrize(("name", "parameter", "value"), CASES)
def test_extreme_decays_are_those_of_the_loop(name, parameter, value, in_cpp, monkeypatch):
    if in_cpp:
        monkeypatch.delenv(build.ENV_VARIABLE)
        monkeypatch.setattr(scan, "MIN_ELEMENTS", 0)
        reason = build.unavailable_reason("wkv" if name == "rwkv4" else "recurrence")
        if reason is not None:
            pytest.skip(reason)
    mixer, at = built(name, parameter, value), NoPosition().at(Geometry.causal(TOKENS))
    x, upstream = torch.randn(TOKENS, WIDTH), torch.randn(TOKENS, WIDTH)
    exact = outcome(LOOPS[name][1], copy.deepcopy(mixer).double(), x.double(), upstream)
    found = outcome(lambda mixer, x: mixer(x[None], at)[0][0], mixer, x, upstream)
    for what, one in exact.items():
        # of what is 0 in exact arithmetic, rounding errors are left
        size = max(one.abs().max().item(), 1e-3 * exact["x"].abs().max().item())
        error = (found[what].double() - one).abs().max().item()
        assert error <= 1e-3 * size, f"{what}: off by {error}, the largest is {size}"
