"""Write the table of docs/backends/triton.md from the newest saved compilation: `python .ci/gpu_code.py`."""

from pathlib import Path
from typing import Any

from generated_parts import Pages, write
from speeds import newest

PAGE = Path(__file__).parents[1] / "docs" / "backends" / "triton.md"
KERNELS = {
    "attention_forward": "outputs",
    "attention_backward_keys": "gradients of keys and values",
    "attention_backward_queries": "gradients of queries",
    "add_tiles": "gradient of the table",
    "attend_chunk": "decoding: chunks of keys",
    "join_chunks": "decoding: join",
    "rotate_half": "rotation, halves",
    "rotate_interleaved": "rotation, neighbours",
    "rotate_partly": "rotation of half of the channels",
}


def table(found: dict[str, Any]) -> str:
    """Format the results of `./dev bench gpu_code`."""
    lines = [
        f"Compiled by Triton {found['triton']}: causal attention, a learned T5 bias, two heads a group. Not timed.",
        "",
        "| GPU | type | channels | kernel | tile | warps | stages | registers | spilled | shared | tensor cores |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for architecture, rows in found["architectures"].items():
        for x in rows:
            tile = f"{x['rows']} x {x['columns']} | {x['num_warps']} | {x['num_stages']}"
            code = f"{x['registers']} | {x['stack']} B | {x['shared'] / 1024:.0f} KiB | {x['products']}"
            name = f"{architecture} | {x['type']} | {x['channels']} | {KERNELS[x['kernel']]}"
            lines.append(f"| {name} | {tile} | {code} |")
    return "\n".join(lines)


def pages() -> Pages:
    """Return the page with its table."""
    return {PAGE: {"code": table(newest("gpu_code")[1]["results"])}}


if __name__ == "__main__":
    write(pages())
