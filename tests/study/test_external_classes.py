"""Schemes and mixers outside of Ordinate in a study: from the current folder, and from an installed package."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import ordinate
from ordinate.core.atomic_files import read_checksummed

ROOT = Path(ordinate.__file__).parents[2]
EXAMPLE = ROOT / "examples" / "ordinate-spiral"
SMALL = "--length 16 --steps 4 --batch 2 --width 16 --layers 1 --heads 2 --warmup-steps 1 --eval-samples 4 --seeds 1 "
SMALL += "--shuffle-samples 2 --generated-texts 1 --generated-tokens 8 --precision fp32 --threads 1 --leader-seeds 0"


def run(*arguments, folder, site=None):
    """Run the command line in a folder; `site` is a folder of installed packages."""
    path = [str(ROOT / "src"), *([str(site)] if site else [])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "dumb", "COLUMNS": "150"}
    environment |= {"PYTHONPATH": os.pathsep.join(path)}
    environment.pop("ORDINATE_ALLOW", None)
    command = [sys.executable, "-P", "-c", "from ordinate.cli.main import main; main()", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "work"
    place.mkdir()
    texts = place / "texts"
    texts.mkdir()
    for number in range(12):
        (texts / f"{number}.txt").write_text(f"line {number} of a short text\n" * 40)
    return place


@pytest.mark.extended
def test_a_class_of_the_current_folder_takes_part_in_a_study(folder):
    shutil.copy(EXAMPLE / "src/ordinate_spiral/spiral.py", folder / "my_schemes.py")
    schemes = ["--schemes", "none", "my_schemes:Spiral:turns=2"]
    command = ["study", "--text", "texts", "--out", "out", *schemes, *SMALL.split()]
    code, said, errors = run(*command, folder=folder)
    assert code == 0, said + errors
    about = read_checksummed(folder / "out/study.json")
    assert len(about["versions"]["my_schemes:Spiral"]) == 8
    result = next(path for path in folder.glob("out/runs/*/result.json") if "Spiral" in path.parent.name)
    provenance = json.loads(result.read_text())["provenance"]
    assert provenance["versions"]["my_schemes:Spiral"] == about["versions"]["my_schemes:Spiral"]
    assert "my_schemes:Spiral:turns=2" in (folder / "out/report.html").read_text()
    # status and report only read; what would build a model asks first
    assert run("status", "out", folder=folder)[0] == 0
    code, _, errors = run("reproduce", "out", folder=folder)
    assert code == 2
    assert 'names my_schemes:Spiral; if you trust it, import my_schemes first, or set ORDINATE_ALLOW="' in errors
    model = result.parent / "model"
    code, _, errors = run("generate", model, "line", folder=folder)
    assert code == 2
    assert "names my_schemes:Spiral" in errors
    # the source has changed: the study must not go on
    with (folder / "my_schemes.py").open("a") as file:
        file.write("# changed\n")
    place = command.index("--seeds") + 1
    code, _, errors = run(*command[:place], 2, *command[place + 1 :], folder=folder)
    assert code == 2
    assert "my_schemes:Spiral: " in errors


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The example package, installed."""
    place = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source") / "package"
    shutil.copytree(EXAMPLE, source)
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", place]
    done = subprocess.run([*install, source], capture_output=True, text=True)
    if "hatchling" in done.stderr and done.returncode:
        done = subprocess.run([*(part for part in install if part != "--no-build-isolation"), source],
                              capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sysconfig.get_paths()["purelib"] != str(place)
    return place


@pytest.mark.extended
def test_the_members_of_an_installed_package_are_known_everywhere(site, folder):
    assert "spiral " in run("list", folder=folder, site=site)[1]
    code, said, errors = run("list", "mixers", folder=folder, site=site)
    assert "running_mean " in said, said + errors
    assert "(of ordinate-spiral 0.1.0)" in " ".join(said.split())
    assert "enters at: queries, keys" in run("show", "spiral:turns=3", folder=folder, site=site)[1]
    assert "@misc{spiral" in run("cite", "spiral", folder=folder, site=site)[1]
    assert "did you mean 'spiral'" in run("show", "spirall", folder=folder, site=site)[2]
    command = ["study", "--text", "texts", "--out", "out", "--schemes", "none", "spiral", *SMALL.split()]
    code, said, errors = run(*command, folder=folder, site=site)
    assert code == 0, said + errors
    versions = read_checksummed(folder / "out/study.json")["versions"]
    assert "ordinate_spiral.spiral:Spiral" in versions
    command = ["study", "--text", "texts", "--out", "out2", "--mixers", "softmax", "running_mean", *SMALL.split()]
    code, said, errors = run(*command, folder=folder, site=site)
    assert code == 0, said + errors
    assert "running_mean" in (folder / "out2/report.html").read_text()


@pytest.mark.extended
@pytest.mark.parametrize("name", ["spiral:Spiral", "running_mean:RunningMean"])
def test_the_members_of_the_example_keep_their_contracts(site, folder, name):
    code, said, errors = run("check", f"ordinate_spiral.{name}", folder=folder, site=site)
    assert code == 0, said + errors
    assert said.splitlines()[-1].endswith(" 0 failed")
