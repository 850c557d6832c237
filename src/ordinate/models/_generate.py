"""Text generation with a decoder: greedy decoding and sampling with temperature, top-k and top-p."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ordinate.core.checks import need, need_counts, need_number, need_positive, need_whole
from ordinate.core.shapes import Ids
from ordinate.models.block import Block
from ordinate.models.cache import Cache
from ordinate.models.decoder import Decoder
from ordinate.models.fixed_cache import DecodingStep, check_fixed_size
from ordinate.models.prompt import Prompt
from ordinate.schemes._scheme import Scheme


def generate(
    model: Decoder,
    prompt: Ids | Prompt,
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    end_tokens: Sequence[int] = (),
) -> Iterator[Int[Tensor, "b 1"]]:
    """Generate tokens autoregressively; each step yields one token for each row, as soon as it is sampled.

    Args:
        model: decoder.
        prompt: at least one token for each row. A `Prompt` allows rows of different lengths, and a cache to continue
            from.
        max_new_tokens: maximum number of generated tokens.
        temperature: softmax temperature; below 1 sharpens the distribution, 0 is greedy decoding.
        top_k: sample from the k most probable tokens only.
        top_p: nucleus sampling, from the smallest set of most probable tokens with at least this total probability.
        generator: random number generator; required unless greedy.
        end_tokens: end tokens: a row that produced one repeats it from then on, and generation stops when all rows
            have ended. `truncate_at` truncates the rows.

    Raises:
        ValueError: an empty prompt, or settings that are invalid or have no effect together.
    """
    choose = _sampler(temperature, top_k, top_p, generator)
    prompt = _checked(model, prompt, max_new_tokens, end_tokens)
    return _write(model, prompt, max_new_tokens, choose, end_tokens, _usual_step)


def generate_with_cuda_graph(
    model: Decoder,
    prompt: Ids | Prompt,
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    end_tokens: Sequence[int] = (),
) -> Iterator[Int[Tensor, "b 1"]]:
    """`generate` with the decoding step captured in a CUDA graph, which avoids the launch overhead of its kernels.

    The KV cache is allocated for all tokens at the start, and every step reads all of it: this is for small models
    and short texts, whose speed the launch overhead limits.

    Args:
        model: decoder on a GPU, whose layers have plain KV caches and no window.
        prompt: as in `generate`, and so are the other arguments.
        max_new_tokens: maximum number of generated tokens, for which memory is taken.
        temperature: softmax temperature.
        top_k: sample from the k most probable tokens only.
        top_p: nucleus sampling.
        generator: random number generator; required unless greedy.
        end_tokens: end tokens.

    Raises:
        ValueError: what `generate` refuses; a model that is not on a GPU; layers with other states than plain KV
            caches, or a window; more tokens than a scheme has positions.
    """
    choose = _sampler(temperature, top_k, top_p, generator)
    prompt = _checked(model, prompt, max_new_tokens, end_tokens)
    check_fixed_size(model, prompt.prefix)
    _check_positions(model, prompt, max_new_tokens)
    device = model.tokens.weight.device.type
    need(device == "cuda", "a CUDA graph needs a model on a GPU", f"got one on {device}", "call generate")
    return _write(model, prompt, max_new_tokens, choose, end_tokens, _captured_step)


def truncate_at(written: Iterable[Int[Tensor, "b 1"]], ends: Sequence[int]) -> list[list[int]]:
    """Collect the output of `generate` into lists, one per row, truncated before the first end token."""
    rows = torch.cat(list(written), 1).tolist()
    return [row[: min((row.index(end) for end in ends if end in row), default=len(row))] for row in rows]


@torch.inference_mode()
def _write(
    model: Decoder,
    prompt: Prompt,
    count: int,
    choose: Callable[[Tensor], Tensor],
    ends: Sequence[int],
    step_of: Callable[[Decoder, Cache, int], Callable[[Ids], Tensor]],
) -> Iterator[Tensor]:
    if count == 0:
        return
    with evaluation_mode(model):
        last, ended, step = torch.tensor(ends, device=prompt.ids.device), None, None
        (cache, where), new = prompt.start_cache(), prompt.ids
        logits = model.next_token_logits(new, where, cache)
        for left in reversed(range(count)):
            drawn = choose(logits.float())
            new = drawn if ended is None else torch.where(ended, new, drawn)
            yield new
            if ends:
                ended = torch.isin(new, last)
                if bool(ended.all()):
                    break
            if left:
                step = step_of(model, cache, left) if step is None else step
                logits = step(new)


def _usual_step(model: Decoder, cache: Cache, tokens: int) -> Callable[[Ids], Tensor]:
    return partial(model.next_token_logits, cache=cache)


def _captured_step(model: Decoder, cache: Cache, tokens: int) -> Callable[[Ids], Tensor]:
    return DecodingStep(model, cache, tokens).captured()


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Switch the model to evaluation mode inside the context, and restore its mode afterwards."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def check_supports_cache(blocks: Iterable[nn.Module]) -> None:
    """Raise unless the mixers of these layers support incremental decoding."""
    mixers = [cast(Block, block).mixer for block in blocks]
    unsupported = sorted({type(mixer).__name__ for mixer in mixers if not mixer.supports_cache})
    need(
        not unsupported,
        "generation needs mixers that support incremental decoding",
        f"{', '.join(unsupported)} of this model does not",
        "choose another mixer, or another mode of it",
    )


def sample(
    logits: Float[Tensor, "b vocabulary"],
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    generator: torch.Generator | None,
) -> Int[Tensor, "b 1"]:
    """Sample one token for each row.

    Raises:
        ValueError: logits that are NaN; the most probable token would be an arbitrary one.
    """
    numbers = not bool(logits.isnan().any())
    need(numbers, "the model must predict numbers", "got NaN", "check its weights, or use another precision")
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    logits = logits / temperature
    if top_k is not None:
        best = logits.topk(min(top_k, logits.shape[-1]))
        logits = torch.full_like(logits, float("-inf")).scatter(-1, best.indices, best.values)
    if top_p is not None:
        ordered, order = logits.softmax(-1).sort(descending=True, stable=True)
        # kept if the more probable tokens together have less than top_p, so the most probable is always kept
        beyond = ordered.cumsum(-1) - ordered >= top_p
        logits = logits.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), float("-inf"))
    return torch.multinomial(logits.softmax(-1), 1, generator=generator)


def _checked(model: Decoder, prompt: Ids | Prompt, max_new_tokens: int, end_tokens: Sequence[int]) -> Prompt:
    """Return the prompt, or raise unless a model can continue it so."""
    prompt = prompt if isinstance(prompt, Prompt) else Prompt(prompt)
    need_counts(max_new_tokens=max_new_tokens)
    known = all(0 <= end < model.shape.vocabulary for end in end_tokens)
    came = f"got {', '.join(map(str, end_tokens))}"
    need(known, f"end tokens must lie in 0 to {model.shape.vocabulary - 1}", came, "take them from the tokenizer")
    check_supports_cache(model.blocks)
    return prompt


def _check_positions(model: Decoder, prompt: Prompt, tokens: int) -> None:
    """Raise unless all schemes support the positions of all tokens, which a replayed graph cannot check."""
    cache, where = prompt.start_cache()
    seen = cache.next_geometry(prompt.ids.shape[1]) if where is None else where
    # the last token that is generated is not read
    last = seen.q_pos.amax((0, 1), keepdim=True).cpu() + max(0, tokens - 1)
    for scheme in model.schemes:
        cast(Scheme, scheme).check_positions(last)


def _sampler(
    temperature: float, top_k: int | None, top_p: float | None, generator: torch.Generator | None
) -> Callable[[Tensor], Tensor]:
    """Return `sample` with these settings, or raise unless they are valid and consistent."""
    check_sampling(temperature, top_k, top_p, generator)
    return partial(sample, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator)


def check_sampling(
    temperature: float, top_k: int | None, top_p: float | None, generator: torch.Generator | None
) -> None:
    """Raise unless the sampling settings are valid and consistent."""
    need_number("temperature", temperature)
    need(temperature >= 0, "temperature must not be negative", f"got {temperature}", "0 is greedy, 1 is as trained")
    greedy = temperature == 0
    need(
        not greedy or (top_k is None and top_p is None),
        "greedy decoding does not use top_k or top_p",
        f"got top_k={top_k}, top_p={top_p} with temperature 0",
        "leave them out, or raise the temperature",
    )
    if top_k is not None:
        need_whole("top_k", top_k)
        need_positive("top_k", top_k)
    need_number("top_p", 1 if top_p is None else top_p)
    need(top_p is None or 0 < top_p <= 1, "top_p must lie in (0, 1]", f"got {top_p}", "give a probability")
    need(
        greedy or generator is not None,
        "sampling needs a generator",
        "got None",
        "give torch.Generator().manual_seed(...), or temperature=0",
    )
