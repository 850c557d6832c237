"""What the terminal shows: errors in one line each, and no text that could control it."""

import io
import sys

import pytest
from rich.table import Table

from ordinate.cli import main as command_line
from ordinate.cli.console import SafeConsole, escape_controls
from ordinate.cli.main import INTERRUPTED, app, main


def told(capsys, monkeypatch, *arguments):
    """Exit code and messages of a command."""
    monkeypatch.setattr(sys, "argv", ["ordinate", *map(str, arguments)])
    monkeypatch.setenv("COLUMNS", "500")
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, "".join(capsys.readouterr())


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
        (["--stps", "5"], "error: Unknown option: --stps. Did you mean --steps?"),
        (["--config", "nowhere.toml"], "--config needs a TOML file; nowhere.toml does not exist; check the path"),
        (["--config", "."], "--config needs a TOML file; . is a folder; check the path"),
        (["--text", ""], "a text must be named; got ''"),
        (
            ["--tokenizer", "bpe:size=1000000000"],
            "bpe takes a size of at most 1000000; got size 1000000000",
        ),
        (["--width", "40000000"], "a model must fit into the memory of this machine"),
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
    assert "Did you mean --steps?" in told(capsys, monkeypatch, "study", "--config", tmp_path / "a.toml")[1]
    for name in ("b.toml", "c.toml"):
        message = f"--config needs a TOML file; {tmp_path / name} is none ("
        assert message in told(capsys, monkeypatch, "study", "--config", tmp_path / name)[1]


def test_ctrl_c_says_how_to_resume(monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    assert not app.suppress_keyboard_interrupt
    monkeypatch.setattr(command_line, "app", interrupted)
    assert told(capsys, monkeypatch) == (INTERRUPTED, "interrupted; run the same command again to resume\n")


def test_a_terminal_without_utf8_shows_escapes(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    monkeypatch.setattr(sys, "argv", ["ordinate"])
    monkeypatch.setattr(command_line, "app", lambda *_, **__: print("“none” wins"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    sys.stdout.flush()
    assert raw.getvalue() == b"\\u201cnone\\u201d wins\n"


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
