from ordinate.replications import replicate
from ordinate.replications.papers.velickovic import outside_bound


def test_the_bound_holds_within_the_span_and_not_beyond():
    assert outside_bound(1, 1.0) == 0
    assert outside_bound(1, 1.2) > 0


def test_both_claims_agree():
    result = replicate("velickovic")
    assert [one.verdict for one in result.claims] == ["agrees", "agrees"]
    # the exact value beside 15 equal logits
    assert abs(result.controls[0].got - 0.908) < 1e-3
