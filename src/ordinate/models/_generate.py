"""Text generation with a decoder: greedy decoding and sampling, by the rules of a checkpoint."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import isnan
from typing import Unpack, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ordinate.core.checks import need, need_counts, need_number
from ordinate.core.shapes import Ids
from ordinate.models.block import Block
from ordinate.models.cache import Cache
from ordinate.models.decoder import Decoder
from ordinate.models.fixed_cache import DecodingStep, check_fixed_size
from ordinate.models.next_token_rules import NO_RULES, NextTokenRules
from ordinate.models.prompt import Prompt
from ordinate.models.score_changes import MINUS_INFINITY
from ordinate.models.truncation import Truncation, TruncationOptions
from ordinate.schemes._scheme import Scheme


def generate(
    model: Decoder,
    prompt: Ids | Prompt,
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
    end_tokens: Sequence[int] = (),
    rules: NextTokenRules = NO_RULES,
    **truncation: Unpack[TruncationOptions],
) -> Iterator[Int[Tensor, "b 1"]]:
    """Generate tokens autoregressively; each step yields one token for each row, as soon as it is sampled.

    Args:
        model: decoder.
        prompt: at least one token for each row. A `Prompt` allows rows of different lengths, and a cache to continue
            from.
        max_new_tokens: maximum number of generated tokens.
        temperature: softmax temperature; below 1 sharpens the distribution, 0 is greedy decoding.
        generator: random number generator; required unless greedy.
        end_tokens: end tokens: a row that produced one repeats it from then on, and generation stops when all rows
            have ended. `truncate_at` truncates the rows.
        rules: rules that change the scores of tokens, such as a repetition penalty; the prompt is part of the text.
        truncation: which tokens are sampled: `top_k`, `top_p` and the others of `Truncation`.

    Raises:
        ValueError: an empty prompt, settings that are invalid or have no effect together, or rules with a cached
            prefix, whose tokens they do not know.
    """
    choose = _sampler(temperature, Truncation(**truncation), generator)
    prompt = _checked(model, prompt, max_new_tokens, end_tokens, rules)
    return _write(model, prompt, max_new_tokens, choose, end_tokens, rules, _usual_step)


def generate_with_cuda_graph(
    model: Decoder,
    prompt: Ids | Prompt,
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
    end_tokens: Sequence[int] = (),
    rules: NextTokenRules = NO_RULES,
    **truncation: Unpack[TruncationOptions],
) -> Iterator[Int[Tensor, "b 1"]]:
    """`generate` with the decoding step captured in a CUDA graph, which avoids the launch overhead of its kernels.

    The KV cache is allocated for all tokens at the start, and every step reads all of it: this is for small models
    and short texts, whose speed the launch overhead limits.

    Args:
        model: decoder on a GPU, whose layers have plain KV caches, no window and no experts.
        prompt: as in `generate`, and so are the other arguments.
        max_new_tokens: maximum number of generated tokens, for which memory is taken.
        temperature: softmax temperature.
        generator: random number generator; required unless greedy.
        end_tokens: end tokens.
        rules: rules that change the scores of tokens.
        truncation: `top_k`, `top_p` and others.

    Raises:
        ValueError: what `generate` refuses; a model that is not on a GPU; layers with other states than plain KV
            caches, a window or experts; more tokens than a scheme has positions.
    """
    choose = _sampler(temperature, Truncation(**truncation), generator)
    prompt = _checked(model, prompt, max_new_tokens, end_tokens, rules)
    check_fixed_size(model, prompt.prefix)
    _check_positions(model, prompt, max_new_tokens)
    device = model.tokens.weight.device.type
    need(device == "cuda", "a CUDA graph needs a model on a GPU", f"got one on {device}", "call generate")
    return _write(model, prompt, max_new_tokens, choose, end_tokens, rules, _captured_step)


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
    rules: NextTokenRules,
    step_of: Callable[[Decoder, Cache, int], Callable[[Ids], Tensor]],
) -> Iterator[Tensor]:
    if count == 0:
        return
    with evaluation_mode(model):
        last, ended, step = torch.tensor(ends, device=prompt.ids.device), None, None
        (cache, where), new, source, ruled = prompt.start_cache(), prompt.ids, prompt.texts, bool(rules.active)
        texts, given = source, {"prompt": source.shape[1], "source": source, "ends": ends}
        logits = model.next_token_logits(new, where, cache)
        for left in reversed(range(count)):
            scores = logits.float()
            scores = rules.apply(scores, texts, **given, last=not left) if ruled else scores
            # rules may leave no token to a row that has ended, which needs none
            drawn = choose(scores if ended is None else scores.masked_fill(ended, 0.0))
            new = drawn if ended is None else torch.where(ended, new, drawn)
            yield new
            texts = torch.cat([texts, new], 1) if ruled else texts
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
    mixers = [mixer for block in blocks for mixer in cast(Block, block).mixers]
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
    truncation: Truncation,
    generator: torch.Generator | None,
) -> Int[Tensor, "b 1"]:
    """Sample one token for each row.

    Raises:
        ValueError: logits that are NaN, or -inf for all tokens; the most probable token would be an arbitrary one.
    """
    most = logits.amax(-1).tolist()
    numbers, some = not any(map(isnan, most)), min(most) > MINUS_INFINITY
    need(numbers, "the model must predict numbers", "got NaN", "check its weights, or use another precision")
    need(some, "the rules of generation must leave a token", "got a text that may go on with none", "relax them")
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    logits = truncation.apply(logits / temperature)
    return torch.multinomial(logits.softmax(-1), 1, generator=generator)


def _checked(
    model: Decoder, prompt: Ids | Prompt, max_new_tokens: int, end_tokens: Sequence[int], rules: NextTokenRules
) -> Prompt:
    """Return the prompt, or raise unless a model can continue it so."""
    prompt = prompt if isinstance(prompt, Prompt) else Prompt(prompt)
    need_counts(max_new_tokens=max_new_tokens)
    known = all(0 <= end < model.shape.vocabulary for end in end_tokens)
    came = f"got {', '.join(map(str, end_tokens))}"
    need(known, f"end tokens must lie in 0 to {model.shape.vocabulary - 1}", came, "take them from the tokenizer")
    rules.check(model.shape.vocabulary, end_tokens)
    whole = not rules.active or prompt.prefix is None or not len(prompt.prefix)
    came = f"got {', '.join(rules.active)} after a cached prefix"
    need(whole, "rules of generation need the whole text", came, "give the prefix as part of the prompt")
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
    temperature: float, truncation: Truncation, generator: torch.Generator | None
) -> Callable[[Tensor], Tensor]:
    """Return `sample` with these settings, or raise unless they are valid and consistent."""
    check_sampling(temperature, truncation, generator)
    return partial(sample, temperature=temperature, truncation=truncation, generator=generator)


def check_sampling(temperature: float, truncation: Truncation, generator: torch.Generator | None) -> None:
    """Raise unless the sampling settings are valid and consistent."""
    need_number("temperature", temperature)
    need(temperature >= 0, "temperature must not be negative", f"got {temperature}", "0 is greedy, 1 is as trained")
    greedy = temperature == 0
    need(
        not greedy or not truncation.active,
        "greedy decoding truncates nothing",
        f"got {', '.join(f'{name}={value}' for name, value in truncation.active.items())} with temperature 0",
        "leave it out, or raise the temperature",
    )
    need(
        greedy or generator is not None,
        "sampling needs a generator",
        "got None",
        "give torch.Generator().manual_seed(...), or temperature=0",
    )
