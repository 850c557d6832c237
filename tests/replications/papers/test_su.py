import pytest
import torch

from ordinate.replications import replicate
from ordinate.replications.papers.su import bound, rotated_scores
from ordinate.schemes import Rope


def test_scores_are_those_of_rope():
    """Kills the mutant with the rotation reversed at one of both vectors."""
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 3, 8, generator=generator, dtype=torch.float64)
    rates = torch.tensor([10_000.0 ** (-2 * m / 8) for m in range(4)], dtype=torch.float64)
    rope = Rope(head_width=8, layout="interleaved")
    at = [rope.encode_query(x[None, None], torch.full((1, 3, 1), place)) for x, place in ((q, 9), (k, 2))]
    expected = (at[0] * at[1]).sum(-1)[0, 0]
    assert torch.allclose(rotated_scores(q, k, rates, torch.tensor([7.0]))[:, 0], expected, atol=1e-12)


def test_the_bound_is_the_mean_of_partial_sums():
    rates = torch.tensor([1.0, 0.5], dtype=torch.float64)
    exact = (1 + abs(2 * torch.cos(torch.tensor(0.75 - 0.5)))) / 2
    assert abs(bound(rates, torch.tensor([1.0]))[0] - exact) < 1e-6


@pytest.mark.extended
def test_three_verdicts():
    found = {one.claim.name: one.verdict for one in replicate("su").claims}
    assert found == {
        "envelope": "agrees", "monotone": "does not", "typical scores": "does not", "equal vectors": "agrees"
    }  # fmt: skip
