"""Independence of the heads."""

from collections.abc import Callable

import torch
from torch import Tensor

from ordinate.core.geometry import Geometry
from ordinate.testing.case import HEADS, KV_HEADS, SchemeCase, random_qkv
from ordinate.testing.tolerance import assert_as_close

TOKENS = 7


def each_head_uses_its_own_content_only(case: SchemeCase) -> None:
    """Other content in one head changes the encodings, scores and biases of no other head."""
    hooks = ("encode_query", "encode_key", "score", "content_bias", "value_bias")
    case.skip_unless_hook(*hooks)
    scheme, where = case.scheme(), case.with_axes(Geometry.causal(TOKENS))
    q, k, _ = random_qkv(1, TOKENS)
    full = k.repeat_interleave(HEADS // KV_HEADS, 1)
    weights = torch.softmax(q @ full.mT, -1)
    made: dict[str, tuple[Tensor, Callable[[Tensor], Tensor | None]]] = {
        "encode_query": (q, lambda x: scheme.encode_query(x, where.q_pos)),
        "encode_key": (k, lambda x: scheme.encode_key(x, where.q_pos)),
        "score": (q, lambda x: scheme.score(x, full, where)),
        "score of other keys": (full, lambda x: scheme.score(q, x, where)),
        "content_bias": (q, lambda x: scheme.content_bias(x, full, where)),
        "content_bias of other keys": (full, lambda x: scheme.content_bias(q, x, where)),
        "value_bias": (weights, lambda x: scheme.value_bias(x, where)),
    }
    for name, (content, hook) in made.items():
        if name.partition(" ")[0] not in scheme.hooks:
            continue
        before = hook(content)
        if before is None:
            continue
        for head in range(content.shape[1]):
            other = content.clone()
            # in reverse order of tokens: for weights, rows of a softmax in any order are such rows too
            other[:, head] = content[:, head].flip(1)
            after = hook(other)
            assert after is not None
            rest = [one for one in range(content.shape[1]) if one != head]
            what = f"the {name} of the other heads, with other content in head {head},"
            assert_as_close(after[:, rest], before[:, rest], before[:, rest], what=what)
