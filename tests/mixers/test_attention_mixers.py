import pytest
import torch

from ordinate import Geometry
from ordinate.core import catalog
from ordinate.mixers import Softmax
from ordinate.mixers._mixer import Mixer
from ordinate.mixers._projections import AttentionMixer
from ordinate.schemes import Alibi, NoPosition
from ordinate.testing.assert_close import assert_max_close
from ordinate.testing.case import SIZES

KINDS = {name: catalog.load("ordinate.mixers", Mixer, name) for name in catalog.names("ordinate.mixers")}
ATTENTION = {name: kind for name, kind in KINDS.items() if issubclass(kind, AttentionMixer)}


def where_of(name, tokens):
    return Geometry.full(tokens) if ATTENTION[name].bidirectional else Geometry.causal(tokens)


@pytest.mark.parametrize("name", ATTENTION)
def test_heads_may_be_wider_than_width_over_heads(name):
    mixer = ATTENTION[name](width=16, heads=4, head_width=5)
    y, _ = mixer(torch.randn(2, 7, 16), Alibi(heads=4).at(where_of(name, 7)))
    assert y.shape == (2, 7, 16)
    # latent attention has as many channels without position
    assert mixer.scale in (5**-0.5, 1.0, 10**-0.5)


@pytest.mark.parametrize("name", ATTENTION)
def test_dropout_acts_in_training_only(name):
    mixer, x = ATTENTION[name](width=16, heads=4, dropout=0.5), torch.randn(2, 9, 16)
    at = NoPosition().at(where_of(name, 9))
    assert not torch.equal(mixer(x, at)[0], mixer(x, at)[0])
    mixer.eval()
    assert torch.equal(mixer(x, at)[0], mixer(x, at)[0])


@pytest.mark.covering(1)
@pytest.mark.parametrize("name", ATTENTION)
@pytest.mark.parametrize(
    ("x", "match"),
    [
        (torch.randn(2, 3, 12), "was built for width 16; got 12 in x; build one for 12"),
        (torch.randn(3, 16), r"x needs the axes \(batch, tokens, width\); got \(3, 16\)"),
        (torch.ones(2, 3, 16).long(), "x needs floating-point numbers; got torch.int64"),
    ],
)
def test_tokens_of_another_shape_or_dtype_raise_an_error(name, x, match, untyped):
    with pytest.raises(ValueError, match=match):
        ATTENTION[name](width=16, heads=2)(x, NoPosition().at(Geometry.full(3)))


@pytest.mark.parametrize("name", ["longformer", "linformer", "block_linformer"])
def test_gradients_at_large_scores_are_those_of_the_formula(name):
    found = []
    for dtype in (torch.float32, torch.float64):
        torch.manual_seed(0)
        mixer = KINDS[name](**catalog.bind(KINDS[name], {}, SIZES)).to(dtype)
        x = torch.randn(1, 64, SIZES["width"], dtype=torch.float64)
        x[:, 20:40] *= 1e5
        x = x.to(dtype).requires_grad_()
        where = Geometry.causal(64) if KINDS[name].causal else Geometry.full(64)
        y, _ = mixer(x, NoPosition().at(where))
        found.append(torch.autograd.grad(y[:, ::3].sum(), x)[0].double())
    assert_max_close(*found, 1e-4, "gradients")


def test_projections_of_the_parent_are_not_used_for_cross_attention():
    class Doubled(Softmax):
        def project_qkv(self, x):
            q, k, v = super().project_qkv(x)
            return 2 * q, k, v

    class Whole(Doubled):
        def project_qkv(self, x):
            return super().project_qkv(x)

        def project_queries(self, x):
            return 2 * super().project_queries(x)

        def project_keys_values(self, context):
            return super().project_keys_values(context)

        supports_cross_attention = True

    with pytest.raises(ValueError, match="cross_mixer must support cross-attention; mixer 'Doubled' does not"):
        Doubled.check_cross_attention()
    Whole.check_cross_attention()
    Softmax.check_cross_attention()
