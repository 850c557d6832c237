"""Let an encoder-decoder write, token by token."""

import torch
from jaxtyping import Int
from torch import Tensor

from ordinate.checks import need_positive, need_whole
from ordinate.models.cache import Cache
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.generate import check_drawing, check_streams, draw, evaluating
from ordinate.models.memory import Memory


def translate(
    model: EncoderDecoder,
    memory: Memory,
    count: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "b n"]:
    """The tokens of each source's target, the end included, filled up behind it; as many as the longest needs.

    Args:
        model: what writes.
        memory: the sources, as `model.read` gave them.
        count: how many tokens to write at most, the end included.
        temperature: 0 always takes the likeliest (greedy); 1 draws as trained, below 1 the likely become likelier.
        top_k: draw among the k likeliest only.
        top_p: draw among the likeliest that together hold this share of the probability.
        generator: where the random numbers come from; needed unless greedy.

    Raises:
        ValueError: settings that have no meaning or no effect together, or a model that cannot go on from what it has
            written.
    """
    need_whole("count", count)
    need_positive("count", count)
    check_drawing(temperature, top_k, top_p, generator)
    check_streams(model.decoder.blocks)
    shape, rows, device = model.shape, memory.rows, memory.where.k_pos.device
    cache, new = Cache(), torch.full((rows, 1), shape.start, device=device)
    written, ended = [], torch.zeros(rows, 1, dtype=torch.bool, device=device)
    with torch.inference_mode(), evaluating(model):
        for _ in range(count):
            logits = model.write(new, memory, cache=cache)[:, -1].float()
            logits[:, list(shape.never)] = float("-inf")
            new = draw(logits, temperature, top_k, top_p, generator).masked_fill(ended, shape.padding)
            written.append(new)
            ended = ended | (new == shape.end)
            if bool(ended.all()):
                break
    return torch.cat(written, 1)
