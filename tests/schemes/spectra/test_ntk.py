import pytest
import torch

from ordinate.schemes import Rope
from ordinate.schemes.spectra.dynamic import Dynamic
from ordinate.schemes.spectra.ntk import Ntk
from ordinate.testing import check_scheme


@pytest.mark.covering(1)
@pytest.mark.parametrize("factor", [0.5, 1.0, 4.0, 7.3])
@pytest.mark.parametrize("theta", [100.0, 500_000.0])
@pytest.mark.parametrize("width", [4, 16, 128])
def test_the_rates_are_those_of_a_larger_base(factor, theta, width):
    expected = []
    for m in range(width // 2):
        expected.append(1 / (theta * factor ** (width / (width - 2))) ** (2 * m / width))
    assert Ntk(factor=factor).rates(width, theta) == pytest.approx(expected, rel=1e-13)
    assert Ntk(factor=factor).query_key_scale == 1.0


def test_the_fastest_pair_keeps_its_rate_and_the_slowest_is_divided_by_the_factor():
    rates, plain = Ntk(factor=8).rates(64, 10_000.0), Ntk(factor=1).rates(64, 10_000.0)
    assert rates[0] == plain[0] == 1.0
    assert plain[-1] / rates[-1] == pytest.approx(8, rel=1e-12)
    assert 1 < plain[1] / rates[1] < 1.1


def test_it_is_the_dynamic_one_halted_at_a_length():
    # factor * 4 - (factor - 1) = 7 at four times the trained length
    halted = Dynamic(factor=2, trained_length=100).rates_at(torch.tensor([400.0]), 64, 10_000.0)[0]
    assert halted.tolist() == pytest.approx(Ntk(factor=7).rates(64, 10_000.0), rel=1e-12)


def test_bad_numbers_are_refused():
    with pytest.raises(ValueError, match=r"factor must be above zero; got 0; give a positive factor"):
        Ntk(factor=0)
    with pytest.raises(ValueError, match=r"ntk needs two channel pairs; got 2 channels; rotate more channels"):
        Rope(head_width=2, spectrum=Ntk(factor=2))


@pytest.mark.parametrize(("factor", "theta", "width"), [(2.0, 10_000, 16), (8.0, 10_000, 64), (3.5, 500, 32)])
def test_it_agrees_with_rotary_embedding_torch(factor, theta, width):
    package = pytest.importorskip("rotary_embedding_torch")
    other = package.RotaryEmbedding(dim=width, theta=theta, theta_rescale_factor=factor)
    assert other.freqs.double().tolist() == pytest.approx(Ntk(factor=factor).rates(width, float(theta)), rel=3e-6)
    q = torch.randn(1, 2, 50, width)
    ours = Rope(head_width=width, theta=float(theta), layout="interleaved", spectrum=Ntk(factor=factor))
    turned = ours.encode_query(q, torch.arange(50)[None, :, None])
    assert torch.allclose(turned, other.rotate_queries_or_keys(q), rtol=0, atol=3e-5)


@pytest.mark.parametrize(("factor", "width"), [(2.0, 32), (8.0, 64)])
def test_it_agrees_with_x_transformers(factor, width):
    package = pytest.importorskip("x_transformers.x_transformers")
    other = package.RotaryEmbedding(width, base_rescale_factor=factor)
    assert other.inv_freq.double().tolist() == pytest.approx(Ntk(factor=factor).rates(width, 10_000.0), rel=3e-6)


@pytest.mark.parametrize("alpha", [2.0, 1000.0])
def test_it_agrees_with_the_alpha_of_hunyuan(alpha):
    modeling = pytest.importorskip("transformers.models.hunyuan_v1_dense.modeling_hunyuan_v1_dense")
    configuration = pytest.importorskip("transformers.models.hunyuan_v1_dense.configuration_hunyuan_v1_dense")
    parameters = {"rope_type": "dynamic", "alpha": alpha, "factor": 1.0, "rope_theta": 10_000.0}
    config = configuration.HunYuanDenseV1Config(head_dim=64, rope_parameters=parameters)
    other = modeling.HunYuanDenseV1RotaryEmbedding(config)
    assert other.inv_freq.double().tolist() == pytest.approx(Ntk(factor=alpha).rates(64, 10_000.0), rel=3e-6)


def test_a_dictionary_names_it_too():
    rope = Rope.from_rope_parameters({"rope_type": "ntk", "factor": 4.0, "rope_theta": 500.0}, head_width=8)
    assert rope.spectrum == Ntk(factor=4)
    assert rope.theta == 500.0


@pytest.mark.extended
def test_the_contract_holds():
    outcomes = check_scheme(Rope, spectrum=Ntk(factor=4))
    assert not [outcome for outcome in outcomes if outcome.message]
