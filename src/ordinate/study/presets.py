"""Presets of three sizes (quick, standard, thorough) for each task, and of three for texts on one GPU."""

from typing import Any

from ordinate.core import catalog
from ordinate.core.checks import need
from ordinate.study.options import DEFAULT_TASKS

TEXT_PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"steps": 200, "warmup_steps": 25},
    "standard": {"steps": 3000, "seeds": 2, "width": 128, "layers": 4, "eval_samples": 128, "warmup_steps": 200,
                 "shuffle_samples": 256, "learning_rate": 3e-3},
    "thorough": {"steps": 12000, "seeds": 3, "width": 256, "layers": 6, "heads": 8, "length": 256,
                 "eval_samples": 256, "warmup_steps": 500, "shuffle_samples": 512, "learning_rate": 1.5e-3,
                 "checkpoint_every": 500},
    "gpu-10min": {"steps": 2000, "batch": 64, "length": 512, "width": 256, "layers": 6, "eval_samples": 128,
                  "eval_length_multiples": (1, 2, 4), "warmup_steps": 100, "learning_rate": 2e-3,
                  "checkpoint_every": 500},
    "gpu-1h": {"steps": 4000, "batch": 32, "length": 1024, "width": 512, "layers": 8, "heads": 8,
               "eval_samples": 256, "eval_length_multiples": (1, 2, 4), "warmup_steps": 300, "learning_rate": 1e-3,
               "checkpoint_every": 500},
    "gpu-night": {"steps": 10000, "batch": 32, "length": 2048, "width": 768, "layers": 12, "heads": 12,
                  "eval_samples": 256, "eval_length_multiples": (1, 2, 4), "warmup_steps": 500,
                  "learning_rate": 6e-4, "checkpoint_every": 1000},
}  # fmt: skip
"""Options set by each preset for text: 5 to 6 minutes on two cores with AVX2 only; an estimated 2 hours and 5 days.
Those for a GPU name what eight schemes, and a second seed of the best two, are estimated to take on an H200; not
measured."""


TASK_PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"steps": 400, "batch": 64, "layers": 2, "eval_length_multiples": (1, 2)},
    "standard": {"steps": 3000, "batch": 64, "seeds": 3, "layers": 2, "eval_length_multiples": (1, 2),
                 "task_samples": 1024, "warmup_steps": 200},
    "thorough": {"steps": 20000, "batch": 64, "seeds": 3, "width": 128, "layers": 4, "eval_length_multiples": (1, 2),
                 "task_samples": 2048, "warmup_steps": 500, "learning_rate": 0.002, "checkpoint_every": 500},
}  # fmt: skip
"""Options set by each preset for tasks that generate their sequences."""


MASKED_PRESETS = TEXT_PRESETS | {"quick": {}}
TRANSLATION_PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"tokenizer": "bpe:size=1024", "length": 48, "steps": 1000, "layers": 2, "eval_length_multiples": (1, 2),
              "eval_samples": 256},
    "standard": {"tokenizer": "bpe:size=2048", "length": 64, "steps": 3000, "seeds": 2, "width": 128,
                 "eval_length_multiples": (1, 2), "eval_samples": 512, "warmup_steps": 200,
                 "learning_rate": 2e-3, "dropout": 0.1},
    "thorough": {"tokenizer": "bpe:size=4096", "length": 64, "steps": 12000, "seeds": 3, "width": 256, "layers": 4,
                 "heads": 8, "eval_length_multiples": (1, 2), "eval_samples": 1024, "warmup_steps": 500,
                 "learning_rate": 1e-3, "dropout": 0.1, "checkpoint_every": 500},
}  # fmt: skip
IMAGE_PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"steps": 1000, "batch": 64, "layers": 2, "eval_length_multiples": (1, 2), "eval_samples": 512},
    "standard": {"steps": 2000, "batch": 64, "seeds": 3, "eval_length_multiples": (1, 2), "eval_samples": 2048,
                 "warmup_steps": 200, "learning_rate": 2e-3, "dropout": 0.1},
    "thorough": {"steps": 10000, "batch": 64, "seeds": 3, "width": 192, "layers": 6, "eval_length_multiples": (1, 2),
                 "eval_samples": 8192, "warmup_steps": 500, "learning_rate": 1e-3, "dropout": 0.1,
                 "checkpoint_every": 500},
}  # fmt: skip

PRESETS_BY_TASK: dict[str, dict[str, dict[str, Any]]] = {
    "text": TEXT_PRESETS,
    "masked": MASKED_PRESETS,
    "translation": TRANSLATION_PRESETS,
    "images": IMAGE_PRESETS,
}
"""Presets of each task that reads data."""


def preset(name: str, task: str | None, model: str | None) -> dict[str, Any]:
    """Return the options of a preset for a task, or for a model kind's default task.

    Raises:
        ValueError: the task has no preset of this name.
    """
    learned = catalog.parse(task or DEFAULT_TASKS.get(model or "decoder", "text"))[0]
    known = PRESETS_BY_TASK.get(learned, TASK_PRESETS)
    remedy = f"choose one of {', '.join(known)}, or give its options"
    need(name in known, f"the task {learned} must have the preset", f"it has no {name}", remedy)
    return known[name]
