"""A small case of a form of attention call, computed by a backend and by the reference formula and compared."""

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor

from ordinate.attention._backend import (
    AttentionCall,
    Backend,
    ScoreOptions,
    attention_scores,
    attention_weights,
    log_sum_exp,
    reference_attention,
)
from ordinate.core.closeness import difference, proof_factor
from ordinate.core.devices import as_if_on
from ordinate.core.geometry import PADDING, Geometry
from ordinate.core.records import changed
from ordinate.core.tensors import without_autocast
from ordinate.ops.blocks import offset_geometry, visible_offsets
from ordinate.ops.triton import tiles, vector_tiles
from ordinate.schemes._fast_forms import reach_of, vectors_of
from ordinate.schemes._scheme import Placed, Scheme

# tokens of a case, and keys before the first query where there are some, the first that the scheme supports: the last
# tile of 128 is half full, where kernels have failed. Short tables of positions allow the short ones alone
SIZES = ((192, 128), (64, 128), (32, 16), (8, 4), (2, 1))
# tokens of a case with pairs beyond a long reach, or with a wide window; as large ones take some GB of memory
LARGER = (320, 448, 576, 704, 832, 960, 1088)
# by so many tokens a case is longer than the reach of a bias: the largest tile, of 128 x 64 pairs, lies beyond it
BEYOND = 192
# up to so many queries beside more keys are a decoding step, which kernels treat apart
FEW_QUERIES = 16
# the windows of a case, by the largest one that they stand for: the second where pairs lie beyond a long reach
WINDOWS = {vector_tiles.NARROW: (40, 64), tiles.NARROW: (77, 256), math.inf: (300, 576)}
# one that squashes the products of a case
SOFTCAP = 2.0
# gradients that are sums over all pairs
SUMS = frozenset({"gradient of the scheme", "gradient of sinks"})
SCORE_HOOKS = frozenset({"score", "bias", "content_bias", "value_bias"})


class Case(NamedTuple):
    """Inputs of a small case.

    Args:
        call: the call, without gradients.
        upstream: gradient of the output; None: gradients are not asked for.
    """

    call: AttentionCall
    upstream: Tensor | None


class Size(NamedTuple):
    """Size of a small case.

    Args:
        tokens: queries, and as many keys.
        past: keys before the first query, where there are some.
        window: the sliding window, where there is one.
    """

    tokens: int
    past: int
    window: int


class Unbiased(Scheme):
    """A scheme that adds nothing to the scores."""

    axes = tuple(range(1, 17))
    shift_invariant = True


def disagreement(backend: Backend, call: AttentionCall, *, gradients: bool) -> str | None:
    """Return how a backend's result for a small case of a call's form differs from the reference; None: it agrees.

    Output, gradients of q, k, v, of the sinks and of the scheme's parameters, and the log-sum-exp if the backend
    computes its own, are compared with the reference formula in the same dtype and in float64, by the rule of
    `ordinate.core.closeness`. Gradients of sinks and parameters, sums over all pairs, are compared with those of
    scores rounded to the dtype of q as well, since kernels round the scores' gradients to it.
    Global random numbers stay as they are.

    Args:
        backend: the backend in question.
        call: a call of the form.
        gradients: whether gradients are compared, too.

    Raises:
        ValueError: no small case exists, as where the scheme supports very few positions only, or where those of
            these sizes are of another kind (`Backend.proof_kind`).
    """
    # tensors made here must be usable with autograd, whatever the caller's mode; without gradients a backend may
    # take another way
    with (
        torch.inference_mode(False),
        torch.set_grad_enabled(gradients),
        without_autocast(call.q),
        torch.random.fork_rng(devices=[]),
    ):
        case = small_case(call, gradients=gradients, kind=backend.proof_kind)
        exact = _results(reference_attention, log_sum_exp, _widened(case))
        plain = _results(reference_attention, log_sum_exp, case)
        own_lse = type(backend).run_with_lse is not Backend.run_with_lse
        coarse = _results(coarse_attention, log_sum_exp, case)
        made = _results(backend.run, (lambda call: backend.run_with_lse(call)[1]) if own_lse else log_sum_exp, case)
    for name, out in made.items():
        usual = plain[name]
        if name in SUMS:
            usual = torch.where(
                (usual - exact[name]).abs() >= (coarse[name] - exact[name]).abs(), usual, coarse[name]
            )
        factor = proof_factor(call.q.dtype, of_gradient=name not in ("output", "log-sum-exp"))
        found = difference(out, usual, exact[name], factor=factor)
        if found is not None:
            return f"its {name} differs from that of the reference in a small case: {found}"
    return None


def coarse_attention(call: AttentionCall) -> Tensor:
    """Compute attention by the formula with scores, and so their gradients, rounded to the dtype of q."""
    v = call.v.repeat_interleave(call.groups, 1)
    scores = attention_scores(call).to(call.q.dtype)
    weights = attention_weights(scores, call.where.visible, call.score_options).to(v.dtype)
    carried = call.at.scheme.value_bias(weights, call.where)
    return weights @ v if carried is None else weights @ v + carried


def small_case(
    call: AttentionCall, *, gradients: bool, kind: Callable[[Placed], tuple[str, ...]] = lambda at: ()
) -> Case:
    """Return a small case of a call's form: another scheme of the same kind, structure and options, random numbers.

    Args:
        call: a call of the form.
        gradients: whether the case has a gradient of the output.
        kind: as `Backend.proof_kind`, which is the same for call and case.

    Raises:
        ValueError: the scheme supports none of the sizes, or they are of another kind.
    """
    generator = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=generator.device).to(call.q.device)

    scheme = _scheme(call.at.scheme, noise)
    at = _placed(call, scheme, kind)
    heads = call.q.shape[1] if SCORE_HOOKS & set(scheme.hooks) else 2 * call.groups
    (queries, keys), (width, depth) = at.where.shape, (call.q.shape[3], call.v.shape[3])
    # products of about 1, whatever the scale
    size = min(1.0, 1 / (abs(call.scale) * math.sqrt(width))) if call.scale else 1.0
    q = (size * noise(2, heads, queries, width)).to(call.q.dtype)
    k = noise(2, heads // call.groups, keys, width).to(call.k.dtype)
    v = noise(2, heads // call.groups, keys, depth).to(call.v.dtype)
    given = call.score_options
    options = ScoreOptions(
        None if given.softcap is None else SOFTCAP,
        None if given.sinks is None else noise(heads).to(given.sinks.dtype),
        given.normaliser,
    )
    upstream = noise(2, heads, queries, depth) if gradients else None
    return Case(AttentionCall(q, k, v, at, call.scale, 0.0, options), upstream)


def _placed(call: AttentionCall, scheme: Scheme, kind: Callable[[Placed], tuple[str, ...]]) -> Placed:
    """Return the scheme in a small geometry of the same structure (causality, window, documents, cache) and kind."""
    refused, wanted = "", kind(call.at)
    for size in _sizes(call.at):
        where = _geometry(call.where, size)
        try:
            # on the CPU, where values are checked: on a GPU a position out of range would end the process's use of it
            with as_if_on("cpu"):
                scheme.check_positions(where.q_pos)
                scheme.check_positions(where.k_pos)
        except ValueError as why:
            refused = f"a small case needs {SIZES[-1][0]} positions; the scheme refuses them: {why}; choose another"
            continue
        at = Placed(scheme, _sent(where, call.q.device))
        found = kind(at)
        if found == wanted:
            return at
        refused = (
            f"a small case of up to {LARGER[-1]} tokens must be of the call's kind ({_listed(wanted)}); "
            f"got one of another ({_listed(found)}); leave the call to another backend"
        )
    raise ValueError(refused)


def _listed(kind: tuple[str, ...]) -> str:
    return ", ".join(kind) or "nothing beyond the table"


def _sent(where: Geometry, device: torch.device) -> Geometry:
    documents = (where.q_document, where.k_document)
    q_document, k_document = (None if x is None else x.to(device) for x in documents)
    return changed(
        where,
        q_pos=where.q_pos.to(device),
        k_pos=where.k_pos.to(device),
        q_document=q_document,
        k_document=k_document,
    )


def _sizes(given: Placed) -> Iterator[Size]:
    """Yield sizes of a case, the best first: pairs lie beyond the reach of the scheme if they do in the call."""
    where, reach, (usual, past) = given.where, _reach(given), SIZES[0]
    far = math.isfinite(reach) and visible_offsets(where, reach)[2]
    windows = [0] if where.window is None else _windows(where.window, reach if far else 0)
    for window in windows:
        least = max(reach + BEYOND if far else 0, window + 64 if window > usual // 2 else 0)
        # the longest of three documents has three quarters of the keys
        least *= 4 / 3 if far and where.q_document is not None else 1
        tokens = next((x for x in (usual, *LARGER) if x >= least), None)
        if tokens is not None:
            yield Size(tokens, past, window)
    if not far and math.isfinite(reach):
        # the last pairs are within the reach
        behind = where.start > 0 or where.shape[1] > where.shape[0]
        tokens = int(min(usual, reach // 2 if behind else 3 * reach // 4))
        yield from (Size(max(tokens, 1), int(min(past, max(reach // 4, 1))), window) for window in windows)
    yield from (Size(*size, window) for size in SIZES for window in windows)


def _windows(given: int, beyond: float) -> list[int]:
    """Return the windows of a case, the best first; pairs in it lie at a distance `beyond`, if that is not zero."""
    usual, wide = next(windows for most, windows in WINDOWS.items() if given <= most)
    first = [wide, usual] if beyond and usual < beyond + BEYOND // 2 else [usual, wide]
    # where these are of another kind, that of the call
    return [*first, given] if given <= LARGER[-1] // 2 else first


def window_class(window: int) -> str:
    """Return which window a call has, in words: kernels take other tiles for narrow ones."""
    # no loop, which torch.compile would trace
    if window <= vector_tiles.NARROW:
        return f"window of up to {vector_tiles.NARROW}"
    return f"window of up to {tiles.NARROW}" if window <= tiles.NARROW else f"window of more than {tiles.NARROW}"


def _reach(at: Placed) -> float:
    """Return the distance from which on what a scheme adds is constant [tokens]; infinite: it is not known."""
    scheme, found = at.scheme, []
    if not at.where.consecutive:
        return math.inf
    if "bias" in scheme.hooks:
        known = reach_of(scheme)
        found.append(math.inf if known is None else known)
    if {"content_bias", "value_bias"} & set(scheme.hooks):
        vectors = vectors_of(scheme, offset_geometry(at.where, 0, 1))
        found.append(math.inf if vectors is None else vectors.reach)
    return max(found, default=math.inf)


def is_decoding(where: Geometry) -> bool:
    """Whether a few queries meet more keys, as in a decoding step."""
    return where.shape[0] <= min(FEW_QUERIES, where.shape[1] - 1)


def _geometry(like: Geometry, chosen: Size) -> Geometry:
    (given, held), (size, before, window) = like.shape, chosen
    past = like.start > 0 or held > given
    queries = min(given, size) if is_decoding(like) else size
    keys = size + before if past else size
    start = keys - queries if like.is_causal or like.start > 0 else 0
    pos = torch.arange(keys, device="cpu")
    if not like.consecutive:
        # a gap, so that positions are not the indices in memory
        pos = pos + (pos >= size // 2)
    pos = pos.to(like.k_pos.dtype)[None, :, None].expand(1, -1, like.k_pos.shape[-1])
    documents = None
    if like.q_document is not None:
        # three documents in one row; the first queries of the other, whose keys are padding, see nothing
        index = torch.arange(keys, device="cpu")
        documents = torch.stack([(index >= size // 4).long() + (index > size // 4), torch.zeros_like(index)])
        documents[1, : size // 3] = PADDING
    rows = slice(start, start + queries)
    # narrower where there are few keys, but of the same class
    window = max(min(window, max(keys // 2 + 1, keys - 64)), *(most + 1 for most in WINDOWS if most < window), 1)
    return changed(
        like,
        q_pos=pos[:, rows],
        k_pos=pos,
        start=start,
        window=None if like.window is None else window,
        q_document=None if documents is None else documents[:, rows],
        k_document=documents,
        continues=None,
    )


def _scheme(given: Scheme, noise: Callable[..., Tensor]) -> Scheme:
    """Return a copy with other parameters: tables that start at zero would hide a bias that is not read."""
    if not SCORE_HOOKS & set(given.hooks):
        return Unbiased()
    # parts of a layer's weights (`bind_projections`) are no leaves, which deepcopy refuses
    parts = (
        x for part in given.modules() for value in vars(part).values() if isinstance(value, tuple) for x in value
    )
    detached = {id(x): x.detach().clone() for x in parts if isinstance(x, Tensor)}
    scheme = deepcopy(given, detached).eval()
    with torch.no_grad():
        for x in scheme.parameters():
            x.add_(0.1 * noise(*x.shape).to(x.dtype))
    return scheme


def _widened(case: Case) -> Case:
    call = case.call
    scheme = deepcopy(call.at.scheme).double()
    q, k, v = (x.double() for x in (call.q, call.k, call.v))
    sinks = call.score_options.sinks
    options = changed(call.score_options, sinks=None if sinks is None else sinks.double())
    upstream = None if case.upstream is None else case.upstream.double()
    # the gradient that the others get, exactly
    upstream = None if upstream is None else upstream.to(call.v.dtype).double()
    return Case(changed(call, q=q, k=k, v=v, at=Placed(scheme, call.where), score_options=options), upstream)


def _results(
    run: Callable[[AttentionCall], Tensor], totals: Callable[[AttentionCall], Tensor], case: Case
) -> dict[str, Tensor]:
    call, options = case.call, case.call.score_options
    leaves = {name: x.detach().requires_grad_(case.upstream is not None) for name, x in _inputs(call).items()}
    scheme = call.at.scheme
    call = changed(
        call,
        q=leaves["q"],
        k=leaves["k"],
        v=leaves["v"],
        at=Placed(scheme, call.where),
        score_options=changed(options, sinks=leaves.get("sinks")),
    )
    out = run(call)
    found = {"output": out.detach()}
    if case.upstream is None:
        return found | {"log-sum-exp": totals(call).detach()}
    learned = [x for x in scheme.parameters() if x.requires_grad]
    wanted, upstream = [*leaves.values(), *learned], case.upstream.to(out.dtype)
    gradients = torch.autograd.grad(out, wanted, upstream, allow_unused=True, materialize_grads=True)
    found |= {f"gradient of {name}": gradient for name, gradient in zip(leaves, gradients, strict=False)}
    if learned:
        # all parameters together: the error of a single number may be small by chance
        found["gradient of the scheme"] = torch.cat([x.flatten() for x in gradients[len(leaves) :]])
    return found


def _inputs(call: AttentionCall) -> dict[str, Tensor]:
    sinks = call.score_options.sinks
    return {"q": call.q, "k": call.k, "v": call.v} | ({} if sinks is None else {"sinks": sinks})
