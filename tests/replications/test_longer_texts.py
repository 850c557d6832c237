import torch

from ordinate.replications.longer_texts import (
    LONGEST,
    TRAINED,
    Planted,
    counting_rows,
    score_controls,
    scores,
    split_name,
)


def test_scores_tell_early_tokens_from_longer_context():
    early, far = scores(Planted(32), counting_rows(0)), scores(Planted(128), counting_rows(0))
    # blind for 32 tokens: split pieces gain from their length, the same tokens gain nothing
    assert early[split_name(LONGEST)] < early[split_name(TRAINED)] - 1
    assert abs(early["context"]) < 1e-5
    assert far["context"] < -2.7


def test_the_context_score_compares_the_same_tokens():
    # a model that knows some tokens by themselves has no gain, whichever it knows
    rows = torch.randint(16, (2, LONGEST + 1), generator=torch.Generator().manual_seed(1))
    table = torch.randn(16, 16, generator=torch.Generator().manual_seed(2))
    assert abs(scores(lambda ids: table[ids], rows)["context"]) < 1e-6


def test_all_controls_are_recovered():
    assert all(control.recovered for control in score_controls(3))
