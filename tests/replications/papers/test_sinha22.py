import pytest
import torch

from ordinate.probing._probe import ProbeData
from ordinate.replications import replicate
from ordinate.replications.papers.sinha22 import Sinha22, repeat_table, shift_change, shift_changes, shifted_nats
from ordinate.replications.random_models import random_decoder, random_texts
from ordinate.replications.replication import Subject


@pytest.mark.parametrize("scheme", ["rope", "alibi", "t5"])
def test_relative_schemes_ignore_a_shift(scheme):
    assert shift_change(random_decoder(0, scheme), random_texts(0, 2, 9), 5) < 1e-5


def test_a_repeated_table_ignores_its_period_alone():
    model, ids = repeat_table(random_decoder(0, "learned"), 16), random_texts(0, 2, 9)
    assert shift_change(model, ids, 16) < 1e-6 < 0.1 < shift_change(model, ids, 15)


@pytest.mark.extended
def test_all_claims_agree():
    assert {one.verdict for one in replicate("sinha22").claims} == {"agrees"}


def test_each_text_has_its_change_and_its_loss():
    model, ids = random_decoder(0, "learned"), random_texts(0, 3, 9)
    assert shift_changes(model, ids, 5).tolist() == pytest.approx(
        [shift_change(model, ids[n : n + 1], 5) for n in range(3)]
    )
    plain = torch.nn.functional.cross_entropy(model.model(ids[:, :-1]).mT, ids[:, 1:], reduction="none").mean(1)
    assert shifted_nats(model, ids, 0).tolist() == pytest.approx(plain.tolist(), abs=1e-5)
    repeated = repeat_table(model, 16)
    assert torch.allclose(shifted_nats(repeated, ids, 16), shifted_nats(repeated, ids, 0), atol=1e-6)
    assert not torch.allclose(shifted_nats(repeated, ids, 15), shifted_nats(repeated, ids, 0), atol=1e-4)


@pytest.mark.extended
def test_claims_about_a_table_are_measured_on_models_that_have_one():
    texts = ProbeData(random_texts(0, 4, 64), None, "random", natural=False)
    about = {claim.name for claim in Sinha22.claims if claim.needs == "model"}
    assert about <= set(Sinha22().measure(Subject(random_decoder(0, "learned"), texts)))
    assert not about & set(Sinha22().measure(Subject(random_decoder(0, "rope"), texts)))
