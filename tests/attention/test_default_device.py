"""Defaults of PyTorch, device and dtype, concern tensors without any: results do not depend on them."""

import contextlib

import pytest
import torch

from ordinate import Decoder, Geometry, Shape, attend
from ordinate.attention import _native
from ordinate.attention.backends import dense_bias, native, offset_bias, relative_vectors, row_blocks
from ordinate.core import catalog
from ordinate.mixers._mixer import Mixer
from ordinate.models.torch_masks import AttentionSizes, _is_causal
from ordinate.ops.native import build
from ordinate.schemes import T5, NoPosition, Shaw
from ordinate.testing.backend import random_qkv


@contextlib.contextmanager
def default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def default_device():
    # as a GPU would be, which CI lacks
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


DEFAULTS = [default_dtype, default_device]


@pytest.fixture(autouse=True)
def _every_size(monkeypatch):
    for module in (dense_bias, native, offset_bias, relative_vectors, row_blocks):
        monkeypatch.setattr(module, "MIN_PAIRS", 1)


def assert_independent(run, default):
    torch.manual_seed(0)
    usual = run()
    torch.manual_seed(0)
    with default():
        found = run()
    for one, other in zip(found, usual, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("default", DEFAULTS)
@pytest.mark.parametrize(
    ("backend", "make", "dropout"),
    [
        ("reference", lambda: T5(heads=4), 0.0),
        ("sdpa", lambda: T5(heads=4), 0.0),
        ("offset_bias", lambda: T5(heads=4), 0.0),
        ("offset_bias", lambda: T5(heads=4), 0.3),
        ("row_blocks", lambda: Shaw(head_width=8), 0.0),
        ("relative_vectors", lambda: Shaw(head_width=8), 0.0),
        ("native", lambda: T5(heads=4), 0.0),
        ("dense_bias", lambda: Shaw(head_width=8), 0.0),
    ],
)
def test_attention(backend, make, dropout, default, monkeypatch):
    if backend in ("native", "dense_bias"):
        monkeypatch.delenv(build.ENV_VARIABLE)
        if build.unavailable_reason("attention") is not None:
            pytest.skip("needs a C++ compiler")
        with default():
            q, table = torch.ones(1, 1, 3, 2, device="cpu"), torch.zeros(1, 5, device="cpu")
            # their addresses are given to C++
            ends = _native._span(q, q, table, Geometry.causal(3, device="cpu"), None)
        assert [x.device.type for x in ends] == ["cpu", "cpu"]
    where, scheme = Geometry.causal(13), make()
    q, k, v = random_qkv(where, dtype=torch.float32)

    def run():
        out = attend(q, k, v, scheme.at(where), dropout=dropout, backend=backend)
        upstream = torch.arange(float(out.numel()), dtype=out.dtype, device="cpu").view_as(out).sin()
        found = torch.autograd.grad(out, (q, k, v), upstream, create_graph=True)
        return out, *found, *torch.autograd.grad(sum(x.square().sum() for x in found), (q, k, v))

    assert_independent(run, default)


@pytest.mark.parametrize("default", DEFAULTS)
@pytest.mark.parametrize("large", [1.0, 1e5])
@pytest.mark.parametrize("name", [name for name in catalog.names("ordinate.mixers")])
def test_mixers(name, large, default):
    kind = catalog.load("ordinate.mixers", Mixer, name)
    if not kind.causal:
        return
    shape = Shape(vocabulary=9, width=16, layers=1, heads=2, max_length=20, mixer=name, scheme=kind.default_scheme)
    mixer, where = Decoder(shape).blocks[0].mixer, Geometry.causal(11)
    x = torch.randn(2, 11, 16)
    # where a token is large, gradients are computed anew without tokens that are not read
    x[:, 9] *= large
    x.requires_grad_()

    def run():
        y, _ = mixer(x, NoPosition().at(where))
        return y, *torch.autograd.grad(y[:, :7].square().sum(), [x])

    assert_independent(run, default)


def test_masks_are_read_on_their_device():
    mask = torch.ones(3, 3).triu(1).bool()
    numbers = torch.zeros(3, 3).masked_fill(mask, float("-inf"))
    sizes = AttentionSizes(batch=1, heads=1, queries=3, keys=3)
    with default_device():
        assert _is_causal(mask, sizes)
        assert _is_causal(numbers, sizes)
