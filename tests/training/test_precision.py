"""The faster precision of a machine follows the instructions that PyTorch uses, not only those that there are."""

import pytest
import torch

from ordinate.training.settings import fast_precision


@pytest.mark.parametrize(
    ("capable", "used", "expected"),
    [
        ({"avx512_bf16": True}, "AVX512", "bf16"),
        ({"amx_bf16": True}, "AVX512", "bf16"),
        ({"avx512_bf16": True, "amx_bf16": True}, "AVX2", "fp32"),
        ({"avx2": True}, "AVX2", "fp32"),
        ({"bf16": True}, "DEFAULT", "bf16"),
        ({}, "DEFAULT", "fp32"),
    ],
)
def test_bf16_is_taken_where_its_instructions_are_used(monkeypatch, capable, used, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capable)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: used)
    assert fast_precision() == expected
