"""What `verify` returns: one row for each check, and the answer."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

State = Literal["agrees", "differs", "failed", "does not apply"]
NOT_FINITE = "outputs must be finite to be compared; those of transformers are not"


@dataclass(frozen=True)
class Difference:
    """Difference of two results that should be equal.

    Args:
        between: the results.
        error: |a - b| / |b|, both L2 norms; of several outputs the largest.
        largest: largest absolute difference of two numbers.
        judged: whether it counts; False: it is told for information.
    """

    between: str
    error: float
    largest: float
    judged: bool = True


@dataclass(frozen=True)
class CheckResult:
    """Result of one check.

    Args:
        name: the check.
        about: what it compares.
        state: agrees; differs; failed, if transformers cannot compute it, or no finite numbers; or does not apply.
        differences: the differences that were measured; none if the check does not apply.
        tolerance: largest error that is put down to rounding; None if the check does not apply.
        basis: how the tolerance was found.
        note: why the check does not apply, or what else is to be known.
    """

    name: str
    about: str
    state: State
    differences: tuple[Difference, ...] = ()
    tolerance: float | None = None
    basis: str = ""
    note: str = ""

    @property
    def worst(self) -> Difference | None:
        """The largest of the differences that count."""
        judged = [difference for difference in self.differences if difference.judged]
        return max(judged, key=lambda difference: difference.error, default=None)

    @classmethod
    def judge(
        cls, name: str, about: str, differences: Sequence[Difference], tolerance: float, basis: str, note: str = ""
    ) -> "CheckResult":
        """Return the result: it agrees if no difference that counts exceeds the tolerance.

        An infinite tolerance is that of outputs of transformers that are not finite: they cannot be compared.
        """
        if not math.isfinite(tolerance):
            return cls(name, about, "failed", note=NOT_FINITE)
        # not `any(error > tolerance)`: an error of nan is no agreement
        agrees = all(difference.error <= tolerance for difference in differences if difference.judged)
        return cls(name, about, "agrees" if agrees else "differs", tuple(differences), tolerance, basis, note)


@dataclass(frozen=True)
class Verification:
    """Comparison of a checkpoint in Ordinate and in transformers.

    Args:
        folder: the checkpoint.
        family: its `model_type`.
        architecture: the class of transformers that it was compared with.
        parameters: number of parameters.
        tokens: length of the texts that the models read [tokens]; None for images.
        seed: seed of the drawn inputs.
        versions: versions of ordinate, torch and transformers.
        checks: a result for each check.
    """

    folder: str
    family: str
    architecture: str
    parameters: int
    tokens: int | None
    seed: int
    versions: dict[str, str]
    checks: tuple[CheckResult, ...]

    @property
    def applied(self) -> list[CheckResult]:
        """The checks that apply."""
        return [check for check in self.checks if check.state != "does not apply"]

    @property
    def agrees(self) -> bool:
        """Whether every check that applies agrees."""
        return all(check.state == "agrees" for check in self.applied)

    @property
    def answer(self) -> str:
        """The answer in one line."""
        other, count = f"transformers {self.versions['transformers']}", len(self.applied)
        if self.agrees:
            return f"Agrees with {other} in {f'all {count} checks that apply' if count > 1 else 'the one check'}"
        words = {"differs": f"Differs from {other} in", "failed": f"{other} failed in"}
        named = {state: [check.name for check in self.checks if check.state == state] for state in words}
        told = [
            f"{words[state]} {len(names)} of {count} checks: {', '.join(names)}"
            for state, names in named.items()
            if names
        ]
        return "; ".join(told)

    def to_dict(self) -> dict[str, Any]:
        """Return the verification as JSON-serialisable values, the answer and each check's worst difference first."""
        checks = [
            {"name": check.name, "state": check.state, "error": None, "largest": None}
            | ({"error": check.worst.error, "largest": check.worst.largest} if check.worst else {})
            | asdict(check)
            for check in self.checks
        ]
        return {"answer": self.answer, "agrees": self.agrees} | asdict(self) | {"checks": checks}
