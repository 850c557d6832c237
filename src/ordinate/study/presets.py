"""Plans of three sizes for each thing that can be learned."""

from typing import Any

from ordinate import catalog
from ordinate.study.options import TASKS

PRESETS: dict[str, dict[str, Any]] = {
    "quick": {},
    "standard": {"steps": 3000, "seeds": 2, "width": 128, "layers": 4, "windows": 128, "warmup": 200,
                 "shuffled": 256, "learning_rate": 3e-3},
    "thorough": {"steps": 12000, "seeds": 3, "width": 256, "layers": 6, "heads": 8, "length": 256, "windows": 256,
                 "warmup": 500, "shuffled": 512, "learning_rate": 1.5e-3, "checkpoint_every": 500},
}  # fmt: skip
"""What each preset changes in the plan: about 5 minutes on two cores; 2 hours and 5 days by estimate."""


TASK_PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"steps": 400, "batch": 64, "layers": 2, "multiples": (1, 2)},
    "standard": {"steps": 3000, "batch": 64, "seeds": 3, "layers": 2, "multiples": (1, 2), "fresh": 1024,
                 "warmup": 200},
    "thorough": {"steps": 20000, "batch": 64, "seeds": 3, "width": 128, "layers": 4, "multiples": (1, 2),
                 "fresh": 2048, "warmup": 500, "learning_rate": 0.002, "checkpoint_every": 500},
}  # fmt: skip
"""What each preset changes for tasks that make their own sequences."""


MASKED_PRESETS = PRESETS
TRANSLATION_PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"tokenizer": "bpe:size=1024", "length": 48, "steps": 1000, "layers": 2, "multiples": (1, 2),
              "windows": 256},
    "standard": {"tokenizer": "bpe:size=2048", "length": 64, "steps": 3000, "seeds": 2, "width": 128,
                 "multiples": (1, 2), "windows": 512, "warmup": 200, "learning_rate": 2e-3, "dropout": 0.1},
    "thorough": {"tokenizer": "bpe:size=4096", "length": 64, "steps": 12000, "seeds": 3, "width": 256, "layers": 4,
                 "heads": 8, "multiples": (1, 2), "windows": 1024, "warmup": 500, "learning_rate": 1e-3,
                 "dropout": 0.1, "checkpoint_every": 500},
}  # fmt: skip
IMAGE_PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"steps": 1000, "batch": 64, "layers": 2, "multiples": (1, 2), "windows": 512},
    "standard": {"steps": 2000, "batch": 64, "seeds": 3, "multiples": (1, 2), "windows": 2048, "warmup": 200,
                 "learning_rate": 2e-3, "dropout": 0.1},
    "thorough": {"steps": 10000, "batch": 64, "seeds": 3, "width": 192, "layers": 6, "multiples": (1, 2),
                 "windows": 8192, "warmup": 500, "learning_rate": 1e-3, "dropout": 0.1, "checkpoint_every": 500},
}  # fmt: skip

PRESETS_OF: dict[str, dict[str, dict[str, Any]]] = {
    "text": PRESETS,
    "masked": MASKED_PRESETS,
    "translation": TRANSLATION_PRESETS,
    "images": IMAGE_PRESETS,
}
"""The presets of each task that reads data."""


def preset(name: str, task: str | None, model: str | None) -> dict[str, Any]:
    """What a preset changes for this task, or for what this kind of model learns; an unknown one nothing."""
    learned = task or TASKS.get(model or "decoder", "text")
    return PRESETS_OF.get(catalog.parse(learned)[0], TASK_PRESETS).get(name, {})
