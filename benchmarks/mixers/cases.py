"""Measurements: contenders, batch size, sequence lengths, and the longest pass that is timed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.harness.device import Device
from benchmarks.harness.printing import Table
from benchmarks.harness.timing import in_turns, stepped
from benchmarks.harness.workload import Row, Step
from benchmarks.mixers.contenders import CONTENDERS
from benchmarks.mixers.members import Prepare, Size

# longest expected pass at batch 1 that is timed, of ours and of other packages [seconds]
LONGEST, OTHERS_LONGEST = 3.0, 10.0
# beyond this length contenders are timed one after another, not in turns [tokens]
LONG_TEXT = 4096
# target ratio of the mixing at 1024, 4096 and 16384 tokens
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
# mixers whose goals are for the forward pass only
FORWARD_ONLY = ("linformer",)


@dataclass(frozen=True)
class Case:
    """Contenders that are timed in turns, at several lengths.

    Args:
        what: what is timed.
        base: name and workload of the baseline.
        members: the other contenders.
        batch: number of sequences.
        learn: whether to run the backward pass.
        lengths: sequence lengths, ascending [tokens].
        goals: whether the contenders have target ratios.
        device: where it is timed, by its own clock; None: the CPU, in CPU time.
    """

    what: str
    base: tuple[str, Prepare]
    members: Mapping[str, Prepare]
    batch: int
    learn: bool
    lengths: tuple[int, ...]
    goals: bool = False
    device: Device | None = None

    @property
    def title(self) -> str:
        """Name in the results."""
        return f"{self.what}, {'forward and backward' if self.learn else 'forward'}, batch {self.batch}"

    def rows(self, tokens: int, shorter: Table, quick: bool) -> dict[str, Row]:
        """Time one length, without contenders that are expected to take too long, judged by shorter lengths."""
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
            steps = {who: self._step(build, size) for who, build in chosen.items()}
            rows = in_turns(steps, rounds=2 if quick else 3, base=name, clock=self._clock)
        for member, goals in GOALS.items():
            if self.goals and member in rows and not quick and not (self.learn and member in FORWARD_ONLY):
                rows[member]["goal"] = goals[self.lengths.index(tokens)]
        return rows

    def _one_by_one(self, chosen: Mapping[str, Prepare], size: Size) -> dict[str, Row]:
        """Time the baseline, then each contender alone: all together would not fit into memory."""
        rows: dict[str, Row] = {}
        for who, build in chosen.items():
            row = in_turns({who: self._step(build, size)}, rounds=1, base=who, clock=self._clock)[who]
            rows[who] = {"seconds": row["seconds"], "ratio": row["seconds"] / rows.get(self.base[0], row)["seconds"]}
        return rows

    @property
    def _clock(self) -> Callable[[Step, int], float] | None:
        return None if self.device is None else self.device.seconds

    def _step(self, build: Prepare, size: Size) -> Step:
        if self.device is None:
            return stepped(build(size, self.learn))
        return self.device.prepared(lambda: stepped(build(size, self.learn)))

    @staticmethod
    def _expected(shorter: Table, member: str) -> float:
        """Extrapolate the seconds of the next length from the last two, or as eight times those of the only one."""
        if not shorter:
            return 0.0
        times = [rows[member]["seconds"] for rows in shorter.values() if member in rows]
        if len(times) < len(shorter):
            return float("inf")
        return times[-1] * (times[-1] / times[-2] if len(times) > 1 else 8)
