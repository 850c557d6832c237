"""The page: one HTML file with style, script, weights and measured numbers, which needs no network."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ordinate.core.checks import need
from ordinate.explorer.linker import link
from ordinate.explorer.measured import load as load_measured
from ordinate.explorer.measured import number, panels
from ordinate.explorer.packing import PackedModel, load_models, pack
from ordinate.report.html import printable, script_safe_json

MODELS, RESULTS = "models.safetensors", "models.json"
# bytes of the page
LARGEST = 4_000_000
ENTRY = "entry.js"


def explorer_page(own: Sequence[PackedModel] = (), *, docs: str | None = None) -> str:
    """Return the page.

    Args:
        own: models of the user, shown beside those of the package.
        docs: address of the documentation, before the path of a page; None: pages are named, not linked.

    Raises:
        ValueError: the page would be larger than 4 MB.
    """
    models = [*load_models(Path(str(_folder().joinpath(MODELS)))), *own]
    entries, weights = pack(models)
    results, record = _results(), load_measured()
    shown = [{**entry, "own": entry["name"] not in results["models"]} for entry in entries]
    code, style = script(), _folder().joinpath("page.css").read_text(encoding="utf-8")
    page = (
        _environment()
        .get_template("page.html.jinja")
        .render(
            policy=content_policy(code, style),
            style=style,
            code=code,
            models=shown,
            panels=[_panel(name, panel, record) for name, panel in panels()],
            docs=docs,
            model_list=script_safe_json(shown),
            measured=script_safe_json({**record, "models": results["models"], "text": results["text"]}),
            weights=weights,
            provenance=results["provenance"],
        )
    )
    size = len(page.encode())
    remedy = "give a smaller model"
    need(size <= LARGEST, f"the page must have at most {LARGEST:,} bytes", f"got {size:,} with this model", remedy)
    return page


def script() -> str:
    """Return the script of the page: all modules joined."""
    folder, entry = _folder().joinpath("js"), entry_module([name for name, _ in panels()])

    def read(path: str) -> str:
        return entry if path == ENTRY else folder.joinpath(path).read_text(encoding="utf-8")

    return link(ENTRY, read)


def entry_module(names: Sequence[str]) -> str:
    """Return the first module: it hands every panel to the page, or answers it in a worker."""
    lines = [
        f'import {{fields as fields{n}, render as render{n}}} from "./panels/{name}.js";'
        for n, name in enumerate(names)
    ]
    table = ", ".join(f"{name}: {{fields: fields{n}, render: render{n}}}" for n, name in enumerate(names))
    return "\n".join(
        [
            *lines,
            'import {start} from "./view/page.js";',
            'import {serve} from "./core/worker.js";',
            # read by tests, and by people who look at the numbers in a console
            "globalThis.ordinate = modules;",
            f'if (typeof document === "undefined") serve();\nelse start({{{table}}});',
        ]
    )


def content_policy(code: str, style: str) -> str:
    """Return the Content-Security-Policy: this script, this style, a worker made of it, and no request."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (code, style)]
    return (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; worker-src blob:; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _panel(name: str, panel: Any, record: Mapping[str, Any]) -> dict[str, str]:
    measured = number(record, panel.cited)
    answer = panel.answer(measured)
    return {
        "name": name,
        "title": panel.title,
        "question": panel.question,
        "word": answer.word,
        "text": answer.text,
        "source": panel.cited.file,
        "page": panel.page,
        "page_html": panel.page.removesuffix(".md") + ".html",
        "page_title": panel.page.removesuffix(".md"),
    }


def _results() -> dict[str, Any]:
    return json.loads(_folder().joinpath(RESULTS).read_text(encoding="utf-8"))


def _folder() -> Traversable:
    return resources.files("ordinate.explorer")


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("ordinate.explorer", "."),
        autoescape=True,
        finalize=printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
