"""Every scheme with its options, every kind of geometry, and what models do with both."""

from functools import partial

import torch

from ordinate import Geometry, attend, explain
from ordinate.attention import attend_with_lse, attend_with_weights
from ordinate.attention._attend import attend_cached, attend_encoded
from ordinate.attention._backend import ScoreOptions
from ordinate.core import catalog
from ordinate.schemes import Scheme
from ordinate.schemes._scheme import Encoded
from ordinate.schemes.spectra.dynamic import Dynamic
from ordinate.schemes.spectra.linear import Linear
from ordinate.schemes.spectra.llama3 import Llama3
from ordinate.schemes.spectra.longrope import LongRope
from ordinate.schemes.spectra.ntk import Ntk
from ordinate.schemes.spectra.proportional import Proportional
from ordinate.schemes.spectra.yarn import Yarn
from ordinate.testing.backend import GEOMETRIES
from ordinate.testing.case import HEAD_WIDTH, HEADS, KV_HEADS, WIDTH, SchemeCase

TOKENS, BATCH = 9, 2
# besides the defaults
LONG = partial(LongRope, short_factor=(1.0,), long_factor=(2.0,), trained_length=6, factor=4.0)
GROWING = partial(Dynamic, trained_length=6)
OPTIONS = {
    "alibi": [
        {"trainable": True},
        {"direction": "separate", "trainable": True},
        {"direction": "signed"},
        {"direction": "split_heads"},
        {"sloped_heads": 2},
    ],
    "deberta": [{"terms": "c2p"}, {"terms": "p2c"}, {"buckets": None, "max_distance": 20}],
    "fire": [{"threshold_mode": "sqrt"}, {"threshold_mode": "min"}, {"future_divisor": "max"}, {"biases": False}],
    "fope": [{"form": "official"}, {"form": "vllm"}, {"trainable": True}],
    "kerple": [{"form": "power"}, {"form": "log_power"}, {"weighted": True}],
    "log_length": [{"form": "qwen"}, {"form": "plain"}, {"form": "ssmax"}, {"form": "llama4"}],
    "log_mlp": [{"form": "crossformer"}, {"form": "swin_v2", "reach": 8}, {"form": "timm_cr"}],
    "music": [{"future": True}, {"out_of_range": "clamp"}, {"out_of_range": "zero"}, {"per_head": False}],
    "randomized": [{"evaluation": form, "eval_length": 32} for form in ("evenly_spaced", "random")],
    "rope": [
        {"spectrum": LONG()},
        {"spectrum": LONG(rates_by="sequence")},
        {"spectrum": GROWING(factor=2.0)},
        {"spectrum": GROWING(factor=2.0, rates_by="sequence")},
        {"spectrum": GROWING(form="power_of_two")},
        {"spectrum": GROWING(form="qwen")},
        {"spectrum": Yarn(factor=4.0, trained_length=16)},
        {"spectrum": Llama3(factor=8.0, trained_length=16)},
        {"spectrum": Ntk(factor=2.0)},
        {"spectrum": Linear(factor=2.0)},
        {"spectrum": Proportional(partial_rotary_factor=0.5)},
        {"rotary_dim": 4, "layout": "interleaved"},
    ],
    "shaw": [{"values": False}, {"past": 3, "future": 2}, {"per_head": True}],
    "sinusoidal": [{"trainable": True}, {"position_offset": 2}],
    "t5": [{"buckets": 8, "max_distance": 6}],
    "toeplitz": [{"out_of_range": "clamp"}],
}
CASES = {
    f"{name} {said}".strip(): (name, options)
    for name in catalog.names("ordinate.schemes")
    for said, options in (("", {}), *((str(options), options) for options in OPTIONS.get(name, ())))
}


def real():
    """A padding mask: one row without padding, one with padding before its tokens."""
    return torch.arange(TOKENS) >= torch.tensor([[0], [4]])


def next_of(past, tokens=1):
    return past.next_tokens(tokens).with_past(past)


# tensors that they are made from are given
PLACES = {
    **{name: partial(make, TOKENS) for name, make in GEOMETRIES.items()},
    "one token": lambda: Geometry.causal(1),
    "cached, window": lambda: Geometry.causal(TOKENS, cached=4, window=3),
    "packed, two sides": lambda: Geometry.packed([4, 1, 4], causal=False),
    "packed, window": lambda: Geometry.packed([4, 1, 4], window=2),
    "padded, two sides": lambda: Geometry.padded(real(), causal=False),
    "padded, window": lambda: Geometry.padded(real(), window=3),
    "padded keys": lambda: Geometry.cross(5, TOKENS, real=real()),
    "next": lambda: next_of(Geometry.causal(TOKENS)),
    "some next": lambda: next_of(next_of(Geometry.causal(TOKENS, window=4)), 3),
    "next of padded": lambda: next_of(Geometry.padded(real()), 2),
    "next of packed": lambda: next_of(Geometry.packed([4, 5])),
    "positions": lambda: Geometry.from_positions(2 * torch.arange(TOKENS)[None, :, None]),
    "fractions": lambda: Geometry.from_positions(torch.linspace(0, 4, TOKENS)[None, :, None], causal=False),
    "a row each": lambda: Geometry.from_positions(torch.arange(2 * TOKENS).view(2, TOKENS, 1), window=4),
    "grid": lambda: Geometry.grid(3, 3),
    "block": lambda: Geometry.causal(TOKENS).block(slice(3, 7), slice(1, 8)),
}
USES = ("training", "evaluation", "inference")


def scheme_of(case):
    """The test case of a scheme, by a key of `CASES`."""
    name, options = CASES[case]
    return SchemeCase(catalog.load("ordinate.schemes", Scheme, name), options)


def made_for(case, place):
    """A geometry of `PLACES` with as many axes as the scheme of a test case takes."""
    where = PLACES[place]()
    return where if where.q_pos.shape[-1] > 1 else case.with_axes(where)


def placed(scheme, where, use):
    """A scheme at a geometry, as a model in some use has it; None: it does not support these positions."""
    scheme.train(use == "training")
    try:
        return scheme.at(where)
    except (ValueError, RuntimeError):
        # on a GPU the device says so, with the other error
        return None


def drawn(at, dtype, use):
    """Tokens, queries, keys and values for a placed scheme."""
    queries, keys = at.where.shape
    width = getattr(at.scheme, "width", WIDTH) - at.scheme.appended_width
    made = [torch.randn(BATCH, queries, width, dtype=dtype)]
    for heads, tokens in ((HEADS, queries), (KV_HEADS, keys), (KV_HEADS, keys)):
        made.append(torch.randn(BATCH, heads, tokens, HEAD_WIDTH, dtype=dtype, requires_grad=use == "training"))
    return made


def used(at, x, q, k, v, sinks):
    """What mixers and models do with a placed scheme: all that is public; gradients where they are recorded."""
    at.embed(x)
    found = [attend(q, k, v, at), attend(q, k, v, at, score_options=ScoreOptions(5.0, sinks))]
    found += [attend_with_lse(q, k, v, at)[0], attend_with_weights(q, k, v, at)[0]]
    explain(q, k, v, at)
    at.bias, at.mask, at.offset_table  # noqa: B018
    before = k.shape[2] - q.shape[2]
    if before >= 0:
        encoded = at.encode(q, k[:, :, before:])
        # of the width that the scheme encodes them to
        earlier = encoded.k.new_ones(*k.shape[:2], before, encoded.k.shape[3])
        held = Encoded(encoded.q, torch.cat([earlier, encoded.k], 2))
        norms = k.new_full(k.shape[:2], 100.0, dtype=torch.float32)
        found += [attend_encoded(held, v, at), attend_cached(held, v, at, lambda: norms)]
    if q.requires_grad:
        sum(out.float().sum() for out in found).backward()
