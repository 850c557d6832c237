"""On a GPU, placing a scheme and attention never wait for the device: all is decided by metadata."""

import pytest
import torch

from ordinate import Geometry, attend
from ordinate.attention import _proof
from ordinate.core import catalog
from ordinate.core.devices import as_if_on, device_type, is_rehearsed, numbers_beside
from ordinate.core.tensors import need_positions_below, need_true
from ordinate.schemes import Alibi, Scheme
from ordinate.testing.backend import GEOMETRIES
from ordinate.testing.case import HEAD_WIDTH, HEADS, KV_HEADS, SchemeCase
from ordinate.testing.waiting import no_waiting

NAMES = catalog.names("ordinate.schemes")


@pytest.fixture(autouse=True)
def _proved(monkeypatch):
    # proofs do wait, once for each form; here every backend for GPUs has been proved or refused before
    monkeypatch.setattr(_proof.Proofs, "reason", lambda *given: None)


def geometry(name, tokens=9):
    return GEOMETRIES[name](tokens)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_geometries_are_made_without_waiting(name):
    # what padding is made from is given as a tensor
    real = torch.arange(9) < torch.tensor([[9], [5]])
    with no_waiting():
        if name in ("left", "right"):
            Geometry.padded(real if name == "right" else real.flip(1)).visible  # noqa: B018
        elif name != "packed":
            geometry(name).visible  # noqa: B018
    with as_if_on("cuda"):
        assert geometry("packed").q_document is not None


def everything(scheme, where, inputs, dtype):
    """What a mixer and a model do with a scheme in a training step."""
    where = where() if callable(where) else where
    at = scheme.at(where)
    x = inputs["x"].to(dtype)
    if "embed" in scheme.hooks:
        at.embed(x)
    q, k, v = (inputs[name].to(dtype).requires_grad_() for name in "qkv")
    attend(q, k, v, at).sum().backward()


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", ["causal", "right", "window", "cached"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_placing_and_attention_do_not_wait(name, shape, dtype, untyped):
    case = SchemeCase(catalog.load("ordinate.schemes", Scheme, name))
    scheme = case.scheme(torch.float32)
    where = case.with_axes(geometry(shape))
    if shape == "cached":
        scheme.eval()
    (queries, keys), batch = where.shape, 2
    inputs = {
        "q": torch.randn(batch, HEADS, queries, HEAD_WIDTH),
        "k": torch.randn(batch, KV_HEADS, keys, HEAD_WIDTH),
        "v": torch.randn(batch, KV_HEADS, keys, HEAD_WIDTH),
        "x": torch.randn(batch, queries, case.scheme().width - scheme.appended_width)
        if hasattr(case.scheme(), "width")
        else torch.randn(batch, queries, 32 - scheme.appended_width),
    }
    # constants are held from the first step on
    with as_if_on("cuda"):
        everything(scheme, where, inputs, dtype)
    with no_waiting():
        everything(scheme, where, inputs, dtype)


@pytest.mark.parametrize("name", NAMES)
def test_the_declared_form_of_a_bias_is_not_copied_from_the_host_again(name):
    case = SchemeCase(catalog.load("ordinate.schemes", Scheme, name))
    scheme, where = case.scheme(torch.float32), case.with_axes(Geometry.causal(5))
    for form in (scheme.linear_bias, scheme.log_bias):
        with as_if_on("cuda"):
            form(where)
        with no_waiting():
            form(where)


@pytest.mark.parametrize(
    "waits",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.any()),
        lambda x: x.tolist(),
        lambda x: int(x[0]),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: x.unique(),
        lambda x: torch.equal(x, x),
        lambda x: x.cpu(),
        lambda x: x.to("cpu"),
        lambda x: x.to(device="cpu", dtype=torch.float64),
        lambda x: x.__setitem__(x >= 0, x + 1),
        lambda x: x.index_put((x >= 0,), x + 1),
        lambda x: x.__setitem__(x > 0, x[:1] + 1),
        lambda x: x.__setitem__((x > 0,), x.sum()),
        lambda x: x * torch.tensor([2.0, 3.0]),
        lambda x: x * x.new_tensor([2.0, 3.0]),
        lambda x: torch.repeat_interleave(x, (x > 0).long()),
        lambda x: if_true(x),
        # in an operator of ours
        lambda x: read_inside(x),
    ],
)
def test_the_guard_notices_what_waits(waits):
    with pytest.raises(AssertionError, match="waits for a GPU"), no_waiting():
        waits(torch.arange(2.0))


def test_what_a_mask_writes_once_or_a_tensor_where_it_is_does_not_wait():
    x = torch.arange(2.0)
    with no_waiting():
        x[x > 0] = 5.0
        x[torch.zeros(1, dtype=torch.long)] = x[1:].clone()
        assert x.to(x.device) is x.to(torch.float32)
    assert x.tolist() == [5.0, 5.0]


@torch.library.custom_op("ordinate::read_in_a_test", mutates_args=())
def read_inside(x: torch.Tensor) -> torch.Tensor:
    return x + x.sum().item()


def if_true(x):
    return 1 if (x > 5).all() else 0


def test_as_if_on_another_device_ends_with_its_context():
    x = torch.ones(2)
    with as_if_on("cuda"):
        assert (device_type(x), is_rehearsed()) == ("cuda", True)
        with pytest.raises(KeyError), as_if_on("mps"):
            raise KeyError(device_type(x))
        assert device_type(x) == "cuda"
    assert (device_type(x), is_rehearsed()) == ("cpu", False)


def test_constants_are_held_by_a_gpu_and_made_anew_on_a_cpu():
    x = torch.ones(2)
    made = [numbers_beside(x, [1.0, 2.0], torch.float64) for _ in range(2)]
    assert made[0] is not made[1]
    with as_if_on("cuda"):
        held = [numbers_beside(x, numbers, torch.float64) for numbers in ([1.0, 2.0], (1.0, 2.0), [[1.0], [2.0]])]
    assert held[0] is held[1]
    assert torch.equal(held[0], made[0])
    assert held[2].shape == (2, 1)
    with as_if_on("cuda"), torch.inference_mode():
        assert not numbers_beside(x, [5.0, 7.0], torch.float64).is_inference()


def test_on_a_gpu_the_device_itself_checks_values():
    pos = torch.tensor([[[3], [8]]])
    with pytest.raises(
        ValueError, match=r"Table serves positions 0 to 7 \(max_length 8\); got 3 to 8; build it with"
    ):
        need_positions_below("Table", pos, 8)
    # what raises on a GPU at some later time is raised here at once
    with as_if_on("cuda"), pytest.raises(RuntimeError, match=r"Table serves positions 0 to 7 \(max_length 8\)"):
        need_positions_below("Table", pos, 8)
    with as_if_on("cuda"):
        need_positions_below("Table", pos, 9)
    with as_if_on("mps"):
        need_true(torch.tensor(False), "it is", "it is not", "say so")
    with as_if_on("cuda"), pytest.raises(RuntimeError, match="Alibi takes finite positions"):
        Alibi(heads=4).at(Geometry.from_positions(torch.tensor([[[0.0], [float("nan")]]])))
