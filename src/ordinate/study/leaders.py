"""The leading schemes or mixers of a study, which are trained with further seeds.

A ranking by one seed may be due to that seed. To train the leaders again costs a fraction of a second seed of all,
and tells a lead that repeats from one that does not.
"""

from collections.abc import Sequence
from typing import Any

from ordinate.evaluation.quantity import Quantity
from ordinate.study.data_source import source_of
from ordinate.study.plan import Plan
from ordinate.study.result_file import RESULT_ERRORS, read_result
from ordinate.study.study_folder import StudyFolder

# how many of the best at each of the two lengths
LEADERS = 2
# of fewer arms all would be leading
FEWEST_RANKED = LEADERS + 1


def leading_arms(folder: StudyFolder, plan: Plan) -> tuple[str, ...]:
    """Return the labels of the best two at the trained length and at the longest one, by the first seeds.

    Leaders that were chosen before (of a study that is resumed with other arms) remain. Runs that diverged or failed
    have no value and are not among them; the mean over seeds decides where there are several.

    Args:
        folder: the study's folder.
        plan: the study's plan, without cells.
    """
    quantity, values = source_of(plan).quantity, dict[int, dict[str, list[float]]]()
    for run in [run for seed in range(plan.seeds) for run in plan.runs_for_seed({}, seed)]:
        try:
            result = read_result(folder.result(run))
        except RESULT_ERRORS:
            continue
        for row in result.get("lengths", ()) if result["status"] == "done" else ():
            if quantity.has_value(row):
                values.setdefault(row["times"], {}).setdefault(run.label, []).append(row[quantity.field])
    ends = dict.fromkeys((min(values), max(values))) if values else {}
    return tuple(
        dict.fromkeys([*plan.leaders, *(label for times in ends for label in _best(values[times], quantity))])
    )


def _best(values: dict[str, list[float]], quantity: Quantity) -> Sequence[Any]:
    """Return the labels of the best values."""
    return sorted(values, key=lambda label: quantity.sign * sum(values[label]) / len(values[label]))[:LEADERS]
