"""Learning rates are tuned under an equal budget, on nothing that is trained on or reported."""

import numpy as np
import pytest
import torch

from ordinate.data.store import open_store
from ordinate.files import read_sealed
from ordinate.report.build import build
from ordinate.seeds import seed_of
from ordinate.study.aside import part, places
from ordinate.study.plan import Plan
from ordinate.study.run import TUNING
from ordinate.study.source import source_of
from ordinate.study.tuning import SEQUENCES, Tried, choose, measure_trial, rates, tuned

RATES = (0.001, 0.004, 0.2)
OPTIONS = {"task": ("copy",), "width": (8,), "schemes": ("none", "rope"), "multiples": (1,), "steps": (8,)}


def test_every_rate_of_every_scheme_has_the_same_budget(designed):
    plan = designed(tune=RATES, trials=2, seeds=3, trial_share=0.5, **OPTIONS)
    trials, final = plan.stages()
    assert [(run.label, run.rate) for run in trials] == [
        (label, rate) for _ in range(2) for label in ("none", "rope") for rate in RATES
    ]
    assert {plan.of(run).steps for run in trials} == {4}
    assert {plan.of(run).learning_rate for run in trials} == set(RATES)
    assert {run.seed for run in trials} == {TUNING, TUNING + 1}
    assert {run.seed for run in final} == {0, 1, 2}
    assert len({run.name for run in plan.runs()}) == len(plan.runs()) == 12 + 6


def test_rates_are_a_list_or_so_many_around_the_plans_own():
    assert rates(Plan()) is None
    assert rates(Plan(tune=(0.2, 0.1))) == (0.1, 0.2)
    assert rates(Plan(tune=(3,), learning_rate=0.004)) == pytest.approx((0.002, 0.004, 0.008))
    for wrong in ((0.1,), (0.1, 0.1), (1.0,), (2.5,), (-0.1, 0.1)):
        with pytest.raises(ValueError, match="--tune"):
            rates(Plan(tune=wrong))


@pytest.mark.parametrize(
    ("losses", "rate", "edge"),
    [((3.0, 2.0, 2.5), 0.004, None), ((1.0, 2.0, 2.5), 0.001, "lowest"), ((3.0, 2.0, 1.5), 0.2, "highest"),
     ((3.0, 2.0, None), 0.004, None), ((2.0, 2.0, 2.0), 0.001, "lowest")],
)  # fmt: skip
def test_the_lowest_loss_is_taken_and_an_edge_is_said(losses, rate, edge):
    found = choose([Tried(*one) for one in zip(RATES, losses, strict=True)], "rope")
    assert (found.rate, found.edge) == (rate, edge)


def test_a_scheme_that_diverged_with_each_rate_is_refused():
    with pytest.raises(ValueError, match="rope diverged with each; give lower ones"):
        choose([Tried(rate, None) for rate in RATES], "rope")


def test_what_is_set_aside_is_not_trained_on():
    tokens, plan = np.arange(105), Plan(tune=RATES)
    kept, aside = (part(tokens, plan, aside=which) for which in (False, True))
    assert (len(kept), len(aside)) == (95, 10)
    assert np.array_equal(np.concatenate([kept, aside]), tokens)
    assert np.array_equal(part(tokens, Plan(), aside=False), tokens)
    assert sorted(places(105, aside=False) + places(105, aside=True)) == list(range(105))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for number in range(12):
        (folder / f"{number}.txt").write_text("".join(f"{number} {word * number}\n" for word in range(300)))
    return folder


def test_a_trial_is_measured_on_text_that_is_neither_trained_on_nor_reported(text, tmp_path):
    plan = Plan(text=str(text), tune=RATES, length=16, precision="fp32")
    source = source_of(plan)(plan, tmp_path)
    source.prepare(lambda what: None)
    store, aside, trained = open_store(tmp_path), source.aside.tokens, source.task.tokens
    assert np.array_equal(np.concatenate([trained, aside]), store.train)
    assert len(aside) == len(store.train) // 10

    class Hears(torch.nn.Module):
        """Remembers what it is asked."""

        def __init__(self):
            super().__init__()
            self.seen, self.weight = [], torch.nn.Parameter(torch.zeros(()))

        def forward(self, ids):
            self.seen.append(ids)
            return torch.zeros(*ids.shape, 256) + self.weight

    model = Hears()
    assert measure_trial(model, source) == pytest.approx(np.log(256))
    seen = torch.cat(model.seen)
    assert len(seen) == SEQUENCES
    said = bytes(aside.astype(np.uint8))
    assert all(bytes(row.to(torch.uint8).numpy()) in said for row in seen)


def test_fresh_sequences_of_trials_are_not_those_of_the_report(tmp_path):
    plan = Plan(task="copy", tune=RATES)
    source = source_of(plan)(plan, tmp_path)
    reported, asides = (
        source.task.sample(torch.Generator().manual_seed(seed), 64).inputs
        for seed in (seed_of("fresh", 1), seed_of("aside"))
    )
    assert not {tuple(row) for row in reported.tolist()} & {tuple(row) for row in asides.tolist()}


def test_a_run_takes_the_rate_that_its_trials_chose_and_the_report_says_so(designed, carried, tmp_path):
    plan = designed(tune=RATES, trial_share=0.5, **OPTIONS)
    folder, done = carried(plan, tmp_path / "study")
    assert len(done) == 6 + 2
    for run in plan.stages()[1]:
        found = read_sealed(folder.result(run))["tuning"]
        losses = {
            trial.rate: read_sealed(folder.result(trial))["aside"]
            for trial in plan.stages()[0]
            if trial.label == run.label
        }
        assert found["rate"] == min(losses, key=losses.get)
        assert [one["loss"] for one in found["tried"]] == [losses[rate] for rate in RATES]
        assert not (folder.run(plan.stages()[0][0]) / "model").exists()
    page = build(folder.path).path.read_text(encoding="utf-8")
    assert "is tuned under an equal budget: each of 3 rates was tried once, for 50% of the steps" in page
    assert "Learning rates that were tried" in page
    assert "the best learning rate lies at an end" in page
    # a trial without a result is made up for, and nothing else is
    folder.result(plan.stages()[0][0]).unlink()
    with pytest.raises(ValueError, match=r"without a result: none-rate=0.001-t0"):
        tuned(folder, plan, plan.stages()[1][0])
    assert carried(plan, tmp_path / "study")[1] == ["none-rate=0.001-t0"]


def test_a_shared_rate_is_said_to_be_shared(designed, carried, tmp_path):
    folder, _ = carried(designed(**OPTIONS), tmp_path / "study")
    assert "The learning rate, 0.004, is shared, not tuned." in build(folder.path).path.read_text(encoding="utf-8")
