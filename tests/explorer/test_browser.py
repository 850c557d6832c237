"""The page in Chromium, from disk: every panel opens, moves, shows the library's numbers; nothing is asked for."""

import json
import re
from importlib import resources
from urllib.parse import quote_plus

import pytest

from ordinate.explorer.measured import panels
from ordinate.explorer.model_facts import packed_model
from ordinate.explorer.own_model import read_own_model
from ordinate.explorer.page import explorer_page
from tests.explorer.checkpoints import make_tokenizer, write_checkpoint
from tests.explorer.chromium import MARKS

NAMES = [name for name, _ in panels()]
# further views that axe reads, and that must fit their screen
VIEWS = [*NAMES, "qkv&source=cross&numbers=changed&model=t5", "qkv&source=cached&numbers=changed&model=t5"]
pytestmark = MARKS
# what can be moved: a first view, and one that differs in every kind of control
MOVES = {
    "order": "text=abcdef&moved=bacdef&left=t5&right=alibi&depth=1&mask=0",
    "matrix": "width=7&base=1&length=40&row=3&terms=9",
    "adding": "code=scalar&way=concatenate&share=30",
    "qkv": "text=abc+abc&model=alibi&layer=2&head=1&query=4&key=2&change=swapped&source=cached",
    "rotation": "offset=100&theta=4&width=1&scaling=llama3&factor=16&slope=5&map=fire",
    "heads": "relation=first&means=rotation&offset=5&strength=2",
    "survival": "skip=0.5&mask=0&subject=rope",
    "privacy": "text=pass&model=rope&seed=3&mask=0",
    "further": "length=0&model=alibi&scaling=none",
}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "explorer.html"
    file.write_text(explorer_page(), encoding="utf-8")
    return file


@pytest.fixture
def visit(browser, path):
    """Open a panel; at the end nothing may have been asked for, refused, or said in the console."""
    opened, said, asked = [], [], []

    def at(fragment, file=path, **settings):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{file.as_uri()}#panel={fragment}")
        name = fragment.partition("&")[0]
        page.wait_for_selector(f"#panel-{name} .stage[data-ready]", timeout=60_000)
        opened.append(context)
        return page

    yield at
    for context in opened:
        context.close()
    assert not said
    assert all(url.startswith(("file:", "blob:", "data:")) for url in asked)
    assert len([url for url in asked if url.startswith("file:")]) == len(opened)


def settled(page, name):
    """The text of a panel once its long work is done."""
    stage = page.locator(f"#panel-{name} .stage")
    page.wait_for_timeout(300)
    for _ in range(600):
        text = stage.inner_text()
        if not re.search(r"Running [^…]+ …|Reading \d+ bytes", text):
            return text
        # by a wait for a function the policy of the page would be violated
        page.wait_for_timeout(100)
    raise AssertionError(f"{name} is still at work")


@pytest.mark.parametrize("name", NAMES)
def test_a_panel_opens_and_moves(visit, name):
    page = visit(name)
    assert page.locator("article:visible").count() == 1
    first = settled(page, name)
    assert page.locator(f"#panel-{name} [role=alert]").count() == 0
    page.evaluate(f"location.hash = '#panel={name}&{MOVES[name]}'")
    page.wait_for_timeout(300)
    assert settled(page, name) != first
    page.get_by_role("button", name="Back to the first view").locator("visible=true").click()
    page.wait_for_timeout(300)
    timed = re.compile(r"in \d+ ms")
    if name != "further":
        assert timed.sub("", settled(page, name)) == timed.sub("", first)


def test_every_stage_in_the_browser_is_pytorchs(visit, golden):
    told = json.loads(golden.read_text())
    page = visit("order")
    gaps = page.evaluate(
        """async (told) => {
          const {"core/weights.js": {inflate, readModel}, "core/model.js": {run}} = globalThis.ordinate;
          const bytes = await inflate(told.weights), gaps = {};
          const stages = [["q", "q"], ["k", "k"], ["v", "v"], ["scores", "attn_scores"], ["pattern", "pattern"],
            ["z", "z"], ["residual", "residual"]];
          for (const entry of told.entries) {
            const model = readModel(entry, bytes);
            let gap = 0;
            const near = (found, wanted) => wanted.forEach((value, i) => {
              gap = Math.max(gap, value === null ? (Number.isFinite(found[i]) ? 1 : 0) : Math.abs(found[i] - value));
            });
            for (const wanted of told.models[entry.name]) {
              const trace = run(model, wanted.ids);
              near(trace.embedding, wanted.embedding);
              wanted.layers.forEach((layer, depth) => {
                for (const [mine, theirs] of stages) near(trace.layers[depth][mine], layer[theirs]);
              });
              near(wanted.logits ? trace.logits : trace.final, wanted.logits ?? wanted.final);
            }
            gaps[entry.name] = gap;
          }
          return gaps;
        }""",
        {key: told[key] for key in ("entries", "weights", "models")},
    )
    assert len(gaps) == len(told["entries"])
    assert max(gaps.values()) < 1e-6, gaps


def test_cross_attention_and_a_cache_in_the_browser_are_pytorchs(visit, golden):
    told = json.loads(golden.read_text())
    page = visit("order")
    found = page.evaluate(
        """async (told) => {
          const {"core/weights.js": {inflate, readModel}, "core/model.js": {run}, "core/kinds.js": {layerStages},
            "core/changes.js": {CHANGES}, "core/cached.js": {cachedStep, compareLastRows}} = globalThis.ordinate;
          const bytes = await inflate(told.weights), found = {};
          for (const [name, {ids, other, cross, changes, cached, scale}] of Object.entries(told.kinds)) {
            const model = readModel(told.entries.find((entry) => entry.name === name), bytes);
            let gap = 0;
            const near = (mine, wanted, factor = 1) => wanted.forEach((value, i) => {
              gap = Math.max(gap, Math.abs(mine[i] / factor - value));
            });
            const crossed = (layer, change, wanted) => {
              const given = {model, layer, change, ids, other};
              const {stages} = layerStages("cross", given, (read) => run(model, read, CHANGES[change].how));
              for (const [stage, numbers] of Object.entries(wanted))
                near(stages[stage], numbers, change === "outside" && stage === "z" ? scale : 1);
            };
            cross.forEach((wanted, layer) => crossed(layer, "trained", wanted));
            for (const [change, wanted] of Object.entries(changes)) {
              crossed(model.layers - 1, change, wanted.cross);
              near(run(model, ids, CHANGES[change].how).logits, wanted.logits);
            }
            const step = cachedStep(model, ids, run(model, ids.slice(0, -1)));
            near(step.logits.slice(-model.vocabulary), cached.logits);
            found[name] = {gap, different: compareLastRows(step, run(model, ids)).different};
          }
          return found;
        }""",
        {key: told[key] for key in ("entries", "weights", "kinds")},
    )
    assert list(found) == list(told["kinds"])
    for name, one in found.items():
        assert one["gap"] < 1e-6, name
        assert one["different"] == 0, name


def words(ids):
    return quote_plus(bytes(ids).decode())


def test_the_panel_shows_the_librarys_row_of_cross_attention(visit, golden):
    kinds = json.loads(golden.read_text())["kinds"]["alibi"]
    n, keys, head, query = len(kinds["ids"]), len(kinds["other"]), 2, 5
    view = f"qkv&source=cross&model=alibi&layer=2&head={head + 1}&query={query}&key=0"
    page = visit(f"{view}&text={words(kinds['ids'])}&other={words(kinds['other'])}")
    cells = page.locator("#panel-qkv table", has_text="One row of attention").locator("tbody tr")
    shown = [row.locator("td").last.inner_text() for row in cells.all()]
    wanted = kinds["cross"][1]["pattern"][(head * n + query) * keys :][:keys]
    assert shown == [f"{100 * share:.1f} %" for share in wanted]
    # the last key, beyond the query, by the keyboard
    page.get_by_role("group", name="of the second text").get_by_role("button").last.focus()
    page.keyboard.press("Enter")
    page.wait_for_timeout(500)
    assert f"&key={keys - 1}" in page.evaluate("location.hash")
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    # another second text, other keys
    page.get_by_label("Second text: keys and values").fill("xyz")
    page.wait_for_timeout(200)
    assert cells.count() == 3
    page.get_by_label("Second text: keys and values").fill("")
    page.locator("#panel-qkv .note", has_text="Type a second text").wait_for()


def test_the_panel_says_what_is_read_from_a_cache(visit, golden):
    kinds = json.loads(golden.read_text())["kinds"]["rope"]
    page = visit(f"qkv&source=cached&model=rope&text={words(kinds['ids'])}")
    text = settled(page, "qkv")
    n, counts = len(kinds["ids"]), kinds["cached"]["multiplications"]
    assert page.get_by_label("Second text: keys and values").is_hidden()
    assert f"{counts[-1]:,}" in text
    kept = sum(len(each["k"]) + len(each["v"]) for each in kinds["cached"]["kept"])
    assert f"Read from the cache: {kept:,} numbers" in text
    assert "numbers of the last row (all stages, all layers, the logits) and of the cache, to the last bit" in text
    rows = page.locator("#panel-qkv table", has_text="One row of attention").locator("tbody tr")
    assert [row.locator("td").nth(1).inner_text() for row in rows.all()] == ["cache"] * (n - 1) + ["new"]
    keys, read = (
        page.locator("#panel-qkv figure", has_text="K = X W_K").locator(part) for part in ("canvas", ".read")
    )
    keys.focus()
    assert "(0), channel 0, from the cache: " in read.inner_text()
    for _ in range(n + 1):
        page.keyboard.press("ArrowDown")
    assert f"({n - 1}), channel 0, computed now: " in read.inner_text()


def test_losses_by_length_fit_a_phone(visit):
    page = visit("further", viewport={"width": 360, "height": 800})
    table = page.get_by_role("table", name="Bits per byte on held-out text")
    assert table.bounding_box()["width"] <= 328
    cells = table.get_by_role("cell")
    assert cells.count() == 24
    for cell in cells.all():
        box = cell.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
    label = "(cell) => getComputedStyle(cell, '::before').content"
    assert cells.nth(3).evaluate(label).startswith('"1024 bytes"')


def test_the_first_view_shows_that_depth_one_cannot_see_a_swap(visit):
    page = visit("order")
    row = page.locator("#panel-order table.plain tbody tr").first.locator("td").all_inner_texts()
    assert row[0] == "0"
    assert all(float(cell) > 0.001 for cell in row[1:])


def test_keys_move_words_and_read_maps(visit):
    page = visit("order&moved=one+two+three&text=two+one+three")
    page.locator(".chip", has_text="one").first.click()
    page.keyboard.press("Alt+ArrowRight")
    page.wait_for_timeout(200)
    # the word keeps the focus, so that it can be moved on
    page.keyboard.press("Alt+ArrowRight")
    page.wait_for_timeout(200)
    assert page.locator("#panel-order .chip:not(.move)").all_inner_texts() == ["two", "three", "one"]
    page.locator("#panel-order canvas").first.focus()
    page.keyboard.press("ArrowDown")
    assert "attends to" in page.locator("#panel-order .read").first.inner_text()


def test_charts_are_read_by_keys_by_pointer_and_in_their_table(visit):
    page = visit("survival&mask=0")
    settled(page, "survival")
    chart = page.locator("#panel-survival .chart").first
    read, picture = chart.locator(".read"), chart.locator(".lines")
    table = chart.locator("details")
    table.locator("summary").click()
    # filled by an event that comes after the click
    table.locator("tbody tr").last.wait_for()
    last = table.locator("tbody tr").last.locator("th, td").all_inner_texts()
    names = table.locator("thead th").all_inner_texts()
    wanted = f"after layer {last[0]}: " + ", ".join(
        f"{name} {cell}" for name, cell in zip(names[1:], last[1:], strict=True)
    )
    picture.focus()
    page.keyboard.press("End")
    assert read.inner_text() == wanted
    page.keyboard.press("ArrowLeft")
    assert read.inner_text().startswith("after layer 2: none ")
    box = picture.bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 100)
    assert read.inner_text().startswith("after layer 0: none ")
    page.mouse.move(box["x"] + 60, box["y"] - 200)
    assert not read.inner_text().strip()


def test_a_chart_follows_the_theme_and_the_width(visit):
    page = visit("heads")
    canvas = page.locator("#panel-heads .chart canvas")
    drawn = "(canvas) => canvas.toDataURL()"
    light, wide = canvas.evaluate(drawn), canvas.bounding_box()["width"]
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(200)
    assert canvas.evaluate(drawn) != light
    page.emulate_media(color_scheme="light")
    page.wait_for_timeout(200)
    assert canvas.evaluate(drawn) == light
    page.set_viewport_size({"width": 360, "height": 800})
    page.wait_for_timeout(200)
    assert canvas.bounding_box()["width"] < wide


def test_a_view_is_in_the_address_and_said_once(visit):
    page = visit("heads")
    page.get_by_label("Attend to", exact=True).select_option("first")
    page.wait_for_timeout(1000)
    assert page.evaluate("location.hash") == "#panel=heads&relation=first"
    assert "attention to the first token" in page.locator("#panel-heads .said").inner_text()
    page.locator("#link-matrix").click()
    page.wait_for_selector("#panel-matrix .stage[data-ready]")
    assert page.title() == "The matrix P · Ordinate"


def test_the_link_to_the_panel_does_not_leave_it(visit):
    page = visit("privacy")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.wait_for_timeout(200)
    assert page.locator("#panel-privacy").is_visible()
    assert page.evaluate("document.activeElement.id") == "main"


def test_a_browser_that_cannot_unpack_is_told_so(browser, path):
    page = browser.new_page()
    page.add_init_script("delete globalThis.DecompressionStream")
    page.goto(path.as_uri())
    alert = page.locator("#panel-order [role=alert]")
    alert.wait_for()
    assert "The models cannot be unpacked" in alert.inner_text()
    assert "It depends." in page.locator("#panel-order").inner_text()
    page.close()


def test_text_is_never_read_as_html(visit):
    attack = "%3Cimg+src%3Dx+onerror%3Dalert(1)%3E"
    page = visit(f"order&text={attack}&moved={attack}&constructor=1&__proto__=1")
    assert page.locator("#panel-order img").count() == 0
    assert "<img" in page.locator("#panel-order .chips").inner_text()


def test_a_model_of_ones_own_stands_beside_the_others(visit, tmp_path):
    import torch

    from ordinate import Decoder, Shape

    torch.manual_seed(0)
    model = Decoder(Shape(vocabulary=256, width=36, heads=6, layers=2, scheme="rope:theta=500", hidden=50))
    file = tmp_path / "own.html"
    file.write_text(explorer_page([packed_model(model, "own", title="<b>mine</b> (yours)")]), encoding="utf-8")
    for name in ("order", "survival", "further"):
        settled(visit(name, file), name)
    # YaRN needs the trained length, which no file of this model tells
    assert "128 tokens are assumed" in settled(visit("further&scaling=yarn", file), "further")
    menu = visit("qkv", file).locator("#panel-qkv select").first
    assert menu.input_value() == "own"
    assert "<b>mine</b> (yours)" in menu.inner_text()


@pytest.mark.parametrize(("family", "kind"), [("llama", "llama"), ("gpt2", "bytes")])
def test_a_published_model_reads_its_tokens_in_every_panel(visit, tmp_path, family, kind):
    tokenizer = make_tokenizer(kind)
    write_checkpoint(
        family, tmp_path, tokenizer.get_vocab_size(), **({"n_positions": 1024} if family == "gpt2" else {})
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    file = tmp_path / "published.html"
    file.write_text(explorer_page([read_own_model(tmp_path)]), encoding="utf-8")
    kinds = [f"qkv&numbers=changed&change=outside&source={kind}" for kind in ("cross", "cached")]
    for view in ("order", "qkv", *kinds, "survival", "privacy", "further"):
        name = view.partition("&")[0]
        page = visit(view, file)
        text = settled(page, name)
        if view == kinds[1]:
            assert "to the last bit" in text
        assert page.locator(f"#panel-{name} [role=alert]").count() == 0, name
        # loss by byte of a random model of some hundred tokens
        if name == "further":
            assert re.search(r"bits per byte over 512 bytes", text)
            assert "cannot be read" not in text
    page = visit("privacy&text=import+json", file)
    shown = page.locator("#panel-privacy .bytes").first.locator("span").all_inner_texts()
    wanted = [token.replace("Ġ", "␣").replace("▁", "␣") for token in tokenizer.encode("import json").tokens]
    assert shown == wanted
    read = (
        page.locator("#panel-privacy dt", has_text="tokens read").locator("xpath=following-sibling::dd").inner_text()
    )
    assert read == f"{len(wanted)} of {len(wanted)}"


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_nothing_overflows_and_axe_finds_nothing(visit, width, scheme):
    pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python, which has axe")
    axe = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    found = {}
    page = visit(NAMES[0], viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce")
    page.evaluate(axe)
    for view in VIEWS:
        name = view.partition("&")[0]
        page.evaluate(f"location.hash = '#panel={view}'")
        page.wait_for_selector(f"#panel-{name} .stage[data-ready]")
        settled(page, name)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        for violation in page.evaluate("axe.run()")["violations"]:
            found[view, violation["id"]] = [node["html"][:200] for node in violation["nodes"]][:3]
    assert not found
