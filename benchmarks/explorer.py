"""The explorer in Chromium: time to its first paint and first view, and from a move to its picture.

A pass is one forward pass of one model, whole, or with the numbers before an edit kept. A move sets a control by its
event, as a user does; its picture is there in the second frame after it. What a browser without a graphics card takes
to paint is part of it. Long work runs in a worker, and is no part of it.
"""

import os
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness.saving import save
from ordinate.core.checks import need
from ordinate.explorer.page import explorer_page

ROUNDS = 7
MOVES = {
    "order": ("input[type=text]", "return self.nams"),
    "matrix": ("input[type=range]", "48"),
    "adding": ("input[type=range]", "70"),
    "qkv": ("input[type=text]", "def area(width, heighs):"),
    "rotation": ("input[type=range]", "30"),
    "heads": ("input[type=range]", "5"),
    "privacy": ("input[type=text]", "password = 'tr0ub4dos'"),
}
# from an input event to the second frame after it
MOVE = """([panel, selector, value]) => new Promise((done) => {
  const input = document.querySelector(`#panel-${panel} ${selector}`), before = performance.now();
  input.value = value;
  input.dispatchEvent(new Event("input", {bubbles: true}));
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - before)));
})"""
# one forward pass of 64 bytes, whole and after an edit of the last or of the middle byte; the first passes warm up
PASS = """(edited) => {
  const {"core/model.js": {run}, "core/weights.js": {readModel, inflate}} = globalThis.ordinate;
  const text = (id) => document.getElementById(id).textContent;
  const entry = JSON.parse(text("models")).find(({name}) => name === "rope");
  return inflate(text("weights")).then((bytes) => {
    const model = readModel(entry, bytes), ids = Array.from({length: 64}, (_, p) => 97 + p % 26), times = [];
    const other = ids.map((id, p) => (p === edited ? 65 : id)), earlier = edited === null ? null : run(model, ids);
    for (let round = 0; round < 25; round++) {
      const start = performance.now();
      run(model, other, {}, earlier);
      times.push(performance.now() - start);
    }
    return times.slice(5).sort((a, b) => a - b)[10];
  });
}"""
PASSES = {"pass, 64 bytes": None, "pass, last edited": 63, "pass, middle edited": 32}
FIRST = """() => {
  const [navigation] = performance.getEntriesByType("navigation");
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  return {paint: paint?.startTime ?? NaN, load: navigation.loadEventEnd};
}"""


def measured(folder: Path) -> dict[str, Any]:
    """Return milliseconds: medians over rounds."""
    from playwright.sync_api import sync_playwright

    browser = next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
    )
    need(bool(browser), "the explorer is measured in Chromium", "none is found", "install it")
    file = folder / "explorer.html"
    file.write_text(explorer_page(), encoding="utf-8")
    found: dict[str, list[float]] = {}
    with sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(ROUNDS):
            for panel, (selector, value) in MOVES.items():
                page = chromium.new_page()
                page.goto(f"{file.as_uri()}#panel={panel}")
                page.wait_for_selector(f"#panel-{panel} .stage[data-ready]")
                if panel == "order":
                    for name, number in page.evaluate(FIRST).items():
                        found.setdefault(f"first {name}", []).append(number)
                    found.setdefault("first view", []).append(page.evaluate("performance.now()"))
                    for name, edited in PASSES.items():
                        found.setdefault(name, []).append(page.evaluate(PASS, edited))
                page.wait_for_timeout(500)
                found.setdefault(f"move, {panel}", []).append(page.evaluate(MOVE, [panel, selector, value]))
                page.close()
        chromium.close()
    return {name: statistics.median(each) for name, each in found.items()}


def main(keep: bool) -> None:
    """Measure, and print a table."""
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Path(folder))
    for name, number in found.items():
        print(f"{name:18} {number:7.0f} ms")
    if keep:
        # other work on the machine makes all of these longer
        print(save("explorer", {**found, "load average": os.getloadavg()[0]}))
