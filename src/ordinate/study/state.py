"""How a planned run stands: every one ends in exactly one of these."""

from typing import Literal, get_args

State = Literal["done", "diverged", "failed", "oom", "killed", "pending"]
STATES: tuple[State, ...] = get_args(State)
"""`done`: trained and measured. `diverged`: the loss, its gradient or a weight stopped being a number. `failed`: an
error. `oom`: not enough memory. `killed`: a signal from outside, or no sign of life. `pending`: no result yet."""
FINAL: tuple[State, ...] = ("done", "diverged")
"""What another try would only repeat."""
WORDS: dict[State, str] = {
    "diverged": "diverged (the loss stopped being a number)",
    "failed": "failed",
    "oom": "ran out of memory",
    "killed": "ended from outside",
}
"""How a report says what became of a run that was not done."""
