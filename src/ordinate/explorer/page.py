"""The page: one HTML file with style, script, weights and measured numbers, which needs no network."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ordinate.core.checks import need, need_known
from ordinate.explorer._panel import Panel
from ordinate.explorer.linker import link
from ordinate.explorer.measured import load as load_measured
from ordinate.explorer.measured import number, panels
from ordinate.explorer.packing import PackedModel, load_models, pack
from ordinate.explorer.related import load as load_related
from ordinate.report.html import printable, script_safe_json

MODELS, RESULTS = "models.safetensors", "models.json"
# bytes of the page
LARGEST = 4_000_000
ENTRY = "entry.js"
STYLES = ("js/vendor/uplot.css", "page.css")
# models without which every panel still answers its question, if somebody's own model needs their room
SPARE = ("sinusoidal", "alibi", "rope", "encoder")


def explorer_page(
    own: Sequence[PackedModel] = (), *, docs: str | None = None, only: str | None = None, view: str = ""
) -> str:
    """Return the page.

    Args:
        own: models of the user, shown beside those of the package; of these the page leaves out what it then has no
            room for.
        docs: address of the documentation, before the path of a page; None: pages are named, not linked.
        only: name of the one panel to show; None: all.
        view: fragment of the address that the page opens with, if it has no address: `#panel=rotation&offset=5`.

    Raises:
        ValueError: no panel of this name, or a page that would be larger than 4 MB.
    """
    supplies = panel_supplies(own, only)
    code, style = script(supplies.names), page_style()
    while True:
        page = _rendered(supplies, code, style, docs, view)
        size = len(page.encode())
        if size <= LARGEST or not supplies.spare:
            break
        supplies = supplies.without_one()
    remedy = "give a smaller model"
    need(size <= LARGEST, f"the page must have at most {LARGEST:,} bytes", f"got {size:,} with this model", remedy)
    return page


@dataclass(frozen=True, eq=False)
class Supplies:
    """What panels need: their models and measured numbers.

    Args:
        panels: names and panels, in their order.
        models: in the order of menus.
        left_out: names of models that there is no room for.
    """

    panels: Sequence[tuple[str, Panel]]
    models: Sequence[PackedModel]
    left_out: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Names of the panels."""
        return [name for name, _ in self.panels]

    @property
    def own(self) -> list[PackedModel]:
        """Models that the user gave, in addition to the built-in ones."""
        return [model for model in self.models if model.name not in _results()["models"]]

    @property
    def spare(self) -> list[str]:
        """Models that may be left out, the first one first."""
        return [name for name in SPARE if self.own and name in {model.name for model in self.models}]

    def without_one(self) -> "Supplies":
        """Return the same page without the first model of `spare`, to make room for the user's."""
        gone = self.spare[0]
        kept = [model for model in self.models if model.name != gone]
        return replace(self, models=kept, left_out=(*self.left_out, gone))

    def packed(self) -> tuple[list[dict[str, Any]], str]:
        """Return the list of models, and their weights."""
        entries, weights = pack(self.models)
        known = _results()["models"]
        return [{**entry, "own": entry["name"] not in known} for entry in entries], weights

    def measured(self) -> dict[str, Any]:
        """Return numbers and charts of results, and the text that models read."""
        results = _results()
        return {**load_measured(), "models": results["models"], "text": results["text"]}


def panel_supplies(own: Sequence[PackedModel] = (), only: str | None = None) -> Supplies:
    """Return all panels, or one, with the models that they run.

    Args:
        own: models of the user.
        only: name of the one panel; None: all.

    Raises:
        ValueError: no panel of this name.
    """
    known = panels()
    if only is not None:
        need_known("panel", only, dict(known))
    shown = [(name, panel) for name, panel in known if only in (None, name)]
    packaged = load_models(Path(str(_folder().joinpath(MODELS))))
    wanted = None if only is None else shown[0][1].models
    return Supplies(shown, [*(model for model in packaged if wanted is None or model.name in wanted), *own])


def page_style() -> str:
    """Return the style sheet: that of the charts, then that of the page."""
    files = (_folder().joinpath(path) for path in STYLES)
    return "".join(file.read_text(encoding="utf-8") for file in files)


def _rendered(supplies: Supplies, code: str, style: str, docs: str | None, view: str) -> str:
    entries, weights = supplies.packed()
    return (
        _environment()
        .get_template("page.html.jinja")
        .render(
            policy=content_policy(code, style),
            style=style,
            code=code,
            models=entries,
            left_out=", ".join(supplies.left_out),
            panels=[panel_facts(name, panel) for name, panel in supplies.panels],
            related=load_related(),
            docs=docs,
            view=view,
            model_list=script_safe_json(entries),
            measured=script_safe_json(supplies.measured()),
            weights=weights,
            provenance=_results()["provenance"],
        )
    )


def script(names: Sequence[str]) -> str:
    """Return the script of the page with these panels: all modules joined."""
    return link(ENTRY, module_reader(entry_module(names)))


def module_reader(entry: str) -> Callable[[str], str]:
    """Return a function that reads a module by its path; `entry` is the text of the first."""
    folder = _folder().joinpath("js")
    return lambda path: entry if path == ENTRY else folder.joinpath(path).read_text(encoding="utf-8")


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


def panel_facts(name: str, panel: Panel) -> dict[str, str]:
    """Return what stands above a panel: question, answer, where the number is from, and the page."""
    answer = panel.answer(number(load_measured(), panel.cited))
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
    found = Environment(
        loader=PackageLoader("ordinate.explorer", "."),
        autoescape=True,
        finalize=printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"breakable": breakable, "code_spans": code_spans}
    return found


def breakable(path: str) -> Markup:
    """Return a path as HTML that lines may break after its slashes and underscores."""
    return Markup(re.sub(r"([/_])", r"\1<wbr>", str(escape(path))))


def code_spans(text: str) -> Markup:
    """Return a text as HTML in which what stands between backticks is code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))
