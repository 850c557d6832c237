"""Schemes for images and video, compared with transformers."""

import math

import pytest
import torch

from ordinate import Geometry
from ordinate.schemes.axial import Axial
from ordinate.schemes.fourier import Fourier
from ordinate.schemes.grid import Grid
from ordinate.schemes.learned_grid import LearnedGrid
from ordinate.schemes.log_mlp import LogMlp
from ordinate.schemes.sections import Sections
from ordinate.schemes.swin import Swin

FLOAT32 = {"within": 1e-5, "because": "their angles are in float32"}
PATCHES = Geometry.grid(5, 7).q_pos


def family(name):
    return pytest.importorskip(f"transformers.models.{name}.modeling_{name}")


def configured(name, kind, **options):
    return getattr(pytest.importorskip(f"transformers.models.{name}.configuration_{name}"), kind)(**options)


def drawn(pos=PATCHES):
    return torch.randn(1, 2, pos.shape[1], 32)


@pytest.mark.parametrize("rows", [5, 7])
def test_grid_sinusoids_match_vit_mae(rows, record):
    build = family("vit_mae").build_2d_sinusoidal_position_embedding
    scheme, where = Grid(width=24, form="mae"), Geometry.grid(rows, 5)
    record(
        scheme.embed(torch.zeros(1, 5 * rows, 24).double(), where.q_pos)[0],
        build(rows, 5, 24, dtype=torch.float64),
        scheme="grid:form=mae",
        oracle=build,
        what="table",
    )


@pytest.mark.parametrize(("rows", "columns"), [(5, 5), (9, 3), (3, 4)])
def test_learned_grid_resizing_matches_vit(rows, columns, record):
    sizes = {"hidden_size": 6, "image_size": 20, "patch_size": 4, "num_attention_heads": 1, "num_hidden_layers": 1}
    kind = family("vit").ViTEmbeddings
    theirs, scheme = kind(configured("vit", "ViTConfig", **sizes)).double(), LearnedGrid(width=6, max_length=5)
    with torch.no_grad():
        theirs.position_embeddings.normal_()
        scheme.double().table.copy_(theirs.position_embeddings[0, 1:].unflatten(0, (5, 5)))
        made = theirs.interpolate_pos_encoding(torch.zeros(1, 1 + rows * columns, 6), 4 * rows, 4 * columns)
    record(
        scheme.resized(rows, columns, antialias=False).table.flatten(0, 1),
        made[0, 1:],
        scheme="learned_grid",
        oracle=kind.interpolate_pos_encoding,
        what="table, resized",
        after="`resized(..., antialias=False)`",
    )


@pytest.mark.parametrize(
    ("name", "kind", "sizes", "spacing"),
    [
        ("qwen2_vl", "Qwen2VLVision", {"embed_dim": 64, "num_heads": 2}, "lang"),
        ("pixtral", "PixtralVision", {"hidden_size": 64, "num_attention_heads": 2}, "round_robin"),
    ],
)
def test_axial_rotation_matches_qwen2_vl_and_pixtral(name, kind, sizes, spacing, record):
    module, q = family(name), drawn()
    config = configured(name, f"{kind}Config", **sizes)
    cos, sin = getattr(module, f"{kind}RotaryEmbedding")(config)(q, PATCHES[0])
    if name == "qwen2_vl":
        turn = module.apply_rotary_pos_emb_vision
        theirs = turn(q[0].transpose(0, 1), q[0].transpose(0, 1), cos, sin)[0].transpose(0, 1)
    else:
        turn = module.apply_rotary_pos_emb
        theirs, _ = turn(q[0], q[0], cos, sin, unsqueeze_dim=0)
    record(
        Axial(head_width=32, spacing=spacing).encode_query(q, PATCHES)[0],
        theirs,
        scheme="axial" + ("" if spacing == "lang" else f":spacing={spacing}"),
        oracle=turn,
        what="queries of patches",
        **FLOAT32,
    )


def test_axial_rotation_matches_llama4(record):
    llama4, pos = family("llama4"), Geometry.grid(4, 4).q_pos
    q = drawn(pos)
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "image_size": 56, "patch_size": 14}
    config = configured("llama4", "Llama4VisionConfig", **sizes)
    table = llama4.Llama4VisionRotaryEmbedding._compute_freqs_ci(config)[:16]
    theirs, _ = llama4.vision_apply_rotary_emb(q.transpose(1, 2), q.transpose(1, 2), table)
    scheme = Axial(head_width=32, layout="interleaved", theta=config.rope_parameters["rope_theta"])
    record(
        scheme.encode_query(q, pos.flip(-1) + 1),
        theirs.transpose(1, 2),
        scheme="axial:layout=interleaved",
        oracle=llama4.vision_apply_rotary_emb,
        what="queries of patches",
        after="their columns come before their rows, and both count from 1",
        **FLOAT32,
    )


def test_axial_rotation_matches_kimi(record):
    kimi, q = family("kimi_k25"), drawn()
    config = kimi.Kimi_K25VisionConfig(hidden_size=64, num_attention_heads=2)
    cos, sin = kimi.Kimi_K25VisionRotaryEmbedding(config)(q, PATCHES[0])
    theirs, _ = kimi.apply_rotary_pos_emb_vision(q[0].transpose(0, 1), q[0].transpose(0, 1), cos, sin)
    scheme = Axial(head_width=32, order="alternating", theta=config.rope_parameters["rope_theta"])
    record(
        scheme.encode_query(q, PATCHES.flip(-1))[0].transpose(0, 1),
        theirs,
        scheme="axial:order=alternating",
        oracle=kimi.apply_rotary_pos_emb_vision,
        what="queries of patches",
        after="their columns come before their rows",
        **FLOAT32,
    )


def test_axial_rotation_matches_gemma4(record):
    gemma, q = family("gemma4"), drawn()
    config = gemma.Gemma4VisionConfig(hidden_size=64, num_attention_heads=2, head_dim=32)
    cos, sin = gemma.Gemma4VisionRotaryEmbedding(config)(q, PATCHES)
    scheme = Axial(head_width=32, layout="half_per_axis", theta=config.rope_parameters["rope_theta"])
    record(
        scheme.encode_query(q, PATCHES).transpose(1, 2),
        gemma.apply_multidimensional_rope(q.transpose(1, 2), cos, sin, PATCHES),
        scheme="axial:layout=half_per_axis",
        oracle=gemma.apply_multidimensional_rope,
        what="queries of patches",
        **FLOAT32,
    )


@pytest.mark.parametrize(
    ("name", "kind", "numbers", "options"),
    [
        ("qwen2_vl", "Qwen2VL", (16, 24, 24), {"order": "chunked"}),
        ("qwen3_vl", "Qwen3VLText", (24, 20, 20), {"order": "interleaved"}),
        ("glm4v", "Glm4vText", (8, 12, 12), {"layout": "interleaved", "sections": (8, 12, 12)}),
        ("ernie4_5_vl_moe", "Ernie4_5_VLMoeText", (22, 22, 20), {"order": "ernie", "layout": "interleaved"}),
    ],
)
def test_sections_match_on_text_and_patches(name, kind, numbers, options, record):
    module = family(name)
    share = 0.5 if sum(numbers) == 32 else 1.0
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": list(numbers), "partial_rotary_factor": share}
    sizes = {"hidden_size": 256, "num_attention_heads": 2, "head_dim": 128, "rope_parameters": rope}
    config = configured(name, "Qwen2VLTextConfig" if name == "qwen2_vl" else f"{kind}Config", **sizes)
    # three text tokens, then a video of 2 frames of 3 x 4 patches
    words, film = torch.arange(3)[:, None].expand(-1, 3), Geometry.grid(2, 3, 4).q_pos[0] + 3
    pos = torch.cat([words, film])[None]
    q = torch.randn(1, 2, pos.shape[1], 128)
    cos, sin = getattr(module, f"{kind}RotaryEmbedding")(config)(q, pos.permute(2, 0, 1))
    theirs, _ = module.apply_rotary_pos_emb(q, q, cos, sin)
    shown = ",".join(f"{key}={value}" for key, value in options.items() if key != "sections")
    record(
        Sections(head_width=128, **options).encode_query(q, pos),
        theirs,
        scheme=f"sections:{shown}",
        oracle=module.apply_rotary_pos_emb,
        what="queries of text tokens and patches",
        **FLOAT32,
    )


@torch.no_grad()
def test_fourier_features_match_sam(record):
    sam = family("sam")
    theirs = sam.SamPositionalEmbedding(configured("sam", "SamVisionConfig", num_pos_feats=8)).double()
    points, scheme = torch.rand(1, 30, 2).double(), Fourier(width=16, axes=2).double()
    scheme.frequencies.copy_(2 * math.pi * theirs.positional_embedding.T)
    # their coordinates run from -1 to 1 over the image
    ours = scheme.embed(torch.zeros(1, 30, 16).double(), 2 * points - 1)
    record(
        torch.cat(ours.chunk(2, -1)[::-1], -1),
        theirs(points),
        scheme="fourier:axes=2",
        oracle=sam.SamPositionalEmbedding,
        what="sinusoids of points",
        after="our frequencies are 2 pi times theirs; our second half, then our first",
    )


def test_axial_rotation_matches_dinov3(record):
    dino = family("dinov3_vit")
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "image_size": 80, "patch_size": 16, "rope_theta": 100.0}
    cos, sin = dino.DINOv3ViTRopePositionEmbedding(configured("dinov3_vit", "DINOv3ViTConfig", **sizes)).eval()(
        torch.zeros(1, 3, 80, 112)
    )
    q = drawn()
    theirs, _ = dino.apply_rotary_pos_emb(q, q, cos, sin)
    centres = 2 * (PATCHES + 0.5) / torch.tensor([5.0, 7.0]) - 1
    record(
        Axial(head_width=32, theta=100.0).encode_query(q, 2 * math.pi * centres),
        theirs,
        scheme="axial",
        oracle=dino.DINOv3ViTRopePositionEmbedding,
        what="queries of patches",
        after="positions are 2 pi times the centres of patches, from -1 to 1 over the image",
        **FLOAT32,
    )


@torch.no_grad()
def test_the_bias_table_matches_swin(record):
    kind = family("swin").SwinRelativePositionBias
    theirs, scheme = kind(2, (3, 4)), Swin(heads=2, rows=3, columns=4)
    scheme.table.copy_(theirs.relative_position_bias_table.normal_())
    record(scheme.bias(Geometry.grid(3, 4)), theirs(), scheme="swin", oracle=kind, what="bias of 3 x 4 patches")


def beit(rows, columns):
    """Their bias between patches and ours from the same table."""
    config = configured(
        "beit", "BeitConfig", image_size=(16 * rows, 16 * columns), num_attention_heads=2, hidden_size=8
    )
    theirs, scheme = family("beit").BeitRelativePositionBias(config), Swin(heads=2, rows=rows, columns=columns)
    # its last three rows are for the class token
    scheme.table.copy_(theirs.relative_position_bias_table.normal_()[:-3])
    return theirs((rows, columns))[..., 1:, 1:].reshape(2, rows * columns, -1), scheme.bias(
        Geometry.grid(rows, columns)
    )[0]


@torch.no_grad()
def test_the_bias_table_of_a_square_grid_matches_beit(record):
    theirs, ours = beit(4, 4)
    oracle = family("beit").BeitRelativePositionBias
    record(ours, theirs, scheme="swin", oracle=oracle, what="bias of 4 x 4 patches", after="without the class token")


@torch.no_grad()
def test_the_bias_table_of_a_non_square_grid_is_indexed_correctly(record_error):
    theirs, ours = beit(3, 5)
    scheme, places = Swin(heads=2, rows=3, columns=5), Geometry.grid(3, 5).q_pos[0].tolist()
    table = torch.arange(45.0)
    scheme.table.copy_(table[:, None].expand(-1, 2))
    right = torch.stack([torch.stack([table[9 * (r - t + 2) + c - u + 4] for t, u in places]) for r, c in places])
    record_error(
        (scheme.bias(Geometry.grid(3, 5))[0, 0], right),
        (theirs, ours),
        scheme="swin",
        oracle=family("beit").BeitRelativePositionBias,
        what="bias of 3 x 5 patches",
    )


@torch.no_grad()
def test_the_offset_mlp_matches_swin_v2(record):
    kind = family("swinv2").Swinv2SelfAttention
    layer = kind(configured("swinv2", "Swinv2Config"), dim=8, num_heads=2, window_size=(4, 4))
    scheme = LogMlp(heads=2, form="swin_v2", axes=2, hidden=512, reach=3)
    for ours, other in zip(scheme.layers, layer.continuous_position_bias_mlp[::2], strict=True):
        ours.load_state_dict(other.state_dict())
    table = layer.continuous_position_bias_mlp(layer.relative_coords_table).view(-1, 2)
    record(
        scheme.bias(Geometry.grid(4, 4))[0],
        16 * table[layer.relative_position_index.view(-1)].view(16, 16, 2).permute(2, 0, 1).sigmoid(),
        scheme="log_mlp:form=swin_v2",
        oracle=kind,
        what="bias of 4 x 4 patches",
    )
