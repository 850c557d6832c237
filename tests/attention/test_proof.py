import json
import os
import re
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from ordinate import Geometry, attend, explain
from ordinate.attention import _attend, _proof
from ordinate.attention._backend import AttentionCall, Backend, ScoreOptions, reference_attention
from ordinate.attention._proof import Form, Proofs, unproved_reason
from ordinate.attention._proof_case import disagreement, small_case
from ordinate.attention._proof_store import ProofStore
from ordinate.attention.backends.near_far import NearFar
from ordinate.attention.backends.triton import Triton
from ordinate.core import catalog
from ordinate.core.devices import as_if_on
from ordinate.ops.triton.tiles import TILES, tiles
from ordinate.ops.triton.vector_tiles import vector_tiles
from ordinate.schemes import T5, Alibi, NoPosition, Rope, Scheme, Toeplitz
from ordinate.schemes.learned import Learned
from ordinate.schemes.shaw import Shaw
from ordinate.testing.backend import GEOMETRIES, random_qkv
from ordinate.testing.case import HEAD_WIDTH, SchemeCase


class Right(Backend):
    """A backend that counts how often it runs; subclasses are wrong in one way each."""

    priority = 0
    supported_options = frozenset({"softcap", "sinks"})

    def __init__(self):
        self.runs = 0

    def call_unsupported_reason(self, call):
        return unproved_reason("fake", call)

    def run(self, call):
        self.runs += 1
        return self.spoilt(call, reference_attention(call))

    def spoilt(self, call, out):
        return out

    def workspace_bytes(self, call):
        return 0


class WrongOutput(Right):
    def spoilt(self, call, out):
        return out * 1.01


class WrongLastTile(Right):
    """Right but for the ragged end."""

    def spoilt(self, call, out):
        return torch.cat([out[:, :, :128], out[:, :, 128:] * 1.1], 2)


class WrongGradient(Right):
    def spoilt(self, call, out):
        return out + 0.1 * (call.k.sum() - call.k.detach().sum())


class NoGradientOfTheBias(Right):
    def run(self, call):
        self.runs += 1
        with torch.no_grad():
            held = call.at.scheme.bias(call.where)
        call.at._made["bias", True, True] = held
        return reference_attention(call)


class GivesNan(Right):
    def spoilt(self, call, out):
        return torch.where(torch.arange(out.shape[2])[:, None] == 130, float("nan"), out)


class Crashes(Right):
    def run(self, call):
        self.runs += 1
        raise RuntimeError("ptxas: out of registers\nsecond line")


class WrongSumOfExponentials(Right):
    def run_with_lse(self, call):
        return self.run(call), torch.zeros(call.q.shape[:3])


class WrongInHalf(Right):
    def spoilt(self, call, out):
        return 1.1 * out if call.q.dtype == torch.float16 else out


class Interrupted(Right):
    """Right, but for a user who loses patience with the first test."""

    error = KeyboardInterrupt

    def run(self, call):
        self.runs += 1
        if self.runs == 1:
            raise self.error
        return reference_attention(call)


class Starved(Interrupted):
    """Right, but for other tensors that fill the device during the first test."""

    error = torch.OutOfMemoryError


@pytest.fixture
def chosen(monkeypatch, tmp_path):
    """Install a fake backend before all others; returns it, as chosen on a pretended GPU."""

    def install(kind, store=None):
        proofs = Proofs(ProofStore(store), lambda device: {"device": "pretended"}, lambda: True)
        monkeypatch.setattr(_proof, "_proofs", lambda: proofs)
        fake = kind()
        backends = {"fake": fake} | {name: kind for name, kind in _attend.BACKENDS.items() if name != "fake"}
        monkeypatch.setattr(_attend, "BACKENDS", backends)
        monkeypatch.setattr(_proof, "backends", lambda: backends)
        return fake

    return install


def t5():
    return T5(heads=4)


def inputs(where, dtype=torch.float32, **options):
    return random_qkv(where, dtype=dtype, width=16, **options)


def test_a_backend_that_agrees_is_tested_once_for_each_form(chosen):
    fake, where = chosen(Right), Geometry.causal(9)
    q, k, v = inputs(where)
    with as_if_on("cuda"):
        for _ in range(3):
            assert explain(q, k, v, t5().at(where)).backend == "fake"
        assert fake.runs == 1
        with torch.no_grad():
            assert explain(q, k, v, t5().at(where)).backend == "fake"
        assert fake.runs == 2
        attend(q, k, v, t5().at(where))
    assert fake.runs == 3


def test_on_a_cpu_nothing_is_asked_to_prove_itself(chosen):
    fake, where = chosen(Crashes), Geometry.causal(9)
    q, k, v = inputs(where)
    assert explain(q, k, v, t5().at(where)).backend == "fake"
    assert fake.runs == 0


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (WrongOutput, "its output differs from that of the reference in a small case: off by .*, allowed"),
        (WrongLastTile, "its output differs"),
        (WrongGradient, "its gradient of k differs"),
        (NoGradientOfTheBias, "its gradient of the scheme differs"),
        (GivesNan, "its output differs .*: non-finite values at other indices"),
        (Crashes, "it failed in a small case: RuntimeError: ptxas: out of registers$"),
    ],
)
def test_a_backend_that_does_not_agree_is_refused_with_one_warning_and_the_next_is_taken(chosen, kind, says):
    fake, where, scheme = chosen(kind), Geometry.causal(40), t5()
    q, k, v = inputs(where)
    with as_if_on("cuda"):
        with pytest.warns(
            RuntimeWarning, match="the attention backend 'fake' is not used for float32, head width 16"
        ):
            told = explain(q, k, v, scheme.at(where))
        assert told.backend != "fake"
        assert re.search(says, told.unsupported["fake"])
        # the second call neither warns nor tests
        runs = fake.runs
        out = attend(q, k, v, scheme.at(where))
        assert fake.runs == runs
    assert torch.allclose(out, attend(q, k, v, scheme.at(where), backend="reference"), atol=1e-5)


def test_a_backend_that_is_wrong_in_one_dtype_is_refused_there_alone(chosen):
    chosen(WrongInHalf)
    where = Geometry.causal(40)
    with as_if_on("cuda"), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                told = explain(*inputs(where, dtype), t5().at(where))
                assert (told.backend == "fake") == (dtype != torch.float16)
    (one,) = (str(x.message) for x in said)
    assert re.match(r"the attention backend 'fake' is not used for float16, .*: its output differs", one)


def test_threads_that_meet_a_test_take_another_way_and_the_backend_later(chosen):
    """One test for all, and no call waits for it."""
    fake, where, found = chosen(Right), Geometry.causal(40), []
    given, scheme, run = inputs(where), t5(), fake.run

    def meanwhile(call):
        if not found:
            found.append(None)
            with ThreadPoolExecutor(1) as pool:
                found[0] = pool.submit(lambda: explain(*given, scheme.at(where))).result()
        return run(call)

    fake.run = meanwhile
    with as_if_on("cuda"):
        told = explain(*given, scheme.at(where))
    assert told.backend == "fake"
    assert found[0].backend != "fake"
    assert found[0].unsupported["fake"] == "it is being tested"
    assert fake.runs == 1


def test_a_test_that_is_interrupted_is_made_anew(chosen):
    fake, where = chosen(Interrupted), Geometry.causal(9)
    q, k, v = inputs(where)
    with as_if_on("cuda"):
        with pytest.raises(KeyboardInterrupt):
            explain(q, k, v, t5().at(where))
        assert explain(q, k, v, t5().at(where)).backend == "fake"
    assert fake.runs == 2


def test_a_test_that_ran_out_of_memory_is_made_anew(chosen):
    fake, where = chosen(Starved), Geometry.causal(9)
    q, k, v = inputs(where)
    with as_if_on("cuda"):
        told = explain(q, k, v, t5().at(where))
        assert told.backend != "fake"
        assert "ran out of memory while it was tested" in told.unsupported["fake"]
        assert explain(q, k, v, t5().at(where)).backend == "fake"
    assert fake.runs == 2


def test_a_wrong_log_sum_exp_is_found_where_no_gradients_are_asked_for(chosen):
    chosen(WrongSumOfExponentials)
    where = Geometry.causal(9)
    q, k, v = (x.detach() for x in inputs(where))
    with as_if_on("cuda"), pytest.warns(RuntimeWarning, match="its log-sum-exp differs"):
        assert explain(q, k, v, NoPosition().at(where)).backend != "fake"


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("scheme", [NoPosition, t5, lambda: Alibi(heads=4), lambda: Shaw(heads=4, head_width=16)])
@pytest.mark.parametrize("options", [{}, {"softcap": 30.0, "sinks": torch.zeros(4)}])
@pytest.mark.extended
def test_the_reference_proves_itself_in_every_form(chosen, scheme, geometry, dtype, options):
    chosen(Right)
    where = GEOMETRIES[geometry](9)
    q, k, v = inputs(where, dtype)
    with as_if_on("cuda"):
        told = explain(q, k, v, scheme().at(where), score_options=ScoreOptions(**options))
    assert told.backend == "fake", told.unsupported


def call_of(scheme, where, dtype=torch.float32, **options):
    q, k, v = inputs(where, dtype)
    return AttentionCall(q, k, v, scheme.at(where), 0.25, 0.0, ScoreOptions(**options))


def test_a_small_case_has_the_structure_of_its_form_and_a_ragged_length():
    for name, make in GEOMETRIES.items():
        call = call_of(Alibi(heads=4), make(40))
        case, given = small_case(call, gradients=True).call.where, call.where
        assert case.shape[1] % 32, name
        assert (case.is_causal, case.start > 0) == (given.is_causal, given.start > 0), name
        assert (case.window is None, case.q_document is None) == (given.window is None, given.q_document is None), (
            name
        )
        visible = case.visible
        # some pairs are hidden wherever the form hides any, and in every structure some are seen
        assert bool(visible.any())
        assert bool(visible.all()) == (given.is_unmasked and given.q_document is None)


def short_geometries():
    """Geometries of a few tokens: one query, one key, and as many as a tile has, or one more."""
    for n in (1, 2, 15, 16, 17):
        yield from (Geometry.causal(n), Geometry.full(n), Geometry.causal(n, window=1), Geometry.packed([n]))
        yield Geometry.padded(torch.ones(2, n, dtype=torch.bool))
        yield from (Geometry.causal(n, cached=past) for past in (1, 16, 40))
        yield from (Geometry.cross(n, keys) for keys in (1, 2, 16, 17, 40))


@pytest.mark.parametrize("backend", ["sdpa", "triton"])
@pytest.mark.parametrize("scheme", [t5, NoPosition, lambda: Shaw(head_width=16)])
def test_calls_of_a_few_tokens_have_small_cases(scheme, backend):
    for where in short_geometries():
        call = call_of(scheme(), where)
        case = small_case(call, gradients=True, kind=_attend.BACKENDS[backend].proof_kind).call
        assert (case.where.shape[0] == 1) == (where.shape[0] == 1)


@pytest.mark.parametrize("gradients", [True, False])
def test_a_call_of_one_token_proves_itself(gradients):
    assert disagreement(_attend.BACKENDS["sdpa"], call_of(t5(), Geometry.causal(1)), gradients=gradients) is None


# scheme, geometry and whether the call has pairs beyond the reach of the scheme
REACHING = {
    "none, narrow": (NoPosition, Geometry.causal(700, window=5), False),
    "none": (NoPosition, Geometry.causal(700, window=128), False),
    "none, wide": (NoPosition, Geometry.causal(700, window=400), False),
    "t5": (t5, Geometry.causal(300), True),
    "t5, short": (t5, Geometry.causal(100), False),
    "t5, cached": (t5, Geometry.causal(3, cached=200), True),
    "t5, few cached": (t5, Geometry.causal(3, cached=50), False),
    "t5, in a window": (t5, Geometry.causal(300, window=100), False),
    "t5, window": (t5, Geometry.causal(300, window=200), True),
    "t5 of 30, in a window": (lambda: T5(heads=4, max_distance=30), Geometry.causal(300, window=20), False),
    "t5 of 256": (lambda: T5(heads=4, max_distance=256), Geometry.full(700), True),
    "t5 of 256, window": (lambda: T5(heads=4, max_distance=256), Geometry.causal(700, window=500), True),
    "t5 of 256, packed": (lambda: T5(heads=4, max_distance=256), Geometry.packed([350, 350]), True),
    "shaw": (lambda: Shaw(head_width=16, past=16), Geometry.causal(100), True),
    "shaw, short": (lambda: Shaw(head_width=16, past=16), Geometry.causal(9), False),
    "shaw of 256": (lambda: Shaw(head_width=16, past=256), Geometry.causal(300), True),
}


@pytest.mark.parametrize("name", REACHING)
def test_a_small_case_takes_the_tiles_of_its_form_and_has_far_pairs_if_the_call_has(name):
    scheme, where, far = REACHING[name]
    kind = Triton().proof_kind
    call = call_of(scheme(), where)
    case = small_case(call, gradients=False, kind=kind).call
    forms = [Form.of("triton", one, kind(one.at))._replace(gradients=False) for one in (case, call)]
    assert forms[0] == forms[1]
    assert any("pairs beyond" in said for said in kind(case.at)) == far
    if where.window:
        pairs = [(device, type, width) for device in TILES for type in (2, 4) for width in TILES[device][type]]
        for device, size, width in pairs:
            type = torch.bfloat16 if size == 2 else torch.float32
            made = {tiles(device, type, width, window=found.window) for found in (where, case.where)}
            assert len(made) == 1
            if size == 2:
                assert len({vector_tiles(device, type, width, found.window) for found in (where, case.where)}) == 1
    if far and not where.window:
        # the largest tile fits beyond the reach
        reach = getattr(call.at.scheme, "past", call.at.scheme.bias_reach)
        assert case.where.shape[1] >= reach + 192


def test_a_reach_for_which_no_case_is_long_enough_is_refused():
    call = call_of(T5(heads=4, max_distance=900), Geometry.causal(1200))
    says = (
        r"must be of the call's kind \(.*, pairs beyond the table\); got .* \(causal, consecutive\); leave the call"
    )
    with pytest.raises(ValueError, match=says):
        small_case(call, gradients=False, kind=Triton().proof_kind)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((t5, Geometry.causal(300)), (t5, Geometry.causal(100))),
        ((NoPosition, Geometry.causal(700, window=256)), (NoPosition, Geometry.causal(700, window=257))),
        ((NoPosition, Geometry.causal(700, window=64)), (NoPosition, Geometry.causal(700, window=65))),
        ((NoPosition, Geometry.causal(200)), (NoPosition, Geometry.causal(208))),
        ((NoPosition, Geometry.causal(1, cached=900)), (NoPosition, Geometry.causal(1, cached=1800))),
        ((NoPosition, Geometry.causal(9, cached=9)), (NoPosition, Geometry.causal(20).block(slice(9, 18)))),
        ((NoPosition, Geometry.cross(70, 50)), (NoPosition, Geometry.cross(70, 90))),
        (
            (lambda: T5(heads=4, max_distance=20), Geometry.causal(300, window=60)),
            (lambda: T5(heads=4, max_distance=30), Geometry.causal(300, window=60)),
        ),
        (
            (lambda: Toeplitz(heads=4, max_length=300), Geometry.causal(200)),
            (lambda: Toeplitz(heads=4, max_length=5000), Geometry.causal(200)),
        ),
        ((t5, Geometry.causal(200)), (lambda: t5().requires_grad_(False), Geometry.causal(200))),
        (
            (lambda: Shaw(head_width=16, past=16), Geometry.causal(300)),
            (lambda: Shaw(head_width=16, past=100), Geometry.causal(300)),
        ),
        (
            (lambda: Shaw(head_width=16), Geometry.causal(300)),
            (lambda: Shaw(head_width=16, values=False), Geometry.causal(300)),
        ),
    ],
)
def test_other_tiles_or_far_pairs_are_another_form(one, other):
    made = []
    for scheme, where in (one, other):
        call = call_of(scheme(), where)
        made.append(Form.of("near_far", call, NearFar().proof_kind(call.at)))
    assert made[0] != made[1]


def test_a_small_case_has_other_parameters_than_the_scheme():
    call = call_of(t5(), Geometry.causal(9))
    torch.nn.init.zeros_(call.at.scheme.table)
    case = small_case(call, gradients=True).call
    assert bool((case.at.scheme.table != 0).all())
    assert bool((call.at.scheme.table == 0).all())


class Scaled(Toeplitz):
    """A table times a number, a parameter without an axis."""

    def __init__(self, **options):
        super().__init__(**options)
        self.factor = torch.nn.Parameter(torch.tensor(2.0))


def test_schemes_with_parameters_of_any_shape_have_small_cases():
    case = small_case(call_of(Scaled(heads=4, max_length=9), Geometry.causal(9)), gradients=True).call
    assert case.at.scheme.factor.ndim == 0


def test_a_scheme_with_few_positions_has_a_smaller_case_or_none():
    class Table(T5):
        max_length = 70

    call = call_of(Table(heads=4), Geometry.causal(40))
    assert small_case(call, gradients=False).call.where.shape == (49, 49)
    for most, tokens in ((40, 25), (20, 9), (7, 2)):
        call.at.scheme.max_length = most
        case = small_case(call, gradients=False).call
        assert case.where.shape == (tokens, tokens)
        assert bool(case.where.visible.any())
    cached = call_of(Table(heads=4), Geometry.causal(30, cached=10))
    cached.at.scheme.max_length = 60
    assert small_case(cached, gradients=False).call.where.shape == (25, 40)
    call.at.scheme.max_length = 1
    with pytest.raises(
        ValueError, match=r"a small case needs 2 positions; the scheme refuses them: .*; choose another"
    ):
        small_case(call, gradients=False)


@pytest.mark.extended
@pytest.mark.parametrize("name", catalog.names("ordinate.schemes"))
def test_every_scheme_has_a_small_case(name, chosen):
    case = SchemeCase(catalog.load("ordinate.schemes", Scheme, name))
    chosen(Right)
    where = case.with_axes(Geometry.causal(20))
    q, k, v = random_qkv(where, width=HEAD_WIDTH, dtype=torch.float32)
    with as_if_on("cuda"):
        at = case.scheme(torch.float32).at(where)
        at._embedded = True
        told = explain(q, k, v, at)
    assert told.backend == "fake", told.unsupported["fake"]


def test_schemes_that_add_nothing_to_the_scores_share_their_forms():
    where = Geometry.causal(9)
    forms = {
        Form.of("fake", call_of(scheme, where))
        for scheme in (NoPosition(), Rope(head_width=16), Learned(width=64, max_length=32))
    }
    assert len(forms) == 1
    assert Form.of("fake", call_of(t5(), where)) not in forms


@pytest.mark.parametrize(
    "changed",
    [
        {"dtype": torch.bfloat16},
        {"where": Geometry.causal(9, window=3)},
        {"where": Geometry.full(9)},
        {"where": Geometry.packed([4, 5])},
        {"where": Geometry.causal(9, cached=3)},
        {"scheme": Alibi(heads=4)},
        {"softcap": 30.0},
        {"sinks": torch.zeros(4)},
    ],
)
def test_what_a_kernel_may_treat_apart_is_another_form(changed):
    given = {"scheme": t5(), "where": Geometry.causal(9)}
    assert Form.of("fake", call_of(**given | changed)) != Form.of("fake", call_of(**given))


def test_a_proof_is_stored_and_a_refusal_is_not(chosen, tmp_path):
    tmp_path.chmod(0o700)
    where = Geometry.causal(9)
    q, k, v = inputs(where)
    with as_if_on("cuda"):
        chosen(Right, tmp_path)
        explain(q, k, v, t5().at(where))
        (stored,) = tmp_path.iterdir()
        assert stored.stat().st_mode & 0o777 == 0o600
        assert json.loads(stored.read_text())["environment"] == {"device": "pretended"}
        # another process: the proof is read
        again = chosen(Right, tmp_path)
        assert explain(q, k, v, t5().at(where)).backend == "fake"
        assert again.runs == 0
        stored.write_text(stored.read_text().replace("pretended", "another"))
        other = chosen(Right, tmp_path)
        assert explain(q, k, v, t5().at(where)).backend == "fake"
        assert other.runs == 1
        for path in tmp_path.iterdir():
            path.unlink()
        chosen(WrongOutput, tmp_path)
        with pytest.warns(RuntimeWarning, match="its output differs"):
            explain(q, k, v, t5().at(where))
    assert not [path for path in tmp_path.iterdir() if json.loads(path.read_text())["form"]["backend"] == "fake"]


def test_a_proof_that_others_may_write_is_not_read(chosen, tmp_path):
    where = Geometry.causal(9)
    q, k, v = inputs(where)
    with as_if_on("cuda"):
        chosen(Right, tmp_path)
        explain(q, k, v, t5().at(where))
        (stored,) = tmp_path.iterdir()
        stored.chmod(0o666)
        again = chosen(Right, tmp_path)
        explain(q, k, v, t5().at(where))
    assert again.runs == 1


def test_nothing_is_stored_where_the_cache_folder_is_open_to_others(monkeypatch, tmp_path):
    tmp_path.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    store = ProofStore.of_user()
    assert store.folder is None
    store.add({"form": 1})
    assert not store.has({"form": 1})
    tmp_path.chmod(0o700)
    assert ProofStore.of_user().folder == tmp_path / "ordinate" / "proofs"


def test_while_a_graph_is_captured_only_earlier_proofs_count(chosen, monkeypatch):
    fake, where = chosen(Right), Geometry.causal(9)
    q, k, v = inputs(where)
    proofs = _proof._proofs()
    with as_if_on("cuda"):
        proofs.can_compute = lambda: False
        with pytest.warns(
            RuntimeWarning,
            match=r"the capture of a CUDA graph leaves out the attention backend 'fake', .*; got no earlier call; "
            "compute one step before the capture",
        ):
            told = explain(q, k, v, t5().at(where))
        assert told.backend != "fake"
        assert "has not been tested for such calls on this device" in told.unsupported["fake"]
        assert fake.runs == 0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # one warning
            assert explain(q, k, v, t5().at(where)).backend != "fake"
        proofs.can_compute = lambda: True
        assert explain(q, k, v, t5().at(where)).backend == "fake"
        proofs.can_compute = lambda: False
        assert explain(q, k, v, t5().at(where)).backend == "fake"


def test_a_capture_on_the_current_stream_is_noticed(chosen, monkeypatch):
    assert _proof._can_compute()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert not _proof._can_compute()
    chosen(Right)
    _proof._proofs().can_compute = _proof._can_compute
    q, k, v = inputs(Geometry.causal(9))
    with as_if_on("cuda"), pytest.warns(RuntimeWarning, match="the capture of a CUDA graph leaves out"):
        explain(q, k, v, t5().at(Geometry.causal(9)))


def test_torch_compile_warns_once_of_what_no_earlier_call_has_proved(chosen):
    fake, where = chosen(Right), Geometry.causal(9)
    call, proofs, device = call_of(t5(), where), _proof._proofs(), torch.device("cpu")
    form = Form.of("fake", call)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # PyTorch's attention is used all the same
        assert not _proof._is_proved(*form._replace(backend="sdpa"), "cpu")
    with pytest.warns(
        RuntimeWarning, match=r"leaves out .* 'fake', .*; got no earlier call; compute one step outside"
    ):
        assert not _proof._is_proved(*form, "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not _proof._is_proved(*form, "cpu")
        assert proofs.reason(fake, form, call) is None
        assert proofs.is_proved(form, device)


COMPILED = """
import warnings

import torch
from ordinate import Geometry
from ordinate.attention import _proof
from ordinate.attention._backend import AttentionCall, ScoreOptions
from ordinate.attention._proof_store import ProofStore
from ordinate.attention.backends.triton import Triton
from ordinate.core.devices import as_if_on
from ordinate.schemes import T5, NoPosition, Shaw

proofs = _proof.Proofs(ProofStore(None), lambda device: None, lambda: True)
_proof._proofs, kind = lambda: proofs, Triton().proof_kind
q = torch.ones(1, 2, 300, 16)
for scheme, where in (
    (NoPosition(), Geometry.causal(300, window=280)),
    (T5(heads=2), Geometry.causal(300)),
    (Shaw(head_width=16, past=8), Geometry.causal(300)),
):
    torch.compiler.reset()
    proofs.has_warned = False

    def call():
        return AttentionCall(q, q, q, scheme.at(where), 0.25, 0.0, ScoreOptions())

    def proved(x):
        given = call()
        return 2 * x if _proof.unproved_reason("triton", given, kind(given.at)) is None else 3 * x

    compiled = torch.compile(proved, backend="eager", fullgraph=True)
    with as_if_on("cuda"), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert compiled(q).max() == 3
        assert sum("leaves out the attention backend 'triton'" in str(one.message) for one in said) == 1
        proofs.known[_proof.Form.of("triton", call(), kind(call().at)), q.device] = None
        torch.compiler.reset()
        assert compiled(q).max() == 2
"""


@pytest.mark.extended
def test_torch_compile_finds_the_proofs_of_earlier_calls():
    # in a process of its own: the type checks of tests cannot be compiled
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_proof_leaves_random_numbers_and_modes_as_they_are(chosen):
    chosen(Right)
    where = Geometry.causal(9)
    q, k, v = (x.detach() for x in inputs(where))
    scheme, state = t5(), torch.get_rng_state()
    with as_if_on("cuda"), torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert explain(q, k, v, scheme.at(where)).backend == "fake"
    assert torch.equal(state, torch.get_rng_state())
