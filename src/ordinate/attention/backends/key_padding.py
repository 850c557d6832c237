"""PyTorch's attention (SDPA) with a key padding mask: all queries of a row attend to the same keys."""

import torch

from ordinate.attention._backend import AttentionCall, Backend
from ordinate.attention._sdpa import masked_attention, unsupported_reason, upcasts
from ordinate.attention._workspace import row_workspace
from ordinate.core.devices import on_cpu
from ordinate.core.geometry import PADDING, Geometry
from ordinate.core.records import changed
from ordinate.core.shapes import Outputs

# hooks that need a mask per query, or something that SDPA does not provide
UNSUPPORTED_HOOKS = ("score", "bias", "content_bias", "value_bias")


class KeyPadding(Backend):
    """SDPA with a key padding mask, on any device: one number for each key, no queries x keys tensor.

    For encoders and cross-attention over padded sequences: padding is hidden from all queries. Padding queries get 0.
    """

    priority = 450

    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Reject masks that differ between queries, schemes that add to the scores, and what SDPA cannot do."""
        if torch.compiler.is_compiling():
            return "torch.compile cannot trace a choice by document ids"
        others = [hook for hook in call.at.scheme.hooks if hook in UNSUPPORTED_HOOKS]
        if others:
            return f"the scheme's {others[0]} differs between queries"
        if call.where.q_document is None or 0 in call.where.shape:
            return "there is no padding"
        if not changed(call.where, q_document=None, k_document=None).is_unmasked:
            return "causality or a window makes the mask differ between queries"
        return (
            unsupported_reason(call)
            if _single_document(call.where)
            else "a row contains several documents, or may do so"
        )

    def run(self, call: AttentionCall) -> Outputs:
        """Call SDPA with the key padding mask."""
        if upcasts(call):
            wide = changed(call, q=call.q.float(), k=call.k.float(), v=call.v.float())
            return self.run(wide).to(call.q.dtype)
        real_q, real_k = _real(call.where)
        some = real_k.any(-1, keepdim=True)
        # a row without any key would give NaN: it attends to all keys, and its output is then set to 0
        out = masked_attention(
            call.q, call.k, call.v, (real_k | ~some)[:, None], scale=call.scale, dropout=call.dropout
        )
        return out.masked_fill(~(real_q & some)[:, None, :, None], 0.0)

    def workspace_bytes(self, call: AttentionCall) -> int:
        """Padding masks, the output before padding queries are zeroed, copies for 16-bit training, kernel buffers."""
        return row_workspace(call, self.run)


def _real(where: Geometry) -> tuple[torch.Tensor, torch.Tensor]:
    """Return masks of the queries and keys that are not padding."""
    if where.q_document is None or where.k_document is None:
        raise ValueError(
            "this backend needs a geometry with document ids; got one without; call `unsupported_reason` first"
        )
    return where.q_document != PADDING, where.k_document != PADDING


def _single_document(where: Geometry) -> bool:
    """True if all tokens of each row belong to one document, not counting padding, and this is known."""
    if where.q_document is None or where.k_document is None or where.one_document:
        return True
    if not on_cpu(where.q_document):
        # reading ids would wait for the device
        return False
    sizes = where.batch_size, -1
    found = torch.cat([where.q_document.expand(sizes), where.k_document.expand(sizes)], 1)
    highest = found.amax(1, keepdim=True)
    return bool(((found == highest) | (found == PADDING)).all())
