"""Write the tables of benchmark results into the pages of docs/: `python .ci/speeds.py`.

The tables show the newest results of `./dev bench --save`; a star marks a missed goal.
"""

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

from generated_parts import Pages, write

ROOT = Path(__file__).parents[1]
DOCS, RESULTS = ROOT / "docs", ROOT / "benchmarks" / "results"
LENGTHS = ("1024", "4096", "16384")


def newest(name: str) -> tuple[Path, dict[str, Any]]:
    """Return the newest results of a benchmark."""
    # the name of a machine has no hyphen before its number of cores, unlike that of a benchmark with several parts
    form = re.compile(rf"{name}_\w+-\d+-cores_\d{{4}}-\d\d-\d\d\.json")
    dated = [path for path in RESULTS.glob(f"{name}_*.json") if form.fullmatch(path.name)]
    if not dated:
        raise SystemExit(f"there is no result of {name}; run ./dev bench --save {name}")
    path = max(dated, key=lambda path: path.stem[-10:])
    return path, json.loads(path.read_text(encoding="utf-8"))


def cell(row: dict[str, float]) -> str:
    """Format a ratio with two decimals, and a star if it is above its goal."""
    missed = "goal" in row and row["ratio"] > row["goal"]
    return f"{row['ratio']:.2f}" + (r" \*" if missed else "")


def mixers(results: dict[str, Any]) -> list[list[str]]:
    """A row for each mixer with a goal: its ratios at each length, forward, and forward and backward."""
    forward, both = (results[f"mixing alone, {way}, batch 8"] for way in ("forward", "forward and backward"))
    rows = [["mixer", "forward", "forward and backward", "goal"]]
    for name in sorted(set(forward["1024"]) - {"sdpa, causal"}):
        ways = (" ".join(cell(way[tokens][name]) for tokens in LENGTHS) for way in (forward, both))
        goal = " ".join(f"{forward[tokens][name]['goal']:g}" for tokens in LENGTHS)
        rows.append([f"[{name}](mixers/{name}.md)", *ways, goal])
    return rows


def registered(results: dict[str, Any]) -> list[list[str]]:
    """A row for each model and pass: our milliseconds, and the time of the others as a multiple of ours."""
    rows = [["model", "tokens", "what", "type", "ms", "sdpa", "eager"]]
    for title, found in results.items():
        others = (found.get(f"{name} / ordinate") for name in ("sdpa", "eager"))
        cells = (f"{ratio:.2f}" if ratio else "–" for ratio in others)
        rows.append([*title.split(", "), f"{found['ordinate']:.1f}", *cells])
    return rows


def probe(results: dict[str, Any]) -> list[list[str]]:
    """A row for each probe: minutes, and memory above the model."""
    rows = [["question", "minutes", "GiB"]]
    for name, found in results.items():
        if isinstance(found, dict) and name != "all":
            rows.append([name, f"{found['minutes']:.2f}", f"{found['GiB']:.2f}"])
    return [*rows, ["all", *(f"{results['all'][what]:.2f}" for what in ("minutes", "GiB"))]]


def generate(results: dict[str, Any]) -> list[list[str]]:
    """A row for each dtype and batch size: tokens per second of both, and their ratio."""
    rows = [["type", "texts", "ours", "transformers", "ratio"]]
    for title, found in results.items():
        type, texts = title.split(", batch ")
        speeds = (f"{found['tokens_per_second'][who]:.1f}" for who in ("ordinate", "transformers"))
        rows.append([type, texts, *speeds, f"{found['ratio']:.2f}"])
    return rows


def study(results: dict[str, Any]) -> list[list[str]]:
    """Runs per hour of the study and of minimal training loops."""
    rows = [["runs", "an hour"]]
    for title, name in (("of the study", "runs_an_hour"), ("of bare loops", "bare_runs_an_hour")):
        rows.append([title, f"{results[name]:.0f}"])
    return [*rows, ["ratio (goal: 0.85)", f"{results['ratio']:.2f}"]]


def wkv(results: dict[str, Any]) -> list[list[str]]:
    """A row for each size: milliseconds of both, and our speed-up."""
    rows = [["what", "ours, ms", "transformers, ms", "times as fast"]]
    for title, found in results.items():
        missed = r" \*" if found["times"] < found["goal"] else ""
        times = [f"{found[who]:.1f}" for who in ("ordinate", "transformers")]
        rows.append([title.replace(" x ", " × "), *times, f"{found['times']:.1f}{missed}"])
    return rows


def decoder(results: dict[str, Any]) -> list[list[str]]:
    """A row for each scheme: its ratios to a model without positions, and to the scheme by the plain formula."""
    rows = [["scheme", "float32", "bfloat16", "float32, to plain", "bfloat16, to plain"]]
    for name in sorted(set(results["float32"]) - {"bare"}):
        found = [results[type][name].get(what) for what in ("ratio", "to plain") for type in ("float32", "bfloat16")]
        rows.append([f"[{name}](schemes/{name}.md)", *(f"{ratio:.2f}" if ratio else "–" for ratio in found)])
    return rows


def lengths(results: dict[str, Any]) -> list[list[str]]:
    """A row for each scheme, mask and dtype, a column for each length: ratios, forward and training."""
    rows = [["scheme, mask", *next(iter(results["float32"].values()))]]
    for title in (title.removesuffix(", forward") for title in results["float32"] if title.endswith(", forward")):
        for type, found in results.items():
            ways = [found[f"{title}, {way}"] for way in ("forward", "training")]
            cells = [", ".join(_ratio(way[tokens]) for way in ways) for tokens in rows[0][1:]]
            rows.append([title if type == "float32" else f"{title}, {type}", *cells])
    return rows


def _ratio(found: dict[str, float] | None) -> str:
    """Format a ratio; a star if PyTorch's own way is more than a twentieth faster, a dash if it is chosen."""
    if found is None:
        return "–"
    return f"{found['ratio']:.2f}" + (r" \*" if found["ratio"] > 1.05 else "")


def text(name: str, path: Path, about: dict[str, Any], rows: list[list[str]]) -> str:
    """Return a line on the machine, and the table."""
    machine, day = about["machine"], date.fromisoformat(path.stem[-10:])
    lines = [f"| {' | '.join(cells)} |" for cells in (rows[0], ["---"] * len(rows[0]), *rows[1:])]
    cores = f"{'all' if name in ('probe', 'study') else 'one'} of {machine['cores']} cores"
    kind = f" with {about['instructions']}" if "instructions" in about else ""
    where = f"{day}, {cores} of an {machine['processor']}{kind}, PyTorch {about['torch']}"
    return "\n".join([f"Measured {where} (`{path.relative_to(ROOT)}`):", "", *lines])


TABLES = {
    "decoder": decoder,
    "generate": generate,
    "lengths": lengths,
    "mixers": mixers,
    "probe": probe,
    "registered": registered,
    "study": study,
    "wkv": wkv,
}
# tables that are not their page's first, by the results that they show
PLACES = {
    "decoder": {"decoder": "training steps", "decoder-avx2": "training steps with AVX2"},
    "lengths": {
        "lengths-zen4": "lengths with Zen 4",
        "lengths-intel": "lengths with Intel",
        "lengths-intel-set-to-avx2": "lengths with Intel set to AVX2",
        "lengths-uncompiled-zen4": "lengths without a compiler with Zen 4",
    },
}
# pages with another name than the benchmark
PAGES = {
    "decoder": "attention.md",
    "lengths": "attention.md",
    "registered": "transformers.md",
    "wkv": "mixers/rwkv4.md",
}


def pages() -> Pages:
    """Return all pages with their tables."""
    made: Pages = {}
    for name, rows in TABLES.items():
        page = DOCS / PAGES.get(name, f"{name}.md")
        for source, where in PLACES.get(name, {name: "speeds"}).items():
            path, about = newest(source)
            made.setdefault(page, {})[where] = text(name, path, about, rows(about["results"]))
    return made


if __name__ == "__main__":
    write(pages())
