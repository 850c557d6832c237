import pytest

from ordinate.report import transfer
from ordinate.report.transfer import transfer_line

SIZES = '{"trained": [%s], "longest": [{"compute": 8, "decided": 25, "confirmed": 22, "contradicted": 1}]}'


def test_a_line_counts_what_larger_studies_confirm(monkeypatch):
    first = '{"compute": 8, "decided": 27, "confirmed": 26, "contradicted": 0}'
    sixty = '{"compute": 60, "decided": 15, "confirmed": 12, "contradicted": 2}'
    monkeypatch.setattr(transfer, "package_text", lambda name: SIZES % f"{first}, {sixty}")
    assert transfer_line({}, 1) == (
        "pairs that quick studies of code and of English decide: at 8 times the compute 26 of 27 confirmed, "
        "0 contradicted; at 60 times the compute 12 of 15 confirmed, 2 contradicted"
    )
    assert transfer_line({"task": "text", "model": "decoder"}, 8).endswith("22 of 25 confirmed, 1 contradicted")


@pytest.mark.parametrize("plan", [{"task": "copy"}, {"model": "vision"}, {"mixers": ["gru"]}, {"base": "model"}])
def test_other_studies_say_that_it_was_not_measured(plan):
    assert transfer_line(plan, 1).startswith("not measured for this kind of study")
