"""PyTorch's own attention where every query sees the same keys: sequences filled up to one length."""

from dataclasses import replace

import torch

from ordinate.fused import masked, unfit, widens
from ordinate.geometry import PADDING, Geometry
from ordinate.route import Call, Route
from ordinate.shapes import Outputs

# hooks that tell queries apart, or need what PyTorch's attention does not give
OTHERS = ("score", "bias", "content_bias", "carry")


class KeyBias(Route):
    """PyTorch's attention with one number for each key, on any device: nothing of queries x keys is held.

    It serves encoders and cross-attention over sequences that are filled up: a key of padding is hidden from all.
    Queries of padding get 0.
    """

    order = 450

    def refuses(self, call: Call) -> str | None:
        """Geometries in which queries see different keys, schemes that add to scores, what PyTorch's refuses."""
        if torch.compiler.is_compiling():
            return "torch.compile cannot look at documents"
        others = [hook for hook in call.at.scheme.hooks if hook in OTHERS]
        if others:
            return f"the scheme's {others[0]} tells queries apart"
        if call.where.q_document is None or 0 in call.where.shape:
            return "no key is hidden from all"
        if not replace(call.where, q_document=None, k_document=None).sees_all:
            return "causality or a window tells queries apart"
        return unfit(call) if _alike(call.where) else "a row holds several documents"

    def run(self, call: Call) -> Outputs:
        """One call of PyTorch's function."""
        if widens(call):
            wide = replace(call, q=call.q.float(), k=call.k.float(), v=call.v.float())
            return self.run(wide).to(call.q.dtype)
        asks, holds = _real(call.where)
        some = holds.any(-1, keepdim=True)
        # where there is no key to see, all are seen, and what comes of it is dropped
        out = masked(call.q, call.k, call.v, (holds | ~some)[:, None], scale=call.scale, dropout=call.dropout)
        return out.masked_fill(~(asks & some)[:, None, :, None], 0.0)

    def bytes(self, call: Call) -> int:
        """Which keys are seen, and wider copies where 16-bit attention is trained on a CPU."""
        copies = 4 * (2 * call.q.numel() + call.k.numel() + call.v.numel()) if widens(call) else 0
        return copies + call.where.rows * sum(call.where.shape)


def _real(where: Geometry) -> tuple[torch.Tensor, torch.Tensor]:
    """Which queries and which keys are no padding."""
    if where.q_document is None or where.k_document is None:
        raise ValueError("a geometry with documents is asked for; got one without; ask `refuses` first")
    return where.q_document != PADDING, where.k_document != PADDING


def _alike(where: Geometry) -> bool:
    """Whether all tokens of a row that are no padding belong to one document."""
    if where.q_document is None or where.k_document is None:
        return True
    sizes = where.rows, -1
    found = torch.cat([where.q_document.expand(sizes), where.k_document.expand(sizes)], 1)
    highest = found.amax(1, keepdim=True)
    return bool(((found == highest) | (found == PADDING)).all())
