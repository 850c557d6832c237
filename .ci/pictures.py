"""Draw the pictures of docs/images that are stale: `python .ci/pictures.py [NAME ...] [--all | --check]`.

Every picture is drawn from a source: a Vega-Lite chart, or the beginning of the page of a report, both made from
committed results or, for schemes, from their initial weights. The source and the drawing settings are kept in the PNG
file, in a compressed text chunk. A picture is stale if they differ from those made now, so nothing needs to be drawn
to find that out: neither fonts nor a browser are needed. Numbers may differ by what processors round differently.

NAME: a part of the path of the pictures to look at, such as report or schemes/. --all draws those too that are not
stale, --check draws none and lists what is stale. The report needs Chromium.
"""

import argparse
import hashlib
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import torch
import vl_convert

# benchmarks is a package of the repository
sys.path.insert(0, str(Path(__file__).parents[1]))

import over_training
import questions

from benchmarks.attention import plot as attention
from benchmarks.harness.plot import newest_curve
from benchmarks.mixers import plot as mixers
from ordinate.cli.save_plot import scheme_chart
from ordinate.core import catalog
from ordinate.core.checks import need
from ordinate.explorer.page import explorer_page
from ordinate.report.page import study_page
from ordinate.report.read import load_study
from ordinate.report.summary import summarise
from ordinate.report.table import table_rows
from ordinate.schemes._plot_data import scheme_plots
from ordinate.schemes._plots import build_scheme

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
REPORT = ROOT / "studies" / "quick"
# schemes without an effect of their own are drawn together with another one
TOGETHER = {"none": "none+rope/none", "randomized": "randomized+sinusoidal"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SIGNATURE, CHUNK, KEYWORD = b"\x89PNG\r\n\x1a\n", b"zTXt", b"Source"
DIGITS = 6
# time in the page until it is drawn [ms]
STILL_AFTER = 15_000
# processors round differently by less, and nobody sees more
RELATIVE, ABSOLUTE = 1e-4, 1e-5
# characters shown of two texts that differ
SHOWN = 60


@dataclass(frozen=True)
class Picture:
    """What a picture is drawn from.

    Args:
        source: a Vega-Lite chart, or an HTML page.
        settings: `scale` of a chart; `width` and `height` of a page [pixels].
    """

    source: dict[str, Any] | str
    settings: dict[str, float]

    @property
    def record(self) -> Any:
        """Source and settings as they are kept in the file: numbers rounded, without the version of Vega-Lite."""
        kept = self.source
        if isinstance(kept, dict):
            kept = {name: value for name, value in kept.items() if name != "$schema"}
        written = json.dumps({"settings": self.settings, "source": kept})
        return json.loads(written, parse_float=lambda text: float(f"{float(text):.{DIGITS}g}"))

    def png(self) -> bytes:
        """Draw the picture; the source is kept in it."""
        if isinstance(self.source, str):
            drawn = screenshot(self.source, int(self.settings["width"]), int(self.settings["height"]))
        else:
            drawn = vl_convert.vegalite_to_png(self.source, scale=self.settings["scale"])
        return with_record(drawn, self.record)


@dataclass(frozen=True)
class LivePicture(Picture):
    """A picture of a page whose script draws; its record is a digest of all but the weights of its models.

    How weights are deflated depends on the version of zlib, and the page is too large to be kept in a picture.
    """

    @property
    def record(self) -> Any:
        """Settings, and a digest of the page."""
        before, _, rest = str(self.source).partition('id="weights">')
        digest = hashlib.sha256((before + rest.partition("</script>")[2]).encode()).hexdigest()
        return {"settings": self.settings, "page": digest}

    def png(self) -> bytes:
        """Draw the picture once the page has been still; the digest is kept in it."""
        size = (int(self.settings["width"]), int(self.settings["height"]))
        return with_record(screenshot(str(self.source), *size, wait=STILL_AFTER), self.record)


def chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield type and content of each chunk of a PNG file."""
    need(png.startswith(SIGNATURE), "a picture must be a PNG file", f"it begins with {png[:8]!r}", "draw it again")
    place = len(SIGNATURE)
    while place < len(png):
        (size,) = struct.unpack(">I", png[place : place + 4])
        yield png[place + 4 : place + 8], png[place + 8 : place + 8 + size]
        place += 12 + size


def with_record(png: bytes, record: Any) -> bytes:
    """Return a PNG file with this record in place of any other."""
    text = zlib.compress(json.dumps(record, sort_keys=True).encode(), 9)
    parts = [part for part in chunks(png) if not _is_record(*part)]
    # before IEND, the last chunk
    parts.insert(-1, (CHUNK, KEYWORD + b"\0\0" + text))
    written = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    ]
    return SIGNATURE + b"".join(written)


def read_record(png: bytes) -> Any:
    """Return the record of a PNG file; None if it has none."""
    found = [body for kind, body in chunks(png) if _is_record(kind, body)]
    return json.loads(zlib.decompress(found[0][len(KEYWORD) + 2 :])) if found else None


def _is_record(kind: bytes, body: bytes) -> bool:
    return kind == CHUNK and body.startswith(KEYWORD + b"\0")


def difference(old: Any, new: Any, where: str = "") -> str:
    """Say where two records differ first, numbers by more than rounding; empty if they do not."""
    if isinstance(old, dict) and isinstance(new, dict):
        if old.keys() != new.keys():
            return f"{where}: {', '.join(sorted(old.keys() ^ new.keys()))}"
        pairs = ((f"{where}.{name}".lstrip("."), old[name], new[name]) for name in new)
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            return f"{where}: {len(old)} -> {len(new)} entries"
        pairs = ((f"{where}[{place}]", *pair) for place, pair in enumerate(zip(old, new, strict=True)))
    elif all(isinstance(one, int | float) and not isinstance(one, bool) for one in (old, new)):
        same = math.isclose(old, new, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
        return "" if same else f"{where}: {old} -> {new}"
    else:
        return "" if old == new and type(old) is type(new) else f"{where}: {_texts(old, new)}"
    return next((found for name, one, other in pairs if (found := difference(one, other, name))), "")


def _texts(old: Any, new: Any) -> str:
    """Show two values; of long texts the first line that differs, from where it does."""
    lines = [str(one).splitlines() for one in (old, new)]
    pairs = (pair for pair in zip(*lines, strict=False) if pair[0] != pair[1])
    one, other = next(pairs, [f"{len(part)} lines" for part in lines])
    same = next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
    start = max(0, same - SHOWN // 4)
    return f"{one[start : start + SHOWN]!r} -> {other[start : start + SHOWN]!r}"


def screenshot(page: str, width: int, height: int, wait: int = 0) -> bytes:
    """Draw the top of an HTML page with Chromium.

    Args:
        page: its text.
        width: of the window [pixels].
        height: of the window [pixels].
        wait: time that its script may take; 0: there is none [ms].

    Raises:
        ValueError: there is no Chromium.
    """
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), "")
    need(
        bool(browser), "the picture of a page needs Chromium", f"none of {', '.join(BROWSERS)} is found", "install it"
    )
    with tempfile.TemporaryDirectory() as name:
        source, out = Path(name, "page.html"), Path(name, "page.png")
        source.write_text(page, encoding="utf-8")
        # root has no sandbox
        root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        view = [f"--window-size={width},{height}", "--force-device-scale-factor=1", "--hide-scrollbars"]
        view += [f"--virtual-time-budget={wait}"] if wait else []
        command = [browser, "--headless", "--disable-gpu", *root, *view, f"--user-data-dir={name}/profile"]
        subprocess.run([*command, f"--screenshot={out}", source.as_uri()], check=True, capture_output=True)
        return out.read_bytes()


def report_page(folder: Path) -> str:
    """Return the page of a study down to its table, which depends on its results only.

    Left out are what follows, the charts and the facts on machine, versions and command, and the scripts.
    """
    study = load_study(folder)
    entries = summarise(study)
    page = study_page(study, entries, table_rows(study, entries))
    top = page[: page.index('<div class="chart"')]
    top = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>\n', "", top[: top.rindex("<details")])
    return f"{top}</main>\n</body>\n</html>\n"


def spec(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """Return a chart as Vega-Lite; the check against its schema would take longer than all the rest."""
    return chart.to_dict(validate=False)


def pictures() -> dict[Path, Picture]:
    """Return what each picture of docs/images is drawn from."""
    found = {
        IMAGES / "attention.png": Picture(spec(attention.chart(newest_curve("attention"))), {"scale": 2}),
        IMAGES / "mixers.png": Picture(spec(mixers.chart(newest_curve("mixers"))), {"scale": 1.5}),
        IMAGES / "explorer.png": LivePicture(explorer_page(), {"width": 1240, "height": 1245}),
        IMAGES / "report.png": Picture(report_page(REPORT), {"width": 1100, "height": 1470}),
    }
    for name in catalog.names("ordinate.schemes"):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            text = TOGETHER.get(name, name)
            chart = scheme_chart(text, scheme_plots(build_scheme(text)))
        found[IMAGES / "schemes" / f"{name}.png"] = Picture(spec(chart), {"scale": 1.2})
    for path, chart in (questions.charts() | over_training.charts()).items():
        found[path] = Picture(chart, {"scale": 1.2})
    return found


def stale(found: Mapping[Path, Picture], images: Path = IMAGES) -> dict[Path, str]:
    """Return the pictures whose file is missing, or drawn from something else, or from nothing, and why."""
    reasons = {path: "nothing says how to draw it" for path in sorted(images.rglob("*")) if path.is_file()}
    for path, picture in found.items():
        reasons.pop(path, None)
        record = read_record(path.read_bytes()) if path.exists() else None
        if record is None:
            reasons[path] = "it does not say what it was drawn from" if path.exists() else "it is missing"
        elif where := difference(record, picture.record):
            reasons[path] = where
    return reasons


def said(path: Path, reason: str) -> str:
    """Return a line that says why a picture is stale, and what to do."""
    return f"{path.relative_to(ROOT)} is stale ({reason}): run ./dev pictures {path.stem}"


def options(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line: which pictures, and whether to draw all or only to check."""
    parser = argparse.ArgumentParser(prog="python .ci/pictures.py", description="Draw the pictures that are stale.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a path: report, schemes/; by default all")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--all", action="store_true", help="draw those too that are not stale")
    what.add_argument("--check", action="store_true", help="draw none; exit code 1 if one is stale")
    return parser.parse_args(words)


def main() -> None:
    """Draw the pictures that are stale, or list them."""
    given, found = options(sys.argv[1:]), pictures()
    old = stale(found)
    chosen = [
        path
        for path in (found if given.all else old)
        if not given.names or any(name in path.relative_to(IMAGES).as_posix() for name in given.names)
    ]
    if given.check:
        for path in chosen:
            print(said(path, old[path]))
        sys.exit(1 if chosen else 0)
    for path in chosen:
        if path not in found:
            sys.exit(f"{path.relative_to(ROOT)} is no picture of .ci/pictures.py: delete it, or add its source there")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(found[path].png())
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
