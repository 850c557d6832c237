"""Seeds that are functions of what they are for."""

import hashlib


def seed_of(*parts: object) -> int:
    """A seed for this purpose, the same on every machine: `seed_of(run_seed, "batch", step)`."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
