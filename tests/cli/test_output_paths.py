"""A path for output that cannot be written is refused before any work: here before a missing model is noticed."""

import os

import pytest

from ordinate.cli.application import run

FILES = {
    "--out x.html": ("verify nowhere", "explore nowhere", "report nowhere elsewhere"),
    "--json x.json": ("evaluate nowhere",),
    "--plot x.svg": ("translate nowhere hello",),
    "--badge x.svg": ("check nowhere:Scheme",),
    "--save x.svg": ("show nothing",),
}
FOLDERS = (
    "study --task copy",
    "train rope --task copy",
    "probe nowhere",
    "look nowhere sentence",
    "compare nowhere elsewhere",
    "replicate abnar nowhere",
)
CASES = [(command, *option.split()) for option, commands in FILES.items() for command in commands]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()


@pytest.mark.parametrize(("command", "option", "name"), CASES)
def test_a_file_must_be_writable(command, option, name, tmp_path):
    (tmp_path / "folder" / name).mkdir()
    os.mkfifo(tmp_path / name)
    for path, message in (
        (f"folder/{name}", f"{option} must be a file; folder/{name} is a folder; give another file"),
        (name, f"{option} must be a file; {name} is no regular file; give another file"),
        (f"file/{name}", f"got file, and file is a file; give another folder by {option}"),
    ):
        with pytest.raises(ValueError, match=message):
            run([*command.split(), option, path])


@pytest.mark.parametrize("command", FOLDERS)
def test_a_folder_must_be_one(command):
    with pytest.raises(ValueError, match="output is written to a folder; got file, and file is a file"):
        run([*command.split(), "--out", "file"])


def test_a_folder_is_refused_by_the_option_that_names_it():
    with pytest.raises(ValueError, match="give another folder by --trained"):
        run(["replicate", "abnar", "--trained", "file"])


@pytest.mark.filterwarnings("ignore")
def test_folders_of_an_output_file_are_made(tmp_path):
    run(["show", "rope", "--save", "new/deeper/x.html"])
    assert (tmp_path / "new" / "deeper" / "x.html").stat().st_size > 1000


def test_the_page_of_several_studies_is_not_named_for_one(tmp_path):
    with pytest.raises(ValueError, match=r"--out is the page of several studies; .*; got .* alone; leave --out out"):
        run(["report", str(tmp_path), "--out", "x.html"])
