import pytest
import torch

from ordinate.replications.papers.press import LONGEST, TRAINED, Planted, Press, counting_rows, scores, split_name
from ordinate.replications.runner import replicate


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
    assert all(control.recovered for control in Press().controls(3))


def test_committed_numbers_give_verdicts_and_without_them_it_says_how_to_train(trained_folder):
    result = replicate("press", trained=trained_folder)
    assert [one.claim.name for one in result.claims] == [claim.name for claim in Press.claims]
    assert all(control.recovered for control in result.controls)
    assert "24 models" in result.trained
    assert (
        replicate("press").not_measured["extrapolates"] == "it needs trained models: ordinate replicate press --train"
    )


@pytest.mark.extended
def test_it_is_trained_on_text_that_is_not_read(tmp_path):
    from ordinate.replications.prose import byte_entropy, train_bytes

    assert 2.9 < byte_entropy(train_bytes()) < 3.5
    assert set(Press().examine(Planted256())) == {"split 64", "split 128", "split 256", "split 512", "context"}


class Planted256(torch.nn.Module):
    def forward(self, ids):
        return torch.zeros(*ids.shape, 256)
