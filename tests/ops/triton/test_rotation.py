"""The route of rotations on GPUs, and the kernel in a process of its own: Triton interprets or compiles, not both."""

import pytest
import torch

from ordinate.core.devices import as_if_on
from ordinate.ops.rotate import Rotation
from ordinate.ops.triton import proofs, rotation
from tests.ops.triton.interpreter import installed, interpret_tests


@pytest.fixture
def turning(monkeypatch):
    """A rotation of three pairs and its input; nothing has been proved, and Triton can run."""
    monkeypatch.setattr(proofs, "unavailable_reason", lambda device: None)
    proofs.found().clear()
    yield Rotation.by(torch.randn(1, 7, 3, dtype=torch.float64), "half"), torch.randn(1, 2, 7, 8)
    proofs.found().clear()


def by(formula):
    """The kernel, as a formula of cosines and sines."""
    return lambda x, cos, sin, *, interleaved, back, into=None: formula(
        Rotation(cos, -sin if back else sin, "half"), x
    )


def test_what_agrees_is_proved_once_and_used(turning, monkeypatch):
    placed, x = turning
    runs = []
    monkeypatch.setattr(rotation, "rotate", by(lambda turn, x: runs.append(1) or turn._plain(x)))
    usual = placed(x)
    assert not runs
    with as_if_on("cuda"):
        for _ in range(3):
            assert torch.allclose(placed(x), usual, atol=1e-6)
    # both directions of the proof, and three rotations
    assert len(runs) == 5


def crash(turn, x):
    raise RuntimeError("ptxas: out of registers\nsecond line")


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        (lambda turn, x: turn._plain(x) * 1.01, "differs from the plain formula in a small case: off by"),
        (lambda turn, x: torch.cat([turn._plain(x)[:, :-1], x[:, -1:]], 1), "off by"),
        (lambda turn, x: Rotation(turn.cos, turn.sin.abs(), "half")._plain(x), "off by"),
        (crash, "failed in a small case: RuntimeError: ptxas: out of registers$"),
    ],
)
def test_what_does_not_agree_is_refused_with_one_warning(formula, says, turning, monkeypatch):
    placed, x = turning
    monkeypatch.setattr(rotation, "rotate", by(formula))
    with as_if_on("cuda"):
        with pytest.warns(RuntimeWarning, match=f"the Triton rotation is not used for .*float32, 8 channels.*{says}"):
            out = placed(x)
        assert placed(x).equal(out)
    assert torch.allclose(out, placed._plain(x), atol=1e-6)


def test_queries_and_keys_that_one_launch_cannot_rotate_are_rotated_one_by_one(turning, monkeypatch):
    placed, x = turning
    monkeypatch.setattr(rotation, "rotate", by(lambda turn, x: turn._plain(x)))
    monkeypatch.setattr(rotation, "rotate_both", None)
    others = [x.half(), x[:1, :, :, :7], x.expand(2, -1, -1, -1)]
    with as_if_on("cuda"):
        for k in others:
            assert placed.both(x, k)[1].equal(placed(k))
        each = Rotation(placed.cos.expand(-1, 2, -1, -1), placed.sin.expand(-1, 2, -1, -1), "half")
        assert each.both(x, x)[0].equal(placed(x))
        learned = Rotation(placed.cos.clone().requires_grad_(), placed.sin, "half")
        assert learned.both(x, x)[0].requires_grad
        with pytest.raises(ValueError, match="at least twice"):
            placed.both(x[..., :4], x[..., :4])
        # none of these has asked for it
        with pytest.warns(RuntimeWarning, match="queries and keys"):
            assert placed.both(x, x)[1].equal(placed(x))


def test_while_a_graph_is_captured_only_earlier_proofs_count(turning, monkeypatch):
    placed, x = turning
    monkeypatch.setattr(rotation, "rotate", by(lambda turn, x: turn._plain(x)))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with as_if_on("cuda"):
        proofs._warned_of().clear()
        with pytest.warns(RuntimeWarning, match="the capture of a CUDA graph leaves out the Triton rotation"):
            assert "has not been tested on this device" in placed.triton_unusable_reason(x)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        assert placed.triton_unusable_reason(x) is None
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        assert placed.triton_unusable_reason(x) is None


def test_other_inputs_are_refused_with_a_reason(turning):
    placed, x = turning
    assert "only tensors on GPUs" in placed.triton_unusable_reason(x)
    with as_if_on("cuda"):
        assert "float64 is not supported" in placed.triton_unusable_reason(x.double())
        assert "more than 1024 channels" in placed.triton_unusable_reason(torch.zeros(1, 1, 7, 1026))


def test_more_sequences_than_a_grid_has_programs_are_refused_after_a_proof_too(turning, monkeypatch):
    placed, x = turning
    monkeypatch.setattr(rotation, "rotate", by(lambda turn, x: turn._plain(x)))
    with as_if_on("cuda"):
        assert placed.triton_unusable_reason(x) is None
        assert "more than 65535 sequences" in placed.triton_unusable_reason(x[:1].expand(65536, -1, -1, -1))
        assert placed.triton_unusable_reason(x[:1].expand(65535, -1, -1, -1)) is None


def test_a_device_without_memory_says_nothing_of_the_kernel(turning, monkeypatch, recwarn):
    placed, x = turning

    def starved(turn, x):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(rotation, "rotate", by(starved))
    with as_if_on("cuda"):
        assert "ran out of memory while it was tested" in placed.triton_unusable_reason(x)
        assert torch.allclose(placed(x), placed._plain(x), atol=1e-6)
        monkeypatch.setattr(rotation, "rotate", by(lambda turn, x: turn._plain(x)))
        assert placed.triton_unusable_reason(x) is None
    assert not recwarn.list


@installed
@pytest.mark.parametrize(("channel", "copied"), [(1, False), (2**26, False), (2**27, True)])
def test_channels_so_far_apart_that_offsets_overflow_are_copied(channel, copied, monkeypatch):
    from ordinate.ops.triton import rotate as kernels

    given = []
    monkeypatch.setattr(
        kernels, "rotate", lambda *tensors, **rest: given.extend((*tensors[:2], *rest.get("other", ())))
    )
    x, wave = torch.empty_strided((1, 2, 3, 16), (6, 3, 1, channel), device="meta"), torch.ones(1, 1, 3, 8)
    rotation.rotate(x, wave, wave, interleaved=False, back=False)
    rotation.rotate_both(x, x, wave, wave, interleaved=False, back=False)
    assert len(given) == 6
    assert [one.stride(3) for one in given[::2]] == 3 * [1 if copied else channel]
    # nor are results as far apart
    assert all(16 * one.stride(3) < 2**31 for one in given)


@installed
@pytest.mark.extended
def test_the_kernel_agrees_with_the_formula_pair_by_pair():
    interpret_tests("rotation_interpreted.py")
