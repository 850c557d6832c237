"""Reference implementation of attention, against which all other backends are tested."""

from ordinate.attention._backend import AttentionCall, Backend, reference_attention
from ordinate.attention._workspace import row_workspace
from ordinate.core.shapes import Outputs


class Reference(Backend):
    """The attention formula in plain PyTorch: supports every call, in any dtype, and holds the full score matrix.

    NaN and infinity reach the rows that see them, which become NaN, and no others.
    """

    priority = 1000
    supported_options = frozenset({"softcap", "sinks", "normaliser"})
    supports_transforms = True

    def call_unsupported_reason(self, call: AttentionCall) -> str | None:
        """Return None: the reference computes every call."""
        return None

    def run(self, call: AttentionCall) -> Outputs:
        """Compute scores, softmax and the weighted sum of values."""
        return reference_attention(call)

    def workspace_bytes(self, call: AttentionCall) -> int:
        """Scores, masks and weights of all pairs, with what the scheme's hooks hold, extended from the first rows."""
        return row_workspace(call, reference_attention)
