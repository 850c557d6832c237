import math

import pytest
import torch

from ordinate import Geometry
from ordinate.schemes import Alibi, Axial, LogLength, Rope, Sections, Xpos
from ordinate.schemes.spectra._spectrum import Spectrum
from ordinate.schemes.spectra.dynamic import Dynamic
from ordinate.schemes.spectra.linear import Linear
from ordinate.schemes.spectra.llama3 import Llama3
from ordinate.schemes.spectra.longrope import LongRope
from ordinate.schemes.spectra.proportional import Proportional
from ordinate.schemes.spectra.yarn import Yarn
from ordinate.testing import assert_as_close, check_scheme

HALF_TO_PAIRS = {"interleaved": lambda m, d: (2 * m, 2 * m + 1), "half": lambda m, d: (m, m + d // 2)}


def loop(x, positions, layout, theta=10_000.0, rates_of=None):
    # RoFormer, equation 34: each pair is turned by m theta_i, theta_i = 10000^(-2(i-1)/d)
    d = x.shape[-1]
    rows = []
    for token, p in enumerate(positions):
        channels = [None] * d
        for m in range(d // 2):
            angle = p * theta ** (-2 * m / (rates_of or d))
            first, second = HALF_TO_PAIRS[layout](m, d)
            a, b = x[..., token, first], x[..., token, second]
            channels[first] = a * math.cos(angle) - b * math.sin(angle)
            channels[second] = a * math.sin(angle) + b * math.cos(angle)
        rows.append(torch.stack(channels, -1))
    return torch.stack(rows, -2)


def drawn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def column(positions):
    return torch.tensor(positions)[None, :, None]


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("d", [2, 6, 64])
def test_it_is_the_rotation_of_the_paper_forward_and_backward(layout, d):
    scheme, positions = Rope(head_width=d, layout=layout), [0, 1, 7, 129]
    q = drawn(2, 3, 4, d).requires_grad_()
    weights = drawn(2, 3, 4, d, seed=1)
    for hook in (scheme.encode_query, scheme.encode_key):
        out, exact = hook(q, column(positions)), loop(q, positions, layout)
        assert_as_close(out, exact, exact)
        (slope,) = torch.autograd.grad((out * weights).sum(), q)
        (expected,) = torch.autograd.grad((exact * weights).sum(), q)
        assert_as_close(slope, expected, expected, what="gradient")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_layouts_are_one_scheme_after_a_permutation_bit_by_bit(dtype):
    d, pos = 16, column([0, 3, 1000, 2**24 + 1])
    order = torch.cat((torch.arange(0, d, 2), torch.arange(1, d, 2)))
    q = drawn(1, 2, 4, d, dtype=dtype)
    interleaved = Rope(head_width=d, layout="interleaved").encode_query(q, pos)
    assert interleaved[..., order].equal(Rope(head_width=d).encode_query(q[..., order], pos))


@pytest.mark.parametrize(("a", "b"), [(1, 2), (7, 63), (1000, 32_768), (0.5, 0.25)])
def test_turning_twice_is_turning_by_the_sum(a, b):
    scheme, q = Rope(head_width=16), drawn(1, 2, 1, 16)
    twice = scheme.encode_query(scheme.encode_query(q, column([a])), column([b]))
    once = scheme.encode_query(q, column([a + b]))
    assert torch.allclose(twice, once, rtol=0, atol=1e-10)


def test_position_zero_turns_nothing_bit_by_bit():
    q = drawn(1, 2, 1, 16)
    assert Rope(head_width=16).encode_query(q, column([0])).equal(q)


@pytest.mark.parametrize(
    ("dtype", "allowed"),
    [(torch.float64, 1e-14), (torch.float32, 1e-6), (torch.bfloat16, 4e-3), (torch.float16, 1e-3)],
)
def test_the_norm_is_kept(dtype, allowed):
    q = drawn(1, 8, 5, 64, dtype=dtype)
    out = Rope(head_width=64).encode_query(q, column([0, 1, 129, 32_768, 2**24 + 1]))
    assert (out.double().norm(dim=-1) / q.double().norm(dim=-1) - 1).abs().max() <= allowed


@pytest.mark.parametrize("shift", [1, 1000, 32_768, 10**6, 2**24, 2**24 + 1])
@pytest.mark.parametrize(("dtype", "allowed"), [(torch.float64, 5e-8), (torch.float32, 2e-5), (torch.bfloat16, 0.25)])
def test_scores_depend_on_the_difference_only_however_far(shift, dtype, allowed):
    scheme, q, k = Rope(head_width=64), drawn(1, 2, 4, 64, dtype=dtype), drawn(1, 2, 4, 64, seed=1, dtype=dtype)

    def scores(pos):
        return scheme.encode_query(q, pos).double() @ scheme.encode_key(k, pos).double().mT

    still, moved = scores(column([0, 3, 9, 40])), scores(column([0, 3, 9, 40]) + shift)
    assert (moved - still).abs().max() <= allowed


def test_a_mismatched_layout_is_another_scheme():
    q, k, pos = drawn(1, 1, 4, 8), drawn(1, 1, 4, 8, seed=1), column([0, 1, 2, 3])
    half, pairs = Rope(head_width=8), Rope(head_width=8, layout="interleaved")
    right = half.encode_query(q, pos) @ half.encode_key(k, pos).mT
    wrong = half.encode_query(q, pos) @ pairs.encode_key(k, pos).mT
    assert (right - wrong).abs().max() > 0.1


@pytest.mark.parametrize("width", [7, 0, -2])
def test_the_head_width_must_be_even(width):
    with pytest.raises(ValueError, match=f"rope needs an even head width; got {width}; choose heads that divide"):
        Rope(head_width=width)


@pytest.mark.parametrize("rotated", [0, -2])
def test_one_pair_of_channels_turns_at_least(rotated):
    with pytest.raises(ValueError, match=f"rope rotates one pair of channels at least; got {rotated}; give 2, 4"):
        Rope(head_width=7, rotary_dim=rotated)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize(("width", "rotated"), [(8, 3), (8, 7), (5, 1)])
def test_of_an_odd_number_of_channels_one_more_turns_at_the_rates_of_that_number(width, rotated, layout):
    q, positions = drawn(1, 2, 3, width), [0, 1, 5]
    scheme = Rope(head_width=width, rotary_dim=rotated, theta=50.0, layout=layout)
    turning = loop(q[..., : rotated + 1], positions, layout, 50.0, rates_of=rotated)
    exact = torch.cat([turning, q[..., rotated + 1 :]], -1)
    assert torch.allclose(scheme.encode_query(q, column(positions)), exact, rtol=0, atol=1e-12)


def test_an_odd_head_has_no_further_channel_to_turn():
    with pytest.raises(ValueError, match="rope turns channels of a head; got rotary_dim 7 of 7; give fewer"):
        Rope(head_width=7, rotary_dim=7)
    with pytest.raises(ValueError, match="yarn needs an even number of rotated channels; got 3; give an even"):
        Rope(head_width=8, rotary_dim=3, spectrum=Yarn(factor=2.0, trained_length=8))


def test_no_more_channels_turn_than_there_are():
    with pytest.raises(ValueError, match="rope turns channels of a head; got rotary_dim 10 of 8; give fewer"):
        Rope(head_width=8, rotary_dim=10)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize(("width", "rotated"), [(8, 2), (8, 8), (7, 6), (64, 16)])
def test_the_first_channels_turn_as_a_head_of_that_width_and_the_others_stay(layout, width, rotated):
    q, positions = drawn(2, 3, 4, width).requires_grad_(), [0, 1, 7, 129]
    scheme = Rope(head_width=width, rotary_dim=rotated, layout=layout)
    exact = torch.cat([loop(q[..., :rotated], positions, layout), q[..., rotated:]], -1)
    weights = drawn(2, 3, 4, width, seed=1)
    for hook in (scheme.encode_query, scheme.encode_key):
        out = hook(q, column(positions))
        assert_as_close(out, exact, exact)
        assert out[..., rotated:].equal(q[..., rotated:])
        (slope,) = torch.autograd.grad((out * weights).sum(), q)
        (expected,) = torch.autograd.grad((exact * weights).sum(), q, retain_graph=True)
        assert_as_close(slope, expected, expected, what="gradient")


@pytest.mark.extended
@pytest.mark.parametrize("options", [{"rotary_dim": 4}, {"rotary_dim": 6, "layout": "interleaved"}])
def test_the_contract_holds_where_a_part_of_the_channels_turns(options):
    assert not [outcome for outcome in check_scheme(Rope, **options) if outcome.message]


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_the_magnitude_of_a_spectrum_multiplies_what_turns_and_nothing_else(layout):
    loud = Yarn(factor=1, trained_length=16, attention_factor=1.5)
    q, pos = drawn(1, 2, 4, 8), column([0, 1, 7, 129])
    plain = Rope(head_width=8, rotary_dim=6, layout=layout).encode_query(q, pos)
    out = Rope(head_width=8, rotary_dim=6, layout=layout, spectrum=loud).encode_query(q, pos)
    assert torch.allclose(out[..., :6], 1.5 * plain[..., :6], rtol=0, atol=1e-14)
    assert out[..., 6:].equal(q[..., 6:])


def test_a_spectrum_decides_where_rope_enters():
    fixed, grown = Rope(head_width=8), Rope(head_width=8, spectrum=Dynamic(trained_length=4, factor=2))
    assert fixed.hooks == ("encode_query", "encode_key")
    assert fixed.shift_invariant
    assert grown.hooks == ("score",)
    assert not grown.shift_invariant
    q, where = drawn(1, 2, 6, 8), Geometry.causal(6)
    assert fixed.score(q, q, where) is None
    assert grown.encode_query(q, where.q_pos) is q
    assert grown.encode_key(q, where.k_pos) is q
    assert Rope(head_width=8, spectrum=Linear(factor=2)).hooks == fixed.hooks


def test_theta_must_be_above_zero():
    with pytest.raises(ValueError, match=r"theta must be above zero; got 0.0; give a positive theta"):
        Rope(head_width=8, theta=0.0)


def test_two_axes_are_refused():
    with pytest.raises(ValueError, match="Rope takes positions with 1 axis; got 2 axes; choose a scheme"):
        Rope(head_width=8).at(Geometry.grid(2, 2))


@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
def test_it_agrees_with_llama(theta):
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    configuration = pytest.importorskip("transformers.models.llama.configuration_llama")
    config = configuration.LlamaConfig(
        hidden_size=64,
        num_attention_heads=2,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
    )
    q, k, pos = drawn(1, 2, 50, 32, dtype=torch.float32), drawn(1, 2, 50, 32, seed=1).float(), torch.arange(50)[None]
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, pos)
    theirs = llama.apply_rotary_pos_emb(q, k, cos, sin)
    scheme = Rope(head_width=32, theta=theta)
    ours = scheme.encode_query(q, pos[..., None]), scheme.encode_key(k, pos[..., None])
    # their angles are in float32
    assert all((one - other).abs().max() < 2e-5 for one, other in zip(ours, theirs, strict=True))


def test_it_agrees_with_gptj_interleaved():
    gptj = pytest.importorskip("transformers.models.gptj.modeling_gptj")
    q, pos = drawn(1, 2, 50, 32, dtype=torch.float32), torch.arange(50)
    sin, cos = gptj.create_sinusoidal_positions(50, 32)[None].chunk(2, -1)
    theirs = gptj.apply_rotary_pos_emb(q.transpose(1, 2), sin, cos).transpose(1, 2)
    ours = Rope(head_width=32, layout="interleaved").encode_query(q, pos[None, :, None])
    assert (ours - theirs).abs().max() < 2e-5


@pytest.mark.parametrize(("share", "rotated"), [(0.25, 8), (0.5, 16), (1.0, 32)])
def test_it_agrees_with_gpt_neox_where_a_part_turns(share, rotated):
    neox = pytest.importorskip("transformers.models.gpt_neox.modeling_gpt_neox")
    configuration = pytest.importorskip("transformers.models.gpt_neox.configuration_gpt_neox")
    parameters = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": share}
    config = configuration.GPTNeoXConfig(hidden_size=64, num_attention_heads=2, rope_parameters=parameters)
    q, k, pos = drawn(1, 2, 50, 32).float(), drawn(1, 2, 50, 32, seed=1).float(), torch.arange(50)[None]
    theirs = neox.apply_rotary_pos_emb(q, k, *neox.GPTNeoXRotaryEmbedding(config)(q, pos))
    by_hand = Rope(head_width=32, rotary_dim=rotated)
    for scheme in (by_hand, Rope.from_rope_parameters(config.rope_parameters, head_width=32)):
        ours = scheme.encode_query(q, pos[..., None]), scheme.encode_key(k, pos[..., None])
        assert all((one - other).abs().max() < 2e-5 for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("rotated", [8, 16])
def test_it_agrees_with_gptj_where_a_part_turns(rotated):
    gptj = pytest.importorskip("transformers.models.gptj.modeling_gptj")
    q, pos = drawn(1, 2, 50, 32, dtype=torch.float32), torch.arange(50)
    sin, cos = gptj.create_sinusoidal_positions(50, rotated)[None].chunk(2, -1)
    theirs = gptj.apply_rotary_pos_emb(q[..., :rotated].transpose(1, 2), sin, cos).transpose(1, 2)
    ours = Rope(head_width=32, rotary_dim=rotated, layout="interleaved").encode_query(q, pos[None, :, None])
    assert (ours - torch.cat([theirs, q[..., rotated:]], -1)).abs().max() < 2e-5


# dictionaries as published models have them; only the divisors are invented
PUBLISHED = {
    "Llama 3.1": (
        {
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
            "rope_theta": 500_000.0,
        },
        128,
        128,
        Llama3(factor=8.0, trained_length=8192),
    ),
    "Phi-3 mini, 128k": (
        {
            "rope_type": "longrope",
            "short_factor": [1.0 + 0.04 * m for m in range(48)],
            "long_factor": [1.0 + 1.3 * m for m in range(48)],
            "original_max_position_embeddings": 4096,
            "rope_theta": 10_000.0,
            "partial_rotary_factor": 1.0,
        },
        96,
        96,
        LongRope(
            short_factor=[1.0 + 0.04 * m for m in range(48)],
            long_factor=[1.0 + 1.3 * m for m in range(48)],
            trained_length=4096,
            factor=32.0,
        ),
    ),
    "Qwen 2.5 with YaRN": (
        {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768, "rope_theta": 1_000_000.0},
        128,
        128,
        Yarn(factor=4.0, trained_length=32_768),
    ),
    "gpt-oss": (
        {
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "rope_type": "yarn",
            "truncate": False,
            "rope_theta": 150_000,
        },
        64,
        64,
        Yarn(factor=32.0, trained_length=4096, truncate=False),
    ),
    "Gemma 4, full attention": (
        {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
        512,
        512,
        Proportional(partial_rotary_factor=0.25),
    ),
    "GPT-NeoX": (
        {"rope_type": "default", "partial_rotary_factor": 0.25, "rope_theta": 10_000},
        96,
        24,
        Spectrum(),
    ),
    "nulls": ({"rope_type": "default", "partial_rotary_factor": None, "rope_theta": None}, 96, 96, Spectrum()),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_rope_of_a_published_model_is_read_from_its_dictionary(name):
    parameters, head_width, rotated, spectrum = PUBLISHED[name]
    scheme = Rope.from_rope_parameters(parameters, head_width=head_width, max_length=131_072, layout="interleaved")
    assert scheme.spectrum == spectrum
    assert scheme.theta == (parameters["rope_theta"] or 10_000.0)
    assert (scheme.head_width, scheme.rotary_dim, scheme.layout) == (head_width, rotated, "interleaved")


@pytest.mark.parametrize(
    ("name", "rotary", "head_width", "more"),
    [
        ("llama.LlamaConfig", "LlamaRotaryEmbedding", 128, {"rope_parameters": PUBLISHED["Llama 3.1"][0]}),
        ("phi3.Phi3Config", "Phi3RotaryEmbedding", 96, {"rope_parameters": PUBLISHED["Phi-3 mini, 128k"][0]}),
        ("gpt_oss.GptOssConfig", "GptOssRotaryEmbedding", 64, {}),
        ("gpt_neox.GPTNeoXConfig", "GPTNeoXRotaryEmbedding", 96, {}),
        ("apertus.ApertusConfig", "ApertusRotaryEmbedding", 128, {}),
    ],
)
def test_the_rope_of_a_configuration_turns_at_the_rates_of_its_model(name, rotary, head_width, more):
    family, kind = name.split(".")
    modeling = pytest.importorskip(f"transformers.models.{family}.modeling_{family}")
    configuration = pytest.importorskip(f"transformers.models.{family}.configuration_{family}")
    config = getattr(configuration, kind)(max_position_embeddings=32_768, **more)
    theirs = getattr(modeling, rotary)(config)
    scheme = Rope.from_rope_parameters(
        config.rope_parameters, head_width=head_width, max_length=config.max_position_embeddings
    )
    assert torch.allclose(scheme.angles(torch.ones(1, 1, 1))[0, 0], theirs.inv_freq.double(), rtol=3e-6, atol=0)
    assert abs(scheme.spectrum.query_key_scale - theirs.attention_scaling) < 1e-12


@pytest.mark.parametrize(("layers", "head_width"), [("full_attention", 512), ("sliding_attention", 256)])
def test_each_type_of_layer_of_gemma_4_has_a_rope(layers, head_width):
    modeling = pytest.importorskip("transformers.models.gemma4.modeling_gemma4")
    configuration = pytest.importorskip("transformers.models.gemma4.configuration_gemma4")
    config = configuration.Gemma4TextConfig()
    theirs = getattr(modeling.Gemma4TextRotaryEmbedding(config), f"{layers}_inv_freq").double()
    scheme = Rope.from_rope_parameters(config.rope_parameters[layers], head_width=head_width)
    assert torch.allclose(scheme.angles(torch.ones(1, 1, 1))[0, 0], theirs, rtol=3e-6, atol=0)


@pytest.mark.parametrize(
    "scheme",
    [
        Rope(head_width=8, layout="interleaved", rotary_dim=4),
        Rope(head_width=8, spectrum=Dynamic(factor=2, trained_length=3, rates_by="sequence")),
        Sections(head_width=8),
    ],
    ids=lambda scheme: f"{scheme}",
)
def test_a_scheme_is_called_for_the_rotation_alone(scheme):
    q = torch.randn(2, 3, 7, 8).double()
    pos = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [0, 0, 1, 2, 9, 11, 30]])
    expected = scheme.at(Geometry.from_positions(pos[..., None])).encode(q, q).pair
    assert torch.equal(scheme(q, pos), expected[0])
    assert torch.equal(scheme(q, pos), expected[1])
    assert torch.equal(scheme(q, pos[..., None]), expected[0])
    assert torch.equal(scheme(q[:1], pos[0]), scheme(q[:1]))


def test_patches_of_an_image_are_rotated_alone():
    axial, where = Axial(head_width=8), Geometry.grid(3, 2)
    q = torch.randn(1, 2, 6, 8)
    assert torch.equal(axial(q, where.q_pos), axial.at(where).encode(q, q).pair[0])


def test_a_scheme_that_does_more_than_encode_alike_cannot_be_called(untyped):
    q = torch.randn(1, 4, 7, 8)
    # a bias, a scheme that encodes queries only, one that encodes both in different ways, one that replaces q.k
    for scheme in (Alibi(heads=4), LogLength(heads=4, trained_length=4), Xpos(head_width=8), rope_by_query()):
        with pytest.raises(ValueError, match=f"can be called; got {type(scheme).__name__}, with the hooks"):
            scheme(q)
    with pytest.raises(ValueError, match="x must have as many tokens as the geometry; got 7"):
        Rope(head_width=8)(q, torch.arange(6))
    with pytest.raises(TypeError, match="pos must be a tensor; got int"):
        Rope(head_width=8)(q, 7)
    with pytest.raises(ValueError, match=r"x needs the axes \(batch, heads, tokens, head width\); got \(7, 8\)"):
        Rope(head_width=8)(q[0, 0])


def rope_by_query():
    return Rope(head_width=8, spectrum=Dynamic(factor=2, trained_length=3))
