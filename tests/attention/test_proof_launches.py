"""A small case of a call launches all kernels that the call launches, and enters all of their loops over tiles."""

import random
from importlib.util import find_spec

import pytest
import torch

from ordinate import Geometry
from ordinate.attention import _proof_structure
from ordinate.attention._attend import BACKENDS
from ordinate.attention._backend import AttentionCall, ScoreOptions, offset_bias_unsupported
from ordinate.attention._proof import Form
from ordinate.attention._proof_case import small_case
from ordinate.attention._proof_structure import is_decoding
from ordinate.attention._triton_tables import biases_unsupported
from ordinate.attention._triton_vectors import depends_on_content, vectors_unsupported, vectors_without_configuration
from ordinate.attention.backends import near_far
from ordinate.ops.triton.tiles import TILES, most_channels
from ordinate.schemes import (
    T5,
    Alibi,
    Deberta,
    Fire,
    Kerple,
    Music,
    NoPosition,
    Rope,
    Shaw,
    Sum,
    Toeplitz,
    TransformerXl,
)

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is for Linux on x86-64")
TYPES = (torch.bfloat16, torch.float16, torch.float32)
LENGTHS = (1, 2, 5, 16, 17, 40, 64, 127, 128, 129, 200, 300, 500, 700, 1100)
WINDOWS = (None, None, 1, 3, 16, 40, 64, 65, 100, 128, 200, 256, 257, 300, 400, 513, 1000)


def drawn_scheme(draw, heads, width):
    def t5():
        return T5(heads=heads, buckets=draw.choice([8, 32]), max_distance=draw.choice([17, 30, 64, 100, 128, 200]))

    def alibi():
        direction = draw.choice(["both", "signed", "separate"])
        return Alibi(heads=heads, direction=direction, trainable=direction == "separate" or draw.random() < 0.5)

    outside = draw.choice(["error", "clamp"])
    kinds = (
        NoPosition,
        t5,
        lambda: Sum(Rope(head_width=width), t5()),
        lambda: Alibi(heads=heads) if draw.random() < 0.3 else alibi(),
        lambda: Kerple(heads=heads, form=draw.choice(["log", "power", "log_power"])),
        lambda: Fire(heads=heads),
        lambda: Toeplitz(heads=heads, max_length=draw.choice([8, 1000, 3000]), out_of_range=outside),
        lambda: Shaw(head_width=width, past=draw.choice([3, 16, 64, 100]), values=draw.random() < 0.5),
        lambda: TransformerXl(width=12, heads=heads, head_width=width),
        lambda: Deberta(width=12, heads=heads, head_width=width, buckets=4, max_distance=draw.choice([8, 40])),
        lambda: Music(head_width=width, heads=heads, max_length=draw.choice([300, 3000]), out_of_range=outside),
    )
    try:
        scheme = draw.choice(kinds)()
    except ValueError:
        # a form without an option
        return NoPosition()
    for parameter in scheme.parameters() if draw.random() < 0.2 else ():
        parameter.requires_grad_(draw.random() < 0.5)
    return scheme


def drawn_geometry(draw):
    tokens, window, causal = draw.choice(LENGTHS), draw.choice(WINDOWS), draw.random() < 0.5
    cached, others = draw.choice([1, 10, 100, 900, 5000]), draw.choice([1, 7, 100, 400, 1200])
    lengths = [draw.randint(1, max(1, tokens // 2)) for _ in range(3)]
    first = draw.randint(0, tokens - 1)
    rows = slice(first, draw.randint(first + 1, tokens))
    whole = Geometry.causal if causal else Geometry.full
    return draw.choice(
        (
            lambda: Geometry.causal(tokens, window=window),
            lambda: Geometry.causal(min(tokens, 500), cached=cached, window=window),
            lambda: Geometry.causal(draw.choice([1, 2, 8, 16]), cached=cached, window=window),
            lambda: Geometry.full(tokens, window=window),
            lambda: Geometry.cross(tokens, others),
            lambda: Geometry.packed(lengths, causal=causal, window=window),
            lambda: Geometry.padded(
                torch.arange(tokens) >= torch.tensor([[0], [tokens // 3]]), causal=causal, window=window
            ),
            lambda: whole(tokens, window=window).block(rows),
        )
    )()


def drawn(seed, kinds=TYPES, geometry=drawn_geometry):
    """A call, whether it has gradients, and a class of GPU; None: the scheme does not support these positions."""
    draw = random.Random(seed)
    groups, key_heads, dtype = draw.choice([1, 2]), draw.choice([1, 2]), draw.choice(kinds)
    width = draw.choice([16, 40, 64, 128] if dtype == torch.float32 else [16, 64, 100, 128, 256])
    scheme, where = drawn_scheme(draw, groups * key_heads, width), geometry(draw)
    gradients, softcap = draw.random() < 0.6, draw.choice([None, None, 5.0])
    sinks = torch.zeros(groups * key_heads) if draw.random() < 0.2 else None
    try:
        at = scheme.at(where)
    except ValueError:
        return None
    sizes = ((groups * key_heads, where.shape[0]), *2 * [(key_heads, where.shape[1])])
    q, k, v = (
        torch.zeros(where.batch_size, heads, tokens, width, dtype=dtype, requires_grad=gradients)
        for heads, tokens in sizes
    )
    call = AttentionCall(q, k, v, at, width**-0.5, 0.0, ScoreOptions(softcap, sinks))
    return call, gradients, draw.choice(list(TILES))


def supported(backend, call, device):
    """Whether a backend supports a call on a GPU, its proof apart."""
    contents, where = depends_on_content(call.at), call.where
    if backend == "near_far":
        fits = call.q.shape[3] <= near_far.MAX_CHANNELS and call.q.shape[3] % 8 == 0 and not near_far._unfit(call)
        return fits and (vectors_unsupported if contents else offset_bias_unsupported)(call) is None
    if contents and (is_decoding(where) or vectors_without_configuration(call, device)):
        return False
    if max(call.q.shape[3], call.v.shape[3]) > most_channels(TILES, device, call.q.dtype):
        return False
    # no model has a few queries amid the keys of a window, or a window on both sides that hides nothing
    unusual = is_decoding(where) and where.start + where.shape[0] != where.shape[1]
    unusual = where.window and (unusual or (not where.is_causal and where.window >= where.shape[1]))
    return (vectors_unsupported if contents else biases_unsupported)(call) is None and not unusual


def proved(backend, call, gradients, device):
    """The form of a call, what it launches and what its small case launches; None: it has no small case."""
    from tests.attention.kernel_launches import launches

    kind = BACKENDS[backend].proof_kind
    with torch.set_grad_enabled(gradients):
        form = Form.of(backend, call, kind(call.at))
        try:
            case = small_case(call, gradients=form.gradients, kind=kind).call
        except ValueError:
            return None
        for x in (case.q, case.k, case.v):
            x.requires_grad_(form.gradients)
        assert Form.of(backend, case, kind(case.at)) == form
    mine = launches(backend, call, device, gradients=form.gradients)
    assert mine
    return form, mine, launches(backend, case, device, gradients=form.gradients)


def checked(seeds, backend, **options):
    """Compare the launches of calls with those of their cases, and of all cases of the same form."""
    from tests.attention.kernel_launches import not_in

    forms, compared = {}, 0
    for seed in seeds:
        made = drawn(seed, **options)
        if made is None or not supported(backend, made[0], made[2]):
            continue
        found = proved(backend, *made)
        if found is None:
            continue
        form, mine, case = found
        others = forms.setdefault((form, made[2]), [])
        others.append((mine, case))
        for one, other in ((x, y) for x, _ in others for _, y in others):
            assert not not_in(one, other), (seed, form, made[0].at)
            compared += 1
    return compared


def texts(draw):
    """Causal texts, which have near and far keys if the bias is constant from some distance on."""
    return Geometry.causal(draw.choice(LENGTHS[6:]))


def test_a_small_case_launches_the_kernels_of_its_call_and_enters_their_loops():
    assert checked(range(200), "triton") > 120
    assert checked(range(300), "near_far", kinds=TYPES[:2], geometry=texts) > 20


@pytest.mark.extended
def test_two_thousand_small_cases_enter_the_loops_of_their_calls():
    assert checked(range(1000, 3000), "triton") > 1200
    assert checked(range(1000, 4000), "near_far", kinds=TYPES[:2], geometry=texts) > 250


@pytest.mark.parametrize(
    ("name", "value", "where"),
    [
        ("ALIGNED", 1, Geometry.full(200)),
        ("BEYOND", 20, Geometry.causal(500)),
        ("MANY_KEYS", 10**9, Geometry.causal(1, cached=5000)),
        ("WIDE_BEYOND", 10, Geometry.causal(1000, window=900)),
        ("EXACT_WINDOW", 1, Geometry.causal(500, window=40)),
    ],
)
def test_a_mutant_of_the_sizes_is_found(name, value, where, monkeypatch):
    monkeypatch.setattr(_proof_structure, name, value)
    with pytest.raises(AssertionError):
        checked(range(150), "triton", geometry=lambda _: where)
