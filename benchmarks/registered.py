"""Models of transformers with our attention, compared with `sdpa` and `eager`: forward pass and training.

Small models with random weights, on one thread. The three run in turns, and CPU time is measured.
"""

import copy
import statistics
import time
from typing import Any

import torch

from benchmarks.harness.saving import save
from ordinate.pretrained import hf

ROUNDS = 5
SIZES = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 512}
SIZES |= {"vocab_size": 1000, "max_position_embeddings": 8192}
MODELS: dict[str, dict[str, Any]] = {
    "llama": SIZES | {"num_key_value_heads": 2},
    "mistral": SIZES | {"num_key_value_heads": 2, "sliding_window": 256},
    "gemma2": SIZES | {"num_key_value_heads": 2, "head_dim": 32, "sliding_window": 256},
    "bert": SIZES,
    "t5": {"d_model": 256, "num_layers": 2, "num_heads": 8, "d_ff": 512, "vocab_size": 1000},
}
LENGTHS = (128, 512, 1024)
WAYS = ("ordinate", "sdpa", "eager")


def models(name: str, type: torch.dtype) -> dict[str, Any]:
    """Build the model with each attention implementation that it supports."""
    import transformers

    hf.register()
    config = transformers.CONFIG_MAPPING[name](**MODELS[name])
    kind = transformers.T5EncoderModel if name == "t5" else transformers.AutoModel
    found = {}
    for way in WAYS:
        # Gemma 2 soft-caps its scores, which SDPA does not support
        if (name, way) != ("gemma2", "sdpa"):
            torch.manual_seed(0)
            make = kind.from_config if hasattr(kind, "from_config") else kind._from_config
            # the implementation is stored in the configuration, which models would share
            found[way] = make(copy.deepcopy(config), attn_implementation=way).eval().to(type)
            assert found[way].config._attn_implementation == way
    return found


def step(model: Any, ids: torch.Tensor, train: bool) -> float:
    """Return the CPU seconds of a forward pass, or of a forward and a backward pass."""
    begin = time.process_time()
    with torch.set_grad_enabled(train):
        # without a KV cache
        out = model(input_ids=ids, **({} if model.config.model_type in ("bert", "t5") else {"use_cache": False}))[0]
        if train:
            out.float().square().mean().backward()
    return time.process_time() - begin


def measure(name: str, length: int, type: torch.dtype, train: bool, rounds: int) -> dict[str, float]:
    """Median milliseconds of each implementation, and the median ratio of the others to ours within rounds."""
    made, ids = models(name, type), torch.randint(0, 1000, (1, length))
    seconds: dict[str, list[float]] = {way: [] for way in made}
    for turn in range(rounds + 1):
        for way, model in made.items():
            spent = step(model, ids, train)
            if turn:
                seconds[way].append(spent)
    row = {way: 1e3 * statistics.median(values) for way, values in seconds.items()}
    for way in made:
        if way != "ordinate":
            ratios = [other / ours for other, ours in zip(seconds[way], seconds["ordinate"], strict=True)]
            row[f"{way} / ordinate"] = statistics.median(ratios)
    return row


def main(keep: bool, quick: bool = False) -> None:
    """Measure, and print a table."""
    torch.set_num_threads(1)
    results: dict[str, dict[str, float]] = {}
    print(f"{'model':9}{'tokens':>7} {'what':9}{'type':9}{'ms':>8}{'sdpa':>8}{'eager':>8}   (as a multiple of ours)")
    for name in MODELS:
        for length in LENGTHS[:2] if quick else LENGTHS:
            for what, type in (("forward", torch.float32), ("forward", torch.bfloat16), ("training", torch.float32)):
                row = measure(name, length, type, what == "training", 2 if quick else ROUNDS)
                kind = str(type).removeprefix("torch.")
                results[f"{name}, {length}, {what}, {kind}"] = row
                others = "".join(f"{row.get(f'{way} / ordinate', float('nan')):8.2f}" for way in WAYS[1:])
                print(f"{name:9}{length:7} {what:9}{kind:9}{row['ordinate']:8.1f}{others}", flush=True)
    if keep:
        print(save("registered", results))
