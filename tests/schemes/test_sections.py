import math

import pytest
import torch

from ordinate import Geometry
from ordinate.schemes import Rope
from ordinate.schemes.sections import Sections
from ordinate.testing import assert_as_close, check_scheme

# time, height and width by slot, written out by hand
SLOTS = {
    ("chunked", (2, 3, 3)): "tthhhwww",
    ("chunked", (1, 2, 3)): "thhwww",
    ("interleaved", (4, 2, 2)): "thwthwtt",
    ("interleaved", (3, 3, 2)): "thwthwth",
    ("ernie", (2, 3, 3)): "hwhwhwtt",
}


def loop(x, positions, slots, layout):
    rows, pairs = [], len(slots)
    for token, place in enumerate(positions):
        channels = list(x[..., token, :].unbind(-1))
        for s, axis in enumerate(slots):
            angle = place["thw".index(axis)] * 10_000.0 ** (-2 * s / (2 * pairs))
            first, second = (s, s + pairs) if layout == "half" else (2 * s, 2 * s + 1)
            u, v = x[..., token, first], x[..., token, second]
            channels[first] = u * math.cos(angle) - v * math.sin(angle)
            channels[second] = u * math.sin(angle) + v * math.cos(angle)
        rows.append(torch.stack(channels, -1))
    return torch.stack(rows, -2)


def drawn(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# two words, a film of two frames of 2 x 3 patches, a word: places as Qwen2-VL gives them
FILM = [
    [0, 0, 0],
    [1, 1, 1],
    *[[2 + t, 2 + r, 2 + c] for t in range(2) for r in range(2) for c in range(3)],
    [5, 5, 5],
]


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize(("order", "sections"), SLOTS)
def test_each_pair_follows_its_axis_forward_and_backward(layout, order, sections):
    scheme, pos = Sections(head_width=16, sections=sections, order=order, layout=layout), torch.tensor(FILM)[None]
    q = drawn(1, 2, len(FILM), 16).requires_grad_()
    weights = drawn(1, 2, len(FILM), 16, seed=1)
    exact = loop(q, FILM, SLOTS[order, sections], layout)
    (expected,) = torch.autograd.grad((exact * weights).sum(), q)
    for hook in (scheme.encode_query, scheme.encode_key):
        out = hook(q, pos)
        (slope,) = torch.autograd.grad((out * weights).sum(), q)
        assert_as_close(out, exact, exact)
        assert_as_close(slope, expected, expected, what="gradient")


@pytest.mark.parametrize("order", ["chunked", "interleaved", "ernie"])
def test_a_text_is_marked_as_by_rope_bit_by_bit(order):
    q, pos = drawn(2, 3, 5, 16), torch.tensor([0, 1, 7, 1000, 2**24 + 1])[None, :, None]
    scheme, rope = Sections(head_width=16, order=order), Rope(head_width=16)
    for text in (pos, pos.expand(-1, -1, 3)):
        assert scheme.encode_query(q, text).equal(rope.encode_query(q, text[..., :1]))


@pytest.mark.parametrize(
    ("order", "expected"), [("chunked", (16, 24, 24)), ("interleaved", (24, 20, 20)), ("ernie", (20, 22, 22))]
)
def test_shares_are_those_of_the_models(order, expected):
    follows = Sections(head_width=128, order=order).axis_of_pair
    assert tuple(follows.count(axis) for axis in range(3)) == expected
    for width in (6, 8, 10, 64):
        follows = Sections(head_width=width, order=order).axis_of_pair
        assert set(follows) == {0, 1, 2}
        assert len(follows) == width // 2


def test_scores_see_the_offset_along_each_axis_only():
    scheme, q, k = Sections(head_width=16), drawn(1, 1, len(FILM), 16), drawn(1, 1, len(FILM), 16, seed=1)

    def scores(pos):
        return scheme.encode_query(q, pos) @ scheme.encode_key(k, pos).mT

    still, pos = scores(torch.tensor(FILM)[None]), torch.tensor(FILM)[None]
    assert torch.allclose(scores(pos + torch.tensor([3, 2**24 + 1, 100])), still, rtol=0, atol=5e-8)
    assert not torch.allclose(scores(pos.flip(-1)), still, rtol=0, atol=0.1)


def test_channels_beyond_the_sections_stay_as_they_are():
    q, pos = drawn(1, 1, 3, 16), torch.tensor([[[1, 2, 3], [2, 3, 4], [5, 6, 7]]])
    out = Sections(head_width=16, sections=(1, 2, 2)).encode_query(q, pos)
    assert out[..., 10:].equal(q[..., 10:])
    assert (out[..., :10] != q[..., :10]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_width": 5}, "each of 3 axes needs 2 channels of a head; got head_width 5; choose fewer heads"),
        ({"sections": (0, 4, 4)}, r"add up to at most 8 channel pairs; got sections=\(0, 4, 4\)"),
        ({"sections": (3, 3, 3)}, r"got sections=\(3, 3, 3\) for head_width 16"),
        (
            {"sections": (3, 1, 2), "order": "ernie"},
            r"equal sections for height and width; got \(3, 1, 2\); make the last two equal",
        ),
        ({"sections": (2, 2, 4), "order": "interleaved"}, r"at most every third of 8 pairs; got \(2, 2, 4\)"),
        ({"sections": (1, 4, 2), "order": "interleaved"}, r"at most every third of 7 pairs; got \(1, 4, 2\)"),
        ({"theta": 0.0}, "theta must be above zero"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Sections(**{"head_width": 16} | options)


def test_two_axes_are_refused():
    with pytest.raises(ValueError, match="Sections takes positions with 1 or 3 axis; got 2 axes"):
        Sections(head_width=16).at(Geometry.grid(2, 2))


@pytest.mark.extended
@pytest.mark.parametrize("options", [{"order": "interleaved"}, {"order": "ernie", "layout": "interleaved"}])
def test_every_order_keeps_the_contract(options):
    assert not [outcome for outcome in check_scheme(Sections, **options) if outcome.message]


@pytest.mark.extended
@pytest.mark.parametrize("order", ["chunked", "interleaved", "ernie"])
def test_three_axes_keep_the_contract(order):
    kind = type("Sections3", (Sections,), {"axes": (3,), "__doc__": Sections.__doc__})
    assert not [outcome for outcome in check_scheme(kind, order=order) if outcome.message]


def placed():
    q, pos = drawn(1, 2, len(FILM), 128).float(), torch.tensor(FILM)[None]
    return q, pos, pos.permute(2, 0, 1)


def test_it_agrees_with_qwen2_vl_and_qwen3_vl():
    qwen2 = pytest.importorskip("transformers.models.qwen2_vl.modeling_qwen2_vl")
    qwen3 = pytest.importorskip("transformers.models.qwen3_vl.modeling_qwen3_vl")
    q, pos, theirs_pos = placed()
    for module, rotary, config, sections, order in (
        (qwen2, qwen2.Qwen2VLRotaryEmbedding, "Qwen2VLTextConfig", (16, 24, 24), "chunked"),
        (qwen3, qwen3.Qwen3VLTextRotaryEmbedding, "Qwen3VLTextConfig", (24, 20, 20), "interleaved"),
    ):
        parameters = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": list(sections)}
        config = getattr(module, config)(
            hidden_size=256, num_attention_heads=2, head_dim=128, rope_parameters=parameters
        )
        cos, sin = rotary(config)(q, theirs_pos)
        theirs, _ = module.apply_rotary_pos_emb(q, q, cos, sin)
        for given in (sections, None):
            ours = Sections(head_width=128, sections=given, order=order, theta=1e6).encode_query(q, pos)
            assert (ours - theirs).abs().max() < 1e-5


def test_it_agrees_with_glm4v_and_ernie():
    glm = pytest.importorskip("transformers.models.glm4v.modeling_glm4v")
    ernie = pytest.importorskip("transformers.models.ernie4_5_vl_moe.modeling_ernie4_5_vl_moe")
    q, pos, theirs_pos = placed()
    parameters = {
        "rope_type": "default",
        "rope_theta": 1e4,
        "mrope_section": [8, 12, 12],
        "partial_rotary_factor": 0.5,
    }
    config = glm.Glm4vTextConfig(hidden_size=256, num_attention_heads=2, rope_parameters=parameters)
    cos, sin = glm.Glm4vTextRotaryEmbedding(config)(q, theirs_pos)
    theirs, _ = glm.apply_rotary_pos_emb(q, q, cos, sin)
    ours = Sections(head_width=128, sections=(8, 12, 12), layout="interleaved").encode_query(q, pos)
    assert (ours - theirs).abs().max() < 1e-5
    parameters = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [22, 22, 20]}
    config = ernie.Ernie4_5_VLMoeTextConfig(hidden_size=256, num_attention_heads=2, rope_parameters=parameters)
    cos, sin = ernie.Ernie4_5_VLMoeTextRotaryEmbedding(config)(q, theirs_pos)
    theirs, _ = ernie.apply_rotary_pos_emb(q, q, cos, sin)
    ours = Sections(head_width=128, order="ernie", layout="interleaved").encode_query(q, pos)
    assert (ours - theirs).abs().max() < 1e-5
