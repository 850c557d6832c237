"""Results of a replication: claims, controls, estimates and the one rule for verdicts; serialisable, no tensors."""

import math
from typing import Literal

from ordinate.core.finding import Estimate, Record

Verdict = Literal["agrees", "does not", "cannot be told"]
"""What a measurement says about a claim."""
Side = Literal["above", "below", "equal"]
"""Where the claim says that the quantity is: above its null, below it, or at a certain number."""
Tested = Literal["identity", "sign", "order", "number"]
"""What is tested: an equation, the sign of an effect, an order of several, or a printed number."""
Needs = Literal["nothing", "model", "training"]
"""What a claim is measured on: constructed or random weights, a checkpoint of the user, or small trained models."""


class Paper(Record):
    """The publication whose claims are measured."""

    authors: str
    """Authors, short: "Su et al."."""
    year: int
    title: str
    arxiv: str
    """Identifier: 2104.09864."""

    @property
    def url(self) -> str:
        """Address of the abstract."""
        return f"https://arxiv.org/abs/{self.arxiv}"


class Claim(Record):
    """One claim of a paper and the criteria of its verdict, declared before any measurement."""

    name: str
    """Name within its replication, of one or two words."""
    text: str
    """The claim, in the paper's terms."""
    tested: Tested
    quantity: str
    """What is measured, with its unit."""
    side: Side
    size: float
    """Smallest effect that counts: distance from the null; for side "equal", largest distance from `expected`."""
    null: str
    """The null hypothesis: what is measured without the effect."""
    expected: float | None = None
    """For side "equal": the number that the claim says."""
    printed: str = ""
    """The number printed in the paper or its repository; empty: none."""
    checked: bool = True
    """Whether the printed number was compared with the publication; False: taken from notes about it."""
    source: str = ""
    """Address of the claim if it is not in the paper itself."""
    needs: Needs = "nothing"


class Control(Record):
    """A case whose answer is known; the method must find it, or no verdict rests on the method."""

    name: str
    """The case."""
    expected: float
    got: float
    tolerance: float

    @property
    def recovered(self) -> bool:
        """Whether the known answer was found."""
        return math.isfinite(self.got) and abs(self.got - self.expected) <= self.tolerance


class ClaimResult(Record):
    """A claim with its measurement and verdict."""

    claim: Claim
    ours: Estimate
    verdict: Verdict
    reason: str
    """What the verdict rests on, in one sentence."""


class ReplicationResult(Record):
    """What a replication measured: verdicts on its claims, and the controls that the measurement passed."""

    name: str
    paper: Paper
    claims: tuple[ClaimResult, ...]
    controls: tuple[Control, ...]
    not_measured: dict[str, str]
    """Claims without a measurement: the reason, by name."""
    model: str = ""
    """Name of the measured checkpoint; empty: none."""
    texts: str = ""
    """The texts that the checkpoint read; empty: none."""
    seed: int = 0
    seconds: float = 0.0
    """Run time [s]."""
    trained: str = ""
    """How many models were trained, how long, and on which processor; empty: none."""
    version: str = ""
    """Version of Ordinate."""

    @property
    def headline(self) -> str:
        """Counts of the verdicts: "agrees: 3, does not agree: 1"."""
        counts = {verdict: [one.verdict for one in self.claims].count(verdict) for verdict in VERDICTS}
        told = [f"{WORDS[verdict]}: {count}" for verdict, count in counts.items() if count]
        return ", ".join(told) or "nothing measured"


VERDICTS: tuple[Verdict, ...] = ("agrees", "does not", "cannot be told")
WORDS: dict[Verdict, str] = {"agrees": "agrees", "does not": "does not agree", "cannot be told": "cannot be told"}


def judge(claim: Claim, ours: Estimate, controls: tuple[Control, ...]) -> ClaimResult:
    """Give the verdict on a claim: the one rule of all replications.

    With the 95 % interval [low, high] of what is measured, the null's value n and its interval [n_low, n_high]:

    - side "above": *agrees* if low > n_high and low >= n + size; *does not* if high < n + size, that is if the
      interval excludes the smallest effect that counts; "below" is its mirror image;
    - side "equal": *agrees* if the interval is within `size` of the expected number and the null is not; *does not*
      if the interval is farther from it than that;
    - *cannot be told*: all else, a number that is not finite, and always if a control was not recovered.

    An estimate without an interval is exact: its value is its interval; likewise the null.
    """
    lost = [control.name for control in controls if not control.recovered]
    verdict, reason = ("cannot be told", f"not recovered: {', '.join(lost)}") if lost else _compared(claim, ours)
    return ClaimResult(claim=claim, ours=ours, verdict=verdict, reason=reason)


def _compared(claim: Claim, ours: Estimate) -> tuple[Verdict, str]:
    null = ours.null if ours.null is not None else 0.0
    low, high = _ends(ours.value, ours.low, ours.high)
    null_low, null_high = _ends(null, ours.null_low, ours.null_high)
    if not all(map(math.isfinite, (ours.value, low, high, null, null_low, null_high))):
        return "cannot be told", "a number is not finite"
    if claim.side == "equal":
        return _beside_number(claim, (low, high), (null_low, null_high))
    if claim.side == "below":
        low, high, null, null_low, null_high = -high, -low, -null, -null_high, -null_low
    if low > null_high and low >= null + claim.size:
        return "agrees", f"the interval is {claim.side} the null, by {claim.size:g} or more"
    if high < null + claim.size:
        return "does not", f"the interval excludes an effect of {claim.size:g}"
    return (
        "cannot be told",
        f"the interval neither excludes an effect of {claim.size:g} nor is beyond it and the null",
    )


def _beside_number(claim: Claim, interval: tuple[float, float], null: tuple[float, float]) -> tuple[Verdict, str]:
    expected = claim.expected if claim.expected is not None else math.nan
    least, most = expected - claim.size, expected + claim.size
    if least <= null[0] and null[1] <= most:
        return "cannot be told", "the null would pass as well"
    if least <= interval[0] and interval[1] <= most:
        return "agrees", f"the interval is within {claim.size:g} of {expected:g}"
    if interval[1] < least or interval[0] > most:
        return "does not", f"the interval is farther than {claim.size:g} from {expected:g}"
    return "cannot be told", f"the interval is partly within {claim.size:g} of {expected:g}"


def _ends(value: float, low: float | None, high: float | None) -> tuple[float, float]:
    return value if low is None else low, value if high is None else high
