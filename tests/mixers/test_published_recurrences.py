"""The recurrent mixers beside the modules of transformers that published models have, with the same weights."""

import pytest
import torch
from transformers import (
    DynamicCache,
    FalconMambaConfig,
    JambaConfig,
    KimiLinearConfig,
    Lfm2Config,
    Mamba2Config,
    MambaConfig,
    Qwen3NextConfig,
)
from transformers.models.falcon_mamba.modeling_falcon_mamba import FalconMambaMixer
from transformers.models.jamba.modeling_jamba import JambaMambaMixer
from transformers.models.kimi_linear.modeling_kimi_linear import KimiLinearDeltaAttention
from transformers.models.lfm2.modeling_lfm2 import Lfm2ShortConv
from transformers.models.mamba.modeling_mamba import MambaMixer
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

from ordinate import Geometry
from ordinate.mixers import (
    GatedDeltaNet,
    GatedDeltaOptions,
    GatedShortConvolution,
    KimiDeltaAttention,
    Mamba,
    Mamba2,
    Mamba2Options,
    MambaOptions,
)
from ordinate.schemes import NoPosition

TOKENS = 11


def drawn(module):
    """The module with numbers of which each shows."""
    for parameter in module.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    return module.eval()


def mamba(make=MambaMixer, settings=MambaConfig, norm="none", **options):
    """A Mamba of transformers, and ours with its weights."""
    given = {"use_bias": False, "use_conv_bias": True, "conv_kernel": 3, "time_step_rank": 2} | options
    if norm == "plain":
        given["mixer_rms_eps"] = 1e-2
    config = settings(hidden_size=16, state_size=6, num_hidden_layers=1, **given)
    # the mixer of Falcon-Mamba cannot be initialised by itself
    there = make(config, 0, initialize_mixer_weights=False)
    for parameter in (there.A_log, there.D):
        parameter.data.zero_()
    biases, activation = (given["use_bias"], given["use_conv_bias"]), given.get("hidden_act", "silu")
    variant = MambaOptions(*biases, activation, norm, None if norm == "none" else 1e-2)
    return config, *same_mamba(drawn(there), Mamba(width=16, states=6, rank=2, taps=3, variant=variant))


def same_mamba(there, here):
    """Both, ours with the weights of the other."""
    pairs = [(here.log_rate, there.A_log), (here.skip, there.D), (here.step, there.dt_proj.weight)]
    pairs += [(here.step_bias, there.dt_proj.bias), (here.convolution.weight, there.conv1d.weight[:, 0])]
    if there.conv1d.bias is not None:
        pairs.append((here.convolution.bias, there.conv1d.bias))
    if here.norm_scales:
        theirs = (there.dt_layernorm.weight, there.b_layernorm.weight, there.c_layernorm.weight)
        pairs += zip(here.norm_scales, theirs, strict=True)
    with torch.no_grad():
        for ours, theirs in ((here.project, there.in_proj), (here.select, there.x_proj), (here.out, there.out_proj)):
            ours.load_state_dict(theirs.state_dict())
        for ours, theirs in pairs:
            ours.copy_(theirs)
    return there, here


def jamba(bias=False, **options):
    """A Mamba of Jamba, and ours with its weights."""
    config = JambaConfig(hidden_size=16, mamba_d_state=6, mamba_dt_rank=2, mamba_d_conv=3, mamba_proj_bias=bias,
                         rms_norm_eps=1e-2, num_hidden_layers=1, **options)  # fmt: skip
    variant = MambaOptions(bias=bias, norm="scaled", norm_eps=1e-2)
    return config, *same_mamba(
        drawn(JambaMambaMixer(config, 0)), Mamba(width=16, states=6, rank=2, taps=3, variant=variant)
    )


def mamba2(limits=(0.0, float("inf")), **options):
    """A Mamba-2 of transformers, and ours with its weights."""
    given = {"use_bias": False, "use_conv_bias": True, "n_groups": 2, "conv_kernel": 3} | options
    config = Mamba2Config(hidden_size=16, num_heads=8, head_dim=4, state_size=6, num_hidden_layers=1,
                          layer_norm_epsilon=1e-2, chunk_size=4, time_step_limit=limits, **given)  # fmt: skip
    there = drawn(Mamba2Mixer(config, 0))
    largest = None if limits[1] == float("inf") else limits[1]
    activation = given.get("hidden_act", "silu")
    variant = Mamba2Options(given["use_bias"], given["use_conv_bias"], 1e-2, limits[0], largest, activation)
    here = Mamba2(
        width=16, head_dim=4, states=6, groups=given["n_groups"], taps=given["conv_kernel"], variant=variant
    )
    pairs = [(here.project, there.in_proj), (here.out, there.out_proj)]
    with torch.no_grad():
        for ours, theirs in pairs:
            ours.load_state_dict(theirs.state_dict())
        here.convolution.weight.copy_(there.conv1d.weight[:, 0])
        if there.conv1d.bias is not None:
            here.convolution.bias.copy_(there.conv1d.bias)
        here.decay.log_rate.copy_(there.A_log)
        here.decay.bias.copy_(there.dt_bias)
        here.skip.copy_(there.D)
        here.norm_scale.copy_(there.norm.weight)
    return config, there, here


def gated_deltanet(value_heads=4, ratio=1, key_heads=2, value_width=None, **variant):
    """A gated DeltaNet of Qwen3-Next, and ours with its weights."""
    d, values = 5, ratio * 5 if value_width is None else value_width
    config = Qwen3NextConfig(hidden_size=16, num_hidden_layers=1, layer_types=["linear_attention"],
                             linear_num_key_heads=key_heads, linear_num_value_heads=value_heads,
                             linear_key_head_dim=d, linear_value_head_dim=values, linear_conv_kernel_dim=3,
                             rms_norm_eps=1e-2, hidden_act=variant.get("activation", "silu"))  # fmt: skip
    there = drawn(Qwen3NextGatedDeltaNet(config, 0))
    options = GatedDeltaOptions(key_heads, 1e-2, value_width, **variant)
    told = {"value_ratio": ratio} if value_width is None else {}
    here = GatedDeltaNet(width=16, heads=value_heads, key_width=d, taps=3, variant=options, **told)
    shared = value_heads // key_heads
    # by key head: its query, its key, the values of its heads, their gates
    rows = there.in_proj_qkvz.weight.data.unflatten(0, (key_heads, -1))
    q, k, v, z = (x.flatten(0, 1) for x in rows.split([d, d, shared * values, shared * values], 1))
    b, a = (x.flatten(0, 1) for x in there.in_proj_ba.weight.data.unflatten(0, (key_heads, -1)).chunk(2, 1))
    with torch.no_grad():
        for ours, theirs in (
            (here.project.weight, torch.cat([q, k, v])), (here.gate.weight, z), (here.rate.weight, b),
            (here.step.weight, a), (here.convolution.weight, there.conv1d.weight[:, 0]),
            (here.decay.log_rate, there.A_log), (here.decay.bias, there.dt_bias),
            (here.norm_scale, there.norm.weight), (here.out.weight, there.out_proj.weight),
        ):  # fmt: skip
            ours.copy_(theirs)
    return config, there, here


def kimi_delta_attention(heads=3, **options):
    """Kimi Delta Attention of Kimi Linear, and ours with its weights."""
    d, activation = 5, options.get("activation", "silu")
    config = KimiLinearConfig(hidden_size=16, num_hidden_layers=1, layer_types=["linear_attention"],
                              linear_num_heads=heads, linear_head_dim=d, linear_conv_kernel_dim=3,
                              rms_norm_eps=1e-2, hidden_act=activation)  # fmt: skip
    made = KimiLinearDeltaAttention(config, 0)
    for parameter in (made.forget_gate.A_log, made.forget_gate.dt_bias):
        # which only a whole model initialises
        parameter.data.zero_()
    there = drawn(made)
    here = KimiDeltaAttention(width=16, heads=heads, head_dim=d, taps=3, norm_eps=1e-2, **options)
    forget = there.forget_gate
    with torch.no_grad():
        for ours, theirs in (
            (here.project.weight, torch.cat([there.q_proj.weight, there.k_proj.weight, there.v_proj.weight])),
            (here.convolution.weight, there.conv1d.weight[:, 0]), (here.rate.weight, there.b_proj.weight),
            (here.step[0].weight, forget.f_a_proj.weight), (here.step[1].weight, forget.f_b_proj.weight),
            (here.gate[0].weight, there.g_a_proj.weight), (here.gate[1].weight, there.g_b_proj.weight),
            (here.decay.log_rate, forget.A_log.flatten()), (here.decay.bias, forget.dt_bias.unflatten(0, (heads, d))),
            (here.norm_scale, there.o_norm.weight), (here.out.weight, there.o_proj.weight),
        ):  # fmt: skip
            ours.copy_(theirs)
    return config, there, here


def gated_short_convolution(taps=3, bias=False):
    """A gated short convolution of LFM2, and ours with its weights."""
    config = Lfm2Config(hidden_size=16, num_hidden_layers=1, layer_types=["conv"], conv_L_cache=taps, conv_bias=bias)
    there = drawn(Lfm2ShortConv(config, 0))
    here = GatedShortConvolution(width=16, taps=taps, bias=bias)
    here.project.load_state_dict(there.in_proj.state_dict())
    here.out.load_state_dict(there.out_proj.state_dict())
    with torch.no_grad():
        here.convolution.weight.copy_(there.conv.weight[:, 0])
        if bias:
            here.convolution.bias.copy_(there.conv.bias)
    return config, there, here


CASES = {
    "mamba": mamba,
    "mamba, biases": lambda: mamba(use_bias=True, use_conv_bias=False),
    # which does not take 0 to 0
    "mamba, sigmoid": lambda: mamba(hidden_act="sigmoid"),
    "mamba, norms": lambda: mamba(FalconMambaMixer, FalconMambaConfig, "plain"),
    "mamba, scaled norms": jamba,
    "mamba, scaled norms and biases": lambda: jamba(bias=True),
    "mamba2": mamba2,
    "mamba2, one group": lambda: mamba2(n_groups=1, conv_kernel=4),
    "mamba2, biases": lambda: mamba2(use_bias=True, use_conv_bias=False),
    "mamba2, limits": lambda: mamba2(limits=(0.3, 0.9)),
    # which does not take 0 to 0
    "mamba2, sigmoid": lambda: mamba2(hidden_act="sigmoid"),
    "gated_deltanet": gated_deltanet,
    "gated_deltanet, wide values": lambda: gated_deltanet(ratio=2),
    "gated_deltanet, odd values": lambda: gated_deltanet(value_width=7),
    "gated_deltanet, gelu": lambda: gated_deltanet(ratio=2, activation="gelu"),
    "gated_deltanet, as many keys": lambda: gated_deltanet(key_heads=4),
    "kimi_delta_attention": kimi_delta_attention,
    "kimi_delta_attention, gelu": lambda: kimi_delta_attention(2, activation="gelu"),
    "gated_short_convolution": gated_short_convolution,
    "gated_short_convolution, biases": lambda: gated_short_convolution(4, bias=True),
}


@pytest.mark.parametrize("case", CASES)
def test_a_mixer_computes_what_the_module_of_transformers_does(case):
    torch.manual_seed(0)
    _, there, here = CASES[case]()
    x, other = (torch.randn(2, TOKENS, 16, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    x.requires_grad_()
    other.requires_grad_()
    ours, theirs = here(x, NoPosition().at(Geometry.causal(TOKENS)))[0], there(other)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    asked = torch.randn_like(ours)
    (one,), (two,) = torch.autograd.grad(ours, x, asked), torch.autograd.grad(theirs, other, asked)
    torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)


# transformers carries the bias of the projection of padding into the first tokens
@pytest.mark.parametrize("case", [case for case in CASES if "biases" not in case])
@torch.no_grad()
def test_padding_on_the_left_is_zeroed_as_there(case):
    torch.manual_seed(0)
    _, there, here = CASES[case]()
    x, real = torch.randn(2, TOKENS, 16), torch.arange(TOKENS) >= torch.tensor([[4], [0]])
    ours = here(x, NoPosition().at(Geometry.padded(real)))[0]
    torch.testing.assert_close(ours[real], there(x, attention_mask=real)[real], rtol=1e-4, atol=1e-5)


# a step of transformers leaves the limits of the step size out
@pytest.mark.parametrize("case", [case for case in CASES if "limits" not in case])
@torch.no_grad()
def test_a_text_token_by_token_is_what_it_is_there(case):
    torch.manual_seed(0)
    config, there, here = CASES[case]()
    x, cache, state = torch.randn(2, TOKENS, 16), DynamicCache(config=config), None
    for place, token in enumerate(x.split(1, 1)):
        ours, state = here(token, NoPosition().at(Geometry.causal(1, cached=place)), state)
        torch.testing.assert_close(ours, there(token, cache=cache), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"least_step": -1.0}, "0 <= least_step <= largest_step, both finite; got least_step=-1.0"),
        ({"least_step": 1.0, "largest_step": 0.5}, "got least_step=1.0 and largest_step=0.5"),
        ({"norm_eps": 2.0}, "norm_eps"),
        ({"activation": "swiglu"}, "no activation is named 'swiglu'; there are"),
        ({"inner": 0}, "inner must be above zero; got 0"),
    ],
)
def test_options_of_mamba2_that_make_no_sense_are_refused(options, match, untyped):
    with pytest.raises(ValueError, match=match):
        Mamba2Options(**options)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"key_heads": 0}, "key_heads must be above zero; got 0"),
        ({"norm_eps": 2.0}, "norm_eps"),
        ({"activation": "swiglu"}, "no activation is named 'swiglu'; there are"),
        ({"value_width": 0}, "value_width must be above zero; got 0"),
        ({"activation": "sigmoid"}, "must take 0 to 0: padding would enter the state; got 'sigmoid'"),
        ({"activation": "sillu"}, "no activation is named 'sillu'.*silu"),
    ],
)
def test_options_of_gated_deltanet_that_make_no_sense_are_refused(options, match, untyped):
    with pytest.raises(ValueError, match=match):
        GatedDeltaOptions(**options)


def test_key_heads_that_do_not_divide_the_heads_are_refused():
    with pytest.raises(ValueError, match="key_heads must divide heads; got 3 and 4"):
        GatedDeltaNet(width=16, heads=4, variant=GatedDeltaOptions(key_heads=3))


def test_a_ratio_beside_the_channels_of_values_is_refused():
    with pytest.raises(ValueError, match=r"value_ratio has no effect beside variant\.value_width; got 3; leave"):
        GatedDeltaNet(width=16, heads=4, value_ratio=3, variant=GatedDeltaOptions(value_width=5))
