import math

import pytest
import torch

from ordinate import Geometry
from ordinate.schemes.log_mlp import LogMlp
from ordinate.testing import check_scheme

PLACES = [0, 1, 5, 40, 1500]
FORMS = {
    "x_transformers": {},
    "crossformer": {"form": "crossformer"},
    "swin_v2": {"form": "swin_v2", "reach": 7},
    "timm_cr": {"form": "timm_cr"},
}


def coordinate(form, x, reach):
    # the coordinates as the papers and codes write them, for one axis
    sign = (x > 0) - (x < 0)
    if form == "crossformer":
        return float(x)
    if form == "swin_v2":
        return sign * math.log2(abs(x / reach * 8) + 1.0) / math.log2(8)
    return sign * math.log(abs(x) + 1)


def network(scheme, form, inputs):
    # one pair through the network, number by number
    values = [torch.tensor(number, dtype=torch.float64) for number in inputs]
    for place, layer in enumerate(scheme.layers):
        if place > 0:
            if form == "crossformer":
                norm = scheme.norms[place - 1]
                mean = sum(values) / len(values)
                spread = sum((x - mean) ** 2 for x in values) / len(values)
                even = [(x - mean) / (spread + 1e-5) ** 0.5 for x in values]
                values = [norm.weight[c] * x + norm.bias[c] for c, x in enumerate(even)]
            if form == "x_transformers":
                values = [x / (1 + torch.exp(-x)) for x in values]
            else:
                values = [x if x > 0 else 0 * x for x in values]
        biases = [0.0] * layer.out_features if layer.bias is None else layer.bias
        values = [
            sum(layer.weight[row, column] * x for column, x in enumerate(values)) + biases[row]
            for row in range(layer.out_features)
        ]
    return [16 / (1 + torch.exp(-x)) for x in values] if form == "swin_v2" else values


@pytest.mark.parametrize("dimensions", [1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_bias_and_gradients_are_those_of_the_network(form, dimensions):
    scheme = LogMlp(heads=2, hidden=4, axes=dimensions, **FORMS[form]).double()
    with torch.no_grad():
        for parameter in scheme.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    where = Geometry.grid(2, 3) if dimensions == 2 else Geometry.from_positions(torch.tensor(PLACES)[None, :, None])
    bias, places = scheme.at(where).bias, where.q_pos[0].tolist()
    weights, total = torch.randn_like(bias), 0
    for i, x in enumerate(places):
        for j, y in enumerate(places):
            inputs = [coordinate(form, a - b, 7) for a, b in zip(x, y, strict=True)]
            for h, exact in enumerate(network(scheme, form, inputs)):
                assert abs((bias[0, h, i, j] - exact).item()) <= 1e-12 * max(1, abs(exact.item()))
                total = total + weights[0, h, i, j] * exact
    wanted = torch.autograd.grad(total, list(scheme.parameters()))
    got = torch.autograd.grad((bias * weights).sum(), list(scheme.parameters()))
    for (name, _), one, exact in zip(scheme.named_parameters(), got, wanted, strict=True):
        assert exact.abs().max() > 0, name
        assert (one - exact).abs().max() <= 1e-11 * max(1, exact.abs().max()), name


def test_each_form_has_the_network_of_its_code():
    sizes = {name: [tuple(layer.weight.shape) for layer in LogMlp(heads=3, **FORMS[name]).layers] for name in FORMS}
    assert sizes["x_transformers"] == [(32, 1), (32, 32), (3, 32)]
    assert sizes["crossformer"] == [(32, 1), (32, 32), (32, 32), (3, 32)]
    assert sizes["swin_v2"] == sizes["timm_cr"] == [(32, 1), (3, 32)]
    assert LogMlp(heads=3, **FORMS["swin_v2"]).layers[-1].bias is None
    assert LogMlp(heads=3, **FORMS["timm_cr"]).layers[-1].bias is not None
    norms = {name: len(LogMlp(heads=3, **FORMS[name]).norms) for name in FORMS}
    assert norms == {"x_transformers": 0, "crossformer": 3, "swin_v2": 0, "timm_cr": 0}


@pytest.mark.parametrize("log_distance", [True, False])
@pytest.mark.parametrize("norm", [True, False])
def test_it_agrees_with_x_transformers(log_distance, norm):
    library = pytest.importorskip("x_transformers.x_transformers")
    theirs = library.DynamicPositionBias(16, heads=4, depth=2, log_distance=log_distance, norm=norm)
    scheme = LogMlp(heads=4, hidden=16, coordinate="log" if log_distance else "linear", norm=norm)
    linears = [module for module in theirs.modules() if isinstance(module, torch.nn.Linear)]
    with torch.no_grad():
        for ours, other in zip(scheme.layers, linears, strict=True):
            ours.load_state_dict(other.state_dict())
        made = theirs(9, 9)
    assert torch.allclose(scheme.bias(Geometry.full(9))[0], made, rtol=1e-5, atol=1e-5)


def test_it_agrees_with_the_code_of_swin_v2():
    # the table of coordinates, the network and the squashing of the published code, for a window of 4 x 4
    scheme = LogMlp(heads=2, form="swin_v2", axes=2, hidden=16, reach=3)
    steps = torch.arange(-3, 4, dtype=torch.float32)
    table = torch.stack(torch.meshgrid([steps, steps], indexing="ij")).permute(1, 2, 0) / 3 * 8
    table = torch.sign(table) * torch.log2(torch.abs(table) + 1.0) / math.log2(8)
    hidden = torch.relu(table @ scheme.layers[0].weight.T + scheme.layers[0].bias)
    made = 16 * torch.sigmoid(hidden @ scheme.layers[1].weight.T)
    offset = Geometry.grid(4, 4).offset[0] + 3
    theirs = made[offset[..., 0], offset[..., 1]].permute(2, 0, 1)
    assert torch.allclose(scheme.bias(Geometry.grid(4, 4))[0], theirs, rtol=1e-5, atol=1e-6)


def test_it_agrees_with_swin_v2_in_transformers():
    swin = pytest.importorskip("transformers.models.swinv2.modeling_swinv2")
    config = pytest.importorskip("transformers.models.swinv2.configuration_swinv2").Swinv2Config()
    theirs = swin.Swinv2SelfAttention(config, dim=8, num_heads=2, window_size=(4, 4))
    scheme = LogMlp(heads=2, form="swin_v2", axes=2, hidden=512, reach=3)
    linears = [layer for layer in theirs.continuous_position_bias_mlp if isinstance(layer, torch.nn.Linear)]
    with torch.no_grad():
        for ours, other in zip(scheme.layers, linears, strict=True):
            ours.load_state_dict(other.state_dict())
        table = theirs.continuous_position_bias_mlp(theirs.relative_coords_table).view(-1, 2)
        made = 16 * torch.sigmoid(table[theirs.relative_position_index.view(-1)].view(16, 16, 2).permute(2, 0, 1))
    assert torch.allclose(scheme.bias(Geometry.grid(4, 4))[0], made, rtol=1e-5, atol=1e-5)


def test_swin_v2_stays_between_0_and_16():
    scheme = LogMlp(heads=2, **FORMS["swin_v2"])
    with torch.no_grad():
        scheme.layers[-1].weight.mul_(100)
    bias = scheme.bias(Geometry.full(50))
    assert bias.min() >= 0
    assert bias.max() <= 16


def test_ahead_and_behind_may_differ():
    bias = LogMlp(heads=2).bias(Geometry.full(5))
    assert (bias[..., 0, 4] != bias[..., 4, 0]).all()


def test_the_other_number_of_axes_is_refused():
    with pytest.raises(ValueError, match="LogMlp takes positions with 1 axis; got 2 axes"):
        LogMlp(heads=2).at(Geometry.grid(2, 2))
    with pytest.raises(ValueError, match="LogMlp takes positions with 2 axis; got 1 axes"):
        LogMlp(heads=2, axes=2).at(Geometry.causal(2))


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "swin"}, "no form of log_mlp is named 'swin'; there are: crossformer, swin_v2, timm_cr, x_transf"),
        ({"coordinate": "square"}, "no coordinate is named 'square'; there are: linear, log, swin"),
        ({"axes": 3}, "log_mlp has 1 or 2 axes; got 3"),
        (
            {"form": "swin_v2"},
            "reach is required by coordinate='swin', and used by it only; got reach=None with swin; "
            "give both or neither",
        ),
        ({"reach": 7}, "reach is required by coordinate='swin', and used by it only; got reach=7 with log"),
        ({"coordinate": "swin", "reach": 0}, "reach must be above zero; got 0"),
        ({"hidden": 0}, "hidden must be above zero; got 0"),
        ({"depth": 0}, "depth must be above zero; got 0"),
        ({"heads": 0}, "heads must be above zero; got 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        LogMlp(**{"heads": 2} | options)


@pytest.mark.extended
@pytest.mark.parametrize(
    "options",
    [
        {"form": "crossformer"},
        {"form": "swin_v2", "reach": 7},
        {"form": "timm_cr", "hidden": 8},
        {"coordinate": "linear"},
        {"norm": True, "depth": 1},
        {"axes": 2},
        {"form": "swin_v2", "reach": 7, "axes": 2, "depth": 2},
    ],
    ids=str,
)
def test_every_option_keeps_the_contract(options):
    broken = [f"{one.name}: {one.message}" for one in check_scheme(LogMlp, **options) if one.message]
    assert not broken, "\n".join(broken)
