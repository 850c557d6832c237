"""Gradients of a causal mixer that do not depend on later tokens.

Where a loss reads the first outputs only, later tokens have no part in its gradients. A large one, or one of NaN, has
all the same if its own gradient is infinite: it is multiplied by 0 and added to those of earlier tokens and of
parameters. So where a token is large, the backward pass looks for the outputs that have a gradient, and where tokens
after them are left, it computes the gradients anew without these.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Tokens
from ordinate.ops.double_backward import one_by_one, untraceable

State = TypeVar("State")
Mix = Callable[[Tokens], tuple[Tokens, State]]
# with larger numbers gradients can overflow: products of up to eight numbers of a token (four in 16 bits)
LARGE = {torch.float16: 2.0**4, torch.bfloat16: 2.0**10, torch.float32: 2.0**10, torch.float64: 2.0**64}


class Inputs(NamedTuple):
    """What a mixer depends on beside the tokens.

    Args:
        where: geometry of the tokens, the queries.
        modules: modules whose parameters it reads.
        past: tensors of its state.
        random: whether it draws random numbers (dropout).
    """

    where: Geometry
    modules: Sequence[nn.Module]
    past: Sequence[Tensor]
    random: bool


def with_causal_gradients(mix: Mix[State], x: Tokens, given: Inputs) -> tuple[Tokens, State]:
    """Mix tokens so that gradients do not depend on tokens after the last output that has a gradient.

    Nothing is done where no token is large, and where values cannot be read: on GPUs, inside `torch.compile` and in
    transforms of `torch.func`. Second derivatives (`create_graph`) are left as they are.

    Args:
        mix: mixes the tokens; called again in the backward pass.
        x: token vectors.
        given: what else it depends on.
    """
    if not (given.where.is_causal and torch.is_grad_enabled() and _is_large(x)):
        return mix(x)
    cast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    random_state = torch.get_rng_state() if given.random else None
    y, after = mix(x)
    if y.requires_grad:
        holder = _Holder(given.modules)
        names, learned = zip(*holder.named_parameters(), strict=True)
        setting = _Setting(mix, holder, names, given.where.q_document, random_state, cast)
        y = _CausalGradients.apply(setting, y, x, *learned, *given.past)
    return y, after


def _is_large(x: Tokens) -> bool:
    """Whether a number is so large that gradients may overflow, or is NaN; False where values cannot be read."""
    if not x.numel() or x.device.type != "cpu" or torch.compiler.is_compiling() or untraceable(x) is not None:
        return False
    low, high = x.detach().aminmax()
    return not max(-float(low), float(high)) <= LARGE[x.dtype]


class _Holder(nn.Module):
    """Modules of a mixer, to mix with the parameters of the forward pass, even if theirs have been replaced since."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(modules)

    def forward(self, mix: Mix[Any], x: Tokens) -> Tokens:
        return mix(x)[0]


class _Setting(NamedTuple):
    """What the backward pass needs beside tensors.

    Args:
        mix: mixes the tokens.
        holder: has the parameters.
        names: their names.
        document: document of each token; None: one document.
        random_state: of the random generator before the forward pass; None: no random numbers are drawn.
        cast: dtype of autocast in the forward pass; None: it was off.
    """

    mix: Mix[Any]
    holder: _Holder
    names: Sequence[str]
    document: Int[Tensor, "#b n"] | None
    random_state: Tensor | None
    cast: torch.dtype | None

    @contextmanager
    def as_before(self) -> Iterator[None]:
        """Context in which autocast and random numbers are those of the forward pass."""
        with (
            torch.enable_grad(),
            torch.autocast("cpu", self.cast or torch.bfloat16, enabled=self.cast is not None),
            torch.random.fork_rng([], enabled=self.random_state is not None),
        ):
            if self.random_state is not None:
                torch.set_rng_state(self.random_state)
            yield


class _CausalGradients(torch.autograd.Function):
    """The outputs themselves; where later tokens have no part in the gradients, these are computed without them."""

    @staticmethod
    def forward(ctx: Any, setting: _Setting, y: Tokens, x: Tokens, *learned: Tensor) -> Tokens:
        ctx.setting = setting
        ctx.save_for_backward(x, *learned)
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors

        def of(upstream: Tensor) -> tuple[Tensor | None, ...]:
            read = tokens_read(upstream, ctx.setting.document)
            if torch.is_grad_enabled() or bool(read.all()):
                return upstream, *[None] * len(inputs)
            return None, *_without_others(ctx.setting, upstream, read, inputs)

        return None, *one_by_one(of, *grad_outputs)


def tokens_read(upstream: Tokens, document: Int[Tensor, "#b n"] | None) -> Bool[Tensor, "b n"]:
    """Return whether each token comes no later, in its document, than an output whose gradient is not 0."""
    batch, tokens = upstream.shape[:2]
    place = torch.arange(1, tokens + 1, device=upstream.device)
    last = (upstream != 0).any(-1) * place
    if document is None:
        return place <= last.amax(1, keepdim=True)
    _, index = document.expand(batch, -1).unique(return_inverse=True)
    found = last.new_zeros(batch, int(index.max()) + 1).scatter_reduce(1, index, last, "amax")
    return place <= found.gather(1, index)


def _without_others(
    setting: _Setting, upstream: Tokens, read: Bool[Tensor, "b n"], inputs: Sequence[Tensor]
) -> list[Tensor | None]:
    """Return the gradients of the inputs if the tokens that are not read were 0."""
    x, *others = inputs
    own, parameters = x.detach().requires_grad_(x.requires_grad), dict(zip(setting.names, others, strict=False))
    with setting.as_before():
        kept = own.masked_fill(~read[..., None], 0.0)
        y = torch.func.functional_call(setting.holder, parameters, (setting.mix, kept))
    asked = [one for one in (own, *others) if one.requires_grad]
    # what the layers share, such as the encoders of a scheme, is needed by the others
    found = iter(torch.autograd.grad(y, asked, upstream, retain_graph=True, allow_unused=True))
    return [next(found) if one.requires_grad else None for one in (own, *others)]
