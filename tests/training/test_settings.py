import pytest

from ordinate.training.settings import TrainingSettings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps must be above zero; got 0"),
        ({"learning_rate": -1.0}, "learning_rate must be above zero"),
        ({"learning_rate": float("inf")}, "learning_rate must be finite; got inf"),
        ({"warmup_steps": -1}, "warmup_steps must be 0 or more; got -1"),
        ({"weight_decay": -0.1}, "weight_decay must be 0 or more"),
        ({"precision": "fp8"}, "no precision is named 'fp8'"),
        ({"keep": 1}, "at least two checkpoints must be kept"),
    ],
)
def test_settings_without_meaning_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        TrainingSettings(**({"steps": 1, "batch": 1} | changes))
