"""Whether what a small study decides holds for larger models, as measured by the studies of docs/transfer.md."""

import json
from collections.abc import Mapping
from typing import Any

from ordinate.report.html import package_text

MEASURED = "transfer.json"


def transfer_line(plan: Mapping[str, Any], times: int) -> str:
    """Return how many decided pairs of schemes larger studies confirmed and contradicted.

    That was measured for schemes in decoders of text; of other studies it says that it was not.

    Args:
        plan: the plan of the study, as in study.json.
        times: evaluation length as a multiple of the trained one.
    """
    alike = plan.get("task", "text") == "text" and plan.get("model", "decoder") == "decoder"
    if not alike or plan.get("mixers") or plan.get("base"):
        return "not measured for this kind of study; for schemes in decoders of text see docs/transfer.md"
    sizes = json.loads(package_text(MEASURED))["trained" if times == 1 else "longest"]
    said = [
        f"at {size['compute']} times the compute {size['confirmed']} of {size['decided']} confirmed, "
        f"{size['contradicted']} contradicted"
        for size in sizes
    ]
    return f"pairs that quick studies of code and of English decide: {'; '.join(said)}"
