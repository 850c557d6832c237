import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ordinate.cli import show
from ordinate.cli.application import app
from ordinate.cli.progress import MAX_FINISHED_BARS, AmountColumn, ProgressBars, ProgressLines
from ordinate.core.atomic_files import write_checksummed
from ordinate.core.catalog import names
from ordinate.core.progress import Progress
from ordinate.study.result_file import read_result

WRAPPERS = "ordinate.pretrained.wrappers"
SIZES = {
    "length": 16,
    "steps": 4,
    "batch": 2,
    "width": 16,
    "layers": 1,
    "heads": 2,
    "warmup_steps": 1,
    "eval_samples": 4,
}
SIZES |= {"shuffle_samples": 2, "generated-texts": 1, "generated-tokens": 8, "precision": "fp32"}
SMALL = [word for name, value in SIZES.items() for word in (f"--{name}", value)]


def ordinate(*arguments, folder=None):
    """Run the command line in a subprocess; returns exit code, output and messages."""
    command = [sys.executable, "-c", "from ordinate.cli.main import main; main()", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100", "TERM": "dumb"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for number in range(12):
        (folder / f"{number}.txt").write_text(f"line {number} of a short text\n" * 40)
    return folder


@pytest.fixture(scope="module")
def trained(text, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "out"
    code, said, errors = ordinate("train", "alibi", "--text", text, "--out", out, *SMALL)
    assert code == 0, errors
    return out, Path(said.split("model: ")[1].splitlines()[0])


def test_help_needs_no_torch():
    code = "import sys\nfrom ordinate.cli.main import main\ntry: main()\nfinally: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True)
    assert done.stdout.endswith("False\n")
    assert "ordinate study" in done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize(
    "command", ["train rope --task copy --out file", "study --task copy --out file", "compare a b", "replicate"]
)
def test_only_the_processes_that_train_import_lightning_and_what_it_imports(command, tmp_path):
    (tmp_path / "file").touch()
    code = "import sys\nfrom ordinate.cli.main import main\ntry: main()\nfinally: print('loaded', *sys.modules)"
    words = [sys.executable, "-c", code, *command.split()]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    loaded = done.stdout.splitlines()[-1].split()
    assert loaded[0] == "loaded", done.stderr
    assert "torch" in loaded
    assert not {"pytorch_lightning", "transformers"} & set(loaded)


@pytest.mark.parametrize(
    "name", ["study", "probe", "report", "train", "generate", "list", "show", "cite", "check", "build", "reproduce"]
)
def test_every_command_has_a_help_text(name, capsys):
    app([name, "--help"], result_action="return_value")
    said = capsys.readouterr().out
    assert f"Usage: ordinate {name}" in said
    assert "Parameters" in said


@pytest.mark.extended
def test_a_study_ends_in_a_report_and_repeating_it_does_nothing(text, tmp_path):
    arguments = ["study", "--text", text, "--schemes", "none", "rope:theta=100", "--out", tmp_path / "out", *SMALL]
    code, said, errors = ordinate(*arguments)
    assert code == 0, errors
    report = Path(said.split("report: ")[1].strip())
    page = report.read_text(encoding="utf-8")
    assert "rope:theta=100" in page
    assert "2 to do" in said
    assert "At the trained length (16 tokens)" in " ".join(said.split())
    code, said, _ = ordinate(*arguments)
    assert code == 0
    assert "0 to do" in said
    code, said, errors = ordinate(*arguments[:-2], "--precision", "bf16")
    assert code == 2
    assert "precision: 'fp32' -> 'bf16'" in errors
    assert "repeat the original options, or give another --out" in errors


@pytest.mark.covering(0)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--schemes", "ropee"], "did you mean 'rope'"),
        (["--schemes", "rope:tetha=1"], "did you mean 'theta'"),
        (["--text", "stdlip"], "did you mean 'stdlib'"),
        (["--stps", "5"], "--steps"),
        (["--steps", "many"], "many"),
        (["--preset", "slow"], "thorough"),
        (["--workers", "0"], "workers must be above zero"),
        (["--width", "28", "--schemes", "rope"], "rope needs an even head width"),
    ],
)
def test_bad_input_exits_with_a_clear_message(text, tmp_path, arguments, message):
    given = arguments if "--text" in arguments else ["--text", text, *arguments]
    code, said, errors = ordinate("study", "--out", tmp_path / "out", *given)
    assert code != 0
    assert message in said + errors
    assert "Traceback" not in said + errors
    assert not (tmp_path / "out" / "runs").exists()


@pytest.mark.extended
@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("empty.txt", b"", "is empty"),
        ("binary.txt", b"a\0b", "is NUL, as in binary files"),
        ("latin.txt", "\xe9\n".encode("latin-1"), "a text must be UTF-8"),
        ("short.txt", b"short\n", "at least two documents|must hold at least"),
    ],
)
def test_an_unusable_text_is_rejected(tmp_path, name, raw, message):
    (tmp_path / name).write_bytes(raw)
    code, _, errors = ordinate("study", "--text", tmp_path / name, "--out", tmp_path / "out", "--schemes", "none")
    assert code == 2
    assert re.search(message, errors)
    assert "Traceback" not in errors


@pytest.mark.extended
def test_the_command_line_overrides_a_file_of_options(text, tmp_path):
    (tmp_path / "plan.toml").write_text(f'text = "{text}"\nsteps = 3\nschemes = ["none"]\nlength = 16\n')
    arguments = ["study", "--config", tmp_path / "plan.toml", "--out", tmp_path / "out", *SMALL]
    code, said, errors = ordinate(*arguments)
    assert code == 0, errors
    assert "1 run of 4 steps" in said
    (tmp_path / "plan.toml").write_text("stps = 3\n")
    code, said, errors = ordinate(*arguments)
    assert code != 0
    assert "stps" in said + errors


@pytest.mark.extended
def test_a_trained_model_generates_the_same_for_the_same_seed(trained):
    _, model = trained
    code, one, errors = ordinate("generate", model, "line", "--max-new-tokens", 20, "--seed", 3)
    assert code == 0, errors
    assert one.startswith("line")
    assert ordinate("generate", model, "line", "--max-new-tokens", 20, "--seed", 3)[1] == one
    assert ordinate("generate", model, "line", "--max-new-tokens", 20, "--seed", 4)[1] != one


@pytest.mark.extended
def test_a_study_in_place_of_a_model_names_the_models_in_it(trained):
    out, model = trained
    code, _, errors = ordinate("generate", out)
    assert code == 2
    assert str(model) in errors


@pytest.mark.extended
@pytest.mark.parametrize("steps", [[], ["--steps", 2]])
def test_a_run_is_reproduced_to_the_bit_or_told_not_to_be(trained, tmp_path, steps):
    out, _ = trained
    code, said, errors = ordinate("reproduce", out, *steps, folder=tmp_path)
    assert code == 0, errors
    assert "training alibi-s0 of" in said
    assert "in the study they took about" in said
    assert "alibi-s0: reproduced to the bit: " in said
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    result = read_result(copy / "runs" / "alibi-s0" / "result.json")
    result["training"]["loss"][1] += 1e-12
    write_checksummed(copy / "runs" / "alibi-s0" / "result.json", result)
    code, said, errors = ordinate("reproduce", copy, "--run", "alibi-s0", *steps, folder=tmp_path)
    assert code == 1, errors
    assert "not reproduced: not equal to the bit" in said
    code, said, errors = ordinate("reproduce", tmp_path, folder=tmp_path)
    assert (code, "the folder of a study is needed" in errors.replace("\n", " ")) == (2, True)


@pytest.mark.extended
def test_a_report_is_built_again(trained):
    out, _ = trained
    code, _, errors = ordinate("report", out)
    assert code == 0, errors
    assert (out / "report.html").exists()
    assert ordinate("report", out / "data")[0] == 2


def test_list_shows_the_hooks_of_each_scheme(capsys):
    app(["list"], result_action="return_value")
    said = capsys.readouterr().out
    assert re.search(r"rope +queries, keys", said)
    assert re.search(r"none +nowhere", said)
    app(["list", "spectra"], result_action="return_value")
    assert re.search(r"linear +Position interpolation", capsys.readouterr().out)
    app(["list", "mixers"], result_action="return_value")
    said = capsys.readouterr().out
    assert re.search(r"softmax +either +rope", said)
    assert re.search(r"sinkhorn +bidirectional +rope", said)
    assert re.search(r"triangular_mlp +causal +none", said)
    for kind in ("backends", "corpora", "tokenizers", "tasks"):
        app(["list", kind], result_action="return_value")
    assert "stdlib" in capsys.readouterr().out


def test_list_shows_families_and_models_of_texts_and_images_around_them(capsys):
    app(["list", "families"], result_action="return_value")
    families, around = capsys.readouterr().out.split("\n\n")
    assert re.search(r"^llama +\S", families, re.M)
    assert re.search(r"^llava +LLaVA 1.5", around, re.M)
    assert {line.split()[0] for line in around.splitlines()[1:] if line[0] != " "} == set(names(WRAPPERS))


@pytest.mark.parametrize("scheme", ["none", "sinusoidal:theta=100", "learned", "concatenated", "rope", "alibi+t5"])
def test_show_describes_and_plots_a_scheme(scheme, capsys):
    app(["show", scheme], result_action="return_value")
    said = capsys.readouterr().out
    assert "Source:" in said
    assert "options" in said
    # captured output has no colours
    assert ("(dark)" in said) == (scheme != "none")


def test_a_heat_map_has_a_colour_for_each_number():
    text = show.heat_map([[0.0, 1.0], [float("nan"), 0.5]])
    blue, red, grey = (f"\x1b[48;2;{colour}m  \x1b[0m" for colour in ("33;102;172", "178;24;43", "240;240;240"))
    assert text == f"{blue}{red}\n  {grey}\nfrom 0 (blue) to 1 (red)"


def test_a_heat_map_without_colours_has_shades():
    text = show.heat_map([[0.0, 0.5, 1.0, float("nan")]], colours=False)
    assert text == "  ▒▒██  \nfrom 0 (light) to 1 (dark)"


def test_cite_prints_bibtex(capsys):
    app(["cite", "rope"], result_action="return_value")
    assert capsys.readouterr().out.startswith("@article{su2021roformer,")


SCHEME = '''
from ordinate.schemes import Scheme

class Broken(Scheme):
    """Leak the future."""

    shift_invariant = True

    def __init__(self, *, width: int):
        super().__init__()

    def embed(self, x, pos):
        return x + pos[..., :1].to(x.dtype)
'''


@pytest.mark.extended
def test_check_fails_a_scheme_that_breaks_the_contract(tmp_path):
    (tmp_path / "mine.py").write_text(SCHEME)
    code, said, _ = ordinate("check", "mine:Broken", "--badge", "badge.svg", folder=tmp_path)
    assert code == 1
    assert "Broken does not keep the contract of a scheme" in said
    assert re.search(r"NO +Shift invariance, as declared \(\d of \d\)", said)
    assert re.search(r"yes +Causality \(2 of 2\)", said)
    assert re.search(r"\d+ checks: \d+ passed, \d+ skipped, \d failed\n$", said)
    assert re.search(r"ordinate check: \d of \d+ checks failed", (tmp_path / "badge.svg").read_text())
    assert re.search(r"FAILED +shift_invariance_is_as_declared", said)
    assert re.search(r"passed +padding_on_the_left", said)
    for target, message in (
        ("mine", "given as module:Class"),
        ("nowhere:X", "must be importable"),
        ("mine:Nothing", "must be a subclass of ordinate.schemes.Scheme"),
    ):
        code, _, errors = ordinate("check", target, folder=tmp_path)
        assert code == 2
        assert message in errors


EXITS = """
import sys
from ordinate.schemes.none import NoPosition

class Quits(NoPosition):
    def encode_query(self, q, pos):
        sys.exit(0)

class QuitsAtOnce(NoPosition):
    def __init__(self):
        sys.exit(0)

if __name__.endswith("quits"):
    sys.exit(0)
if __name__.endswith("divides"):
    1 / 0
"""


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("it_quits:Quits", r"the module must be importable; it_quits raised SystemExit: 0; correct it"),
        ("it_divides:Quits", "it_divides raised ZeroDivisionError: division by zero"),
        ("it_stays:QuitsAtOnce", r"the class must not exit; QuitsAtOnce called exit\(0\)"),
        ("ordinate.schemes:Rope --badge x.png", r"--badge needs a file that ends in .svg; got x.png"),
        ("../x:Y", r"must be given by its dotted name, without .py; got '../x'"),
        ("no_such_x:Y", "must be importable; No module named 'no_such_x'"),
    ],
)
def test_check_without_any_check_is_an_error(tmp_path, monkeypatch, target, message):
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("it_quits", "it_divides", "it_stays"):
        (tmp_path / f"{name}.py").write_text(EXITS)
    with pytest.raises(ValueError, match=message):
        app(["check", *target.split()], result_action="return_value")


MIXER = """
import torch
from ordinate.mixers import SequenceMixer

class Peeks(SequenceMixer):
    supported_hooks, permutation_equivariant, default_scheme = frozenset(), True, "none"

    def __init__(self, *, width: int):
        super().__init__()
        self.project = torch.nn.Linear(width, width)

    def mix_sequences(self, x, at, real, state):
        return x + self.project(x).mean(1, keepdim=True), None
"""


@pytest.mark.extended
def test_check_fails_a_mixer_that_breaks_the_contract(tmp_path):
    (tmp_path / "mine.py").write_text(MIXER)
    code, said, _ = ordinate("check", "mine:Peeks", folder=tmp_path)
    assert code == 1
    assert re.search(r"FAILED +outputs_do_not_depend_on_later_tokens.*depends on a later one", said)
    assert re.search(r"passed +its_options_are_keywords", said)


@pytest.mark.parametrize("kind", [ProgressBars, ProgressLines])
def test_progress_follows_a_study(kind):
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    watcher = kind(Console(file=out, force_terminal=kind is ProgressBars, width=100, highlight=False))
    watcher.on_progress(Progress(stage="reading", message="reading [bold]text"))
    watcher.on_progress(Progress("rope-s0", "training", 5, 10, 2.5))
    watcher.on_progress(Progress("rope-s0", "failed", total=10, message="[red] broke"))
    watcher.on_progress(Progress("my[/model] [red]", "measuring"))
    watcher.on_progress(Progress("extrapolation", "measuring"))
    watcher.on_progress(Progress("extrapolation", done=0.25, total=1.0))
    watcher.on_progress(Progress("extrapolation", "measured", 1.0, 1.0, message="none"))
    watcher.close()
    said = out.getvalue()
    assert "reading [bold]text\n" in said
    assert "failed: [red] broke\n" in said
    assert "measured: none\n" in said
    assert "my[/model] [red]" in said
    assert "rope" in said
    assert "5/10" in said
    assert "2.500" in said


def test_lines_of_one_stage_are_printed_every_few_seconds_only():
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    lines = ProgressLines(Console(file=out), every=1000.0)
    for step in (1, 2, 3):
        lines.on_progress(Progress("rope-s0", "training", step, 10, 2.5))
    for stage in ("", "measuring", "", "done"):
        lines.on_progress(Progress("rope-s0", stage, total=10))
    assert out.getvalue() == "rope-s0  training  step 1/10  loss 2.500\nrope-s0  measuring\nrope-s0  done\n"


def test_bars_show_titles_and_amounts_and_few_finished_items():
    from rich.console import Console

    bars = ProgressBars(Console(force_terminal=True, quiet=True), {"rope-s0": "rope"})
    bars.on_progress(Progress("rope-s0", "training", total=10))
    bars.on_progress(Progress("probe", "measuring", 0.25, 1.0))
    bars.on_progress(Progress("rope-s0", done=5, total=10))
    amount, tasks = AmountColumn(), bars.display.tasks
    assert [(task.description, amount.render(task).plain) for task in tasks] == [("rope", "5/10"), ("probe", "25%")]
    for number in range(MAX_FINISHED_BARS + 3):
        bars.on_progress(Progress(f"run {number}", "done"))
    bars.close()
    assert [task.description for task in bars.display.tasks[:3]] == ["rope", "probe", "run 3"]


def test_bars_show_each_line_to_one_scale():
    text = show.sparklines({"a": [0.0, 1.0], "bb": [0.5, float("nan")]})
    assert text == "a  ▁█  0 to 1\nbb ▅   0.5 to nan"


@pytest.mark.covering(0)
@pytest.mark.parametrize("ending", ["png", "svg", "html"])
def test_show_saves_a_picture(ending, tmp_path, capsys):
    app(["show", "alibi", "--save", str(tmp_path / f"new/picture.{ending}")], result_action="return_value")
    assert capsys.readouterr().out == ""
    data = (tmp_path / f"new/picture.{ending}").read_bytes()
    assert data.startswith({"png": b"\x89PNG", "svg": b"<svg", "html": b"<!doctype html>"}[ending])
    assert ending != "html" or (b'src="http' not in data and b"added to the scores" in data)


def test_a_plot_in_another_format_or_of_nothing_is_rejected(tmp_path):
    with pytest.raises(ValueError, match=r"no plot format is named '.jpeg'"):
        app(["show", "alibi", "--save", str(tmp_path / "picture.jpeg")], result_action="return_value")
    with pytest.raises(ValueError, match="a scheme must have something to plot; none has nothing"):
        app(["show", "none", "--save", str(tmp_path / "picture.png")], result_action="return_value")
