"""Attention on GPUs with a bias that is constant far away, such as T5's or Shaw's: PyTorch's fused kernels there."""

import math

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from ordinate.attention._backend import AttentionCall, Backend, offset_bias_unsupported
from ordinate.attention._proof import unproved_reason
from ordinate.attention._proof_structure import constant
from ordinate.attention._triton_tables import bias_of, tables_attention, too_many_heads
from ordinate.attention._triton_vectors import (
    Terms,
    depends_on_content,
    terms_of,
    vectors_attention,
    vectors_unsupported,
)
from ordinate.core.shapes import LogSumExp, Outputs
from ordinate.ops.sdpa import enabled_kernels
from ordinate.ops.triton import operators, vector_operators
from ordinate.ops.triton.availability import unavailable_reason
from ordinate.ops.triton.fused import prefers_cudnn
from ordinate.ops.triton.tiles import TILES, device_class
from ordinate.schemes._scheme import Placed

TYPES = (torch.float16, torch.bfloat16)
# of PyTorch's fused kernels: in multiples of 8
MAX_CHANNELS = 128
# the largest distance from which on the bias may be constant
MAX_REACH = 128
# tokens of a tile of keys: nearer distances cost as much
TILE = 64
# below so many times the distance one kernel for all keys is faster, measured on an H100: of a bias, and of vectors
LEAST_LENGTH, LEAST_LENGTH_OF_VECTORS = 64, 32


class NearFar(Backend):
    """Causal attention with a bias, or vectors, by offset that are constant from some distance on.

    T5's bias is from 128 tokens on, Shaw's vectors for queries and values are from the clipping distance. Keys at
    that distance and farther are a matter of PyTorch's fused attention without a bias, nearer ones of the Triton
    kernels of a window; both are put together by their log-sum-exp (`ordinate.ops.triton.near_far`). So almost all of
    the work runs at the speed of attention without positions.

    As in all of PyTorch's fused kernels, gradients of queries are summed in no fixed order, and NaN of hidden tokens
    may reach rows near them. With `torch.use_deterministic_algorithms` the backend `triton` computes all of it.
    """

    priority = 140

    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Reject other devices, dtypes and masks, biases not constant soon, short texts, and what is unproved."""
        by_offset = vectors_unsupported if depends_on_content(call.at) else offset_bias_unsupported
        reason = unavailable_reason(call.q.device) or by_offset(call) or _unfit(call) or too_many_heads(call)
        if reason is not None or call.q.device.type != "cuda":
            return reason
        if call.q.dtype not in TYPES:
            return f"{str(call.q.dtype).removeprefix('torch.')} is not supported"
        if call.q.shape[3] % 8 or call.q.shape[3] > MAX_CHANNELS:
            return f"PyTorch's fused kernels have heads of 8 to {MAX_CHANNELS} channels, in steps of 8"
        times = LEAST_LENGTH_OF_VECTORS if depends_on_content(call.at) else LEAST_LENGTH
        least = times * max(_reach(call), TILE)
        if call.where.shape[0] < least:
            return f"one kernel for all keys is faster below {least} tokens"
        if device_class(call.q.device) not in TILES:
            return "there are no configurations of the kernels for this GPU"
        # the kernel that a proof is about does not depend on switches
        cudnn = prefers_cudnn(call.q.device)
        if (SDPBackend.CUDNN_ATTENTION if cudnn else SDPBackend.FLASH_ATTENTION) not in enabled_kernels():
            return "PyTorch's fused kernel is switched off (torch.nn.attention.sdpa_kernel)"
        if torch.are_deterministic_algorithms_enabled():
            return "PyTorch's fused kernels add gradients of queries in no fixed order"
        return unproved_reason("near_far", call, self.proof_kind(call.at))

    def proof_kind(self, at: Placed) -> tuple[str, ...]:
        """Distinguish kinds of vectors, and how many keys are near, by which kernels take other tiles and loops."""
        found = terms_of(at) if depends_on_content(at) else bias_of(at)
        near = f"near keys: {constant(_reach_of(at))}"
        return (near,) if found is None else (*found.kind, near)

    def run(self, call: AttentionCall) -> Outputs:
        """Apply the autograd function around the operators."""
        return _computed(call)[0]

    def run_with_lse(self, call: AttentionCall) -> tuple[Outputs, LogSumExp]:
        """Apply it, and convert the log-sum-exp from units of log2."""
        out, lse = _computed(call)
        return out, lse * math.log(2)

    def workspace_bytes(self, call: AttentionCall) -> int:
        """Output of the farther keys, two log-sum-exps, one number for each key, and the table."""
        batch, heads, queries, _ = call.q.shape
        far = (queries - _reach(call)) * (call.v.shape[3] * call.q.element_size() + 4)
        found = terms_of(call.at) if depends_on_content(call.at) else None
        given = [bias_of(call.at).table] if found is None else found[:4]
        held = sum(8 * x.numel() * (heads // len(x) if x.ndim == 2 else 1) for x in given if x is not None)
        return batch * heads * (far + 4 * queries) + 4 * batch * call.k.shape[1] * queries + held


def _computed(call: AttentionCall) -> tuple[Tensor, Tensor]:
    if depends_on_content(call.at):
        return vectors_attention(call, vector_operators.near_far, vector_operators.near_far_backward)
    return tables_attention(call, operators.near_far, operators.near_far_backward)


def _reach(call: AttentionCall) -> int:
    """The distance from which on bias and vectors are constant [tokens]."""
    return _reach_of(call.at)


def _reach_of(at: Placed) -> int:
    found = terms_of(at) if depends_on_content(at) else None
    return at.where.shape[0] - 1 - (bias_of(at) if found is None else found).first


def _unfit(call: AttentionCall) -> str | None:
    where = call.where
    if call.dropout:
        return "dropout is not supported"
    if call.q.dtype == torch.float64:
        return "float64 is not supported"
    if (
        not where.is_causal
        or where.window
        or where.q_document is not None
        or where.start
        or where.shape[0] != where.shape[1]
    ):
        return "only a causal mask of one document is supported, without a window and without cached keys"
    if call.q.shape[3] != call.v.shape[3]:
        return "the values have another head width than queries and keys"
    if 0 in call.q.shape or call.scale <= 0:
        return "a tensor is empty, or the scale is not above 0"
    found = terms_of(call.at) if depends_on_content(call.at) else bias_of(call.at)
    if found is None or not found.far:
        return "the bias is constant from no distance on that the text has"
    if isinstance(found, Terms) and found.held is not None:
        return "vectors multiplied with keys give each key a bias of its own"
    if _reach(call) > MAX_REACH:
        return f"the bias must be constant from a distance of {MAX_REACH} tokens on, or nearer"
    return None
