"""Panels in notebooks: shown without any package, or as widgets of anywidget whose values Python reads and sets."""

import json
from html import escape
from typing import Any
from urllib.parse import urlencode

from ordinate.core.checks import need
from ordinate.explorer.linker import link_module
from ordinate.explorer.model_facts import check_model, packed_model
from ordinate.explorer.page import (
    ENTRY,
    Supplies,
    explorer_page,
    module_reader,
    page_style,
    panel_facts,
    panel_supplies,
    script,
)
from ordinate.explorer.token_facts import BYTES
from ordinate.models.decoder import Decoder
from ordinate.report.html import script_safe_json

INSTALL = 'pip install "ordinate[notebook]"'
# pixels
HEIGHT = 900
Value = str | int | float | bool


def panel(name: str, model: Decoder | None = None, **view: Value) -> "NotebookPanel":
    """Return a panel of the explorer, which shows itself at the end of a cell of a notebook.

    Args:
        name: order, matrix, adding, qkv, rotation, heads, survival, privacy or further.
        model: a decoder of bytes of your own, shown beside the models of the panel; see `check_model`.
        view: what the panel opens with, by the names that an address of the page has: `offset=5`.

    Raises:
        ValueError: no panel of this name, or a model that the page cannot run.
    """
    need("panel" not in view, "a view has the names of controls", "got panel", "give the panel as the first argument")
    if model is not None:
        check_model(model)
        came = f"got one of {model.shape.vocabulary} tokens"
        need(
            model.shape.vocabulary == BYTES,
            f"a model given as such reads {BYTES} bytes",
            came,
            "train one with bytes",
        )
    own = [] if model is None else [packed_model(model, "own", title="yours")]
    return NotebookPanel(name, panel_supplies(own, name), view)


class NotebookPanel:
    """A panel in a notebook.

    The display is the page with this panel alone, in a frame of its own: it needs no network, no package and no
    running Python, and stays in the notebook when that is exported. `widget()` returns it as a widget.

    Args:
        name: name of the panel.
        supplies: the panel with its models.
        view: values of its controls by their names.
    """

    def __init__(self, name: str, supplies: Supplies, view: dict[str, Value]) -> None:
        self.name, self.supplies, self.view = name, supplies, view

    def _repr_html_(self) -> str:
        page = explorer_page(self.supplies.own, only=self.name, view=self._fragment)
        frame = f"width: 100%; height: {HEIGHT}px; border: 0"
        title = escape(self.supplies.panels[0][1].question)
        return f'<iframe sandbox="allow-scripts" title="{title}" style="{frame}" srcdoc="{escape(page)}"></iframe>'

    @property
    def esm(self) -> str:
        """The panel as an ES module in anywidget's form: its default export has `render({model, el})`.

        Everything is in it: script, style, weights and numbers. `model.get("view")` are values of controls by name.
        """
        entries, weights = self.supplies.packed()
        style = (
            page_style().replace(":root", ":host").replace("\nbody {", "\n:host { display: block; padding: .5rem;")
        )
        data = {
            "entries": entries,
            "weights": weights,
            "measured": self.supplies.measured(),
            "code": script([self.name]),
            "style": style,
            "about": panel_facts(*self.supplies.panels[0]),
        }
        return link_module(ENTRY, module_reader(self._entry), script_safe_json(data))

    def widget(self) -> Any:
        """Return it as a widget whose `view` has the values of its controls, and sets them.

        Raises:
            ModuleNotFoundError: the package anywidget is not installed.
        """
        try:
            import anywidget
            import traitlets
        except ModuleNotFoundError as error:
            said = f"a widget needs the package {error.name}; it is not installed; {INSTALL}"
            raise ModuleNotFoundError(said, name=error.name) from None
        view = traitlets.Dict(dict(self.view)).tag(sync=True)
        return type("PanelWidget", (anywidget.AnyWidget,), {"_esm": self.esm, "view": view})()

    @property
    def _entry(self) -> str:
        """The first module of the widget."""
        given = f"{json.dumps(self.name)}, {{fields, render: draw}}, given"
        return (
            f'import {{fields, render as draw}} from "./panels/{self.name}.js";\n'
            'import {mount} from "./view/widget.js";\n'
            f"export function render(given) {{ return mount({given}); }}"
        )

    @property
    def _fragment(self) -> str:
        """The view as an address has it."""
        words = {key: str(int(value)) if isinstance(value, bool) else str(value) for key, value in self.view.items()}
        return f"#{urlencode({'panel': self.name, **words})}"
