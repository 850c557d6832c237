"""Generation speed of our decoder in tokens per second, compared with `transformers.generate` on the same weights.

A Llama of the size of GPT-2 small with random weights, on one thread, greedy decoding. Prefill counts. Both run in
turns, and CPU time is measured, so that other load on the machine affects both.
"""

import statistics
import tempfile
import time
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.harness.saving import save
from ordinate import Decoder, generate, load

PROMPT, TOKENS, ROUNDS = 512, 64, 3
BATCHES = (1, 4)
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SIZES = {"vocab_size": 50257, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12}
SIZES |= {"num_attention_heads": 12, "max_position_embeddings": 1024, "tie_word_embeddings": True}
Writer = Callable[[Tensor, int], Tensor]


def writers(type: torch.dtype) -> dict[str, Writer]:
    """Return functions that generate a number of tokens after a prompt: ours, and that of transformers."""
    import transformers

    torch.manual_seed(0)
    other = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).eval()
    with tempfile.TemporaryDirectory() as folder:
        other.save_pretrained(folder)
        ours = load(folder, dtype=type)
    other = other.to(type)

    def written(prompt: Tensor, count: int) -> Tensor:
        assert isinstance(ours, Decoder)
        return torch.cat(list(generate(ours, prompt, count, temperature=0)), 1)

    def theirs(prompt: Tensor, count: int) -> Tensor:
        told = {"attention_mask": torch.ones_like(prompt), "pad_token_id": 0, "do_sample": False}
        return other.generate(prompt, max_new_tokens=count, min_new_tokens=count, **told)[:, prompt.shape[1] :]

    return {"ordinate": written, "transformers": theirs}


def measure(contenders: dict[str, Writer], batch: int, tokens: int, rounds: int) -> dict[str, object]:
    """Tokens per second of each, the median ratio within rounds, and the share of equal tokens."""
    prompt = torch.randint(0, SIZES["vocab_size"], (batch, PROMPT), generator=torch.Generator().manual_seed(0))
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    texts = {}
    for write in contenders.values():
        write(prompt, 2)
    for _ in range(rounds):
        for name, write in contenders.items():
            begin = time.process_time()
            texts[name] = write(prompt, tokens)
            seconds[name].append(time.process_time() - begin)
    speed = {name: batch * tokens / statistics.median(values) for name, values in seconds.items()}
    pairs = zip(seconds["transformers"], seconds["ordinate"], strict=True)
    same = (texts["ordinate"] == texts["transformers"]).float().mean().item()
    return {"tokens_per_second": speed, "ratio": statistics.median(b / a for b, a in pairs), "same": same}


def main(keep: bool, quick: bool = False) -> None:
    """Measure, and print a table."""
    torch.set_num_threads(1)
    results: dict[str, object] = {}
    print(f"prompt {PROMPT}, {TOKENS} tokens, greedy, 1 thread; tokens per second of CPU time")
    print(f"{'type':10}{'batch':>6}{'ordinate':>10}{'transformers':>14}{'ratio':>7}{'same':>7}")
    for name, type in TYPES.items():
        contenders = writers(type)
        for batch in BATCHES[:1] if quick else BATCHES:
            row = measure(contenders, batch, 16 if quick else TOKENS, 2 if quick else ROUNDS)
            speed = row["tokens_per_second"]
            print(
                f"{name:10}{batch:6}{speed['ordinate']:10.1f}{speed['transformers']:14.1f}{row['ratio']:7.2f}"
                f"{row['same']:7.0%}",
                flush=True,
            )
            results[f"{name}, batch {batch}"] = row
    if keep:
        print(save("generate", results))
