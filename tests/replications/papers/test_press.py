import pytest
import torch

from ordinate.replications.papers.press import Press
from ordinate.replications.runner import replicate


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
