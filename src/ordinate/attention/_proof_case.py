"""A small case of a form of attention call, computed by a backend and by the reference formula and compared."""

import math
from collections.abc import Callable
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
from ordinate.attention._proof_structure import (
    LARGER,
    SCORE_HOOKS,
    SIZES,
    has_far_pairs,
    small_geometries,
    structure_of,
)
from ordinate.core.closeness import difference, proof_factor
from ordinate.core.devices import as_if_on
from ordinate.core.geometry import Geometry
from ordinate.core.records import changed
from ordinate.core.tensors import without_autocast
from ordinate.ops.relative import RelativeVectors
from ordinate.schemes._scheme import Placed, Scheme

# one that squashes the products of a case
SOFTCAP = 2.0
# gradients that are sums over all pairs
SUMS = frozenset({"gradient of the scheme", "gradient of sinks"})


class Case(NamedTuple):
    """Inputs of a small case.

    Args:
        call: the call, without gradients.
        upstream: gradient of the output; None: gradients are not asked for.
    """

    call: AttentionCall
    upstream: Tensor | None


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
    if not has_far_pairs(call.at):
        # else a case of such a call would have to be shorter than that distance
        hide_reach(scheme)
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
    """Return the scheme in a small geometry of the same structure and kind."""
    refused, wanted = "", (*structure_of(call.at), *kind(call.at))
    for where in small_geometries(call.at):
        try:
            # on the CPU, where values are checked: on a GPU a position out of range would end the process's use of it
            with as_if_on("cpu"):
                scheme.check_positions(where.q_pos)
                scheme.check_positions(where.k_pos)
        except ValueError as why:
            refused = f"a small case needs {SIZES[-1][0]} positions; the scheme refuses them: {why}; choose another"
            continue
        at = Placed(scheme, _sent(where, call.q.device))
        found = (*structure_of(at), *kind(at))
        if found == wanted:
            return at
        refused = (
            f"a small case of up to {LARGER[-1]} tokens must be of the call's kind ({_listed(wanted)}); "
            f"got one of another ({_listed(found)}); leave the call to another backend"
        )
    raise ValueError(refused)


def _listed(kind: tuple[str, ...]) -> str:
    return ", ".join(kind) or "nothing of its own"


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


def hide_reach(scheme: Scheme) -> None:
    """Let a scheme no longer say from which distance on what it adds is constant: it is read for all distances."""

    def relative_vectors(self: Scheme, where: Geometry) -> RelativeVectors | None:
        found = kind.relative_vectors(self, where)
        return None if found is None else found._replace(reach=math.inf)

    kind, scheme.bias_reach = type(scheme), None
    scheme.__class__ = type(kind.__name__, (kind,), {"relative_vectors": relative_vectors})


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
