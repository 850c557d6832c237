"""The light core works with its own requirements only."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
import zlib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import ordinate

ROOT = Path(ordinate.__file__).parents[2]
# what PyTorch and NumPy bring is not counted
BASE = ("torch", "numpy")
LARGEST = 6_000_000


def closure(names):
    """The distributions that these need, with what those need."""
    found, left = set(), list(names)
    while left:
        name = canonicalize_name(left.pop())
        if name in found:
            continue
        found.add(name)
        needs = [Requirement(line) for line in distribution(name).requires or ()]
        left += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return found


def required():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [Requirement(line).name for line in project["dependencies"]]


def top_level(name):
    """The files and folders of a distribution in site-packages."""
    own = distribution(name)
    parts = {file.parts[0] for file in own.files or () if file.parts[0] not in ("..", "__pycache__")}
    return [Path(str(own.locate_file(part))) for part in parts]


def runner(site):
    """Run a program in an interpreter that has the packages of a folder only."""

    def run(program, *arguments, folder=None):
        code = f"import sys; sys.path.append({str(site)!r})\n{program}"
        # -S: without the packages of this environment
        command = [sys.executable, "-S", "-P", "-c", code, *arguments]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment |= {"OMP_NUM_THREADS": "1", "TERM": "dumb", "ORDINATE_NATIVE": ""}
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)

    return run


def requirements_in(site):
    """Link the requirements of the light core into a folder."""
    for name in closure(required()):
        for path in top_level(name):
            if not (site / path.name).exists():
                (site / path.name).symlink_to(path)
    return site


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """Run a program with the sources, and the requirements of the light core."""
    site = requirements_in(tmp_path_factory.mktemp("site"))
    (site / "ordinate").symlink_to(ROOT / "src/ordinate")
    return runner(site)


def compressed(paths):
    """What files take in a wheel [bytes]."""
    files = [path for path in paths if path.is_file() and path.suffix != ".pyc"]
    return sum(len(zlib.compress(path.read_bytes())) for path in files)


def test_what_is_downloaded_beside_pytorch_and_numpy_is_small():
    files = [file.locate() for name in closure(required()) - closure(BASE) for file in distribution(name).files or ()]
    assert compressed([*map(Path, files), *(ROOT / "src/ordinate").rglob("*")]) < LARGEST


MODELS = """
import tempfile
from ordinate import Decoder, Encoder, EncoderDecoder, Geometry, MultiHeadAttention, Shape, VisionTransformer
from ordinate import attend, explain, generate, load, mixers, save, schemes, spectra, transplant
spectra.Linear
for package in (schemes, mixers):
    for name in package.__all__:
        getattr(package, name)
model = Decoder(Shape(vocabulary=11, width=16, layers=2, heads=2, scheme="rope:spectrum=linear,spectrum.factor=2"))
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    again = Decoder.from_pretrained(folder)
assert again.shape == model.shape
print("whole", "pydantic" in sys.modules)
"""


@pytest.mark.extended
def test_models_attention_schemes_and_mixers_work(core):
    done = core(MODELS)
    assert (done.stdout, done.stderr) == ("whole False\n", ""), done.stderr


@pytest.mark.parametrize(
    ("name", "extra", "package"),
    [
        pytest.param("attach", "probe", "tokenizers", marks=pytest.mark.extended),
        ("probe", "probe", "pydantic"),
    ],
)
def test_a_name_of_an_extra_says_how_to_install_it(core, name, extra, package):
    done = core(f"import ordinate; ordinate.{name}")
    says = f'ordinate.{name} needs the package {package}; it is not installed; pip install "ordinate[{extra}]"'
    assert done.stderr.splitlines()[-1] == f"ModuleNotFoundError: {says}"


@pytest.mark.extended
@pytest.mark.parametrize("form", ["wheel", "sdist"])
def test_what_is_built_works_in_an_empty_environment(form, tmp_path):
    """The wheel, and the wheel built from the source distribution, installed without anything else of ours."""
    source = ROOT
    if form == "sdist":
        name = built("sdist", ROOT, tmp_path)
        with tarfile.open(tmp_path / name) as archive:
            archive.extractall(tmp_path / "unpacked", filter="data")
        (source,) = (tmp_path / "unpacked").iterdir()
    wheel = tmp_path / built("wheel", source, tmp_path)
    assert wheel.stat().st_size < LARGEST
    site = tmp_path / "site"
    site.mkdir()
    requirements_in(site)
    with zipfile.ZipFile(wheel) as archive:
        parts = {name.partition("/")[0] for name in archive.namelist()}
        archive.extractall(site)
        about = archive.read(f"ordinate-{ordinate.__version__}.dist-info/METADATA").decode()
    assert parts == {"ordinate", f"ordinate-{ordinate.__version__}.dist-info"}
    # a package index shows the README without the files beside it
    assert not re.findall(r"\]\((?!https://)", about)
    assert 'pip install "ordinate[study]"\nordinate study ' in about
    assert "./dev study" not in about
    run = runner(site)
    done = run(MODELS)
    assert (done.stdout, done.stderr) == ("whole False\n", ""), done.stderr
    assert "rope " in run(MAIN, "list").stdout


def built(form, source, folder):
    """Build a wheel or a source distribution; returns the name of the file."""
    program = f"from hatchling.build import build_{form} as build; print(build({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


MAIN = "from ordinate.cli.main import main; main()"


@pytest.mark.extended
def test_a_command_of_the_core_and_one_of_an_extra(core):
    done = core(MAIN, "list")
    assert (done.returncode, done.stderr) == (0, "")
    assert "rope " in done.stdout
    done = core(MAIN, "study")
    assert (done.returncode, done.stdout) == (2, "")
    assert 'pip install "ordinate[study]"' in done.stderr


@pytest.mark.extended
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["list"], "rope "),
        (["list", "mixers"], "softmax "),
        (["show", "alibi"], "shift invariant: yes"),
        (["cite", "rope"], "@article{su2021roformer"),
        (["--version"], ordinate.__version__),
        (["--help"], 'ordinate[study]"'),
        ([], "Describe and plot a scheme."),
        (["show", "--help"], "Its name"),
    ],
)
def test_the_commands_of_the_core_work(core, arguments, says):
    done = core(MAIN, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert says in done.stdout


@pytest.mark.extended
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["study"],
            '`ordinate study` needs packages that are not installed; only the light core is; pip install "ordi',
        ),
        (["probe", "--help"], 'pip install "ordinate[probe]"'),
        (["verify", "x"], 'pip install "ordinate[hf]"'),
        (["show", "rope", "--save", "x.svg"], 'pip install "ordinate[study]"'),
        (["show", "ropee"], "no scheme is named 'ropee'"),
        (["list", "wrong"], "options must fit the command; argument kind: invalid choice: 'wrong'"),
        (["nothing"], "options must fit the command; argument COMMAND: invalid choice"),
        (["show"], "options must fit the command; the following arguments are required: scheme"),
    ],
)
def test_a_wrong_or_missing_command_says_what_to_do(core, arguments, says):
    done = core(MAIN, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


@pytest.mark.extended
def test_check_and_build_work(core):
    done = core(MAIN, "check", "ordinate.schemes.alibi:Alibi")
    assert " 0 failed" in done.stdout, done.stdout + done.stderr
    assert re.search(r"\d+ of \d+ kernels are ready", core(MAIN, "build", "--check").stdout)


@pytest.mark.extended
def test_import_is_fast_beside_pytorch(core):
    """The time of an import is that of the modules it loads: of these, none may belong to an extra."""
    program = "import torch, numpy; before = set(sys.modules); import ordinate; ordinate.attend; ordinate.Decoder"
    done = core(f"{program}; print(*sorted({{name.partition('.')[0] for name in set(sys.modules) - before}}))")
    loaded = set(done.stdout.split())
    assert "ordinate" in loaded
    assert not loaded & {
        "scipy",
        "pydantic",
        "rich",
        "cyclopts",
        "transformers",
        "huggingface_hub",
        "importlib_resources",
    }
