"""Texts and models without variation, with numbers that overflow, or in 16 bits: finite numbers, or a reason."""

import math

import pytest
import torch

from ordinate import Decoder, Encoder, EncoderShape, Shape
from ordinate.core import catalog
from ordinate.core.finding import Finding
from ordinate.core.progress import ignore
from ordinate.probing._attach import attach
from ordinate.probing._probe import ProbeData
from ordinate.probing.runner.probe_runner import PACKAGE, ProbeSpec, run_probe

PROBES = catalog.names(PACKAGE)
KINDS = {"decoder": (Decoder, Shape), "encoder": (Encoder, EncoderShape)}
each_kind = pytest.mark.parametrize("kind", ["decoder", pytest.param("encoder", marks=pytest.mark.extended)])


def texts(count=16, length=16):
    return torch.randint(2, 40, (count, length), generator=torch.Generator().manual_seed(0))


def made(kind, scheme="rope", **sizes):
    torch.manual_seed(0)
    model, shape = KINDS[kind]
    return model(shape(**{"vocabulary": 40, "width": 16, "heads": 2, "layers": 2, "max_length": 64}, scheme=scheme,
                       **sizes)).eval()  # fmt: skip


def found_by(probe, model, ids):
    subject = attach(model, name="small")
    subject.trained_length = 16
    found = run_probe(ProbeSpec(probe, {}), subject, ProbeData(ids, None, "texts"), 0, ignore)
    numbers = [getattr(one, end) for one in found.estimates for end in ("value", "low", "high", "null")]
    assert all(math.isfinite(number) for number in numbers if number is not None)
    assert Finding.model_validate_json(found.model_dump_json()) == found
    return found


@pytest.mark.parametrize("probe", PROBES)
@each_kind
def test_texts_of_one_token_or_all_alike_have_finite_answers(probe, kind):
    assert found_by(probe, made(kind), torch.full((16, 16), 5)).status == "measured"
    assert found_by(probe, made(kind), texts(1).expand(16, -1).contiguous()).status == "measured"


@pytest.mark.parametrize("probe", PROBES)
@each_kind
def test_queries_and_keys_of_zeros_have_finite_answers(probe, kind):
    model = made(kind, "none")
    for block in model.blocks:
        block.mixer.project.weight.data[:32] = 0
    assert found_by(probe, model, texts()).status == "measured"


@pytest.mark.parametrize("probe", PROBES)
@each_kind
def test_models_in_16_bits_have_finite_answers(probe, kind):
    assert found_by(probe, made(kind, "t5").bfloat16(), texts()).status == "measured"


@pytest.mark.parametrize("probe", PROBES)
def test_the_shortest_and_fewest_texts_have_finite_answers_or_a_reason(probe):
    for count, length in ((2, 16), (3, 16), (16, 8)):
        found = found_by(probe, made("encoder", "learned"), texts(count, length))
        assert found.status == "measured" or "got" in found.answer


@pytest.mark.parametrize("probe", PROBES)
def test_a_loss_that_overflows_is_a_reason_not_a_number(probe):
    model = made("decoder", "learned")
    subject = attach(model, name="small")
    subject.trained_length = 16
    # attach refuses weights that are not finite
    model.norm.weight.data[0] = float("inf")
    found = run_probe(ProbeSpec(probe, {}), subject, ProbeData(texts(), None, "texts"), 0, ignore)
    assert all(math.isfinite(one.value) for one in found.estimates)
    if probe not in ("positional_heads", "privacy"):
        said = " ".join([found.answer, *found.caveats])
        assert "the loss of small is not finite; in float32 its numbers may overflow" in said
