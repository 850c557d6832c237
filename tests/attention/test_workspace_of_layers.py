"""What `explain` says of a layer whose bias an earlier one has made, and of copies of all rows."""

import pytest
import torch

from ordinate import Geometry, attend, explain
from ordinate.attention import _native
from ordinate.ops.native import build
from ordinate.schemes import T5, Alibi, Fire
from ordinate.schemes._held import apart
from tests.attention.test_workspace import held, need_close

HEADS = 4
SCHEMES = {"alibi": Alibi, "t5": T5, "fire": Fire}
LAYERS = [
    ("sdpa", "alibi", False),
    ("sdpa", "fire", True),
    ("reference", "t5", True),
    ("offset_bias", "t5", True),
    ("decode", "fire", False),
    ("dense_bias", "fire", True),
    ("native", "t5", True),
]


@pytest.mark.parametrize(("backend", "name", "learns"), LAYERS)
def test_what_is_said_of_each_layer_is_what_it_holds(backend, name, learns, monkeypatch):
    if backend in ("dense_bias", "native"):
        monkeypatch.delenv("ORDINATE_NATIVE")
        if build.unavailable_reason("attention"):
            pytest.skip("needs a C++ compiler")
        # the profiler does not see what is held in C++
        monkeypatch.setattr(_native, "_buffers", lambda call: 0)
    cached = 6000 if backend == "decode" else 0
    where = Geometry.causal(2 if cached else 500, cached=cached)
    scheme = SCHEMES[name](heads=HEADS)
    q, k, v = (torch.randn(2, HEADS, n, 32, requires_grad=learns) for n in (*where.shape, where.shape[1]))
    with torch.set_grad_enabled(learns):
        # what is made on first use is not of the call
        attend(q, k, v, scheme.at(where), backend=backend)
        at, said = scheme.at(where), []
        for _ in range(2):
            said.append(explain(q, k, v, at, backend=backend).workspace_bytes)
            need_close(said[-1], held(lambda: attend(q, k, v, at, backend=backend)))
    assert said[1] < said[0]


def test_a_placed_scheme_holds_no_more_after_it_was_explained():
    q = torch.randn(1, HEADS, 40, 8)
    at = T5(heads=HEADS).at(Geometry.causal(40))
    fresh = apart(at)
    for backend in ("sdpa", "reference"):
        explain(q, q, q, at, backend=backend)
    assert vars(at) == vars(fresh)
    attend(q, q, q, at)
    assert vars(at) != vars(fresh)


def test_a_placed_scheme_whose_parameters_changed_is_not_explained():
    q, scheme = torch.randn(1, HEADS, 40, 8), T5(heads=HEADS)
    at = scheme.at(Geometry.causal(40))
    attend(q, q, q, at)
    with torch.no_grad():
        scheme.table.add_(1.0)
    with pytest.raises(ValueError, match="a placed scheme serves one forward pass; got one whose parameters"):
        explain(q, q, q, at)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_blocks_of_a_table_hold_no_copy_of_all_queries(dtype):
    # one head of 1 MiB in float32; scores of a block: 1 MiB
    q = torch.randn(1, 1, 1024, 256, dtype=dtype)
    at = Alibi(heads=1).at(Geometry.causal(1024))
    block, copies = 256 * (1024 + 2 * 256) * 4, 0 if dtype == torch.float32 else 2 * q.numel() * 4
    with torch.no_grad():
        found = held(lambda: attend(q, q, q, at, backend="offset_bias"))
    assert found < block + copies + 2**18
