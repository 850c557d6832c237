"""Compute sharded sequences in two processes and whole ones in one, and print the differences."""

import json
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

from ordinate.core import sequence_shard as module
from ordinate.core.geometry import Geometry
from ordinate.core.sequence_shard import SequenceShard
from ordinate.models.decoder import Decoder
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.shape import Shape
from ordinate.training.process_group import wait_for_all

TOKENS, WORLD = 24, 2
PACKED = Geometry.packed([5, 12, 7])
CASES = {
    **{name: (Decoder, {"scheme": name}, Geometry.causal(TOKENS)) for name in ("none", "rope", "alibi", "t5")},
    "learned": (Decoder, {"scheme": "learned"}, Geometry.causal(TOKENS)),
    "shaw": (Decoder, {"scheme": "shaw"}, Geometry.causal(TOKENS)),
    "together": (Decoder, {"scheme": "rope,alibi"}, Geometry.causal(TOKENS)),
    "packed": (Decoder, {"scheme": "rope"}, PACKED),
    "windows": (Decoder, {"scheme": "t5", "sliding_windows": (5, 24)}, Geometry.causal(TOKENS)),
    "groups": (Decoder, {"scheme": "rope", "kv_heads": 1}, Geometry.causal(TOKENS)),
    "sigmoid": (Decoder, {"scheme": "rope", "mixer": "sigmoid"}, Geometry.causal(TOKENS)),
    "fractions": (Decoder, {"scheme": "rope"}, Geometry.from_positions(torch.rand(1, TOKENS, 1).cumsum(1) * 3)),
    "both sides": (Encoder, {"scheme": "t5"}, Geometry.full(TOKENS)),
}


def gap(kind, options, whole, rank):
    """Return the largest differences of outputs and of gradients between this process's shard and the whole."""
    torch.manual_seed(0)
    base = {"vocabulary": 13, "width": 16, "layers": 2, "heads": 2, "max_length": TOKENS}
    model = kind({Decoder: Shape, Encoder: EncoderShape}[kind](**base, **options)).double()
    for parameter in model.parameters():
        # bias tables are initialised with zeros, which would hide errors
        torch.nn.init.normal_(parameter, std=0.3)
    ids = torch.randint(13, (2, TOKENS))
    expected = model(ids, whole)
    weights = torch.randn_like(expected)
    (expected * weights).sum().backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    shard = SequenceShard.of(whole, rank, WORLD)
    found = model(shard.select_tokens(ids), shard)
    (found * shard.select_tokens(weights)).sum().backward()
    shared = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    for gradient in shared:
        dist.all_reduce(gradient)
    outputs = (shard.gather(found.detach()) - expected).abs().max().item()
    return outputs, max((a - b).abs().max().item() for a, b in zip(shared, gradients, strict=True))


def work(rank, place):
    """Run every case, and once with a backward pass that ignores the other process."""
    store = dist.FileStore(f"{place}/meeting", WORLD)
    dist.init_process_group("gloo", store=dist.PrefixStore("collectives", store), rank=rank, world_size=WORLD)
    found = {name: gap(*case, rank) for name, case in CASES.items()}
    module._Gather.backward = staticmethod(lambda ctx, *gradients: (gradients[ctx.rank], None, None, None))
    found["forgetful"] = gap(*CASES["rope"], rank)
    wait_for_all(store, rank, WORLD)
    return found


def main():
    """Print the results of each process."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        children = []
        for rank in range(WORLD):
            child = os.fork()
            if child == 0:
                (Path(place) / f"{rank}.json").write_text(json.dumps(work(rank, place)))
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        print(json.dumps([json.loads((Path(place) / f"{rank}.json").read_text()) for rank in range(WORLD)]))


if __name__ == "__main__":
    main()
