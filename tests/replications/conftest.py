from pathlib import Path

import pytest


@pytest.fixture
def trained_folder():
    return Path(__file__).parents[2] / "studies" / "replications" / "trained"
