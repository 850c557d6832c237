"""Which type this machine multiplies matrices in fastest."""

from typing import Literal

import torch

Precision = Literal["bf16", "fp32"]


def fast_precision() -> Precision:
    """`bf16` where the processor has instructions for it, otherwise `fp32`, which is then faster."""
    if torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    capable = torch.cpu.get_capabilities()
    return "bf16" if capable.get("avx512_bf16") or capable.get("amx_bf16") or capable.get("bf16") else "fp32"
