"""Write the speeds of attention into docs/attention.md and README.md: `python .ci/attention_speeds.py`.

A table for each set of goals, with a column for each kind of processor that was measured: the newest result of
`./dev bench attention --save` there. A star marks a missed goal.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from generated_parts import ROOT, Pages, write
from speeds import cell, newest

TRAINING, ROTATION, QUERY = "training, N 4096", "rotation of q and k against a copy, N 4096", "one query, 4096 cached"
LONG, MANY, SOME = "ALiBi forward, N 16384", "training, B 16 H 6 N 256", "training, B 8 H 8 N 512"
TYPES = ("float32", "bfloat16")
# title of each row of the tables, and the keys of its ratios in the results
ROWS = {
    "T5 bias and its gradient, 4096 tokens, in C++": (TRAINING, "t5@native"),
    "the same without a compiler": (TRAINING, "t5@offset_bias"),
    "a table of distances, its gradient, without a compiler": (TRAINING, "toeplitz@offset_bias"),
    "ALiBi forward, 16384 tokens, in C++": (LONG, "alibi@native"),
    "ALiBi forward, 16384 tokens, without a compiler": (LONG, "alibi@offset_bias"),
    "T5, 16 texts of 256 tokens, 6 heads, in C++": (MANY, "t5@native"),
    "T5, 8 texts of 512 tokens, 8 heads, in C++": (SOME, "t5@native"),
    "memory of training above inputs, 16384 tokens, in C++": ("memory", "t5@native"),
    "the same memory without a compiler": ("memory", "t5@offset_bias"),
    **{
        f"{name} and its gradient, 4096 tokens": (TRAINING, f"{member}@")
        for name, member in {
            "FIRE": "fire",
            "Shaw": "shaw",
            "Transformer-XL": "transformer_xl",
            "DeBERTa": "deberta",
            "CoPE": "cope",
        }.items()
    },
    "rope on q and k, against a copy of both": (ROTATION, "rope@"),
    "the same by neighbours": (ROTATION, "rope, interleaved@"),
    "one query, 4096 cached keys, no bias": (QUERY, "none@"),
    "one query, 4096 cached keys, ALiBi": (QUERY, "alibi@"),
    "one query, 4096 cached keys, T5": (QUERY, "t5@"),
    "PyTorch's attention, the T5 bias as a tensor, its gradient": (TRAINING, "sdpa, bias as a tensor, learned"),
    "x-transformers' relative bias": (TRAINING, "x-transformers, relative bias"),
    "transformers' T5": (TRAINING, "transformers, T5"),
    "transformers' Bloom": (TRAINING, "transformers, Bloom"),
}
# columns of each table: kind of processor, and the name of its results
PROCESSORS = {
    "AVX-512": {"Zen 5": "attention", "Zen 4": "attention-zen4", "Granite Rapids": "attention-intel"},
    "AVX2": {
        "Zen 2": "attention-avx2",
        "Zen 3": "attention-zen3",
        "Zen 4, set to AVX2": "attention-zen4-avx2",
        "Granite Rapids, set to AVX2": "attention-intel-set-to-avx2",
    },
}
# columns of the short table
FIRST = {"Zen 5, AVX-512": "attention", "Zen 2, AVX2": "attention-avx2", "Intel, AMX": "attention-intel"}
# its rows: title, and the keys of the lowest and highest ratio that it gives
ANSWERS = {
    "T5 bias, training step at 4096 tokens, same memory": [(TRAINING, "t5@native")],
    "the same without a compiler": [(TRAINING, "t5@offset_bias")],
    "ALiBi, forward pass at 16384 tokens": [(LONG, "alibi@native")],
    "Shaw, Transformer-XL, DeBERTa (content-dependent), training step": [
        (TRAINING, f"{member}@") for member in ("shaw", "transformer_xl", "deberta")
    ],
    "PyTorch with the T5 bias as a tensor, training step": [(TRAINING, "sdpa, bias as a tensor, learned")],
}


def measured(results: dict[str, Any], group: str, member: str) -> list[dict[str, float]]:
    """Return what was measured of a contender in float32 and in bfloat16."""
    found = [results.get(group, {}).get(name, {}).get(member) for name in TYPES]
    if not all(found):
        raise SystemExit(f"the result has no {member!r} in {group!r}; run ./dev bench --save attention")
    return found


def table(found: dict[str, dict[str, Any]]) -> list[list[str]]:
    """A row for each measurement, a column for each processor with the ratios in both types, and the goals."""
    rows = [["float32, bfloat16", *found, "goals"]]
    for title, (group, member) in ROWS.items():
        columns = [measured(results, group, member) for results in found.values()]
        goals = [f"{entry['goal']:g}" if "goal" in entry else "–" for entry in columns[0]]
        ratios = [", ".join(map(cell, column)) for column in columns]
        rows.append([title, *ratios, goals[0] if len(set(goals)) == 1 else ", ".join(goals)])
    return rows


def answers(found: dict[str, dict[str, Any]]) -> list[list[str]]:
    """The short table of README.md and docs/attention.md: lowest and highest ratio of each kind, in both types."""
    rows = [["float32, bfloat16", *found]]
    for title, keys in ANSWERS.items():
        own = []
        for results in found.values():
            types = zip(*(measured(results, *key) for key in keys), strict=True)
            own.append(", ".join(_between([entry["ratio"] for entry in entries]) for entries in types))
        rows.append([title, *own])
    return rows


def _between(ratios: Sequence[float]) -> str:
    if len(ratios) == 1:
        return f"{ratios[0]:.2f}"
    return f"{min(ratios):.1f} to {max(ratios):.1f}"


def lines(rows: list[list[str]]) -> str:
    """Format a table in Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (rows[0], ["---"] * len(rows[0]), *rows[1:]))


def sources(names: dict[str, str]) -> str:
    """Say which files a table shows."""
    files = [f"{kind} `{newest(name)[0].stem}`" for kind, name in names.items()]
    return f"In `benchmarks/results`: {', '.join(files)}."


def pages() -> Pages:
    """Return the parts of docs/attention.md and of README.md."""
    results = {name: newest(name)[1]["results"] for names in (*PROCESSORS.values(), FIRST) for name in names.values()}
    parts = {
        f"speeds with {vectors}": "\n\n".join(
            (lines(table({kind: results[name] for kind, name in names.items()})), sources(names))
        )
        for vectors, names in PROCESSORS.items()
    }
    short = lines(answers({kind: results[name] for kind, name in FIRST.items()}))
    both = {"speeds": short}
    return {Path(ROOT / "docs" / "attention.md"): both | parts, Path(ROOT / "README.md"): both}


if __name__ == "__main__":
    write(pages())
