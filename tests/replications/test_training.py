from dataclasses import replace

import pytest
import torch

from ordinate.core.atomic_files import read_checksummed, write_checksummed
from ordinate.data.tasks.copy import Copy
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.shape import Shape
from ordinate.replications.papers.dufter import Dufter
from ordinate.replications.papers.press import Press
from ordinate.replications.trained import Arm
from ordinate.replications.training import read_runs, train_models

TASK = Copy(count=2, symbols=4)


class Small(Press):
    arms = tuple(
        Arm(name, Shape(vocabulary=TASK.vocabulary, width=8, layers=1, heads=1, scheme=name), 2, 2, 1e-3)
        for name in ("none", "rope")
    )

    def task(self, arm):
        return TASK

    def examine(self, model):
        assert not model.training
        batch = TASK.sample(torch.Generator().manual_seed(0), 4)
        return {"split 64": float(model(batch.inputs).double().logsumexp(-1).mean())}


class Changed(Small):
    arms = (Small.arms[0], Arm("rope", Small.arms[1].shape, 3, 2, 1e-3))


class Interrupted(Small):
    """Fails after its first model."""

    left = 1

    def examine(self, model):
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        return super().examine(model)


@pytest.mark.extended
def test_an_interrupted_training_goes_on_and_gives_the_same_numbers(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train_models(Interrupted(), tmp_path / "a.json", seeds=2)
    assert len(read_runs(tmp_path / "a.json", Small()).runs) == 1
    whole, again = (train_models(Small(), tmp_path / name, seeds=2) for name in ("b.json", "a.json"))
    assert [(run.arm, run.seed, run.numbers) for run in whole.runs] == [
        (run.arm, run.seed, run.numbers) for run in again.runs
    ]
    assert whole.numbers("none", "split 64").shape == (2,)
    assert not whole.complete
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json"]
    # the seeds differ
    assert len(set(whole.numbers("rope", "split 64"))) == 2


class Watched(Small):
    """Examined at every step of four."""

    looks = 4
    before_training = True
    arms = (Arm("rope", Small.arms[1].shape, 4, 2, 1e-2),)


def test_a_model_is_examined_while_it_is_trained_and_the_last_time_trained(tmp_path):
    runs = train_models(Watched(), tmp_path / "a.json", seeds=1)
    curve = runs.curve("rope", "split 64")
    assert sorted(runs.runs[0].before) == [0, 1, 2, 3]
    assert curve[0, -1] == runs.numbers("rope", "split 64")[0]
    assert len(set(curve[0])) == 5
    assert read_runs(tmp_path / "a.json", Watched()).runs == runs.runs


class TrainedOn(Small):
    """Two models go on from one trained model, nearly without a step, one of them without its positions."""

    arms = (
        Small.arms[1],
        *(
            Arm(name, replace(Small.arms[1].shape, scheme=scheme), 2, 2, 1e-12, start=Small.arms[1])
            for name, scheme in {"on": "rope", "dropped": "none"}.items()
        ),
    )


def test_a_model_that_starts_from_a_trained_one_has_its_weights_and_another_scheme(tmp_path):
    runs = train_models(TrainedOn(), tmp_path / "a.json", seeds=2)
    first, on, dropped = (runs.numbers(name, "split 64") for name in ("rope", "on", "dropped"))
    assert (on == first).all()
    assert (dropped != first).all()
    assert runs.plan["on"]["start.shape.scheme"] == "rope"
    assert runs.plan["rope"]["start"] == "None"
    assert not (tmp_path / "a").exists()


def test_the_model_of_an_arm_is_an_encoder_if_its_shape_is_that_of_one():
    shape = EncoderShape(vocabulary=8, width=8, layers=1, heads=1)
    assert isinstance(Arm("masked", shape, 2, 2, 1e-3).build(), Encoder)


def test_steps_must_be_divisible_by_the_looks():
    with pytest.raises(ValueError, match="2 steps and 3 looks"):
        Small.arms[0].settings(0, 3)


def test_a_hyperparameter_that_was_added_since_had_its_default(trained_folder, tmp_path):
    content, path = read_checksummed(trained_folder / "dufter.json"), tmp_path / "dufter.json"
    plans = content["trained"]["plan"]
    for plan in plans.values():
        del plan["shape.convolution"], plan["shape.pool"]
    write_checksummed(path, content)
    assert read_runs(path, Dufter()).runs == read_runs(trained_folder / "dufter.json", Dufter()).runs
    # embedding_std has another value than its default in these models, width has none
    for name in ("shape.embedding_std", "shape.width"):
        write_checksummed(path, {**content, "trained": {**content["trained"], "plan": _without(plans, name)}})
        with pytest.raises(ValueError, match="hyperparameters of this version"):
            read_runs(path, Dufter())


def _without(plans, name):
    return {arm: {key: text for key, text in plan.items() if key != name} for arm, plan in plans.items()}


@pytest.mark.extended
def test_numbers_of_other_hyperparameters_are_refused(tmp_path):
    train_models(Small(), tmp_path / "a.json", seeds=1)
    with pytest.raises(ValueError, match=r"hyperparameters of this version.*other ones in rope; train"):
        read_runs(tmp_path / "a.json", Changed())


def test_a_model_that_has_not_learnt_takes_all_verdicts(trained_folder):
    runs = read_runs(trained_folder / "press.json", Press())
    assert Press().learnt(runs).recovered
    bad = runs.runs[0].model_copy(update={"numbers": {**runs.runs[0].numbers, "split 64": 3.0}})
    assert not Press().learnt(runs.model_copy(update={"runs": (bad, *runs.runs[1:])})).recovered
