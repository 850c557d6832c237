"""Generation with an encoder-decoder: greedy decoding or sampling."""

from functools import partial
from typing import Unpack

import torch
from jaxtyping import Int
from torch import Tensor

from ordinate.core.checks import need_positive, need_whole
from ordinate.models._generate import check_sampling, check_supports_cache, evaluation_mode, sample
from ordinate.models.cache import Cache
from ordinate.models.encoded_source import EncodedSource
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.truncation import Truncation, TruncationOptions


def translate(
    model: EncoderDecoder,
    memory: EncodedSource,
    max_new_tokens: int,
    *,
    temperature: float = 0.0,
    generator: torch.Generator | None = None,
    **truncation: Unpack[TruncationOptions],
) -> Int[Tensor, "b n"]:
    """Generate a target for each source; return token ids including the end token, right-padded to the longest.

    The rules of generation are those of the model, `model.shape.rules`.

    Args:
        model: encoder-decoder model.
        memory: encoded sources, from `model.encode_source`.
        max_new_tokens: maximum number of generated tokens, including the end token.
        temperature: softmax temperature; 0 is greedy decoding, 1 samples from the model's distribution.
        generator: random number generator; required unless greedy.
        truncation: which tokens are sampled: `top_k`, `top_p` and the others of `Truncation`.

    Raises:
        ValueError: settings that are invalid or have no effect together, or a model that does not support incremental
            decoding.
    """
    need_whole("max_new_tokens", max_new_tokens)
    need_positive("max_new_tokens", max_new_tokens)
    sampled = Truncation(**truncation)
    check_sampling(temperature, sampled, generator)
    check_supports_cache(model.decoder.blocks)
    shape, rows, device = model.shape, memory.batch_size, memory.where.k_pos.device
    cache, new = Cache(), torch.full((rows, 1), shape.start_token, device=device)
    ends = torch.tensor(shape.end_tokens, dtype=torch.long, device=device)
    texts, ended = new, torch.zeros(rows, 1, dtype=torch.bool, device=device)
    rule = partial(shape.rules.apply, prompt=1, source=memory.ids, ends=shape.end_tokens)
    with torch.inference_mode(), evaluation_mode(model):
        for left in reversed(range(max_new_tokens)):
            logits = model.target_logits(new, memory, cache=cache)[:, -1].float()
            # rules may leave no token to a row that has ended, which needs none
            scores = rule(logits, texts, last=not left).masked_fill(ended, 0.0)
            new = sample(scores, temperature, sampled, generator).masked_fill(ended, shape.fill_token)
            texts = torch.cat([texts, new], 1)
            ended = ended | torch.isin(new, ends)
            if bool(ended.all()):
                break
    return texts[:, 1:]
