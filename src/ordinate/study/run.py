"""A training run, the cell of a hyperparameter grid that it belongs to, and the states in which a run can be."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, model_validator

from ordinate.core.checks import need_known

# seeds of tuning runs start here, beyond every seed of a final run (Options.seeds <= FIRST_TUNING_SEED)
FIRST_TUNING_SEED = 1_000_000
# longest prefix of a run's label that its folder name keeps when the label is too long or has unsafe characters
MAX_NAME = 50

State = Literal["done", "diverged", "failed", "oom", "killed", "pending"]
STATES: tuple[State, ...] = get_args(State)
"""`done`: trained and evaluated. `diverged`: the loss, its gradient or a weight became NaN or infinite. `failed`: an
error. `oom`: out of memory. `killed`: a signal, or a timeout without output. `pending`: no result yet."""
FINAL_STATES: tuple[State, ...] = ("done", "diverged")
"""Deterministic outcomes, which another attempt would only repeat; the other states are retried."""
STATE_WORDS: dict[State, str] = {
    "diverged": "diverged (non-finite loss)",
    "failed": "failed",
    "oom": "ran out of memory",
    "killed": "ended by a signal or timeout",
}
"""Wording of each unsuccessful state in the report."""


class FrozenModel(BaseModel):
    """Immutable pydantic model that rejects unknown fields and names the nearest known one."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        validate_by_name=True,
        validate_by_alias=True,
        allow_inf_nan=False,
    )

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        fields = cls.model_fields
        for name in [name for name in given if name not in fields] if isinstance(given, dict) else ():
            aliases = [field.alias for field in fields.values() if field.alias]
            need_known(f"field of a {cls.__name__.lower()}", name, [*fields, *aliases])
        return given


class Cell(FrozenModel):
    """A grid cell: one value of each factor, and the fields of its plan that differ from those of the first cell."""

    values: dict[str, Any]
    """Value of each factor, by field name."""
    changes: dict[str, Any]
    """Every field in which the plan of this cell differs from that of the first cell."""


class Run(FrozenModel):
    """One model to train: scheme and mixer (each as a one-line spec), seed, grid cell, and tuned learning rate."""

    label: str
    scheme: str
    mixer: str
    seed: int
    cell: dict[str, Any] = {}
    """Value of each factor, by field name; empty in a study without a grid."""
    rate: float | None = None
    """Learning rate that this tuning run tries; None for a final run."""
    key: str = ""
    """First 8 hex digits of the hash of the run's plan; empty in a study without a grid."""

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        rate = {} if self.rate is None else {"rate": self.rate}
        factors = "".join(f"-{name}={value}" for name, value in (self.cell | rate).items())
        seed = f"-s{self.seed}" if self.rate is None else f"-t{self.seed - FIRST_TUNING_SEED}"
        return f"{slug(self.label + factors)}{self.key and '-' + self.key}{seed}"

    @property
    def title(self) -> str:
        """Human-readable name of the run, for progress output and reports."""
        where = describe_cell(self.cell)
        what = f"{self.label} ({where})" if where else self.label
        if self.rate is None:
            return f"{what} seed {self.seed}"
        return f"{what} trial {self.seed - FIRST_TUNING_SEED + 1} of learning rate {self.rate:g}"

    @property
    def as_record(self) -> dict[str, Any]:
        """The run as stored in its result.json; fields that are empty are left out."""
        own = self.model_dump(exclude={name for name in ("cell", "rate", "key") if not getattr(self, name)})
        return {"name": self.name, **own}


def describe_cell(values: Mapping[str, Any]) -> str:
    """Format the factor values of a cell: width 64, length 128."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())


def slug(text: str) -> str:
    """Return a valid folder name, unique to the text: a hash is appended where characters were replaced."""
    name = re.sub(r"[^A-Za-z0-9._=-]+", "-", text)
    if name == text.replace(":", "-").replace(",", "-") and len(name) <= MAX_NAME + 10:
        return name
    return f"{name[:MAX_NAME]}-{digest(text)}"


def digest(value: Any) -> str:
    """First 8 hex digits of the SHA-256 hash of a string or of a value's canonical JSON."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
