import pytest
import torch

from ordinate import Geometry
from ordinate.schemes import T5, Alibi, Learned, Rope, Sinusoidal
from ordinate.schemes.cope import Cope
from ordinate.schemes.log_mlp import LogMlp
from ordinate.schemes.pope import Pope
from ordinate.schemes.spectra.linear import Linear
from ordinate.schemes.spectra.ntk import Ntk
from ordinate.schemes.xpos import Xpos

xt = pytest.importorskip("x_transformers.x_transformers")
POSITIONS = torch.arange(50)[None, :, None]


def test_sinusoids_with_trained_scale_match(record):
    theirs = xt.ScaledSinusoidalEmbedding(32)
    record(
        Sinusoidal(width=32, form="concatenated", scale=32**-0.5, trainable=True).embed(
            torch.zeros(1, 50, 32), POSITIONS
        )[0],
        theirs(torch.zeros(1, 50, 32)),
        scheme="sinusoidal:form=concatenated,trainable=True",
        oracle=xt.ScaledSinusoidalEmbedding,
        what="table",
        after="our scale is initialised to 1 / sqrt(width), as theirs",
        within=1e-5,
        because="their angles are in float32",
    )


def test_a_learned_table_matches_up_to_a_factor(record):
    theirs, scheme = xt.AbsolutePositionalEmbedding(16, 50), Learned(width=16, max_length=50)
    with torch.no_grad():
        scheme.table.copy_(theirs.emb.weight * 16**-0.5)
    record(
        scheme.embed(torch.zeros(1, 50, 16), POSITIONS)[0],
        theirs(torch.zeros(1, 50, 16)),
        scheme="learned",
        oracle=xt.AbsolutePositionalEmbedding,
        what="table",
        after="our table is theirs / sqrt(width)",
    )


@pytest.mark.parametrize("start", [0, 1000])
def test_rotation_in_interleaved_layout_matches(start, record):
    q, pos = torch.randn(1, 2, 50, 32).double(), POSITIONS + start
    freqs, _ = xt.RotaryEmbedding(32)(pos[0, :, 0])
    record(
        Rope(head_width=32, layout="interleaved").encode_query(q, pos),
        xt.apply_rotary_pos_emb(q, freqs),
        scheme="rope:layout=interleaved",
        oracle=xt.apply_rotary_pos_emb,
        what="queries, positions to 1049",
        within=1e-4,
        because="their angles are in float32",
    )


@pytest.mark.parametrize("heads", [1, 2, 8, 12, 40])
@pytest.mark.parametrize("causal", [True, False])
def test_bidirectional_alibi_matches(heads, causal, record):
    theirs = xt.AlibiPositionalBias(heads)
    where = Geometry.causal(3, cached=17) if causal else Geometry.full(20)
    ours = Alibi(heads=heads).bias(where)[0]
    record(ours, theirs(*where.shape), scheme="alibi", oracle=xt.AlibiPositionalBias.forward, what="bias")


def test_alibi_matches_at_given_positions(record):
    theirs, pos = xt.AlibiPositionalBias(8), torch.randint(1000, (2, 20))
    record(
        Alibi(heads=8).bias(Geometry.from_positions(pos[..., None])),
        theirs.forward_custom_pos(pos),
        scheme="alibi",
        oracle=theirs.forward_custom_pos,
        what="bias at given positions",
    )


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20)])
def test_t5_matches_up_to_a_factor(causal, buckets, max_distance, record):
    theirs = xt.RelativePositionBias(8.0, causal=causal, num_buckets=buckets, max_distance=max_distance, heads=3)
    scheme = T5(heads=3, buckets=buckets, max_distance=max_distance)
    with torch.no_grad():
        scheme.table.copy_(theirs.relative_attention_bias.weight)
    where = Geometry.causal(3, cached=700) if causal else Geometry.full(300)
    ours = 8 * scheme.bias(where)[0]
    record(
        ours,
        theirs(*where.shape),
        scheme="t5",
        oracle=xt.RelativePositionBias,
        what="bias",
        after="our bias times sqrt(head width), since they leave q·k unscaled",
    )


@pytest.mark.parametrize(
    ("spectrum", "options"),
    [(Linear(factor=4.0), {"interpolation_factor": 4.0}), (Ntk(factor=4.0), {"base_rescale_factor": 4.0})],
)
def test_scaled_rates_and_partial_rotation_match(spectrum, options, record):
    q = torch.randn(1, 2, 50, 48).double()
    freqs, _ = xt.RotaryEmbedding(32, **options)(torch.arange(50))
    record(
        Rope(head_width=48, rotary_dim=32, layout="interleaved", spectrum=spectrum).encode_query(q, POSITIONS),
        xt.apply_rotary_pos_emb(q, freqs),
        scheme=f"rope:spectrum={spectrum.rope_type},layout=interleaved,rotary_dim=32",
        oracle=xt.apply_rotary_pos_emb,
        what="queries",
        after=f"their `{next(iter(options))}` is our factor",
        within=1e-5,
        because="their angles are in float32",
    )


@pytest.mark.parametrize(("sloped", "heads"), [(3, 8), (4, 6)])
def test_alibi_on_the_first_heads_matches(sloped, heads, record):
    theirs = xt.AlibiPositionalBias(sloped, total_heads=heads)
    record(
        Alibi(heads=heads, sloped_heads=sloped).bias(Geometry.full(20))[0],
        theirs(20, 20),
        scheme=f"alibi:sloped_heads={sloped}",
        oracle=xt.AlibiPositionalBias.forward,
        what="bias",
        after="their `total_heads` is our heads",
    )


def test_xpos_matches_with_the_same_centre(record):
    q, k = torch.randn(2, 1, 2, 50, 32).double()
    freqs, scale = xt.RotaryEmbedding(32, use_xpos=True)(torch.arange(50))
    scheme = Xpos(head_width=32, centre=25, layout="interleaved")
    record(
        torch.stack(scheme.at(Geometry.causal(50)).encode(q, k).pair),
        torch.stack([xt.apply_rotary_pos_emb(q, freqs, scale), xt.apply_rotary_pos_emb(k, freqs, scale**-1)]),
        scheme="xpos:layout=interleaved",
        oracle=xt.apply_rotary_pos_emb,
        what="queries and keys",
        after="our centre is the middle of their call",
        within=1e-5,
        because="their angles are in float32",
    )


@torch.no_grad()
def test_pope_matches(record):
    q, k = torch.randn(2, 1, 2, 50, 32)
    theirs, scheme = xt.PolarEmbedding(32, 2), Pope(head_width=32, heads=2, init="uniform")
    theirs.learned_bias.copy_(scheme.phases)
    freqs, bias = theirs(torch.arange(50))
    record(
        torch.stack(scheme.at(Geometry.causal(50)).encode(q, k).pair),
        torch.stack([xt.apply_polar_pos_emb(q, freqs), xt.apply_polar_pos_emb(k, freqs + bias)]),
        scheme="pope",
        oracle=xt.apply_polar_pos_emb,
        what="queries and keys",
        within=1e-5,
        because="their angles are in float32",
    )


@torch.no_grad()
@pytest.mark.parametrize("positions", [4, 64])
def test_cope_matches(positions, record):
    q, k = torch.randn(2, 2, 3, 12, 8).double()
    theirs, scheme = xt.CoPE(8, 3, positions).double(), Cope(head_width=8, max_positions=positions).double()
    theirs.pos_emb.copy_(scheme.table.normal_())
    hidden = ~torch.ones(12, 12).tril().bool()
    # theirs needs masked scores at the lowest finite number
    scores = (q @ k.mT / 8**0.5).masked_fill(hidden, -torch.finfo(torch.float64).max)
    record(
        scheme.content_bias(q, k, Geometry.causal(12)).masked_fill(hidden, 0.0),
        theirs(q, scores).masked_fill(hidden, 0.0),
        scheme="cope",
        oracle=xt.CoPE,
        what="bias of visible scores",
    )


@torch.no_grad()
@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize("coordinate", ["log", "linear"])
def test_the_offset_mlp_matches(coordinate, norm, record):
    theirs = xt.DynamicPositionBias(16, heads=4, depth=2, log_distance=coordinate == "log", norm=norm)
    scheme = LogMlp(heads=4, hidden=16, coordinate=coordinate, norm=norm)
    linears = [module for module in theirs.modules() if isinstance(module, torch.nn.Linear)]
    for ours, other in zip(scheme.layers, linears, strict=True):
        ours.load_state_dict(other.state_dict())
    record(
        scheme.bias(Geometry.full(20))[0],
        theirs(20, 20),
        scheme=f"log_mlp:coordinate={coordinate}",
        oracle=xt.DynamicPositionBias,
        what="bias",
        within=1e-5,
        because="their network is in float32",
    )
