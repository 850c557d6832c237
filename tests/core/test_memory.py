import pytest

from ordinate import Shape
from ordinate.core import memory
from ordinate.core.memory import machine_memory, need_memory


def test_what_does_not_fit_into_memory_is_refused(monkeypatch):
    need_memory("it", machine_memory() or 1)
    monkeypatch.setattr(memory, "machine_memory", lambda: 1 << 30)
    need_memory("it", 2 << 30, times=2)
    with pytest.raises(ValueError, match="it must fit into memory; it needs 3 GiB, of 2 GiB; give smaller sizes"):
        need_memory("it", 3 << 30, times=2)


def test_a_scheme_that_does_not_fit_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr(memory, "machine_memory", lambda: 1 << 20)
    shape = Shape(vocabulary=7, width=16, heads=2, layers=1, scheme="learned:max_length=200000")
    with pytest.raises(ValueError, match="the scheme 'learned:max_length=200000' must fit into memory"):
        shape.make_schemes()


def test_sizes_are_written_without_exponents(monkeypatch):
    monkeypatch.setattr(memory, "machine_memory", lambda: 3 << 29)
    with pytest.raises(ValueError, match=r"it needs 1,048,576 GiB, of 1\.5 GiB"):
        need_memory("it", 1 << 50)
