"""Derive random seeds from labels."""

import hashlib


def derive_seed(*parts: object) -> int:
    """Hash labels to a seed, the same on every machine: `derive_seed(run_seed, "batch", step)`.

    Seeds for different purposes are independent, and adding a purpose changes no other seed.
    """
    text = "/".join(map(str, parts))
    # 63 bits: torch takes signed 64-bit seeds
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
