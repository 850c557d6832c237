import math

import pytest
import torch

from ordinate import Geometry
from ordinate.schemes.axial import Axial
from ordinate.testing import assert_as_close, check_scheme

# channel pairs of one axis among the turning channels, by layout and order
PLACES = {
    ("half", "blocks"): lambda a, m, A, P: (a * P + m, a * P + m + A * P),
    ("half", "alternating"): lambda a, m, A, P: (m * A + a, m * A + a + A * P),
    ("interleaved", "blocks"): lambda a, m, A, P: (2 * (a * P + m), 2 * (a * P + m) + 1),
    ("interleaved", "alternating"): lambda a, m, A, P: (2 * (m * A + a), 2 * (m * A + a) + 1),
    ("half_per_axis", "blocks"): lambda a, m, A, P: (2 * a * P + m, 2 * a * P + m + P),
}
FREQUENCIES = {
    "lang": lambda a, m, A, P: 10_000.0 ** (-m / P),
    "round_robin": lambda a, m, A, P: 10_000.0 ** (-2 * (m * A + a) / (2 * P * A)),
    "pixel": lambda a, m, A, P: math.pi * (1 + (5 - 1) * m / (P - 1)),
    "pixel_log": lambda a, m, A, P: math.pi * 2 ** ((math.log2(10) - 1) * m / (P - 1)),
    "centres": lambda a, m, A, P: 2 * math.pi * 10_000.0 ** (-m / P),
}


def loop(x, positions, place, frequency, pairs, normalised=lambda p, a: p):
    tokens, axes = len(positions), len(positions[0])
    rows = []
    for token in range(tokens):
        channels = list(x[..., token, :].unbind(-1))
        for a in range(axes):
            for m in range(pairs):
                p = normalised(positions[token][a], a)
                angle = p * frequency(a, m, axes, pairs)
                first, second = place(a, m, axes, pairs)
                u, v = x[..., token, first], x[..., token, second]
                channels[first] = u * math.cos(angle) - v * math.sin(angle)
                channels[second] = u * math.sin(angle) + v * math.cos(angle)
        rows.append(torch.stack(channels, -1))
    return torch.stack(rows, -2)


def drawn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def grid(*sizes):
    pos = torch.cartesian_prod(*(torch.arange(size) for size in sizes))
    return pos[None]


@pytest.mark.covering(1)
@pytest.mark.parametrize(("layout", "order"), PLACES)
@pytest.mark.parametrize("spacing", FREQUENCIES)
@pytest.mark.parametrize("sizes", [(3, 4), (2, 3, 2)])
def test_each_axis_turns_its_own_pairs_forward_and_backward(layout, order, spacing, sizes):
    normalised = {
        "pixel": lambda p, a: -1 + 2 * p / (sizes[a] - 1),
        "pixel_log": lambda p, a: -1 + 2 * p / (sizes[a] - 1),
        "centres": lambda p, a: -1 + 2 * (p + 0.5) / sizes[a],
    }
    span, place = sizes if spacing in normalised else None, normalised.get(spacing, lambda p, a: p)
    scheme, pos = Axial(head_width=26, spacing=spacing, grid_size=span, layout=layout, order=order), grid(*sizes)
    pairs = 26 // (2 * len(sizes))
    q = drawn(1, 2, pos.shape[1], 26).requires_grad_()
    weights = drawn(1, 2, pos.shape[1], 26, seed=1)
    exact = loop(q, pos[0].tolist(), PLACES[layout, order], FREQUENCIES[spacing], pairs, place)
    (expected,) = torch.autograd.grad((exact * weights).sum(), q)
    for hook in (scheme.encode_query, scheme.encode_key):
        out = hook(q, pos)
        (slope,) = torch.autograd.grad((out * weights).sum(), q)
        assert_as_close(out, exact, exact)
        assert_as_close(slope, expected, expected, what="gradient")


def test_golden_frequencies():
    # four pairs an axis: theta^0, theta^-1/4, ...; dealt: even powers to rows, odd ones to columns
    one = torch.ones(1, 1, 2)
    assert Axial(head_width=16).angles(one)[0, 0, :4].tolist() == pytest.approx([1, 0.1, 0.01, 0.001])
    dealt = Axial(head_width=16, spacing="round_robin", theta=256.0).angles(one)[0, 0].tolist()
    assert dealt == pytest.approx([2.0**-power for power in (0, 2, 4, 6, 1, 3, 5, 7)])
    # a side of 3 tokens has its positions at -1, 0 and 1
    pixel = Axial(head_width=12, spacing="pixel", grid_size=3).angles(torch.full((1, 1, 2), 2))[0, 0, :3].tolist()
    assert pixel == pytest.approx([math.pi, 3 * math.pi, 5 * math.pi])


def test_scores_see_the_offset_along_each_axis_only():
    scheme, q, k = Axial(head_width=16), drawn(1, 1, 12, 16), drawn(1, 1, 12, 16, seed=1)

    def scores(pos):
        return scheme.encode_query(q, pos) @ scheme.encode_key(k, pos).mT

    moved = grid(3, 4) + torch.tensor([2**24 + 1, 1000])
    assert torch.allclose(scores(moved), scores(grid(3, 4)), rtol=0, atol=5e-8)
    assert not torch.allclose(scores(grid(3, 4).flip(-1)), scores(grid(3, 4)), rtol=0, atol=0.1)


def test_channels_left_over_stay_as_they_are():
    q, pos = drawn(1, 1, 8, 16), grid(2, 2, 2) + 1
    for layout in ("half", "interleaved", "half_per_axis"):
        for scheme, turning in ((Axial(head_width=16, layout=layout), 12), (Axial(head_width=16, axis_width=2), 6)):
            out = scheme.encode_query(q, pos)
            assert out[..., turning:].equal(q[..., turning:])
            assert (out[..., :turning] != q[..., :turning]).all()


@pytest.mark.parametrize(("width", "axes"), [(3, 2), (4, 3), (5, 3)])
def test_no_axis_goes_without_channels(width, axes):
    with pytest.raises(
        ValueError, match=f"each of {axes} axes needs an even number .* got head_width {width}; choose"
    ):
        Axial(head_width=width).at(Geometry.from_positions(torch.zeros(1, 3, axes)))


@pytest.mark.parametrize("axis_width", [3, 0, 10])
def test_the_width_of_an_axis_must_be_even_and_fit(axis_width):
    with pytest.raises(ValueError, match=f"got head_width 16 and axis_width {axis_width}"):
        Axial(head_width=16, axis_width=axis_width)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid_size": 4}, "grid_size belongs to another spacing; got 4 with spacing='lang', where it has no effect"),
        ({"max_frequency": 4.0}, "max_frequency belongs to another spacing"),
        ({"spacing": "pixel", "theta": 10.0, "grid_size": 4}, "theta belongs to another spacing"),
        ({"spacing": "pixel"}, "spacing='pixel' needs the length of a side; got no grid_size; give grid_size"),
        ({"spacing": "centres"}, "spacing='centres' needs the length of a side; got no grid_size"),
        ({"spacing": "centres", "grid_size": 4, "max_frequency": 4.0}, "max_frequency belongs to another spacing"),
        ({"spacing": "centres", "grid_size": 0}, "up to 3 sides have 1 tokens or more; got grid_size=0"),
        ({"spacing": "center", "grid_size": 4}, "no spacing of axial is named 'center'"),
        (
            {"spacing": "pixel", "grid_size": 1},
            "up to 3 sides have 2 tokens or more; got grid_size=1; give one length",
        ),
        ({"spacing": "pixel", "grid_size": (2, 2, 2, 2)}, "up to 3 sides have"),
        ({"theta": 0.0}, "theta must be above zero; got 0.0"),
        (
            {"layout": "half_per_axis", "order": "alternating"},
            "half_per_axis keeps the axes separate; got order='alternating'",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Axial(head_width=16, **options)


def test_it_supports_as_many_axes_as_sizes_are_given():
    with pytest.raises(ValueError, match="Axial takes positions with 2 axis; got 3 axes"):
        Axial(head_width=16, spacing="pixel", grid_size=(2, 3)).at(Geometry.grid(2, 2, 2))


@pytest.mark.parametrize("axes", [1, 4])
def test_other_numbers_of_axes_are_refused(axes):
    with pytest.raises(ValueError, match=f"Axial takes positions with 2 or 3 axis; got {axes} axes"):
        Axial(head_width=16).at(Geometry.from_positions(torch.zeros(1, 3, axes)))


@pytest.mark.extended
@pytest.mark.parametrize(
    "options",
    [
        {"spacing": "round_robin", "layout": "interleaved"},
        {"spacing": "pixel", "grid_size": 9, "max_frequency": 3.0},
        {"spacing": "pixel_log", "grid_size": (9, 5), "order": "alternating"},
        {"spacing": "centres", "grid_size": (9, 5), "theta": 100.0},
        {"layout": "half_per_axis"},
        {"axis_width": 2, "theta": 100.0},
    ],
)
def test_every_form_keeps_the_contract(options):
    assert not [outcome for outcome in check_scheme(Axial, **options) if outcome.message]


@pytest.mark.extended
def test_three_axes_keep_the_contract():
    kind = type("Axial3", (Axial,), {"axes": (3,), "__doc__": Axial.__doc__})
    assert not [outcome for outcome in check_scheme(kind) if outcome.message]


def test_it_agrees_with_the_vision_models_of_transformers():
    qwen = pytest.importorskip("transformers.models.qwen2_vl.modeling_qwen2_vl")
    pixtral = pytest.importorskip("transformers.models.pixtral.modeling_pixtral")
    from transformers import PixtralVisionConfig
    from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig

    pos, q = grid(5, 7), drawn(1, 2, 35, 32).float()
    config = Qwen2VLVisionConfig(embed_dim=64, num_heads=2)
    cos, sin = qwen.Qwen2VLVisionRotaryEmbedding(config)(q, pos[0])
    theirs, _ = qwen.apply_rotary_pos_emb_vision(q[0].transpose(0, 1), q[0].transpose(0, 1), cos, sin)
    ours = Axial(head_width=32).encode_query(q, pos)
    assert (ours[0].transpose(0, 1) - theirs).abs().max() < 1e-5
    config = PixtralVisionConfig(hidden_size=64, num_attention_heads=2)
    cos, sin = pixtral.PixtralVisionRotaryEmbedding(config)(q, pos[0])
    theirs, _ = pixtral.apply_rotary_pos_emb(q[0], q[0], cos, sin, unsqueeze_dim=0)
    ours = Axial(head_width=32, spacing="round_robin").encode_query(q, pos)
    assert (ours[0] - theirs).abs().max() < 1e-5


def test_it_agrees_with_llama4():
    llama4 = pytest.importorskip("transformers.models.llama4.modeling_llama4")
    from transformers.models.llama4.configuration_llama4 import Llama4VisionConfig

    config = Llama4VisionConfig(hidden_size=64, num_attention_heads=2, image_size=56, patch_size=14)
    q = drawn(1, 2, 16, 32).float()
    table = llama4.Llama4VisionRotaryEmbedding._compute_freqs_ci(config)[:16]
    theirs, _ = llama4.vision_apply_rotary_emb(q.transpose(1, 2), q.transpose(1, 2), table)
    # their columns come first, and both count from 1
    theta = config.rope_parameters["rope_theta"]
    ours = Axial(head_width=32, layout="interleaved", theta=theta).encode_query(q, grid(4, 4).flip(-1) + 1)
    assert (ours - theirs.transpose(1, 2)).abs().max() < 1e-5


def test_it_agrees_with_kimi_and_gemma():
    kimi = pytest.importorskip("transformers.models.kimi_k25.modeling_kimi_k25")
    gemma = pytest.importorskip("transformers.models.gemma4.modeling_gemma4")
    pos, q = grid(5, 7), drawn(1, 2, 35, 32).float()
    flat = q[0].transpose(0, 1)
    config = kimi.Kimi_K25VisionConfig(hidden_size=64, num_attention_heads=2)
    cos, sin = kimi.Kimi_K25VisionRotaryEmbedding(config)(q, pos[0])
    theirs, _ = kimi.apply_rotary_pos_emb_vision(flat, flat, cos, sin)
    theta = config.rope_parameters["rope_theta"]
    ours = Axial(head_width=32, order="alternating", theta=theta).encode_query(q, pos.flip(-1))
    assert (ours[0].transpose(0, 1) - theirs).abs().max() < 1e-5
    config = gemma.Gemma4VisionConfig(hidden_size=64, num_attention_heads=2, head_dim=32)
    cos, sin = gemma.Gemma4VisionRotaryEmbedding(config)(q, pos)
    theirs = gemma.apply_multidimensional_rope(q.transpose(1, 2), cos, sin, pos)
    theta = config.rope_parameters["rope_theta"]
    ours = Axial(head_width=32, layout="half_per_axis", theta=theta).encode_query(q, pos)
    assert (ours.transpose(1, 2) - theirs).abs().max() < 1e-5


def test_it_agrees_with_rotary_embedding_torch():
    rotary = pytest.importorskip("rotary_embedding_torch")
    q = drawn(1, 2, 12, 32).float()
    for spacing, options in (("lang", {}), ("pixel", {"max_frequency": 10.0, "grid_size": (3, 4)})):
        freqs = rotary.RotaryEmbedding(dim=16, freqs_for=spacing).get_axial_freqs(3, 4).reshape(12, 32)
        theirs = rotary.apply_rotary_emb(freqs, q)
        ours = Axial(head_width=32, spacing=spacing, layout="interleaved", **options).encode_query(q, grid(3, 4))
        assert (ours - theirs).abs().max() < 1e-5
