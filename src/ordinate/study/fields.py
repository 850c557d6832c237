"""Which fields of a plan say something of which task."""

from collections.abc import Iterable, Mapping
from typing import Any

# fields that say how something is read and measured, and not everything is: those of each task that reads data
READS = {
    "text": {"text", "tokenizer", "length", "windows", "shuffled", "samples", "sample_tokens"},
    "masked": {"text", "tokenizer", "length", "windows", "shuffled"},
    "translation": {"pairs", "tokenizer", "length", "windows", "samples"},
    "images": {"images", "pixels", "patch", "windows"},
}
# of those that make their own sequences
READ_BY_QUESTIONS = {"fresh"}

# fields that decide what is prepared in a data folder
PREPARED = ("text", "tokenizer", "base", "pairs", "images", "pixels")


def prepared(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Of the fields of a plan, those that decide what is prepared of its data."""
    silent = set(idle(str(plan["task"]), PREPARED))
    return {name: plan[name] for name in PREPARED if name not in silent}


def idle(task: str, fields: Iterable[str]) -> list[str]:
    """Those of these fields that say nothing of this task, though they do of others.

    Args:
        task: as the plan names it, with its options.
        fields: of the plan.
    """
    read = READS.get(task.partition(":")[0], READ_BY_QUESTIONS)
    every = set().union(READ_BY_QUESTIONS, *READS.values())
    return [name for name in fields if name in every - read]
