"""Panels in notebooks: as a frame without any package, and as a widget in anywidget's form."""

import json
import re
import sys

import pytest
import torch

from ordinate import Decoder, Shape
from ordinate.explorer import panel
from tests.explorer.chromium import MARKS

# a host of widgets: what anywidget's model has, and a place
HOST = """async (view) => {
  const url = URL.createObjectURL(new Blob([globalThis.esm], {type: "text/javascript"}));
  const {default: {render}} = await import(url), heard = {}, values = {view}, sent = globalThis.sent = [];
  globalThis.model = {
    get: (key) => values[key],
    set: (key, value) => { values[key] = value; heard[`change:${key}`]?.(); },
    save_changes: () => sent.push({...values.view}),
    on: (event, act) => { heard[event] = act; },
    off: (event) => { delete heard[event]; },
  };
  globalThis.end = render({model: globalThis.model, el: document.getElementById("cell")});
}"""


def small(**changes):
    sizes = {"vocabulary": 256, "width": 32, "layers": 1, "heads": 2}
    return Decoder(Shape(**{**sizes, **changes})).eval()


def test_a_panel_is_a_frame_that_asks_for_nothing():
    shown = panel("heads", offset=5, relation="first")._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts" title="Can a head attend')
    assert "data-view=&quot;#panel=heads&amp;amp;offset=5&amp;amp;relation=first&quot;" in shown
    # a panel that runs no model brings none
    assert len(shown) < 500_000
    assert not re.search(r"<(?!iframe|/iframe)", shown)


def test_a_module_of_a_widget_has_everything_in_it():
    esm = panel("matrix").esm
    assert esm.rstrip().endswith("export default {render: (given) => render({...given, data})};")
    # the data are text, among them that of a Python file
    code = esm.partition("\nconst data = ")[0]
    # the first line of the charts' library names where it is from
    code = code.replace("/*! https://github.com/leeoniya/uPlot (v1.6.32) */", "")
    assert not re.search(r"^import\b|\bimport\(|\bfetch\(|https?://(?!www\.w3\.org)", code, re.MULTILINE)


def test_what_cannot_be_shown_is_refused():
    with pytest.raises(ValueError, match="no panel is named 'rotaton'"):
        panel("rotaton")
    with torch.device("meta"):
        other = small(norm_position="post")
    with pytest.raises(ValueError, match="the explorer runs models with norm_position"):
        panel("order", other)
    with pytest.raises(ValueError, match="a model given as such reads 256 bytes; got one of 300 tokens"):
        panel("order", small(vocabulary=300))
    with pytest.raises(ValueError, match="a view has the names of controls; got panel"):
        panel("order", panel="heads")


def test_a_widget_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(ModuleNotFoundError, match=r'a widget needs the package anywidget; .* pip install "ordinate'):
        panel("matrix").widget()


def test_a_widget_keeps_its_view_where_python_reads_it():
    pytest.importorskip("anywidget", reason="needs anywidget")
    widget = panel("heads", offset=5).widget()
    assert widget.view == {"offset": 5}
    assert "export default" in widget._esm
    widget.close()


class TestInChromium:
    """What a notebook does with them."""

    pytestmark = MARKS

    @pytest.fixture
    def cell(self, browser):
        """A page with a place for output; nothing may be asked for, or said in the console."""
        page, said, asked = browser.new_page(viewport={"width": 1000, "height": 900}), [], []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.set_content("<!doctype html><title>t</title><main id='cell'></main>")
        yield page
        page.close()
        assert not said
        assert all(url.startswith(("blob:", "data:", "about:")) for url in asked)

    @pytest.mark.parametrize(("name", "view"), [("heads", {"offset": 5}), ("order", {"depth": 1, "mask": False})])
    def test_a_widget_draws_moves_and_ends(self, cell, name, view):
        cell.evaluate(f"globalThis.esm = {json.dumps(panel(name).esm)}")
        cell.evaluate(HOST, view)
        stage = cell.locator("#cell .stage[data-ready]")
        stage.wait_for()
        key, value = next(iter(view.items()))
        slider = stage.locator(f"input[type=range][id^={key}]")
        assert slider.input_value() == str(value)
        # from the page to Python
        slider.focus()
        cell.keyboard.press("ArrowRight")
        assert cell.evaluate("globalThis.sent.at(-1)")[key] == value + 1
        # and from Python to the page
        before = stage.inner_text()
        cell.evaluate(f"globalThis.model.set('view', {{{key}: {value + 2}}})")
        cell.wait_for_timeout(300)
        assert slider.input_value() == str(value + 2)
        assert stage.inner_text() != before
        cell.evaluate("globalThis.end()")
        assert cell.locator("#cell").inner_html() == ""

    def test_long_work_is_done_in_a_widget_too(self, cell):
        cell.evaluate(f"globalThis.esm = {json.dumps(panel('further').esm)}")
        cell.evaluate(HOST, {"length": 0})
        note = cell.locator("#cell .note", has_text="read in")
        note.wait_for()
        assert note.count() == 1
        assert cell.locator("#cell [role=alert]").count() == 0

    def test_a_value_without_a_control_is_named(self, cell):
        cell.evaluate(f"globalThis.esm = {json.dumps(panel('matrix').esm)}")
        cell.evaluate(HOST, {"widht": 7})
        assert "matrix has no control widht; it has width, base" in cell.locator("[role=alert]").inner_text()

    def test_a_frame_draws_its_view(self, cell):
        shown = panel("survival", small(), skip=0.5, mask=False)._repr_html_()
        cell.set_content(f"<!doctype html><title>t</title>{shown}")
        inside = cell.frame_locator("iframe")
        inside.locator(".stage[data-ready]").wait_for()
        inside.locator("[role=status]", has_text="After the last layer: ").wait_for()
        assert inside.locator("output", has_text="× 0.5").count() == 1
        assert inside.locator("nav").is_hidden()
        assert "yours" in inside.locator(".stage").inner_text()
        assert inside.locator("[role=alert]").count() == 0
