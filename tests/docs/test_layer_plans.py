"""The plans of docs/schemes/layer_plans.md beside the configurations of transformers."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "schemes" / "layer_plans.md").read_text(encoding="utf-8")
COUNTS = {"three times": 3, "five times": 5}
# by the first word of a row; the window of Gemma 3 is that of its checkpoints
CONFIGURATIONS = {
    "SmolLM3": "SmolLM3Config",
    "Cohere": "Cohere2Config",
    "EXAONE": "Exaone4Config",
    "Llama": "Llama4TextConfig",
    "Gemma 2": "Gemma2Config",
    "Gemma 3": "Gemma3TextConfig",
    "OLMo": "Olmo3Config",
    "gpt-oss": "GptOssConfig",
}


def plan(cell):
    """The entries of a cell, each as often as it says."""
    parts = re.findall(r"(`[^`]+`|\d+|None)(?: (three times|five times))?", cell)
    return [entry.strip("`") for entry, times in parts for _ in range(COUNTS.get(times, 1))]


def row(first):
    """Schemes and windows of one period of a model."""
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| {first}"))
    _, schemes, windows = (cell.strip() for cell in line.split("|")[1:4])
    return plan(schemes), plan(windows) if "chunks" not in windows else []


@pytest.mark.extended
@pytest.mark.parametrize(("first", "configuration"), CONFIGURATIONS.items())
def test_a_plan_is_that_of_transformers(first, configuration):
    transformers = pytest.importorskip("transformers")
    config, (schemes, windows) = getattr(transformers, configuration)(), row(first)
    kinds, period = config.layer_types, max(len(schemes), len(windows))
    assert all(kind == kinds[layer % period] for layer, kind in enumerate(kinds))
    if windows:
        assert [window == "None" for window in windows] == [kind == "full_attention" for kind in kinds[:period]]
        wanted = 1024 if first == "Gemma 3" else config.sliding_window
        assert {int(window) for window in windows if window != "None"} == {wanted}
    if getattr(config, "no_rope_layers", None):
        assert [int(scheme.startswith("rope")) for scheme in schemes] == config.no_rope_layers[:period]
    parameters = config.rope_parameters
    for place, scheme in enumerate(schemes):
        theta = re.search(r"theta=([\de.]+)", scheme)
        own = parameters.get(kinds[place], parameters)
        if scheme.startswith("rope"):
            assert float(theta[1] if theta else 10_000) == own["rope_theta"]
