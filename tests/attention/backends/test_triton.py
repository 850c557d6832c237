import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ordinate import Geometry, attend, explain
from ordinate.attention._backend import AttentionCall, ScoreOptions
from ordinate.attention._triton_tables import bias_of
from ordinate.attention._triton_vectors import vectors_without_configuration
from ordinate.attention.backends import near_far, triton
from ordinate.ops.triton import availability, rotation
from ordinate.schemes import T5, Alibi, Kerple, NoPosition, Rope, Shaw, Sum, Toeplitz
from ordinate.testing.backend import GEOMETRIES, random_qkv

ROOT = Path(__file__).parents[3]
INTERPRETED = Path(__file__).with_name("triton_interpreted.py")
installed = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is for Linux on x86-64")


def interpreted(*command):
    """Run Python with Triton's interpreter in a process of its own: it is chosen when Triton is imported."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


def pytest_of(file, *options):
    """Run tests in the interpreter, in which numpy warns of the NaN that a test is about."""
    quiet = "-p", "no:cacheprovider", "-q", "--show-capture=no", "-W", "ignore::RuntimeWarning"
    return interpreted("-m", "pytest", *quiet, str(file), *options)


LEARNED_TABLE = """
import torch
from ordinate import Geometry
from ordinate.schemes import T5
from ordinate.testing.backend import assert_agrees, random_qkv

torch.manual_seed(0)
where, scheme = Geometry.causal(33, cached=9), T5(heads=2, buckets=8, max_distance=12)
assert_agrees("triton", scheme, where, *random_qkv(where, batch=1, heads=2, kv_heads=1, dtype=torch.float32))
"""


@pytest.mark.extended
@installed
def test_a_learned_table_with_far_tiles_agrees_with_the_reference():
    interpreted("-c", LEARNED_TABLE)


@installed
@pytest.mark.extended
def test_the_kernels_agree_with_the_reference():
    # the whole file, mutants included, takes most of an hour: below
    chosen = "queries_without or nan_in or log_sum_exp or operators_say or unsupported or self_check"
    assert " passed" in pytest_of(INTERPRETED, "-m", "not extended", "-k", chosen)


@installed
@pytest.mark.extended
def test_the_decoding_kernels_agree_with_the_reference():
    # the whole file takes about ten minutes
    chosen = "chunks or explained or nan_and or see_nothing or operator or self_check_covers or newest-type0"
    assert " passed" in pytest_of(INTERPRETED.with_name("triton_decode_interpreted.py"), "-k", chosen)


@installed
@pytest.mark.extended
def test_the_kernels_for_vectors_by_offset_agree_with_the_reference():
    # the whole file, mutants included, takes some ten minutes
    chosen = "self_check or operators_say or unsupported or queries_without or sums_beyond or distances or many_tiles"
    assert " passed" in pytest_of(INTERPRETED.with_name("triton_content_interpreted.py"), "-k", chosen)


# all of the four files in pieces, mutants included
GRIDS = ("reference_forward", "caps_and_sinks", "mutant")
PIECES = [
    *(("triton", grid) for grid in GRIDS),
    ("triton", f"not ({' or '.join(GRIDS)})"),
    ("triton_decode", "mutant"),
    ("triton_decode", "not mutant"),
    ("triton_content", "mutant"),
    ("triton_content", "not mutant"),
    ("near_far", "mutant"),
    ("near_far", "not mutant"),
]


@installed
@pytest.mark.long
@pytest.mark.parametrize(("file", "chosen"), PIECES)
def test_every_case_of_the_kernels_agrees_and_every_mutant_is_killed(file, chosen):
    assert " passed" in pytest_of(INTERPRETED.with_name(f"{file}_interpreted.py"), "-k", chosen)


@pytest.mark.parametrize(
    ("type", "width", "depth", "values", "says"),
    [
        (torch.float32, 128, 128, False, "supported up to 64 channels in float32"),
        (torch.bfloat16, 256, 256, True, "for values are supported up to 128 channels"),
        (torch.bfloat16, 256, 256, False, None),
        (torch.float16, 128, 128, True, None),
        (torch.float32, 64, 16, False, None),
    ],
)
def test_heads_that_are_too_wide_for_vectors_by_offset_are_refused(type, width, depth, values, says):
    where = Geometry.causal(5)
    q, k, _ = random_qkv(where, width=width, dtype=type)
    v = random_qkv(where, width=depth, dtype=type)[2]
    at = Shaw(head_width=width, values=values).at(where)
    reason = vectors_without_configuration(AttentionCall(q, k, v, at, 1.0, 0.0, ScoreOptions()), "hopper")
    assert reason is None if says is None else says in reason


@installed
@pytest.mark.extended
def test_bad_input_is_right_as_in_every_backend():
    # bfloat16 and huge scores in 16 bits are rounded wrongly by the interpreter
    chosen = "without_visible and not bfloat16"
    assert " passed" in pytest_of(INTERPRETED.with_name("test_bad_input.py"), "-m", "not extended", "-k", chosen)


COMPILED = """
import torch
from ordinate import Geometry, attend
from ordinate.schemes import T5

where, scheme = Geometry.causal(35), T5(heads=4, buckets=8, max_distance=12)
inputs = [torch.randn(1, h, 35, 8, requires_grad=True) for h in (4, 2, 2)]

def attention(q, k, v):
    return attend(q, k, v, scheme.at(where), backend="triton") * 2

def results(function):
    out = function(*inputs)
    return out, *torch.autograd.grad(out.square().sum(), [*inputs, scheme.table])

compiled = torch.compile(attention, backend="aot_eager", fullgraph=True)
assert all(one.equal(other) for one, other in zip(results(attention), results(compiled), strict=True))
"""


@installed
@pytest.mark.extended
def test_torch_compile_takes_it_whole_forward_and_backward():
    # the type checks of tests cannot be compiled
    interpreted("-c", COMPILED)


# heads and tokens: of a text, of one query, and of keys that heads share
STEP = (4, 256), (4, 1), (2, 256)


def test_on_a_gpu_plain_attention_is_left_to_pytorch_unless_it_is_named(monkeypatch):
    with FakeTensorMode():
        q, one, shared = (torch.empty(1, *size, 64, dtype=torch.bfloat16, device="cuda") for size in STEP)
    proved = []
    monkeypatch.setattr(triton, "unavailable_reason", lambda device: None)
    monkeypatch.setattr(triton, "unproved_reason", lambda name, call, kind: proved.append(call))
    monkeypatch.setattr(triton, "device_class", lambda device: "hopper")
    for scheme, options, said in (
        (NoPosition(), ScoreOptions(), "PyTorch's fused kernels need no mask for it"),
        (NoPosition(), ScoreOptions(softcap=5.0), None),
        (T5(heads=4), ScoreOptions(), None),
    ):
        call = AttentionCall(q, q, q, scheme.at(Geometry.causal(256)), 0.1, 0.0, options)
        assert triton.Triton().slower_reason(call) == said
        assert triton.Triton().call_unsupported_reason(call) is None
    # no proof for what is not chosen
    assert len(proved) == 3
    step, said = Geometry.causal(1, cached=255), "PyTorch's fused kernels need no mask for it"
    for held, expected in ((q, said), (shared, None)):
        call = AttentionCall(one, held, held, NoPosition().at(step), 0.1, 0.0, ScoreOptions())
        assert triton.Triton().slower_reason(call) == expected
    monkeypatch.setattr("ordinate.attention._backend.untraceable", lambda x: None)
    call = AttentionCall(q, q, q, NoPosition().at(Geometry.causal(256)), 0.1, 0.0, ScoreOptions())
    assert triton.Triton().skipped_reason(call) == "PyTorch's fused kernels need no mask for it"
    assert len(proved) == 3
    assert triton.Triton().unsupported_reason(call) is None


@pytest.mark.parametrize(
    ("kind", "width", "fits"), [("hopper", 256, True), ("cdna", 128, True), ("cdna", 160, False)]
)
@pytest.mark.parametrize("scheme", [T5(heads=2), Shaw(head_width=256, values=False)], ids=["t5", "shaw"])
def test_heads_without_a_configuration_for_the_gpu_are_left_to_other_backends(scheme, kind, width, fits, monkeypatch):
    with FakeTensorMode():
        q = torch.empty(1, 2, 300, width, dtype=torch.bfloat16, device="cuda")
    monkeypatch.setattr(triton, "unavailable_reason", lambda device: None)
    monkeypatch.setattr(triton, "unproved_reason", lambda name, call, kind: None)
    monkeypatch.setattr(triton, "device_class", lambda device: kind)
    call = AttentionCall(q, q, q, scheme.at(Geometry.causal(300)), 0.1, 0.0, ScoreOptions())
    reason = triton.Triton().call_unsupported_reason(call)
    assert reason is None if fits else "128 channels" in reason


@pytest.mark.parametrize(("batch", "fits"), [(16383, True), (16384, False)])
def test_more_heads_of_all_sequences_than_a_grid_has_programs_are_left_to_other_backends(batch, fits, monkeypatch):
    with FakeTensorMode():
        q = torch.empty(batch, 4, 9, 64, dtype=torch.bfloat16, device="cuda")
        waves = torch.empty(batch * 4, 1, 9, 8, dtype=torch.bfloat16, device="cuda")
    for module in (triton, near_far):
        monkeypatch.setattr(module, "unavailable_reason", lambda device: None)
    monkeypatch.setattr(triton, "unproved_reason", lambda name, call, kind: None)
    monkeypatch.setattr(triton, "device_class", lambda device: "hopper")
    call = AttentionCall(
        q, q, q, T5(heads=4, max_distance=4, buckets=4).at(Geometry.causal(9)), 0.1, 0.0, ScoreOptions()
    )
    says = "batch times heads is above 65535"
    assert (triton.Triton().call_unsupported_reason(call) is None) == fits
    assert fits or says in triton.Triton().call_unsupported_reason(call)
    assert (says in near_far.NearFar().call_unsupported_reason(call)) != fits
    monkeypatch.setattr(rotation, "unsupported_reason", lambda x, types: None)
    monkeypatch.setattr(rotation, "unproved_reason", lambda *given: None)
    reason = rotation.unusable_reason(waves, waves, interleaved=False, plain=None)
    assert reason is None if fits else "more than 65535 sequences" in reason


@pytest.mark.extended
def test_nothing_imports_triton_before_a_kernel_runs():
    program = "import torch, sys; had = 'triton' in sys.modules; from ordinate.attention._attend import BACKENDS; "
    program += "assert 'triton' in BACKENDS; assert had or 'triton' not in sys.modules"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_without_a_gpu_or_triton_it_says_what_to_do(monkeypatch):
    q, k, v = random_qkv(Geometry.causal(5), dtype=torch.float32)
    at = NoPosition().at(Geometry.causal(5))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match="only GPUs are supported"):
        attend(q, k, v, at, backend="triton")
    assert explain(q, k, v, at).backend != "triton"
    monkeypatch.setattr(availability, "_is_installed", lambda: False)
    missing = "Triton is not installed: pip install 'triton>=3.6'"
    assert availability.unavailable_reason(torch.device("cuda")) == missing
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(ValueError, match="Triton is not installed: pip install"):
        attend(q, k, v, at, backend="triton")


@pytest.mark.covering(1)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize(
    "scheme",
    [
        T5(heads=4, buckets=8, max_distance=12),
        Kerple(heads=4, form="power"),
        Toeplitz(heads=4, max_length=100),
        Toeplitz(heads=4, max_length=7, out_of_range="clamp"),
        Sum(Rope(head_width=8), T5(heads=4, buckets=8, max_distance=9)),
        Alibi(heads=4, direction="split_heads"),
    ],
    ids=["t5", "kerple", "toeplitz", "clamped", "sum", "split"],
)
def test_the_short_table_gives_the_bias_of_every_visible_pair(geometry, scheme):
    where = GEOMETRIES[geometry](35)
    made, (queries, keys) = bias_of(scheme.at(where)), where.shape
    entry = torch.arange(keys) - torch.arange(queries)[:, None] + queries - 1 - made.first
    if not made.far:
        assert ((entry >= 0) & (entry < made.table.shape[1]))[where.visible[0]].all()
    found = made.table.expand(4, -1)[:, entry.clamp(0, made.table.shape[1] - 1)]
    exact = scheme.at(where).offset_table.expand(4, -1)[:, entry + made.first]
    assert (found == exact)[:, where.visible.any(0)].all()


def test_a_table_is_evaluated_near_the_diagonal_only():
    where = Geometry.causal(5000)
    made = bias_of(T5(heads=4).at(where))
    assert made.far
    assert made.table.shape == (4, 129)
    slopes = bias_of(Sum(Rope(head_width=8), Alibi(heads=4)).at(where))
    assert slopes.table is None
    assert slopes.slopes[:, 0].tolist() == [0.25, 0.25]
