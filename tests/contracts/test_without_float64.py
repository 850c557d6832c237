"""No scheme, mixer or model computes in float64 on a device that has none. Nothing runs on Apple hardware."""

from dataclasses import replace

import pytest
import torch

from ordinate import Decoder, Encoder, EncoderDecoder, EncoderDecoderShape, EncoderShape, Geometry, Shape
from ordinate.core import catalog
from ordinate.mixers import Mixer
from ordinate.models.vision import VisionShape, VisionTransformer
from ordinate.schemes import Alibi, Rope, Scheme
from ordinate.schemes.spectra import Spectrum
from ordinate.testing.case import HEADS, SchemeCase, random_qkv
from tests.contracts.imitated_device import Remote, imitated, sent

pytestmark = pytest.mark.usefixtures("untyped")
SCHEMES = catalog.names("ordinate.schemes")


@pytest.fixture
def device(monkeypatch):
    """The imitated device."""
    with imitated(monkeypatch) as there:
        yield there


def outputs(scheme, where, place):
    """Outputs of all hooks of a scheme, for float32 inputs sent by `place`."""
    at, tokens = scheme.at(where), where.shape[0]
    q, k, _ = (place(x.float()) for x in random_qkv(1, tokens))
    x = place(torch.linspace(-1, 1, tokens * (32 - scheme.appended_width)).view(1, tokens, -1))
    weights = place(torch.ones(1, HEADS, *where.shape).softmax(-1))
    full = k.repeat_interleave(HEADS // k.shape[1], 1)
    made = {
        "embed": lambda: (at.embed(x),),
        "encode": lambda: at.encode(q, k).pair,
        "score": lambda: (scheme.score(q, full, where),),
        "bias": lambda: (at.bias,),
        "content_bias": lambda: (scheme.content_bias(q, full, where),),
        "value_bias": lambda: (scheme.value_bias(weights, where),),
    }
    made["encode_query"] = made["encode_key"] = made["encode"]
    vectors = scheme.relative_vectors(where) or ()
    results = [at.where.q_pos, *vectors, *(x for hook in scheme.hooks if hook in made for x in made[hook]())]
    return [x for x in results if isinstance(x, torch.Tensor)]


def agree(found, expected):
    """Raise unless results of the device equal those of the CPU, up to rounding in float32."""
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        assert isinstance(x, Remote)
        torch.testing.assert_close(x.held, y.to(x.dtype), rtol=1e-5, atol=1e-5)


def causal(axes, device="cpu"):
    where = Geometry.causal(5, device=device)
    return replace(where, q_pos=where.q_pos.expand(-1, -1, axes), k_pos=where.k_pos.expand(-1, -1, axes))


def check(kind, device, **options):
    """Compare the hooks of a scheme on the device with those on the CPU, at each number of axes."""
    scheme = SchemeCase(kind, options).scheme(torch.float32).eval()
    expected = [outputs(scheme, causal(axes), lambda x: x) for axes in scheme.axes]
    scheme = scheme.to(device)
    for axes, there in zip(scheme.axes, expected, strict=True):
        agree(outputs(scheme, causal(axes, device), sent), there)


@pytest.mark.parametrize("name", SCHEMES)
def test_no_hook_of_a_scheme_computes_in_float64(name, device):
    check(catalog.load("ordinate.schemes", Scheme, name), device)


SPECTRA = [
    {"name": "linear", "factor": 4},
    {"name": "ntk", "factor": 4},
    {"name": "dynamic", "trained_length": 2, "factor": 4},
    {"name": "dynamic", "trained_length": 2, "factor": 4, "rates_by": "sequence"},
    {"name": "longrope", "trained_length": 2, "short_factor": (1, 1, 1, 1), "long_factor": (1, 2, 3, 4), "factor": 4},
    {"name": "yarn", "trained_length": 2, "factor": 4},
]
OPTIONS = [
    *(("rope", {"spectrum": Spectrum.parse(spectrum)}) for spectrum in SPECTRA),
    ("alibi", {"trainable": True, "direction": "separate"}),
    ("axial", {"spacing": "pixel", "grid_size": 4}),
    ("deberta", {"buckets": 4}),
    ("fire", {"future_divisor": "max", "threshold_mode": "min"}),
    ("fourier", {"hidden": 8, "seed": 1}),
    ("kerple", {"form": "log_power", "weighted": True}),
    ("learned_grid", {"antialias": False}),
    ("log_length", {"form": "ssmax"}),
    ("log_length", {"form": "llama4"}),
    ("log_mlp", {"coordinate": "swin", "reach": 4}),
    ("sinusoidal", {"trainable": True}),
    ("transformer_xl", {"max_offset": 2}),
    ("t5", {"buckets": 8}),
]


@pytest.mark.extended
@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_no_hook_of_a_scheme_with_options_computes_in_float64(name, options, device):
    check(catalog.load("ordinate.schemes", Scheme, name), device, **options)


@pytest.mark.extended
def test_trained_slopes_need_no_float64(device):
    slopes = Alibi(heads=4, trainable=True).to(device).slopes
    assert slopes == pytest.approx(Alibi(heads=4).slopes)


class OnDevice(Rope):
    """RoPE whose angles are in float64 wherever the positions are."""

    def angles(self, pos, length=0.0):
        rates = torch.tensor(self.spectrum.rates(self.rotary_dim, self.theta), dtype=torch.float64)
        return pos.double() * rates.to(pos.device)


class OnCpu(Rope):
    """RoPE that does not move its angles back."""

    def encode_query(self, q, pos):
        return q * pos.cpu().float()[:, None].cos()

    def make_encoders(self, pos):
        return (lambda q: self.encode_query(q, pos)), (lambda k: k)


@pytest.mark.parametrize(("mutant", "match"), [(OnDevice, "float64"), (OnCpu, "mixes tensors of two devices")])
def test_a_scheme_that_computes_in_float64_or_leaves_results_on_the_cpu_is_caught(mutant, match, device):
    with pytest.raises((TypeError, RuntimeError), match=match):
        check(mutant, device)


def trained(model, *given):
    """Output and gradients of a model."""
    out = model(*given)
    out.square().mean().backward()
    return [out, *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]


def check_model(device, make, *given):
    """Compare output and gradients of a model on the device with those on the CPU."""
    torch.manual_seed(0)
    model = make().eval()
    expected = trained(model, *given)
    model.zero_grad()
    agree(trained(model.to(device), *(sent(x) for x in given)), expected)


def sizes(scheme, mixer="softmax"):
    return {
        "vocabulary": 11,
        "width": 32,
        "layers": 1,
        "heads": 4,
        "max_length": 64,
        "scheme": scheme,
        "mixer": mixer,
    }


def axes(name):
    return catalog.load("ordinate.schemes", Scheme, name).axes


IDS = torch.arange(6)[None]


@pytest.mark.extended
@pytest.mark.parametrize("name", [name for name in SCHEMES if 1 in axes(name)])
def test_decoders_and_their_gradients_need_no_float64(name, device):
    check_model(device, lambda: Decoder(Shape(**sizes(name))), IDS)


# swin does not interpolate its table
@pytest.mark.extended
@pytest.mark.parametrize("name", [name for name in SCHEMES if 2 in axes(name) and name != "swin"])
def test_image_models_at_another_image_size_need_no_float64(name, device):
    shape = VisionShape(**sizes(name), image=(8, 12), patch=(4, 4), channels=2)
    check_model(device, lambda: VisionTransformer(shape), torch.linspace(-1, 1, 2 * 12 * 16).view(1, 2, 12, 16))


@pytest.mark.extended
def test_reversible_models_need_no_float64(device):
    check_model(device, lambda: Decoder(Shape(**sizes("rope"), blocks="reversible")), IDS)


@pytest.mark.extended
@pytest.mark.parametrize("ratio", [None, 1.5])
def test_encoder_decoders_need_no_float64(ratio, device):
    shape = EncoderDecoderShape(**sizes("rope"), cross_scheme="rope", cross_axis="scaled", cross_ratio=ratio)
    check_model(device, lambda: EncoderDecoder(shape), IDS, IDS)


# PyTorch's `rnn` and `gru` transpose in place, which a tensor that wraps another does not follow
@pytest.mark.extended
@pytest.mark.parametrize("name", [name for name in catalog.names("ordinate.mixers") if name not in ("rnn", "gru")])
def test_mixers_need_no_float64(name, device):
    kind = catalog.load("ordinate.mixers", Mixer, name)
    given = sizes(kind.default_scheme, name)
    check_model(device, lambda: Decoder(Shape(**given)) if kind.causal else Encoder(EncoderShape(**given)), IDS)
