"""What is timed: which members, how many texts of which lengths, and how long a pass may take."""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.attention.measuring import Row, Step, in_turns, stepped
from benchmarks.mixers.contenders import CONTENDERS
from benchmarks.mixers.members import Prepare, Size

# a pass of one text that is expected to take longer is not timed, ours and that of others [seconds]
LONGEST, OTHERS_LONGEST = 3.0, 10.0
# members that read longer texts are timed one after another, not in turns [tokens]
LONG_TEXT = 4096
# the ratio of the mixing to reach at 1024, 4096 and 16384 tokens
GOALS: dict[str, tuple[float, float, float]] = {
    "s4d": (0.7, 0.3, 0.2),
    "h3": (0.7, 0.3, 0.2),
    "rwkv4": (0.4, 0.2, 0.1),
    "rwkv6": (0.5, 0.25, 0.15),
    "rwkv7": (0.5, 0.25, 0.15),
    "linear": (0.5, 0.25, 0.15),
    "performer": (0.7, 0.35, 0.2),
    "window": (0.9, 0.35, 0.15),
    "linformer": (0.8, 0.3, 0.12),
}
# whose goals are for the forward pass
FORWARD_ONLY = ("linformer",)
Table = dict[str, dict[str, Row]]
"""The rows of each length."""


@dataclass(frozen=True)
class Case:
    """Members that are timed in turns, at several lengths.

    Args:
        what: is timed.
        base: what the ratios are to, and its name.
        members: the others.
        batch: texts.
        learn: whether there is a way back.
        lengths: of the texts, shortest first [tokens].
        goals: whether the members have ratios to reach.
    """

    what: str
    base: tuple[str, Prepare]
    members: Mapping[str, Prepare]
    batch: int
    learn: bool
    lengths: tuple[int, ...]
    goals: bool = False

    @property
    def title(self) -> str:
        """What it is called in the results."""
        return f"{self.what}, {'forward and backward' if self.learn else 'forward'}, batch {self.batch}"

    def rows(self, tokens: int, shorter: Table, quick: bool) -> dict[str, Row]:
        """The rows of one length; what would take too long, as the shorter ones let expect, is left out."""
        name, prepare = self.base
        size = Size(tokens, self.batch)
        chosen = {name: prepare} | {
            member: build
            for member, build in self.members.items()
            if self._expected(shorter, member) < self.batch * (OTHERS_LONGEST if member in CONTENDERS else LONGEST)
        }
        if tokens > LONG_TEXT:
            rows = self._one_by_one(chosen, size)
        else:
            steps: dict[str, Step] = {who: stepped(build(size, self.learn)) for who, build in chosen.items()}
            rows = in_turns(steps, rounds=2 if quick else 3, base=name)
        for member, goals in GOALS.items():
            if self.goals and member in rows and not quick and not (self.learn and member in FORWARD_ONLY):
                rows[member]["goal"] = goals[self.lengths.index(tokens)]
        return rows

    def _one_by_one(self, chosen: Mapping[str, Prepare], size: Size) -> dict[str, Row]:
        """The base first, then each of the others: what all of them hold would not fit into memory."""
        rows: dict[str, Row] = {}
        for who, build in chosen.items():
            row = in_turns({who: stepped(build(size, self.learn))}, rounds=1, base=who)[who]
            rows[who] = {"seconds": row["seconds"], "ratio": row["seconds"] / rows.get(self.base[0], row)["seconds"]}
        return rows

    @staticmethod
    def _expected(shorter: Table, member: str) -> float:
        """Seconds of the next length, as the last two let expect, or eight times as many as of the last."""
        if not shorter:
            return 0.0
        times = [rows[member]["seconds"] for rows in shorter.values() if member in rows]
        if len(times) < len(shorter):
            return float("inf")
        return times[-1] * (times[-1] / times[-2] if len(times) > 1 else 8)
