import pytest
import torch

from ordinate.probing.activations.recording import record
from ordinate.probing.measures.score_split import score_split
from ordinate.testing.analytic_model import AnalyticModel

IDS = torch.randperm(50, generator=torch.Generator().manual_seed(0))[None, :24]


def test_without_positions_scores_are_due_to_tokens():
    split = score_split(AnalyticModel("none", causal=False), IDS)
    assert abs(split.position_share).max() < 0.02
    assert split.content_share == pytest.approx(1, abs=0.1)


def test_without_tokens_scores_are_due_to_positions():
    model = AnalyticModel("learned")
    model.tokens.zero_()
    split = score_split(model, IDS)
    assert split.position_share == pytest.approx(1)
    assert split.content_share == pytest.approx(0, abs=1e-9)
    scores = record(model, IDS, "attn_scores")["attn_scores", 1][0, 0]
    row = scores[9, :10] - scores[9, :10].mean()
    assert torch.allclose(torch.tensor(split.position[1, 0, 9, :10]), row.float(), atol=1e-5)
    assert not split.position[1, 0, 9, 10:].any()


def test_both_parts_add_up_to_the_scores():
    model = AnalyticModel("rope", causal=False)
    split = score_split(model, IDS)
    scores = record(model, IDS, "attn_scores")["attn_scores", 1][0]
    expected = (scores - scores.mean(-1, keepdim=True)).numpy()
    assert split.position[1] + split.content[1] == pytest.approx(expected, abs=1e-5)


def test_the_share_of_position_grows_with_its_embeddings_and_has_no_bias_from_few_orders():
    shares = [score_split(AnalyticModel("learned", layers=1, scale=scale), IDS).position_share.mean()
              for scale in (0.1, 1.0, 10.0)]  # fmt: skip
    assert shares[0] < 0.1 < shares[1] < 0.9 < shares[2]
    # the square of one estimate from four orders would give about a quarter
    plain = AnalyticModel("none", causal=False, layers=1)
    few = [score_split(plain, IDS, shuffles=4, seed=seed).position_share.mean() for seed in range(12)]
    assert abs(sum(few) / 12) < 0.05


def test_an_additive_bias_counts_as_position():
    class Biased(AnalyticModel):
        def forward(self, inputs, watch=None):
            from ordinate.probing.activations.intervention import patch

            i = torch.arange(inputs.ids.shape[1])
            bias = -5.0 * (i[:, None] - i).abs().double()
            plain = AnalyticModel("none", layers=1)
            return patch(plain, "attn_scores", lambda x: x + bias).forward(inputs, watch)

    split = score_split(Biased("none", layers=1), IDS)
    assert split.position_share.min() > 0.9


def test_fixed_tokens_are_not_shuffled():
    seen = []

    class Noted(AnalyticModel):
        def forward(self, inputs, watch=None):
            seen.append(inputs.ids)
            return super().forward(inputs, watch)

    score_split(Noted("learned"), IDS, fixed=(1, 2))
    moved = max(seen, key=len)
    assert moved.shape == (32, 24)
    assert (moved[:, 0] == IDS[0, 0]).all()
    assert (moved[:, -2:] == IDS[0, -2:]).all()
    assert (moved.sort(1).values == IDS.sort(1).values).all()
    assert not (moved[:, 1:-2] == IDS[:, 1:-2]).all(1).any()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ids": IDS.repeat(2, 1)}, "scores are split of one text; got 2; give one"),
        ({"ids": IDS[:, :3]}, "a text to shuffle needs 4 tokens; got 3; give a longer text"),
        ({"shuffles": 6}, "shuffles must be a multiple of 4; got 6; give 32"),
    ],
)
def test_bad_requests_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        score_split(AnalyticModel(), **{"ids": IDS} | given)
