"""Attention by Triton kernels on GPUs: no bias, one by offset, FIRE's, or a vector for each offset (Shaw ...)."""

import math

import torch
from torch import Tensor

from ordinate.attention._backend import AttentionCall, Backend
from ordinate.attention._proof import unproved_reason
from ordinate.attention._proof_structure import FEW_QUERIES, is_decoding
from ordinate.attention._sdpa import needs_no_mask
from ordinate.attention._triton_tables import (
    bias_of,
    bias_tensors,
    biases_unsupported,
    is_learned,
    tables_attention,
    tables_decoding,
    too_many_heads,
)
from ordinate.attention._triton_vectors import (
    depends_on_content,
    terms_of,
    vectors_attention,
    vectors_bytes,
    vectors_unsupported,
    vectors_without_configuration,
)
from ordinate.core.shapes import LogSumExp, Outputs
from ordinate.ops.score_bounds import GROUP
from ordinate.ops.triton import operators, vector_operators
from ordinate.ops.triton.availability import unavailable_reason
from ordinate.ops.triton.tiles import TILES, device_class, most_channels, tiles
from ordinate.schemes._scheme import Placed

# widest heads of the kernels
MAX_CHANNELS = 256
TYPES = (torch.float32, torch.float16, torch.bfloat16)


class Triton(Backend):
    """Tiled attention with an online softmax in Triton, on GPUs: no bias, one by offset, or vectors by offset.

    A table of biases is read near the diagonal only, if the scheme says beyond which distance it is constant
    (`bias_reach`); a bias that is linear in the distance is computed (`linear_bias`), and so is one that is a
    piecewise linear function of the logarithm of the distance (`log_bias`: FIRE, Kerple). Scores, softmax and sums
    are float32. The backward pass is deterministic: no atomic additions. NaN and infinity make the rows that see them
    NaN, and no others, without looking at values on the host.

    Its numbers are tested in Triton's interpreter and on an NVIDIA H200, its code for other GPUs by compilers alone.
    On a GPU it is used only after it has agreed with the reference there (`ordinate.attention._proof`).

    At most 16 queries beside more keys, without gradients, are a decoding step: the keys are split among programs,
    whose results are put together by their log-sum-exp (`ordinate.ops.triton.decode`).

    Schemes with a vector for each offset (`Scheme.relative_vectors`: Shaw, Transformer-XL, DeBERTa, Music
    Transformer) have kernels of their own (`ordinate.ops.triton.bands`), which read a band of vectors for each tile.
    """

    priority = 150
    supported_options = frozenset({"softcap", "sinks"})

    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Reject other devices and dtypes, other biases, dropout, empty inputs, wide heads, and what is unproved."""
        contents = depends_on_content(call.at)
        unsupported = vectors_unsupported if contents else biases_unsupported
        reason = unavailable_reason(call.q.device) or _unfit(call) or unsupported(call)
        if reason is not None or call.q.device.type != "cuda":
            return reason
        if contents and is_decoding(call.where):
            return "the content-dependent bias of a decoding step is small, and there are no kernels for it"
        kind = device_class(call.q.device)
        if kind not in TILES:
            return "there are no configurations of the kernels for this GPU"
        narrow = (vectors_without_configuration if contents else _without_configuration)(call, kind)
        if narrow is not None:
            return narrow
        return unproved_reason("triton", call, self.proof_kind(call.at))

    def proof_kind(self, at: Placed) -> tuple[str, ...]:
        """Distinguish linear biases, curves, kinds of vectors, and whether pairs lie beyond the ends of tables."""
        found = terms_of(at) if depends_on_content(at) else bias_of(at)
        return () if found is None else found.kind

    def slower_reason(self, call: AttentionCall) -> str | None:
        """Leave to PyTorch what its fused kernels compute without a mask."""
        if call.q.device.type != "cuda" or call.score_options.in_use:
            return None
        # with keys for each head one without a bias took 1.8 times as long as PyTorch's on an H200
        if call.groups > 1 and is_decoding(call.where):
            return None
        return "PyTorch's fused kernels need no mask for it" if needs_no_mask(call) else None

    def run(self, call: AttentionCall) -> Outputs:
        """Apply the autograd function around the operators."""
        return _computed(call)[0]

    def run_with_lse(self, call: AttentionCall) -> tuple[Outputs, LogSumExp]:
        """Apply it, and convert the log-sum-exp from units of log2."""
        out, lse = _computed(call)
        return out, lse * math.log(2)

    def way(self, call: AttentionCall) -> str | None:
        """Tiles of queries, with bands of vectors or not, or for a decoding step without gradients chunks of keys."""
        if depends_on_content(call.at):
            return "tiles of queries, with a band of vectors by offset for each"
        if not is_decoding(call.where):
            return "tiles of queries"
        if is_learned(call.q, call.k, call.v, *bias_tensors(call)):
            return "tiles of queries: gradients are needed"
        return f"chunks of keys: at most {FEW_QUERIES} queries beside more keys, without gradients"

    def workspace_bytes(self, call: AttentionCall) -> int:
        """Log-sum-exp of the queries, one number for each key, ranges of document tiles, and tables of biases; of a
        decoding step outputs and log-sum-exp of each chunk of keys in place of the numbers of keys; of a bias that is
        linear in the distance the bounds by which keys are left out.
        """
        if depends_on_content(call.at):
            return vectors_bytes(call)
        held = sum(4 * x.numel() for x in bias_of(call.at)[:5] if x is not None)
        batch, heads, queries, width = call.q.shape
        keys, depth = call.where.shape[1], call.v.shape[3]
        documents = 0 if call.where.q_document is None else 24 * batch * sum(call.where.shape)
        numbers = batch * call.k.shape[1] * keys
        if is_decoding(call.where) and not is_learned(call.q, call.k, call.v, *bias_tensors(call)):
            size = tiles(device_class(call.q.device), call.q.dtype, max(width, depth)).decoding.chunk
            numbers = batch * heads * queries * -(-keys // size) * (depth + 1)
        elif bias_of(call.at).slopes is not None and call.where.is_causal and not documents:
            # the first key of each query, and the mean and the norm of each group of keys
            held += 4 * batch * (heads * queries + call.k.shape[1] * -(-keys // GROUP) * (width + 1))
        return 4 * (batch * heads * queries + numbers) + documents + held


def _unfit(call: AttentionCall) -> str | None:
    if call.q.dtype not in TYPES:
        return f"{str(call.q.dtype).removeprefix('torch.')} is not supported"
    if call.dropout:
        return "dropout is not supported"
    if 0 in call.q.shape or 0 in call.v.shape:
        return "a tensor is empty"
    if max(call.q.shape[3], call.v.shape[3]) > MAX_CHANNELS:
        return f"a head has more than {MAX_CHANNELS} channels"
    return too_many_heads(call)


def _without_configuration(call: AttentionCall, kind: str) -> str | None:
    most = most_channels(TILES, kind, call.q.dtype)
    wide = max(call.q.shape[3], call.v.shape[3]) > most
    return f"heads of more than {most} channels have no configuration of the kernels for this GPU" if wide else None


def _computed(call: AttentionCall) -> tuple[Tensor, Tensor]:
    if depends_on_content(call.at):
        return vectors_attention(call, vector_operators.attention, vector_operators.attention_backward)
    if is_decoding(call.where) and not is_learned(call.q, call.k, call.v, *bias_tensors(call)):
        return tables_decoding(call)
    return tables_attention(call, operators.attention, operators.attention_backward)
