import pytest
import torch

from ordinate.probing._probe import ProbeData
from ordinate.replications.papers.abnar import Abnar, ablation, attention_patterns, correlation, rollout
from ordinate.replications.random_models import random_decoder, random_texts
from ordinate.replications.replication import Subject


def test_rollout_multiplies_later_layers_from_the_left():
    first, second = torch.rand(2, 3, 3, dtype=torch.float64).softmax(-1)
    one = torch.eye(3, dtype=torch.float64)
    assert torch.allclose(rollout(torch.stack([first, second])), (second + one) @ (first + one) / 4)


def test_rows_sum_to_one_and_the_last_token_matters_most_to_itself():
    model, ids = random_decoder(0), random_texts(0, 1, 6)
    seen = attention_patterns(model, ids)
    assert seen.shape == (4, 6, 6)
    assert torch.allclose(rollout(seen).sum(-1), torch.ones(6, dtype=torch.float64))
    relevance = ablation(model, ids)
    assert relevance.argmax() == 5
    assert (relevance > 0).all()


def test_ties_share_their_rank():
    assert correlation(torch.tensor([1.0, 1.0, 2.0]), torch.tensor([1.0, 2.0, 3.0])) == pytest.approx(0.75**0.5)


@pytest.mark.extended
def test_on_a_model_with_random_weights_claims_have_the_values_of_random_weights():
    texts = ProbeData(random_texts(0, 8, 24), None, "random", natural=False)
    found = Abnar().measure(Subject(random_decoder(0), texts))
    assert found["relevance when trained"].value > 0.2
    assert abs(found["relevance when trained"].null) < 0.3
    assert found["beyond the mask when trained"].null > 0.3
