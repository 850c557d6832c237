from dataclasses import replace

import pytest
import torch
from torch import nn

from ordinate.replications.papers import dufter
from ordinate.replications.papers.dufter import (
    SHAPE,
    Dufter,
    alignment,
    centred,
    copy_difference,
    hidden,
    masked_loss,
    matches,
    symbol_means,
)
from ordinate.replications.replication import Subject
from ordinate.replications.runner import replicate
from ordinate.replications.trained_runs import TrainedRun, TrainedRuns
from ordinate.replications.two_languages import SYMBOLS, TOKENS, Bilingual, translated


def given_runs(numbers):
    """Runs of two seeds, whose numbers before training are half of those after it."""
    runs = [
        TrainedRun(arm=arm, seed=seed, numbers=found, before={0: {k: v / 2 for k, v in found.items()}}, seconds=1.0)
        for arm, found in numbers.items()
        for seed in range(2)
    ]
    return TrainedRuns(plan={}, processor="", runs=tuple(runs))


@pytest.fixture
def texts():
    return torch.randint(SYMBOLS, (512, TOKENS), generator=torch.Generator().manual_seed(0))


def copied(offsets, noise=0.0):
    """A random model whose second language has the first one's embeddings, with noise."""
    torch.manual_seed(0)
    model = Bilingual(SHAPE, offsets).eval()
    table = model.tokens.weight.data
    table[SYMBOLS : 2 * SYMBOLS] = table[:SYMBOLS] + noise * torch.randn(SYMBOLS, table.shape[1])
    return model


def test_a_match_is_the_nearest_row_by_cosine_in_both_directions():
    one = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert matches(one, torch.tensor([[3.0, 0.1], [0.0, 5.0]])) == 1
    # both rows of one are nearest to the second; of the other the first to the first and the second to the second
    assert matches(one, torch.tensor([[-1.0, -2.0], [0.1, 1.0]])) == 0.75
    assert matches(one, one.flip(0)) == 0


def test_centring_takes_off_a_constant_vector_and_no_more():
    one = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(centred(one), centred(one + 3))
    assert matches(centred(one), centred(one.roll(1, 0) + 3)) == 0


def test_the_vector_of_a_symbol_is_the_mean_over_its_places():
    x = torch.arange(6.0).reshape(1, 6, 1)
    places = torch.arange(SYMBOLS).repeat(2)[None]
    values = torch.cat([torch.zeros(1, SYMBOLS, 1), 2 * torch.arange(float(SYMBOLS))[None, :, None]], 1)
    torch.testing.assert_close(symbol_means(values, places)[:, 0], torch.arange(float(SYMBOLS)))
    assert symbol_means(x, torch.tensor([[0, 0, 0, 1, 1, 1]]))[:2, 0].tolist() == [1, 4]


def test_a_copied_table_is_aligned_with_shared_positions_and_a_random_one_is_not(texts):
    found = alignment(copied("none"), texts)
    assert found["words"] == found["sentences"] == found["table"] == found["centred words"] == 1
    torch.manual_seed(0)
    random = alignment(Bilingual(SHAPE, "none").eval(), texts)
    assert random["table"] < 0.2
    assert random["words"] < 0.2
    assert random["sentences"] < 0.05


def test_symbols_are_compared_on_other_texts_and_texts_with_their_translations(monkeypatch, texts):
    seen = []
    monkeypatch.setattr(dufter, "hidden", lambda model, ids: seen.append(ids) or hidden(model, ids))
    alignment(copied("none"), texts)
    assert torch.equal(torch.cat(seen[:2]), torch.cat([texts[:256], translated(texts[256:])]))
    assert torch.equal(seen[3], translated(seen[2]))


def test_texts_of_a_copied_table_are_told_less_with_own_positions(texts):
    shared, own = (alignment(copied(offsets, noise=0.05), texts) for offsets in ("none", "by language"))
    assert shared["sentences"] > own["sentences"] + 0.2
    # the table has no positions in it
    assert own["table"] == shared["table"]


def test_copies_are_read_alike_with_shared_positions_only():
    assert copy_difference("none", 1) == 0
    assert copy_difference("by language", 1) > 0.1


def test_vectors_are_those_after_the_first_layer_and_the_model_keeps_no_hook(texts):
    model = copied("none")
    whole = replace(SHAPE, layers=1)
    first = Bilingual(whole, "none").eval()
    first.load_state_dict(model.state_dict(), strict=False)
    first.norm = nn.Identity()
    torch.testing.assert_close(hidden(model, texts), first(texts))
    assert not model.blocks[0]._forward_hooks


def test_the_loss_is_that_of_masked_symbols_of_both_languages(texts):
    model = copied("none")
    assert masked_loss(model, texts) == masked_loss(model, texts)
    # the same predictions of copies but for the bias, which is 0
    torch.testing.assert_close(
        model.logits(model(texts))[..., 0], model.logits(model(translated(texts)))[..., SYMBOLS]
    )
    model.masked.bias.data[:SYMBOLS] = 5
    assert masked_loss(model, texts) < masked_loss(model, translated(texts)) - 2


def test_claims_compare_the_arms_they_name():
    runs = {
        "shared": {"words": 0.9, "sentences": 0.8, "centred words": 0.7},
        "own": {"words": 0.1, "sentences": 0.3, "centred words": 0.5},
        "by chance": {"words": 0.4, "sentences": 0.0, "centred words": 0.0},
        "token types": {"words": 0.6, "sentences": 0.0, "centred words": 0.0},
    }
    found = Dufter().measure(Subject(runs=given_runs(runs)))
    values = {name: round(one.value, 6) for name, one in found.items() if name != "one solution"}
    assert values == {
        "words align": 0.9, "sentences align": 0.8, "words": 0.8, "sentences": 0.5, "beyond the mean": 0.2,
        "not fewer examples": 0.3, "not the tag": 0.5,
    }  # fmt: skip
    assert found["words align"].null == pytest.approx(0.45)


def test_committed_numbers_give_verdicts(trained_folder):
    result = replicate("dufter", trained=trained_folder)
    assert [one.claim.name for one in result.claims] == [claim.name for claim in Dufter.claims]
    assert all(control.recovered for control in result.controls)
    assert "24 models" in result.trained
