"""Class names of a classifier in config.json."""

from collections.abc import Mapping, Sequence
from typing import Any

from ordinate.core.checks import need, shown

# names are made for classes that have none: config.json could ask for billions
MOST_CLASSES = 1_000_000


def class_labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the class names of a config.json, in order.

    They are those of `id2label`; or numbered ones, as many as `num_labels` says, if that is another number.

    Raises:
        ValueError: a class without a name, or an impossible number of them.
    """
    names, told = config.get("id2label"), config.get("num_labels")
    if names is None or told not in (None, len(names)):
        count = 2 if told is None else told
        sensible = isinstance(count, int) and 0 < count <= MOST_CLASSES
        need(sensible, f"num_labels must be from 1 to {MOST_CLASSES}", f"got {shown(count)}", "check config.json")
        return numbered_labels(count)
    need(bool(names), "id2label must name a class", f"got {names}", "check config.json")
    others = [key for key in names if not key.isdecimal()]
    need(not others, "the keys of id2label must be the numbers of classes", f"got {others[:3]}", "check config.json")
    labels = {int(key): name for key, name in names.items()}
    missing = [place for place in range(len(labels)) if place not in labels]
    need(not missing, "id2label must name every class", f"got none for {missing[:3]}", "check config.json")
    return tuple(labels[place] for place in range(len(labels)))


def numbered_labels(count: int) -> tuple[str, ...]:
    """Return the default class names of transformers."""
    return tuple(f"LABEL_{place}" for place in range(count))


def label_settings(labels: Sequence[str]) -> dict[str, Any]:
    """Return the config.json keys of class names."""
    return {
        "id2label": {str(place): label for place, label in enumerate(labels)},
        "label2id": {label: place for place, label in enumerate(labels)},
    }
