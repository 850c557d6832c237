"""Write the tables of docs/backends/triton.md and docs/devices.md from the newest compilation and times on a GPU.

`python .ci/gpu_code.py`

The column of least times is computed from the tiles when the page is written, nothing is compiled again.
"""

import json
import sys
from pathlib import Path
from typing import Any

from generated_parts import Pages, write
from speeds import newest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "backends" / "triton.md"
DEVICES = ROOT / "docs" / "devices.md"
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
RECURRENCES = {
    "gla": "gla: a decay for each channel",
    "rwkv6": "rwkv6: the same, read before the update",
    "retnet": "retnet: a decay for each head",
    "rwkv4": "rwkv4: WKV",
    "delta": "deltanet, gated_deltanet, rwkv7: scan over chunks",
}
HEAD_OF_SCHEMES = (
    "| GPU | type | channels | scheme | tiles | warps | registers, at most | spilled | shared, at most |",
    "|---|---|---|---|---|---|---|---|---|",
)
VECTORS = {"shaw": "Shaw", "transformer_xl": "Transformer-XL", "deberta": "DeBERTa"}
VECTORS_SAID = (
    "The kernels for vectors by offset, compiled by Triton {triton}: causal attention, two heads a group; Shaw and "
    "DeBERTa with vectors up to distance 128, Transformer-XL with one for each of 1024 offsets, Shaw with vectors "
    "for values up to 128 channels. Tiles and warps are those of the kernels for outputs, gradients of keys and "
    "values, of queries, and of vectors."
)
CURVES = {"fire": "FIRE"}
CURVES_SAID = (
    "The kernels with FIRE's bias of 32 hidden units, compiled by Triton {triton}: causal attention, two heads a "
    "group. Tiles and warps are those of the kernels for outputs, gradients of keys and values, and of queries."
)


def table(found: dict[str, Any]) -> str:
    """Format the results of `./dev bench gpu_code`."""
    from benchmarks.harness.gpu_estimate import HEADS, RATES, TOKENS, estimate

    named = ", ".join(f"{architecture} {rates.name}" for architecture, rates in RATES.items())
    lines = [
        f"Compiled by Triton {found['triton']}: causal attention, a learned T5 bias, two heads a group. Not timed.",
        "",
        f"The last column is an **estimate** from counted work and published rates ({named}), not a measurement: "
        f"with these tiles one sequence of {TOKENS} tokens and {HEADS} heads takes at least so long, by the products "
        "(P), exponentials (E) or bytes (M) that it needs; a decoding step of one query has as many keys.",
        "",
        "| GPU | type | channels | kernel | tile | warps | stages | registers | spilled | shared | tensor cores "
        "| estimate: at least |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for architecture, rows in found["architectures"].items():
        for x in (x for x in rows if x["kernel"] in KERNELS):
            tile = f"{x['rows']} x {x['columns']} | {x['num_warps']} | {x['num_stages']}"
            code = f"{x['registers']} | {x['stack']} B | {x['shared'] / 1024:.0f} KiB | {x['products']}"
            name = f"{architecture} | {x['type']} | {x['channels']} | {KERNELS[x['kernel']]}"
            least = estimate(architecture, x)
            lines.append(f"| {name} | {tile} | {code} | {_microseconds(least.seconds)} {least.bound[0].upper()} |")
    return "\n".join(lines)


def scheme_table(found: dict[str, Any], schemes: dict[str, str], said: str) -> str:
    """Format the results for kernels of some schemes, a row for each scheme, after what is said of them."""
    lines = [said.format(triton=found["triton"]), "", *HEAD_OF_SCHEMES]
    for name, group in by_scheme(found, schemes).items():
        # kernels of the vectors' gradients have one configuration
        sizes = ", ".join(f"{x['rows']} x {x['columns']}" for x in group[:4])
        warps = ", ".join(str(x["num_warps"]) for x in group[:4])
        lines.append(f"| {' | '.join(name)} | {sizes} | {warps} | {most_of(group)} |")
    return "\n".join(lines)


def by_scheme(found: dict[str, Any], schemes: dict[str, str]) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """Group the kernels of some schemes by GPU, type, channels and scheme."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for architecture, rows in found["architectures"].items():
        for x in (x for x in rows if x["kernel"].partition(":")[0] in schemes):
            scheme = schemes[x["kernel"].partition(":")[0]]
            groups.setdefault((architecture, x["type"], str(x["channels"]), scheme), []).append(x)
    return groups


def most_of(group: list[dict[str, Any]]) -> str:
    """Format the most registers, spilled bytes and shared memory of some kernels."""
    most = {key: max(x[key] for x in group) for key in ("registers", "stack", "shared")}
    return f"{most['registers']} | {most['stack']} B | {most['shared'] / 1024:.0f} KiB"


def recurrence_table(found: dict[str, Any]) -> str:
    """Format the results for the kernels of recurrences: a row for all kernels of a mixer."""
    groups = {
        (architecture, said): [x for x in rows if x["kernel"].startswith(f"{mixer}: ")]
        for architecture, rows in found["architectures"].items()
        for mixer, said in RECURRENCES.items()
    }
    said = f"The kernels compiled by Triton {found['triton']}, forward and backward, of 64 to 256 channels:"
    return group_table(said, ("GPU", "recurrence"), groups)


def amd_table() -> str:
    """Format the newest results of `./dev bench amd_code`: a row for all kernels of a type and number of channels."""
    results = newest("amd_code")[1]["results"]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for x in results["kernels"]:
        groups.setdefault((x["type"], str(x["channels"])), []).append(x)
    said = (
        f"All kernels, of attention, rotations and recurrences, compiled by Triton {results['triton']} for "
        f"{results['architecture']}; registers are those for vectors, shared memory has at most 64 KiB:"
    )
    return group_table(said, ("type", "channels"), groups)


def group_table(said: str, heads: tuple[str, str], groups: dict[tuple[str, str], list[dict[str, Any]]]) -> str:
    """Format a row for each group of kernels, after what is said of them."""
    lines = [
        said,
        "",
        f"| {' | '.join(heads)} | kernels | registers, at most | spilled | shared, at most |",
        "|---|---|---|---|---|---|",
    ]
    for name, group in groups.items():
        lines.append(f"| {' | '.join(name)} | {len({x['kernel'] for x in group})} | {most_of(group)} |")
    return "\n".join(lines)


def newest_on_gpu(name: str) -> tuple[list[str], dict[str, Any]]:
    """Return the lines that say where the newest results of a benchmark were measured, and the results."""
    path = max((ROOT / "benchmarks" / "results").glob(f"{name}-cuda_*.json"), key=lambda path: path.stem[-10:])
    found = json.loads(path.read_text(encoding="utf-8"))
    said = f"On one {found['device']} (PyTorch {found['torch']}), {path.stem[-10:]}:"
    return [said, f"`benchmarks/results/{path.name}`.", ""], found["results"]


def kernels_table() -> str:
    """Format the newest times of kernels on a GPU: `./dev bench kernels --device cuda`."""
    lines, results = newest_on_gpu("kernels")
    lines += ["| measured | way | GPU time | ratio | longest kernels [ms] |", "|---|---|---|---|---|"]
    for title, rows in results.items():
        for name, row in rows.items():
            named = (
                (kernel.removeprefix("cudnn_generated_fort_native_"), time) for kernel, time in row["kernels"].items()
            )
            longest = ", ".join(f"`{kernel[:26].strip()}` {time:.2f}" for kernel, time in list(named)[:3])
            lines.append(f"| {title} | {name} | {row['milliseconds']:.3g} ms | {row['ratio']:.2f} | {longest} |")
    return "\n".join(lines)


def waits_table() -> str:
    """Format the newest times until a step of attention was done: `./dev bench attention --device cuda`."""
    lines, results = newest_on_gpu("attention")
    lines += ["| measured | way | milliseconds | ratio | goal | memory |", "|---|---|---|---|---|---|"]
    for title, types in results.items():
        for dtype, rows in types.items():
            least = next(iter(rows.values()))
            for name, row in rows.items():
                goal = f"{row['goal']:.2f}" if "goal" in row else ""
                held = f"{row['bytes'] / least['bytes']:.2f}" if least.get("bytes") else ""
                took = f"{row['seconds'] * 1e3:.3g} | {row['ratio']:.2f}"
                lines.append(f"| {title}, {dtype} | {name} | {took} | {goal} | {held} |")
    return "\n".join(lines)


def steps_table() -> str:
    """Format the newest times of a decoder's training step on a GPU: `./dev bench decoder --device cuda`."""
    lines, results = newest_on_gpu("decoder")
    lines += ["| scheme | milliseconds | ratio |", "|---|---|---|"]
    for rows in results.values():
        lines += [f"| {name} | {row['seconds'] * 1e3:.1f} | {row['ratio']:.2f} |" for name, row in rows.items()]
    return "\n".join(lines)


def mixers_on_gpu() -> str:
    """Format the newest times of mixers on a GPU: `./dev bench mixers --device cuda`."""
    lines, results = newest_on_gpu("mixers")
    for title, table in results.items():
        names = list(dict.fromkeys(name for rows in table.values() for name in rows))
        lines += [
            f"| {title} | {' | '.join(f'{tokens} tokens' for tokens in table)} |",
            "|---|" + "---|" * len(table),
        ]
        for name in names:
            ratios = (f"{rows[name]['ratio']:.2f}" if name in rows else "" for rows in table.values())
            lines.append(f"| {name} | {' | '.join(ratios)} |")
    return "\n".join(lines)


def single_table() -> str:
    """Format the times of the kernels in float32 by their products: written by a script of that day."""
    lines, results = newest_on_gpu("float32")
    lines += ["| products | scheme | kernel | tile | warps | milliseconds |", "|---|---|---|---|---|---|"]
    for products in ("ieee", "tf32x3"):
        for scheme in ("t5", "toeplitz"):
            rows = [
                row["kernels"] for row in results["kernels"] if (row["products"], row["scheme"]) == (products, scheme)
            ]
            for kernel in rows[0]:
                best = min((row[kernel] for row in rows), key=lambda x: x["milliseconds"])
                tile = f"{best['rows']} x {best['columns']} | {best['warps']}"
                lines.append(f"| {products} | {scheme} | {kernel} | {tile} | {best['milliseconds']:.2f} |")
    return "\n".join(lines)


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} us" if seconds > 1e-5 else f"{seconds * 1e6:.2g} us"


def pages() -> Pages:
    """Return the pages with their tables."""
    found = newest("gpu_code")[1]["results"]
    kernels_of_schemes = (
        scheme_table(found, schemes, said) for schemes, said in ((VECTORS, VECTORS_SAID), (CURVES, CURVES_SAID))
    )
    return {
        PAGE: {
            "code": "\n\n".join((table(found), *kernels_of_schemes)),
            "amd": amd_table(),
            "kernels": kernels_table(),
            "until done": waits_table(),
            "float32": single_table(),
        },
        DEVICES: {"code": recurrence_table(found), "steps": steps_table(), "mixers": mixers_on_gpu()},
    }


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    write(pages())
