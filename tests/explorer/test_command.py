import pytest

from ordinate import Decoder, Shape
from ordinate.cli import explore as command


def test_the_page_is_written_and_opened(tmp_path, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr(command.webbrowser, "open", opened.append)
    out = tmp_path / "new" / "page.html"
    assert command.explore(out=out) == 0
    assert opened == [out.as_uri()]
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    # a line may be folded
    assert "page:" in capsys.readouterr().out


@pytest.mark.extended
def test_a_model_of_ones_own_has_a_page_of_its_own_and_nothing_is_opened_unasked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command.webbrowser, "open", pytest.fail)
    Decoder(Shape(vocabulary=256, width=32, layers=1, heads=2)).save_pretrained("mine")
    command.explore(tmp_path / "mine", open=False)
    page = tmp_path / "runs" / "explorer-mine.html"
    assert '"mine (yours)"' in page.read_text(encoding="utf-8")
