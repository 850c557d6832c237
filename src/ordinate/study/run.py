"""One run of a study, and the cell of a grid that it belongs to: values without behaviour."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from ordinate.checks import need_known

# the seeds of trials: beyond every seed of a study
TUNING = 1_000_000
# as much of a name is kept that is too long, or holds what a folder cannot be called
KEPT = 50


class Frozen(BaseModel):
    """A value: it cannot be changed, and it refuses fields it does not know."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_by_name=True, validate_by_alias=True
    )

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        for name in given if isinstance(given, dict) else ():
            aliases = [field.alias for field in cls.model_fields.values() if field.alias]
            need_known(f"field of a {cls.__name__.lower()}", name, [*cls.model_fields, *aliases])
        return given


class Cell(Frozen):
    """One value of each factor of a grid, and the fields that its plan has for itself."""

    values: dict[str, Any]
    """The value of each factor, by the name of its field."""
    changes: dict[str, Any]
    """Every field in which its plan differs from that of the first cell."""


class Run(Frozen):
    """One model to train: a scheme and a mixer, each written in one line, a seed, and where in a grid it stands."""

    label: str
    scheme: str
    mixer: str
    seed: int
    cell: dict[str, Any] = {}
    """The value of each factor; empty in a study without a grid."""
    rate: float | None = None
    """The learning rate that a trial tries; None: it is no trial."""
    key: str = ""
    """Eight letters of what its plan is; empty in a study without a grid."""

    @property
    def name(self) -> str:
        """What its folder is called."""
        rate = {} if self.rate is None else {"rate": self.rate}
        said = "".join(f"-{name}={value}" for name, value in (self.cell | rate).items())
        seed = f"-s{self.seed}" if self.rate is None else f"-t{self.seed - TUNING}"
        return f"{slug(self.label + said)}{self.key and '-' + self.key}{seed}"

    @property
    def title(self) -> str:
        """How it is named to people."""
        where = described(self.cell)
        what = f"{self.label} ({where})" if where else self.label
        if self.rate is None:
            return f"{what} seed {self.seed}"
        return f"{what} trial {self.seed - TUNING + 1} of learning rate {self.rate:g}"

    @property
    def about(self) -> dict[str, Any]:
        """What its result says of it."""
        own = self.model_dump(exclude={name for name in ("cell", "rate", "key") if not getattr(self, name)})
        return {"name": self.name, **own}


def described(values: Mapping[str, Any]) -> str:
    """The values of a cell in words: width 64, length 128."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())


def slug(text: str) -> str:
    """A name that a folder can have, different for different texts."""
    name = re.sub(r"[^A-Za-z0-9._=-]+", "-", text)
    if name == text.replace(":", "-").replace(",", "-") and len(name) <= KEPT + 10:
        return name
    return f"{name[:KEPT]}-{digest(text)}"


def digest(value: Any) -> str:
    """Eight letters that change when a value does."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
