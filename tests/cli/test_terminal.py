"""What the terminal shows: errors in one line each, and no text that could control it."""

import io
import pwd
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Table

from ordinate.cli import main as command_line
from ordinate.cli.application import app
from ordinate.cli.console import SafeConsole, escape_controls, escape_on_terminal
from ordinate.cli.main import INTERRUPTED, UNREAD, main
from ordinate.study.options import Options


def told(capsys, monkeypatch, *arguments):
    """Exit code and messages of a command."""
    monkeypatch.setattr(sys, "argv", ["ordinate", *map(str, arguments)])
    monkeypatch.setenv("COLUMNS", "500")
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, "".join(capsys.readouterr())


@pytest.mark.parametrize("command", ["list", "show rope", "--help", "study --help", "replicate"])
def test_a_reader_that_has_enough_is_no_error(command):
    process = subprocess.Popen(
        [sys.executable, "-m", "ordinate", *command.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), said) == (UNREAD, "")


def test_closed_streams_are_empty_ones(monkeypatch):
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    for arguments, code in ((["list"], 0), (["translate", "nowhere"], 2)):
        monkeypatch.setattr(sys, "argv", ["ordinate", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == code
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.close()


def test_another_broken_pipe_is_an_error(capsys, monkeypatch):
    def fail():
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(command_line, "_application", lambda: lambda arguments: fail())
    code, said = told(capsys, monkeypatch, "list")
    assert code == 2
    assert "error: files must be accessible" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--learning-rate", "nan"], "error: --learning-rate must be a finite number; got 'nan'"),
        (["--learning-rate", "inf"], "error: --learning-rate must be a finite number; got 'inf'"),
        (
            ["--width", "wide"],
            "error: --width must be a valid integer, unable to parse",
        ),
        (
            ["--steps", "abc"],
            "error: --steps must be a valid integer, unable to parse",
        ),
        (["--layers", "1000000000"], "--layers must be less than or equal to 10000; got '1000000000'"),
        (["--eval-length-multiples", "1", "2", "0"], "--eval-length-multiples must be greater than or equal to 1"),
        (["--stps", "5"], "error: an option must be one of the command's; got --stps; did you mean --steps?"),
        (["--config", "nowhere.toml"], "--config needs a TOML file; nowhere.toml does not exist; check the path"),
        (["--config", "."], "--config needs a TOML file; . is a folder; check the path"),
        (["--text", ""], "a text must be named; got ''"),
        (
            ["--tokenizer", "bpe:size=10000000"],
            "bpe takes a size of at most 1000000; got size 10000000",
        ),
        (["--width", "40000000"], "a model of --layers 3 --width 40000000 must fit into memory"),
    ],
)
def test_a_bad_option_is_one_line(tmp_path, monkeypatch, capsys, options, message):
    monkeypatch.chdir(tmp_path)
    code, said = told(capsys, monkeypatch, "study", "--schemes", "none", *options)
    assert code == 2
    assert message in said
    assert "pydantic" not in said
    assert "at least 1 item" not in said


def test_a_mistyped_file_of_options_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.toml").write_text("stepps = 3\n")
    (tmp_path / "b.toml").write_text("steps = [\n")
    (tmp_path / "c.toml").write_bytes(b"\xff")
    assert "did you mean --steps?" in told(capsys, monkeypatch, "study", "--config", tmp_path / "a.toml")[1]
    for name in ("b.toml", "c.toml"):
        message = f"--config needs a TOML file; {tmp_path / name} is none ("
        assert message in told(capsys, monkeypatch, "study", "--config", tmp_path / name)[1]


def test_ctrl_c_says_how_to_resume(monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    assert not app.suppress_keyboard_interrupt
    monkeypatch.setattr(command_line, "_application", lambda: interrupted)
    for name in ("study", "train", "probe", "replicate", "reproduce"):
        said = "interrupted; run the same command again to resume\n"
        assert told(capsys, monkeypatch, name) == (INTERRUPTED, said)
    for name in ("verify", "generate", "list"):
        assert told(capsys, monkeypatch, name) == (INTERRUPTED, "interrupted\n")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "No space left on device"), "the disk must have room; a file cannot be written (No space left"),
        (PermissionError(13, "Permission denied", "x.json"), "files must be accessible; x.json is not (Permission"),
        (OSError(28, "cannot write it; free space"), "error: cannot write it; free space\n"),
        (ValueError("x" * 10_000), "x ... x"),
    ],
)
def test_errors_of_files_say_what_to_do(monkeypatch, capsys, error, message):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(command_line, "_application", lambda: fail)
    code, said = told(capsys, monkeypatch)
    assert code == 2
    assert message in said
    assert len(said) < 2 * command_line.LONGEST


def test_a_user_without_a_home_folder_has_the_name_of_one(monkeypatch, capsys):
    def nobody(name):
        raise KeyError(name)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(command_line, "_application", lambda: lambda _: print(Path.home()))
    assert told(capsys, monkeypatch) == (0, f"{command_line.NO_HOME}\n")
    monkeypatch.delenv("HOME")


def test_a_terminal_without_utf8_shows_escapes(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    monkeypatch.setattr(sys, "argv", ["ordinate"])
    monkeypatch.setattr(command_line, "_application", lambda: lambda _: print("“none” wins"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    sys.stdout.flush()
    assert raw.getvalue() == b"\\u201cnone\\u201d wins\n"


@pytest.mark.filterwarnings("ignore")
def test_plots_have_signs_that_the_encoding_of_the_output_has(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    for spec in ("rope", "sinusoidal"):
        app(["show", spec])
    sys.stdout.flush()
    assert b"##" in raw.getvalue()
    assert b"76" in raw.getvalue()


def test_arguments_that_are_no_text_are_refused_before_anything_is_done(monkeypatch, capsys):
    code, said = told(capsys, monkeypatch, "generate", "mod\udcffel")
    assert code == 2
    assert "error: arguments must be utf-8 text; got 'mod\\udcffel'; give it in this encoding" in said


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="Windows has no SIGTERM")
def test_sigterm_stops_any_command_as_ctrl_c_does(monkeypatch, capsys):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(command_line, "_application", lambda: lambda _: signal.raise_signal(signal.SIGTERM))
    assert told(capsys, monkeypatch, "study") == (INTERRUPTED, "interrupted; run the same command again to resume\n")
    assert signal.getsignal(signal.SIGTERM) is before


def test_text_does_not_control_the_terminal(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    console = SafeConsole()
    table = Table("name")
    table.add_row("\x1b]52;c;aGk=\x07[red]x[/y]")
    console.print("a:warning:b [bold]\x1b[2J\x9b")
    console.print(table)
    said = out.getvalue()
    assert "a:warning:b [bold]\\x1b[2J\\x9b" in said
    assert "\\x1b]52;c;aGk=[red]x[/y]" in said
    assert not {"\x1b", "\x07", "\x9b"} & set(said)
    assert escape_controls("two\tlines\n") == "two\tlines\n"
    # a character that reverses the text after it
    assert escape_controls("a\u202eb") == "a\\u202eb"


def test_text_of_a_model_is_escaped_on_a_terminal_only(monkeypatch):
    monkeypatch.setattr(sys, "stdout", out := io.StringIO())
    assert escape_on_terminal("\x1b[2J") == "\x1b[2J"
    monkeypatch.setattr(out, "isatty", lambda: True)
    assert escape_on_terminal("\x1b[2J") == "\\x1b[2J"


@pytest.mark.extended
@pytest.mark.parametrize("command", ["study", "train"])
def test_every_mistyped_option_has_a_suggestion(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    for name, field in Options.model_fields.items():
        option = (field.alias or name).replace("_", "-")
        for wrong in (option + option[-1], option[:-1] + "q", option[:1] + option[2:]):
            known = wrong in {(one.alias or key).replace("_", "-") for key, one in Options.model_fields.items()}
            if len(option) > 3 and not known:
                said = told(capsys, monkeypatch, command, f"--{wrong}", "1")
                assert said[0] == 2
                assert f"got --{wrong}; did you mean --" in said[1]
                if command == "study":
                    (tmp_path / "a.toml").write_text(f"{wrong.replace('-', '_')} = 1\n")
                    assert "did you mean --" in told(capsys, monkeypatch, command, "--config", "a.toml")[1]


@pytest.mark.parametrize("command", ["study", "generate", "probe", "build", "verify", "compare", "train"])
def test_the_help_of_a_command_is_about_that_command(command, capsys, monkeypatch):
    code, said = told(capsys, monkeypatch, command, "--help")
    assert code == 0
    assert "Start with" not in said
    # an option that is off, or has no values, or a line break has no default to type
    assert not re.search(r"\[default: *(\(|\[|False|True|\"|\]|$)", said)
    assert "--no-" not in said.replace("--no-generation-config", "")


def test_the_help_names_the_first_command_and_defaults_as_they_are_typed(capsys, monkeypatch):
    assert "Start with: ordinate study" in told(capsys, monkeypatch, "--help")[1]
    assert "[default: 6.2e+12]" in told(capsys, monkeypatch, "probe", "--help")[1]
    assert "[default: 1 2 4 8]" in told(capsys, monkeypatch, "train", "--help")[1]
    assert "[default: 0]" in told(capsys, monkeypatch, "verify", "--help")[1]


def test_the_help_of_train_has_no_options_for_several_models(capsys, monkeypatch):
    said = told(capsys, monkeypatch, "train", "--help")[1]
    assert "--mixers" in said
    assert not {"--schemes", "--leader-seeds"} & set(said.split())
    assert "train takes one scheme" in told(capsys, monkeypatch, "train", "--schemes", "rope", "alibi")[1]


@pytest.mark.parametrize(
    "words",
    ["generate .", "translate . x", "probe .", "verify .", "look . x", "reproduce .", "compare . ."],
)
@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_is_one_that_every_generator_takes(words, seed, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, said = told(capsys, monkeypatch, *words.split(), "--seed", seed)
    assert (code, "seed must be 0 to 2^63 - 1; got " in said) == (2, True), said
