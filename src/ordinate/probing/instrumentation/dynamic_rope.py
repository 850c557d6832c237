"""Dynamic NTK scaling of transformers models: each pass is scaled by its own length."""

from typing import Any

from torch import nn


def restart_dynamic_rope(model: nn.Module) -> None:
    """Forget how long earlier texts were, where RoPE is scaled by length (`rope_type` dynamic).

    transformers keeps the rates of the longest text so far until a text is shorter than the trained length: a text of
    just that length, or a long one after a longer one, would be rotated as if it were longer.

    Args:
        model: the model.
    """
    for module in model.modules():
        kind: Any = getattr(module, "rope_type", None)
        kinds = kind.items() if isinstance(kind, dict) else [("", kind)]
        for layer_type, own in kinds:
            if isinstance(own, str) and "dynamic" in own and hasattr(module, "original_max_seq_len"):
                prefix = f"{layer_type}_" if layer_type else ""
                setattr(module, f"{prefix}inv_freq", getattr(module, f"{prefix}original_inv_freq"))
                setattr(module, f"{prefix}max_seq_len_cached", module.original_max_seq_len)
