import pytest
import torch

from ordinate.replications import replicate
from ordinate.replications.papers.thomas import hide, match_vocabulary, permuted_error, share
from ordinate.replications.random_models import attention_outputs, random_decoder, random_texts


def test_the_mask_must_be_permuted_with_the_tokens():
    model, ids = random_decoder(0, "rope"), random_texts(0, 2, 8)
    assert permuted_error(model, ids, 0) < 1e-5 < 0.01 < permuted_error(model, ids, 0, mask=False)


@pytest.mark.parametrize("columns", [False, True])
def test_permuted_rows_tell_the_tokens_and_permuted_columns_do_if_sorted(columns):
    model, ids = random_decoder(0, "rope"), random_texts(0, 1, 2)
    rows = hide(attention_outputs(model, ids).streams[2][0], torch.float32, columns, 1)
    assert torch.equal(match_vocabulary(model, rows, 2, columns=columns), ids[0])
    if columns:
        assert not torch.equal(match_vocabulary(model, rows, 2), ids[0])


def test_tokens_in_any_order_are_counted_as_often_as_they_are_there():
    found, ids = torch.tensor([7, 3, 3, 3]), torch.tensor([3, 3, 7, 9])
    assert share(found, ids) == 0.25
    assert share(found, ids, ordered=False) == 0.75


@pytest.mark.extended
def test_all_claims_agree():
    assert {one.verdict for one in replicate("thomas").claims} == {"agrees"}
