"""Let a decoder write."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ordinate.checks import need
from ordinate.models.block import Block
from ordinate.models.decoder import Decoder
from ordinate.models.prompt import Prompt
from ordinate.shapes import Ids


def generate(
    model: Decoder,
    prompt: Ids | Prompt,
    count: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    ends: Sequence[int] = (),
) -> Iterator[Int[Tensor, "b 1"]]:
    """The tokens that follow the prompt, one after another, as they are drawn.

    Args:
        model: what writes.
        prompt: what it goes on from; at least one token. A `Prompt` holds texts of several lengths, or what comes
            after something that was read before.
        count: how many tokens to write.
        temperature: below 1 the likely become likelier; 0 always takes the likeliest (greedy).
        top_k: draw among the k likeliest only.
        top_p: draw among the likeliest that together hold this share of the probability.
        generator: where the random numbers come from; needed unless greedy.
        ends: tokens that end a row: from then on it repeats the one that it ended with. When all rows have ended,
            nothing more is written. `until` cuts them off.

    Raises:
        ValueError: an empty prompt, or settings that have no meaning or no effect together.
    """
    prompt = prompt if isinstance(prompt, Prompt) else Prompt(prompt)
    _check(model, count, ends)
    check_drawing(temperature, top_k, top_p, generator)
    check_streams(model.blocks)
    return _write(model, prompt, count, lambda logits: draw(logits, temperature, top_k, top_p, generator), ends)


def until(written: Iterable[Int[Tensor, "b 1"]], ends: Sequence[int]) -> list[list[int]]:
    """What `generate` wrote, row by row, each up to the token that ended it."""
    rows = torch.cat(list(written), 1).tolist()
    return [row[: min((row.index(end) for end in ends if end in row), default=len(row))] for row in rows]


@torch.inference_mode()
def _write(
    model: Decoder, prompt: Prompt, count: int, choose: Callable[[Tensor], Tensor], ends: Sequence[int]
) -> Iterator[Tensor]:
    with evaluating(model):
        last, ended = torch.tensor(ends, device=prompt.ids.device), None
        (cache, where), new = prompt.begin(), prompt.ids
        for _ in range(count):
            drawn = choose(model.predict_next(new, where, cache).float())
            new, where = drawn if ended is None else torch.where(ended, new, drawn), None
            yield new
            if ends:
                ended = torch.isin(new, last)
                if bool(ended.all()):
                    break


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation; afterwards as it was."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def check_streams(blocks: Iterable[nn.Module]) -> None:
    """Raise unless these layers can go on from what they have read."""
    mixers = [cast(Block, block).mixer for block in blocks]
    deaf = sorted({type(mixer).__name__ for mixer in mixers if not mixer.streams})
    need(
        not deaf,
        "a model that writes goes on from what it has read",
        f"{', '.join(deaf)} of this one cannot",
        "choose another mixer, or another mode of it",
    )


def draw(
    logits: Float[Tensor, "b vocabulary"],
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    generator: torch.Generator | None,
) -> Int[Tensor, "b 1"]:
    """One token for each row."""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    logits = logits / temperature
    if top_k is not None:
        best = logits.topk(min(top_k, logits.shape[-1]))
        logits = torch.full_like(logits, float("-inf")).scatter(-1, best.indices, best.values)
    if top_p is not None:
        ordered, order = logits.softmax(-1).sort(descending=True, stable=True)
        # a token stays while the likelier ones before it hold less than the share, so the first always stays
        beyond = ordered.cumsum(-1) - ordered >= top_p
        logits = logits.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), float("-inf"))
    return torch.multinomial(logits.softmax(-1), 1, generator=generator)


def _check(model: Decoder, count: int, ends: Sequence[int]) -> None:
    need(count >= 0, "count must not be negative", f"got {count}", "give how many tokens to write")
    known = all(0 <= end < model.shape.vocabulary for end in ends)
    came = f"got {', '.join(map(str, ends))}"
    need(known, f"tokens that end a row lie in 0 to {model.shape.vocabulary - 1}", came, "ask the tokenizer for them")


def check_drawing(
    temperature: float, top_k: int | None, top_p: float | None, generator: torch.Generator | None
) -> None:
    """Raise unless these say how to draw a token."""
    need(temperature >= 0, "temperature must not be negative", f"got {temperature}", "0 is greedy, 1 is as trained")
    greedy = temperature == 0
    need(
        not greedy or (top_k is None and top_p is None),
        "greedy writing looks at no other token",
        f"got top_k={top_k}, top_p={top_p} with temperature 0",
        "leave them out, or raise it",
    )
    need(top_k is None or top_k > 0, "top_k must be above zero", f"got {top_k}", "give 1 or more")
    need(top_p is None or 0 < top_p <= 1, "top_p must lie in (0, 1]", f"got {top_p}", "give a share of probability")
    need(
        greedy or generator is not None,
        "drawing needs a generator",
        "got None",
        "give torch.Generator().manual_seed(...), or temperature=0",
    )
