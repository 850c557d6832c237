"""The remaining time that progress shows: none before there is a basis, and none of what comes once at the start."""

from io import StringIO

import pytest
from rich.console import Console
from rich.table import Table

from ordinate.cli import progress
from ordinate.cli.console import SafeConsole
from ordinate.cli.pace import Pace, format_clock, format_left
from ordinate.cli.progress import ProgressBars, ProgressLines
from ordinate.core.progress import Progress


def paced(*amounts, total=100.0):
    """A pace that has been told amounts at times."""
    pace = Pace()
    for now, done in amounts:
        pace.update(done, total, now)
    return pace


def test_there_is_no_estimate_before_its_basis():
    assert Pace().seconds_left(0.0) is None
    assert paced((0, 0), (60, 6)).seconds_left(60) is None
    # three amounts above zero, and one that is no progress
    assert paced((1, 1), (2, 2), (3, 3), (4, 3)).seconds_left(4) is None
    # within a fraction of a second
    assert paced((0.1, 1), (0.2, 2), (0.3, 3), (0.4, 4)).seconds_left(1) is None


def test_what_comes_once_at_the_start_is_not_in_the_speed():
    """Loading takes 60 s, compiling in the second amount 120 s; then each takes a second."""
    rest = [(180 + n, 2 + n) for n in range(1, 11)]
    for seen in range(2, 11):
        pace = paced((60, 1), (180, 2), *rest[:seen])
        assert pace.seconds_left(180 + seen) == pytest.approx(98 - seen)


def test_the_speed_is_that_of_the_later_half():
    slow, fast = [(10 * n, n) for n in range(1, 9)], [(80 + n, 8 + n) for n in range(1, 25)]
    assert paced(*slow, *fast).seconds_left(104) == pytest.approx(68)


def test_between_amounts_the_time_runs_and_ends_at_zero():
    pace = paced(*((n, n) for n in range(1, 91)))
    assert pace.seconds_left(94) == pytest.approx(6)
    assert pace.seconds_left(1000) == 0


def test_an_item_that_starts_anew_has_a_new_speed():
    pace = paced(*((n, n) for n in range(1, 9)))
    pace.update(0.0, 100.0, 100.0)
    assert pace.seconds_left(100) is None
    for number in range(1, 5):
        pace.update(number, 100.0, 100.0 + 10 * number)
    assert pace.seconds_left(140) == pytest.approx(960)
    # another total, too
    pace.update(5, 10.0, 150.0)
    assert pace.seconds_left(150) is None


def test_times_are_written_in_their_unit():
    texts = [format_left(seconds) for seconds in (0, 89, 90, 5000, 5400, 400_000)]
    assert [text.removeprefix("about ").removesuffix(" left") for text in texts] == [
        *("0 s", "89 s", "2 min", "83 min"),
        *("2 h", "111 h"),
    ]
    assert format_clock(3725) == "1:02:05"


@pytest.mark.parametrize("kind", [ProgressBars, ProgressLines])
def test_stages_of_an_item_have_one_estimate(kind, monkeypatch):
    """As in `verify`: a stage for each model, whose first amount is its loading."""
    clock = iter(range(0, 10_000, 5))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    out = StringIO()
    shown = kind(Console(file=out, force_terminal=kind is ProgressBars, width=120))
    if kind is ProgressBars:
        # only what is asked for is drawn
        monkeypatch.setattr(shown.display, "start", lambda: None)
    for number in range(8):
        shown.on_progress(Progress("verify", "ours" if number < 4 else "theirs", number / 20, 1.0))
    assert shown.paces["verify"].count == 7
    if kind is ProgressLines:
        said = out.getvalue().splitlines()
        assert said[0] == "verify  ours  0%"
        assert "left" not in "".join(said[:2])
        assert "left" in said[-1]
    else:
        (column,) = [column for column in shown.display.columns if isinstance(column, progress.TimeColumn)]
        assert "left" in column.render(shown.display.tasks[0]).plain


def test_a_table_of_numbers_is_not_cut_on_a_narrow_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    table = Table("check", "error")
    table.add_row("left padding", "[-0.0123, 0.0456] worse")
    SafeConsole().print_whole(table)
    said = capsys.readouterr().out
    assert "left padding" in said
    assert "[-0.0123, 0.0456] worse" in said
    # plain printing cuts or breaks it
    SafeConsole().print(table)
    assert "[-0.0123, 0.0456] worse" not in capsys.readouterr().out
