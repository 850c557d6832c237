import re
import tomllib
from pathlib import Path

import pytest
from sybil.document import Document
from sybil.parsers.markdown import CodeBlockParser

import ordinate
from ordinate import catalog
from ordinate.scheme import Scheme
from ordinate.spectrum import Spectrum
from ordinate.study.options import Options
from ordinate.study.presets import IMAGE_PRESETS, PRESETS, TASK_PRESETS, TRANSLATION_PRESETS
from ordinate.task import Task

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
SCHEMES = catalog.names("ordinate.schemes")
TASKS = [name for name in catalog.names("ordinate.tasks") if name not in ("text", "translation", "masked", "images")]
SPECTRA = catalog.names("ordinate.spectra")


def text(page):
    return page.read_text(encoding="utf-8")


def named(page):
    return page.relative_to(ROOT).as_posix()


def blocks(page):
    """The Python examples of a page, with the line where each begins."""
    document = Document(text(page), str(page))
    found = sorted(CodeBlockParser("python", lambda example: None)(document), key=lambda region: region.start)
    return [(document.text.count("\n", 0, region.start) + 1, str(region.parsed)) for region in found]


def anchors(page):
    """What the headings of a page are called in links."""
    headings = re.findall(r"^#+ (.*)$", text(page), re.MULTILINE)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower())) for heading in headings}


def links(page):
    """The targets of a page's links that lie in this repository: file and heading."""
    for target in re.findall(r"\]\(([^)\s]+)\)", text(page)):
        if "://" not in target:
            yield target.partition("#")[::2]


def pages_of(entries):
    for entry in entries:
        for value in entry.values():
            yield from [value] if isinstance(value, str) else pages_of(value)


# a page need not wait for a compiler to show how a function is called
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=named)
def test_every_example_runs(page, tmp_path, monkeypatch):
    # what an example saves does not stay here
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "example"}
    for line, code in blocks(page):
        # as far down as in the page, so that an error names the right line
        exec(compile("\n" * line + code, str(page), "exec"), names)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=named)
def test_every_link_inside_leads_somewhere(page):
    for file, heading in links(page):
        target = page.parent / file if file else page
        assert target.exists(), f"{named(page)} leads to {file}"
        assert not heading or heading in anchors(target), f"{named(page)} leads to {file}#{heading}"


def test_every_page_is_in_the_navigation():
    settings = tomllib.loads(text(ROOT / "zensical.toml"))["project"]
    listed = sorted(pages_of(settings["nav"]))
    assert listed == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def listed_options(page):
    _, _, rest = text(page).partition("## Options")
    return re.findall(r"^\| `(\w+)`", rest.partition("\n## ")[0], re.MULTILINE)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_page_lists_the_options_of_its_scheme(name):
    known = catalog.options(catalog.load("ordinate.schemes", Scheme, name))
    assert listed_options(DOCS / "schemes" / f"{name}.md") == list(known)


@pytest.mark.parametrize("name", SPECTRA)
def test_a_page_lists_the_options_of_its_spectrum(name):
    known = catalog.options(catalog.load("ordinate.spectra", Spectrum, name))
    assert listed_options(DOCS / "spectra" / f"{name}.md") == list(known)


@pytest.mark.parametrize("name", SPECTRA)
def test_a_page_says_what_its_spectrum_depends_on(name):
    kind = catalog.load("ordinate.spectra", Spectrum, name)
    said = re.search(r"\n\|---\|---\|---\|\n\| (yes|no)[^|]* \| (yes|no) \|", text(DOCS / "spectra" / f"{name}.md"))
    assert said, "give the page its table: rates depend on the length, multiplies what turns, own parameters"
    assert said.groups() == tuple("yes" if word in vars(kind) else "no" for word in ("breaks", "magnitude"))


@pytest.mark.parametrize("name", SCHEMES)
def test_a_page_says_whether_its_scheme_is_shift_invariant(name):
    said = re.search(r"\n\|---\|---\|---\|---\|\n\| [^|]+ \| (yes|no) \|", text(DOCS / "schemes" / f"{name}.md"))
    assert said, "give the page its table: enters at, shift invariant, own parameters, serves"
    assert (said[1] == "yes") == catalog.load("ordinate.schemes", Scheme, name).shift_invariant


def test_the_page_of_the_study_lists_every_field_of_a_plan_with_its_default():
    plan, _, _ = text(DOCS / "study.md").partition("## What is equal")
    listed = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|.+\|$", plan, re.MULTILINE))
    words = {"schemes": "all eight", "mixers": "softmax", "kv_heads": "as heads", "multiples": "1 2 4 8"}
    words |= {"pixels": "8 or 32", "patch": "an eighth", "from": "new models", "sides": "two", "threads": "measured"}
    words |= {"learning_rate": "0.004, or 0.0001 with `from`", "tune": "shared"}
    defaults = {"from" if name == "base" else name: value for name, value in Options().model_dump().items()}
    assert list(defaults) == [name for name in defaults if name in listed]
    for name, default in defaults.items():
        shown = words.get(name) or (f"{default:g}" if isinstance(default, int | float) else str(default))
        assert listed[name] == shown, f"docs/study.md says {listed[name]} of {name}"


@pytest.mark.parametrize("preset", PRESETS)
def test_the_page_of_the_study_lists_every_change_of_a_preset(preset):
    row = re.search(rf"^\| `{preset}` \| (.+) \|$", text(DOCS / "study.md"), re.MULTILINE)
    assert row, f"docs/study.md has no row for {preset}"
    said = {name: float(value) for name, value in re.findall(r"`(\w+)` ([\d.]+)", row[1])}
    assert said == PRESETS[preset]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    ("what", "presets"), [("tasks", TASK_PRESETS), ("translation", TRANSLATION_PRESETS), ("images", IMAGE_PRESETS)]
)
def test_the_page_of_the_study_lists_every_change_of_a_preset_for_a_task(preset, what, presets):
    _, _, rest = text(DOCS / "study.md").partition(f"| preset | changes for {what} |")
    row = re.search(rf"^\| `{preset}` \| (.+) \|$", rest, re.MULTILINE)
    said = {name: value.strip() for name, value in re.findall(r"`(\w+)` ([^,]+)", row[1])}
    assert said == {
        name: " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for name, value in presets[preset].items()
    }


@pytest.mark.parametrize("name", TASKS)
def test_a_page_lists_the_options_of_its_task_with_their_defaults(name):
    options = catalog.options(catalog.load("ordinate.tasks", Task, name))
    _, _, rest = text(DOCS / "tasks" / f"{name}.md").partition("## Options")
    listed = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", rest, re.MULTILINE))
    assert {key: listed[key] for key in options} == listed
    shown = {key: str(option.default) for key, option in options.items() if option.default is not None}
    assert {key: listed[key] for key in shown} == shown


@pytest.mark.parametrize("name", ordinate.__all__)
def test_the_reference_lists_every_public_name(name):
    assert re.search(rf"^::: ordinate\.[\w.]+\.{name}$", text(DOCS / "api.md"), re.MULTILINE)


def test_the_floors_name_every_part_of_the_package():
    source = ROOT / "src" / "ordinate"
    parts = {file.name for file in source.glob("*.py") if not file.stem.startswith("__")}
    parts |= {f"{file.parent.name}/" for file in source.glob("*/__init__.py")}
    floors, _, _ = text(DOCS / "architecture.md").partition("## One walk")
    assert not {part for part in parts if f"`{part}" not in floors}


def test_the_site_asks_for_nothing_from_elsewhere():
    settings = tomllib.loads(text(ROOT / "zensical.toml"))["project"]
    assert settings["theme"]["font"] is False
    assert not {"extra_javascript", "extra_css"} & set(settings)


def test_contributing_is_short():
    assert len(text(ROOT / "CONTRIBUTING.md").splitlines()) <= 60


@pytest.mark.parametrize("name", SCHEMES)
def test_a_page_shows_the_picture_that_its_scheme_draws_of_itself(name):
    assert f"](../images/schemes/{name}.png)" in text(DOCS / "schemes" / f"{name}.md")
    assert (DOCS / "images" / "schemes" / f"{name}.png").is_file(), "draw it: python .ci/pictures.py"
