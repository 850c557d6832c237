"""Copies of dataclass instances with other fields, in code that `torch.compile` traces."""

from typing import Any, TypeVar

Record = TypeVar("Record")


def changed(record: Record, **fields: Any) -> Record:
    """Return a copy with other values of some fields: `dataclasses.replace`, which PyTorch 2.11 cannot trace.

    Args:
        record: instance of a dataclass; what is copied are the fields of its `__match_args__`, all but those that are
            keyword-only.
        fields: the new values by name.
    """
    made: Any = type(record)
    return made(**({name: getattr(record, name) for name in made.__match_args__} | fields))
