"""The remaining time of what progresses: none before there is a basis for an estimate."""

# reported amounts before the first estimate
FEWEST = 4
# shortest time that an estimate is based on [seconds]
SHORTEST = 1.0
MINUTES, HOURS = 90, 90 * 60


class Pace:
    """The speed of one item, over the later half of the amounts that it has reported.

    What comes once at the start (reading weights, compiling kernels) is in the first amounts, so that it is soon left
    out of the speed. Where an item starts anew, with a smaller amount or another total, so does its speed.
    """

    def __init__(self) -> None:
        self.count, self.done, self.total, self.at = 0, 0.0, 0.0, 0.0
        # time and amount at the amounts number 1, 2, 4, 8 ...
        self.marks: list[tuple[float, float]] = []

    def update(self, done: float, total: float, now: float) -> None:
        """Take note of an amount.

        Args:
            done: amount done, in units of `total`.
            total: amount in all.
            now: time of the event [seconds].
        """
        if done < self.done or total != self.total:
            self.count, self.total, self.marks = 0, total, []
        if done <= (self.done if self.count else 0.0):
            return
        self.done, self.at, self.count = done, now, self.count + 1
        if self.count & (self.count - 1) == 0:
            self.marks.append((now, done))

    def seconds_left(self, now: float) -> float | None:
        """Return the remaining time [seconds]; None before there is a basis for an estimate."""
        if self.count < FEWEST:
            return None
        start, before = self.marks[-2]
        if self.at - start < SHORTEST:
            return None
        return max((self.total - self.done) * (self.at - start) / (self.done - before) - (now - self.at), 0.0)


def format_left(seconds: float) -> str:
    """Return a remaining time as text: about 40 s left, about 5 min left, about 3 h left."""
    if seconds < MINUTES:
        return f"about {seconds:.0f} s left"
    return f"about {seconds / 60:.0f} min left" if seconds < HOURS else f"about {seconds / 3600:.0f} h left"


def format_clock(seconds: float) -> str:
    """Return a time as hours, minutes and seconds: 0:05:00."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
