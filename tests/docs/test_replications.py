import pytest
from generated_parts import stale
from replications import FOLDER, pages, results

from ordinate.replications import replicate
from ordinate.replications.runner import selected


def test_the_page_is_that_of_the_results():
    assert not stale(pages())


def test_every_replication_has_a_result_whose_criteria_are_those_of_its_code():
    """Criteria changed after the measurement are found."""
    found, members = results(FOLDER), selected(["all"])
    assert [result.name for result in found] == list(members)
    for result in found:
        declared = {claim.name: claim for claim in members[result.name].claims}
        assert {one.claim.name: one.claim for one in result.claims} | {
            name: declared[name] for name in result.not_measured
        } == declared


@pytest.mark.extended
@pytest.mark.parametrize("name", selected(["all"]))
def test_the_verdicts_come_out_the_same(name):
    before = next(result for result in results(FOLDER) if result.name == name)
    assert [one.verdict for one in replicate(name, trained=FOLDER / "trained").claims] == [
        one.verdict for one in before.claims
    ]
