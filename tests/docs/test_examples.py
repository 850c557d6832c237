import ast
import importlib
import re
import tomllib
from pathlib import Path

import pytest
from sybil.document import Document
from sybil.parsers.markdown import CodeBlockParser

from ordinate.core import catalog
from ordinate.data.task import Task
from ordinate.schemes._scheme import Scheme
from ordinate.schemes.spectra._spectrum import Spectrum
from ordinate.study.options import Options
from ordinate.study.presets import IMAGE_PRESETS, TASK_PRESETS, TEXT_PRESETS, TRANSLATION_PRESETS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "ordinate"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
SCHEMES = catalog.names("ordinate.schemes")
TASKS = [
    name for name in catalog.names("ordinate.data.tasks") if name not in ("text", "translation", "masked", "images")
]
# pages whose examples check, train or decode much
SLOW = (
    *("docs/extend.md", "docs/questions/index.md", "docs/vision.md", "docs/spectra/dynamic.md"),
    *("docs/evaluate.md", "docs/study.md", "docs/transplant.md", "docs/outside.md", "docs/schemes/sandwich.md"),
    *("docs/verify.md", "docs/encoder_decoder.md", "docs/grids.md", "docs/backends/row_blocks.md", "docs/lab.md"),
    *("docs/corpora/stdlib.md", "docs/corpora/docs.md", "docs/backends/custom_formula.md"),
    *(f"docs/notebooks/{name}.md" for name in ("own_scheme", "probe", "published_model", "study")),
)
SPECTRA = catalog.names("ordinate.schemes.spectra")


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
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.extended] * (named(page) in SLOW))
        for page in PAGES
        # each recipe is a program of its own (test_recipes.py)
        if blocks(page) and named(page) != "docs/recipes.md"
    ],
    ids=named,
)
def test_every_example_runs(page, tmp_path, monkeypatch):
    # what an example saves does not stay here
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "example"}
    for line, code in blocks(page):
        # as far down as in the page, so that an error names the right line
        exec(compile("\n" * line + code, str(page), "exec"), names)


def test_every_link_inside_leads_somewhere():
    broken = []
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for file, heading in links(page):
            target = page.parent / file if file else page
            if not target.exists() or (heading and heading not in anchors(target)):
                broken.append(f"{named(page)} leads to {file}#{heading}")
    assert not broken


def test_every_page_is_in_the_navigation():
    settings = tomllib.loads(text(ROOT / "zensical.toml"))["project"]
    listed = sorted(pages_of(settings["nav"]))
    assert listed == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def listed_options(page):
    _, _, rest = text(page).partition("## Options")
    return re.findall(r"^\| `(\w+)`", rest.partition("\n## ")[0], re.MULTILINE)


def test_the_page_of_each_scheme_and_spectrum_lists_its_options():
    wrong = {}
    for folder, package, contract, names in (
        ("schemes", "ordinate.schemes", Scheme, SCHEMES),
        ("spectra", "ordinate.schemes.spectra", Spectrum, SPECTRA),
    ):
        for name in names:
            known = list(catalog.options(catalog.load(package, contract, name)))
            listed = listed_options(DOCS / folder / f"{name}.md")
            if listed != known:
                wrong[f"{folder}/{name}"] = f"lists {listed} of {known}"
    assert not wrong


def test_the_page_of_each_spectrum_names_what_it_depends_on():
    """The table of a page: frequencies depend on the length, multiplies what is rotated, own parameters."""
    wrong = {}
    for name in SPECTRA:
        kind = catalog.load("ordinate.schemes.spectra", Spectrum, name)
        shown = re.search(
            r"\n\|---\|---\|---\|\n\| (yes|no)[^|]* \| (yes|no) \|", text(DOCS / "spectra" / f"{name}.md")
        )
        expected = tuple(
            "yes" if member in vars(kind) else "no" for member in ("length_thresholds", "query_key_scale")
        )
        if not shown or shown.groups() != expected:
            wrong[name] = f"says {shown and shown.groups()}, not {expected}"
    assert not wrong


def test_the_page_of_each_scheme_states_whether_it_is_shift_invariant():
    """The table of a page: enters at, shift invariant, own parameters, supported positions."""
    wrong = {}
    for name in SCHEMES:
        shown = re.search(r"\n\|---\|---\|---\|---\|\n\| [^|]+ \| (yes|no) \|", text(DOCS / "schemes" / f"{name}.md"))
        expected = "yes" if catalog.load("ordinate.schemes", Scheme, name).shift_invariant else "no"
        if not shown or shown[1] != expected:
            wrong[name] = f"says {shown and shown[1]}, not {expected}"
    assert not wrong


def test_the_page_of_the_study_lists_every_field_of_a_plan_with_its_default():
    plan, _, _ = text(DOCS / "study.md").partition("## What is equal")
    listed = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|.+\|$", plan, re.MULTILINE))
    words = {
        "schemes": "all eight",
        "mixers": "softmax",
        "kv_heads": "as heads",
        "leader_seeds": "1 or 0",
        "eval_length_multiples": "1 2 4 8",
    }
    words |= {
        "image_size": "8 or 32",
        "patch_size": "an eighth",
        "from": "new models",
        "scheme_location": "two",
        "threads": "measured",
    }
    words |= {"embedding_scale": "see right", "gradient_checkpointing": "false"}
    words |= {"learning_rate": "0.004, or 0.0001 with `from`", "tune_lr": "shared"}
    defaults = {"from" if name == "base" else name: value for name, value in Options().model_dump().items()}
    assert list(defaults) == [name for name in defaults if name in listed]
    for name, default in defaults.items():
        shown = words.get(name) or (f"{default:g}" if isinstance(default, int | float) else str(default))
        assert listed[name] == shown, f"docs/study.md says {listed[name]} of {name}"


def test_the_page_of_the_study_lists_every_change_of_a_preset():
    page, wrong = text(DOCS / "study.md"), {}
    for preset, changes in TEXT_PRESETS.items():
        row = re.search(rf"^\| `{preset}` \| (.+) \|$", page, re.MULTILINE)
        found = re.findall(r"`(\w+)` ([\d. ]+)", row[1] if row else "")
        listed = {name: tuple(map(float, value.split())) for name, value in found}
        expected = {name: tuple(value) if isinstance(value, tuple) else (value,) for name, value in changes.items()}
        if listed != expected:
            wrong[preset] = f"lists {listed}, not {expected}"
    assert not wrong


def test_the_page_of_the_study_lists_every_change_of_a_preset_for_a_task():
    page, wrong = text(DOCS / "study.md"), {}
    for what, presets in (("tasks", TASK_PRESETS), ("translation", TRANSLATION_PRESETS), ("images", IMAGE_PRESETS)):
        _, _, rest = page.partition(f"| preset | changes for {what} |")
        for preset in presets:
            row = re.search(rf"^\| `{preset}` \| (.+) \|$", rest, re.MULTILINE)
            found = re.findall(r"`(\w+)` ([^,]+)", row[1] if row else "")
            listed = {name: value.strip() for name, value in found}
            expected = {
                name: " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
                for name, value in presets[preset].items()
            }
            if listed != expected:
                wrong[f"{preset} for {what}"] = f"lists {listed}, not {expected}"
    assert not wrong


def test_the_page_of_each_task_lists_its_options_with_their_defaults():
    wrong = {}
    for name in TASKS:
        options = catalog.options(catalog.load("ordinate.data.tasks", Task, name))
        _, _, rest = text(DOCS / "tasks" / f"{name}.md").partition("## Options")
        listed = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", rest, re.MULTILINE))
        defaults = {key: str(option.default) for key, option in options.items() if option.default is not None}
        if list(listed) != list(options) or any(listed[key] != value for key, value in defaults.items()):
            wrong[name] = f"lists {listed} of {list(options)} with {defaults}"
    assert not wrong


def public_names():
    """The full path of each public name of a namespace of the package."""
    for face in sorted([*SOURCE.rglob("__init__.pyi"), *SOURCE.rglob("__init__.py")]):
        package = ["ordinate", *face.parent.relative_to(SOURCE).parts]
        for node in ast.parse(text(face)).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                above = package[: len(package) + 1 - node.level] if node.level else []
                # a module that begins with _ at the top has no public names
                found = (".".join([*above, node.module, alias.name]) for alias in node.names)
                yield from (path for path in found if not path.startswith("ordinate._"))


def test_the_reference_lists_every_public_name():
    listed = set(re.findall(r"^::: (ordinate\.\S+)$", text(DOCS / "api.md"), re.MULTILINE))
    assert not set(public_names()) - listed


def test_the_reference_lists_only_what_there_is():
    listed = re.findall(r"^::: (ordinate\.\S+)$", text(DOCS / "api.md"), re.MULTILINE)
    assert sorted(set(listed)) == sorted(listed)
    missing = []
    for path in listed:
        module, _, name = path.rpartition(".")
        if not hasattr(importlib.import_module(module), name):
            missing.append(path)
    assert not missing


def test_the_architecture_names_every_package_and_its_private_modules():
    page = text(DOCS / "architecture.md")
    packages = {file.parent.name for file in SOURCE.glob("*/__init__.py")}
    assert set(re.findall(r"\w+", page.split("```")[1])) >= packages
    rows = dict(re.findall(r"^\| `(\w+)/` \|(.+)$", page, re.MULTILINE))
    assert set(rows) == packages
    listed = {
        f"{package}/{part}" for package, row in rows.items() for part in re.findall(r"`([\w/]+(?:\.py|/))`", row)
    }
    private = {file.relative_to(SOURCE).as_posix() for file in SOURCE.glob("*/_[!_]*.py")}
    assert not private - listed
    assert not {part for part in listed if not (SOURCE / part).exists()}


def test_every_file_that_the_pages_for_contributors_name_exists():
    missing = []
    for page in (DOCS / "architecture.md", DOCS / "conventions.md", DOCS / "extend.md", ROOT / "CONTRIBUTING.md"):
        for path in re.findall(r"`([\w./]+/[\w.]+\.(?:pyi?|md))`", text(page)):
            if "NAME" not in path and not any((root / path).exists() for root in (SOURCE, SOURCE / "schemes", ROOT)):
                missing.append(f"{named(page)} names {path}")
    assert not missing


def test_the_site_asks_for_nothing_from_elsewhere():
    settings = tomllib.loads(text(ROOT / "zensical.toml"))["project"]
    assert settings["theme"]["font"] is False
    assert not {"extra_javascript", "extra_css"} & set(settings)


def test_contributing_is_short():
    assert len(text(ROOT / "CONTRIBUTING.md").splitlines()) <= 60


def test_the_page_of_each_scheme_shows_the_picture_that_it_draws_of_itself():
    lacking = [
        name
        for name in SCHEMES
        if f"](../images/schemes/{name}.png)" not in text(DOCS / "schemes" / f"{name}.md")
        or not (DOCS / "images" / "schemes" / f"{name}.png").is_file()
    ]
    assert not lacking, "draw them: ./dev pictures"
