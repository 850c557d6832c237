"""The plain formulas that set the tolerance of a backend's test are themselves the reference formula."""

from functools import partial

import pytest
import torch

from ordinate.attention import ScoreOptions
from ordinate.schemes import T5
from ordinate.testing import backend
from ordinate.testing.backend import GEOMETRIES, PIVOTS, assert_agrees, random_qkv
from ordinate.testing.tolerance import assert_as_close


def results(compute, geometry, dtype):
    torch.manual_seed(0)
    where, scheme = GEOMETRIES[geometry](17), T5(heads=4, buckets=8, max_distance=12).to(dtype)
    torch.nn.init.normal_(scheme.table)
    inputs = [x.detach() for x in random_qkv(where, batch=where.batch_size, dtype=dtype)]
    options = ScoreOptions(softcap=0.7, sinks=torch.tensor([0.5, -1.0, 2.0, 3.0], dtype=dtype))
    upstream = torch.randn(*inputs[0].shape, dtype=torch.float64)
    return backend._results(compute, scheme, where, inputs, upstream, options)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_in_float64_every_plain_formula_has_the_same_gradients(geometry):
    usual = results(partial(backend._attend, "reference"), geometry, torch.float64)
    for compute in (backend._reordered, *(partial(backend._fused, pivot) for pivot in PIVOTS)):
        for name, found in results(compute, geometry, torch.float64).items():
            assert_as_close(found, usual[name], usual[name], what=name)


class TooSteep(torch.autograd.Function):
    """The same numbers, with a gradient that is two percent too large."""

    @staticmethod
    def forward(ctx, bias):
        return bias.clone()

    @staticmethod
    def backward(ctx, gradient):
        return 1.02 * gradient


def test_in_16_bits_a_gradient_that_is_two_percent_off_is_still_found(monkeypatch):
    where, scheme = GEOMETRIES["causal"](35), T5(heads=4, buckets=8, max_distance=12)
    torch.nn.init.normal_(scheme.table)
    given = scheme, where, *random_qkv(where, dtype=torch.float16)
    assert_agrees("reference", *given)
    attend, bias = backend._attend, T5.bias

    def wrong(name, *call):
        with monkeypatch.context() as patch:
            patch.setattr(T5, "bias", lambda self, where: TooSteep.apply(bias(self, where)))
            return attend("reference", *call)

    monkeypatch.setattr(backend, "_attend", lambda name, *call: (wrong if name == "wrong" else attend)(name, *call))
    with pytest.raises(AssertionError, match="gradient of the scheme: off by"):
        assert_agrees("wrong", *given)
