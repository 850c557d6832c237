"""Learning-rate tuning: equal budgets, on data that is neither trained on nor reported."""

import numpy as np
import pytest
import torch

from ordinate.core.atomic_files import read_checksummed
from ordinate.core.progress import ignore
from ordinate.core.seeds import derive_seed
from ordinate.data.token_store import open_store
from ordinate.report.build import build_report
from ordinate.study.data_source import source_of
from ordinate.study.plan import Plan
from ordinate.study.run import FIRST_TUNING_SEED
from ordinate.study.tuning import TUNING_SEQUENCES, TriedRate, choose_rate, learning_rates, tuned_rate, tuning_loss
from ordinate.study.tuning_split import split_indices, split_tokens

RATES = (0.001, 0.004, 0.2)
OPTIONS = {
    "task": ("copy",),
    "width": (8,),
    "schemes": ("none", "rope"),
    "eval_length_multiples": (1,),
    "steps": (8,),
}


def test_every_rate_of_every_scheme_has_the_same_budget(designed):
    plan = designed(tune_lr=RATES, tune_seeds=2, seeds=3, tune_fraction=0.5, **OPTIONS)
    trials, final = plan.stages()
    assert [(run.label, run.rate) for run in trials] == [
        (label, rate) for _ in range(2) for label in ("none", "rope") for rate in RATES
    ]
    assert {plan.for_run(run).steps for run in trials} == {4}
    assert {plan.for_run(run).learning_rate for run in trials} == set(RATES)
    assert {run.seed for run in trials} == {FIRST_TUNING_SEED, FIRST_TUNING_SEED + 1}
    assert {run.seed for run in final} == {0, 1, 2}
    assert len({run.name for run in plan.runs()}) == len(plan.runs()) == 12 + 6


def test_rates_are_a_list_or_a_number_around_the_plans_rate():
    assert learning_rates(Plan()) is None
    assert learning_rates(Plan(tune_lr=(0.2, 0.1))) == (0.1, 0.2)
    assert learning_rates(Plan(tune_lr=(3,), learning_rate=0.004)) == pytest.approx((0.002, 0.004, 0.008))
    for wrong in ((0.1,), (0.1, 0.1), (1.0,), (2.5,), (-0.1, 0.1)):
        with pytest.raises(ValueError, match="--tune-lr"):
            learning_rates(Plan(tune_lr=wrong))


@pytest.mark.parametrize(
    ("losses", "rate", "edge"),
    [((3.0, 2.0, 2.5), 0.004, None), ((1.0, 2.0, 2.5), 0.001, "lowest"), ((3.0, 2.0, 1.5), 0.2, "highest"),
     ((3.0, 2.0, None), 0.004, None), ((2.0, 2.0, 2.0), 0.001, "lowest")],
)  # fmt: skip
def test_the_lowest_loss_is_chosen_and_an_edge_is_reported(losses, rate, edge):
    found = choose_rate([TriedRate(*one) for one in zip(RATES, losses, strict=True)], "rope")
    assert (found.rate, found.edge) == (rate, edge)


def test_a_scheme_that_diverged_with_every_rate_is_an_error():
    with pytest.raises(ValueError, match="rope diverged with each; give lower ones"):
        choose_rate([TriedRate(rate, None) for rate in RATES], "rope")


def test_the_tuning_split_is_not_trained_on():
    tokens, plan = np.arange(105), Plan(tune_lr=RATES)
    kept, aside = (split_tokens(tokens, plan, tuning=which) for which in (False, True))
    assert (len(kept), len(aside)) == (95, 10)
    assert np.array_equal(np.concatenate([kept, aside]), tokens)
    assert np.array_equal(split_tokens(tokens, Plan(), tuning=False), tokens)
    assert sorted(split_indices(105, tuning=False) + split_indices(105, tuning=True)) == list(range(105))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for number in range(12):
        (folder / f"{number}.txt").write_text("".join(f"{number} {word * number}\n" for word in range(300)))
    return folder


def test_a_tuning_run_is_evaluated_on_text_that_is_neither_trained_on_nor_reported(text, tmp_path):
    plan = Plan(text=str(text), tune_lr=RATES, length=16, precision="fp32")
    source = source_of(plan)(plan, tmp_path)
    source.prepare(ignore)
    store, aside, trained = open_store(tmp_path), source.tuning_task.tokens, source.task.tokens
    assert np.array_equal(np.concatenate([trained, aside]), store.train)
    assert len(aside) == len(store.train) // 10

    class Hears(torch.nn.Module):
        """Records its inputs."""

        def __init__(self):
            super().__init__()
            self.seen, self.weight = [], torch.nn.Parameter(torch.zeros(()))

        def forward(self, ids):
            self.seen.append(ids)
            return torch.zeros(*ids.shape, 256) + self.weight

    model = Hears()
    assert tuning_loss(model, source) == pytest.approx(np.log(256))
    seen = torch.cat(model.seen)
    assert len(seen) == TUNING_SEQUENCES
    said = bytes(aside.astype(np.uint8))
    assert all(bytes(row.to(torch.uint8).numpy()) in said for row in seen)


def test_task_sequences_of_tuning_runs_differ_from_those_of_the_report(tmp_path):
    plan = Plan(task="copy", tune_lr=RATES)
    source = source_of(plan)(plan, tmp_path)
    reported, asides = (
        source.task.sample(torch.Generator().manual_seed(seed), 64).inputs
        for seed in (derive_seed("fresh", 1), derive_seed("aside"))
    )
    assert not {tuple(row) for row in reported.tolist()} & {tuple(row) for row in asides.tolist()}


@pytest.mark.extended
def test_a_run_uses_the_tuned_rate_and_the_report_lists_it(designed, carried, tmp_path):
    plan = designed(tune_lr=RATES, tune_fraction=0.5, **OPTIONS)
    folder, done = carried(plan, tmp_path / "study")
    assert len(done) == 6 + 2
    for run in plan.stages()[1]:
        found = read_checksummed(folder.result(run))["tuning"]
        losses = {
            trial.rate: read_checksummed(folder.result(trial))["aside"]
            for trial in plan.stages()[0]
            if trial.label == run.label
        }
        assert found["rate"] == min(losses, key=losses.get)
        assert [one["loss"] for one in found["tried"]] == [losses[rate] for rate in RATES]
        assert not (folder.run(plan.stages()[0][0]) / "model").exists()
    page = build_report(folder.path).path.read_text(encoding="utf-8")
    assert "is tuned under an equal budget: each of 3 rates was tried with 1 seed, for 50% of the steps" in page
    assert "Learning-rate tuning" in page
    assert "the best learning rate is at an end" in page
    # a trial without a result is made up for, and nothing else is
    folder.result(plan.stages()[0][0]).unlink()
    with pytest.raises(ValueError, match=r"every tuning run must have a result; none for none-rate=0.001-t0"):
        tuned_rate(folder, plan, plan.stages()[1][0])
    assert carried(plan, tmp_path / "study")[1] == ["none-rate=0.001-t0"]


@pytest.mark.extended
def test_the_report_states_that_a_rate_is_shared(designed, carried, tmp_path):
    folder, _ = carried(designed(**OPTIONS), tmp_path / "study")
    assert "The learning rate, 0.004, is the same for all and not tuned." in build_report(folder.path).path.read_text(
        encoding="utf-8"
    )
