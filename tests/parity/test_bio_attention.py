import pytest
import torch

from ordinate import Geometry
from ordinate.schemes import Alibi, Rope, Sinusoidal
from ordinate.schemes.continuous import Continuous
from ordinate.schemes.spectra.proportional import Proportional
from ordinate.schemes.transformer_xl import TransformerXl

bio = pytest.importorskip("bio_attention.positional")
# integer and fractional positions, unsorted
PLACES = torch.tensor([0.0, 3.5, 2.0, 17.25, 40.0], dtype=torch.float64)
WHERE = Geometry.from_positions(PLACES[None, :, None], causal=False)
FLOAT32 = {"within": 1e-5, "because": "their rates are in float32"}


def test_sinusoids_match_at_given_positions(record):
    x = torch.randn(2, 5, 8).double()
    record(
        Sinusoidal(width=8).embed(x, WHERE.q_pos),
        bio.Sinusoidal(8).double()(x, pos=PLACES.expand(2, -1)),
        scheme="sinusoidal",
        oracle=bio.Sinusoidal,
        what="tokens, fractional positions",
        **FLOAT32,
    )


@torch.no_grad()
def test_the_position_mlp_matches(record):
    theirs, scheme = bio.LearnedContinuous(6, depth=3, divide=20.0).double(), Continuous(width=6, unit=20.0).double()
    for layer, block in zip(scheme.network, theirs.mlp, strict=True):
        layer.load_state_dict(next(part for part in block if isinstance(part, torch.nn.Linear)).state_dict())
    x = torch.randn(2, 5, 6).double()
    record(
        scheme.embed(x, WHERE.q_pos),
        theirs(x, pos=PLACES),
        scheme="continuous",
        oracle=bio.LearnedContinuous,
        what="tokens, fractional positions",
        after="their `divide` is our unit",
    )


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_partial_rotation_matches(share, record):
    q, k = torch.randn(2, 1, 2, 5, 32).double()
    theirs = bio.Rotary(32, n_dims=int(32 * share)).double()
    by_token = theirs.mod_qkv(q.transpose(1, 2), k.transpose(1, 2), k, pos_q_k=PLACES[None])[:2]
    spectrum = Proportional(partial_rotary_factor=share) if share < 1 else None
    ours = Rope(head_width=32, layout="interleaved", spectrum=spectrum).at(WHERE).encode(q, k).pair
    record(
        torch.stack(ours),
        torch.stack(by_token).transpose(2, 3),
        scheme="rope:layout=interleaved" + (",spectrum=proportional" if spectrum else ""),
        oracle=bio.Rotary,
        what="queries and keys, fractional positions",
        **FLOAT32,
    )


@pytest.mark.parametrize("heads", [8, 12])
def test_alibi_matches_at_given_positions(heads, record):
    q = torch.zeros(1, 5, heads, 4).double()
    record(
        Alibi(heads=heads).bias(WHERE),
        bio.ALiBi(heads).mod_mask(None, q, q, q, pos_q_k=PLACES[None]),
        scheme="alibi",
        oracle=bio.ALiBi,
        what="bias, fractional positions",
    )


@torch.no_grad()
def test_transformer_xl_has_a_position_bias(record_error):
    theirs, scheme = (
        bio.XL(12, 3).double(),
        TransformerXl(width=12, heads=3, head_width=4, layout="interleaved").double(),
    )
    theirs.embed_lin.bias.zero_()
    scheme.content.copy_(theirs.bias_r_w)
    scheme.position.copy_(theirs.bias_r_r)
    scheme.project.copy_(theirs.embed_lin.weight.view(3, 4, 12))
    q, k = torch.randn(2, 1, 3, 5, 4).double()
    rates = torch.tensor([10_000 ** (-2 * m / 12) for m in range(6)], dtype=torch.float64)
    angles = WHERE.offset.double() * rates
    waves = torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[0]
    far = torch.einsum("ijw,hdw->hijd", waves, scheme.project)
    contents, positions = (q[0] + theirs.bias_r_w[:, None], q[0] + theirs.bias_r_r[:, None])
    right = (contents @ k[0].mT + (positions[:, :, None] * far).sum(-1))[None]
    marked, _, _ = theirs.mod_qkv(q.transpose(1, 2), k.transpose(1, 2), k)
    wrong = theirs.mod_mask(marked.transpose(1, 2) @ k.mT, marked, k.transpose(1, 2), k, pos_q_k=PLACES[None])
    record_error(
        (q @ k.mT + 2 * scheme.content_bias(q, k, WHERE), right),
        (wrong, right),
        scheme="transformer_xl:layout=interleaved",
        oracle=bio.XL,
        what="scores",
    )
