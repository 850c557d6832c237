"""Compares models on a device: compiled with eager ones, captured steps with ordinary ones, gradients with a CPU's.

In small cases, which many processes compile: on a GPU that takes nearly all of the time.
"""

import argparse
import copy
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from jobs import Rows, run, told
from torch import Tensor
from torch.nn.functional import cross_entropy

from ordinate import Decoder, Geometry, Shape, attend, generate
from ordinate.core import catalog
from ordinate.models._generate import generate_with_cuda_graph
from ordinate.models.expert_options import ExpertOptions
from ordinate.schemes import T5, Alibi, Fire, NoPosition, Rope, Scheme, Shaw

# as mixers, with operators of their own
MIXERS = ("linear", "performer", "gated_deltanet", "gla", "rwkv7", "mamba2")
# of Mixtral, gpt-oss and GLM-4.5
EXPERTS = {
    "mixtral": ExpertOptions(8),
    "gpt_oss": ExpertOptions(8, limit=7.0),
    "glm4_moe": ExpertOptions(8, scores="sigmoid", choice_bias=True, groups=4, chosen_groups=2, shared_hidden=64),
}
CAPTURED = ("none", "rope", "alibi", "t5", "shaw", "fire", "kerple", "learned", "transformer_xl")
# bits of their gradients are compared between two steps; PyTorch adds those of CoPE in any order
REPEATED = ("t5", "shaw", "deberta", "transformer_xl", "fire", "kerple", "toeplitz")
TWICE: dict[str, Callable[[], Scheme]] = {
    "none": NoPosition,
    "rope": lambda: Rope(head_width=64),
    "alibi": lambda: Alibi(heads=4),
    "t5": lambda: T5(heads=4),
    "shaw": lambda: Shaw(head_width=64),
    "fire": lambda: Fire(heads=4),
}
# largest relative L2 changes: of gradients by rounding to bfloat16 (gated_deltanet: .035 on a CPU), and in float32
ROUNDED, EXACT = 0.05, 1e-4


def schemes_of_text() -> list[str]:
    """Return the names of the schemes of one axis."""
    named = catalog.names("ordinate.schemes")
    return [name for name in named if 1 in catalog.load("ordinate.schemes", Scheme, name).axes]


def decoder(device: str, **options: Any) -> Decoder:
    """Return a small decoder with heads of 64 channels."""
    torch.manual_seed(0)
    usual: dict[str, Any] = {"vocabulary": 50, "width": 256, "layers": 2, "heads": 4, "max_length": 640}
    return Decoder(Shape(**usual | options)).to(device)


def step(
    model: Callable[[Tensor], Tensor], learned: Sequence[Tensor], ids: Tensor, kind: torch.dtype
) -> list[Tensor]:
    """Return the loss of a training step, and the gradients of what is learned."""
    with torch.autocast(ids.device.type, kind, enabled=kind != torch.float32):
        loss = cross_entropy(model(ids[:, :-1]).float().flatten(0, 1), ids[:, 1:].flatten())
    return [loss.detach(), *torch.autograd.grad(loss, learned, materialize_grads=True)]


def change(one: Iterable[Tensor], other: Iterable[Tensor]) -> float:
    """Return the largest relative L2 change of a tensor.

    Changes are relative to the tensor's norm, or to a thousandth of the largest norm where it is smaller: some
    gradients, such as that of a number added to all scores of a row, are 0 but for rounding.
    """
    both = [(x.double().cpu(), y.double().cpu()) for x, y in zip(one, other, strict=True)]
    least = max(float(x.norm()) for x, _ in both) / 1000
    return max(float((x - y).norm() / x.norm().clamp(min=least)) for x, y in both)


def result(job: Sequence[str], found: float, limit: float) -> dict[str, Any]:
    """Return the row of a job: the change that was found, and why it is wrong if it exceeds the limit."""
    reason = None if found <= limit else f"changed by {found:.3g}, more than {limit:g}"
    return {"job": " ".join(job), "change": found, "reason": reason}


def compiled(device: str, name: str) -> Rows:
    """Compile a decoder whole, and compare a step with the eager one at two lengths, in bfloat16.

    Experts in float32: where two of them nearly tie, rounding chooses another one.
    """
    options = {"scheme": "none", "mixer": name} if name in MIXERS else {"scheme": name}
    options |= {"experts": EXPERTS[name], "feedforward": "swiglu", "scheme": "rope"} if name in EXPERTS else {}
    model = decoder(device, **options)
    learned = [x for x in model.parameters() if x.requires_grad]
    kind, limit = (torch.float32, EXACT) if name in EXPERTS else (torch.bfloat16, ROUNDED)
    faster, rows = torch.compile(model, fullgraph=True), []
    for tokens in (320, 576):
        ids = torch.randint(0, 50, (2, tokens + 1), device=device)
        # eager first: while torch.compile traces, only earlier proofs count
        both = [step(run, learned, ids, kind) for run in (model, faster)]
        rows.append(result(("compiled", name, str(tokens)), change(*both), limit))
    return rows


def captured(device: str, name: str) -> Rows:
    """Generate by replaying a captured step and by ordinary steps; the change is the share of tokens that differ."""
    model, prompt = decoder(device, scheme=name).eval(), torch.randint(0, 50, (2, 100), device=device)
    ways = (generate_with_cuda_graph, generate) if device == "cuda" else (generate, generate)
    found = [torch.cat(list(way(model, prompt, 40, temperature=0)), 1) for way in ways]
    differing = float((found[0] != found[1]).double().mean())
    return [result(("captured", name), differing, 0.0)]


def repeated(device: str, name: str) -> Rows:
    """Compare the bits of two training steps in bfloat16."""
    model = decoder(device, scheme=name)
    learned = [x for x in model.parameters() if x.requires_grad]
    ids = torch.randint(0, 50, (4, 577), device=device)
    return [result(("repeated", name), change(*(step(model, learned, ids, torch.bfloat16) for _ in range(2))), 0.0)]


def twice(device: str, name: str) -> Rows:
    """Compare first and second gradients of attention in float32 with those of float64 on a CPU."""
    torch.manual_seed(0)
    scheme, given = TWICE[name](), torch.randn(3, 2, 4, 300, 64)
    found = []
    for where, kind in (("cpu", torch.float64), (device, torch.float32)):
        copied = copy.deepcopy(scheme).to(where, kind)
        q, k, v = (x.to(where, kind).requires_grad_() for x in given)
        learned = [q, k, v, *(x for x in copied.parameters() if x.requires_grad)]
        with torch.device(where):
            out = attend(q, k, v, copied.at(Geometry.causal(300)))
        first = torch.autograd.grad(out.sin().sum(), learned, create_graph=True, materialize_grads=True)
        penalty = sum(x.square().sum() for x in first)
        found.append([*first, *torch.autograd.grad(penalty, learned, materialize_grads=True)])
    return [result(("twice", name), change(*([x.detach() for x in part] for part in found)), EXACT)]


def experts(device: str, name: str) -> Rows:
    """Compare a step of a decoder with a mixture of experts, in float32, with a CPU's."""
    model = decoder("cpu", scheme="rope", feedforward="swiglu", experts=EXPERTS[name])
    ids, found = torch.randint(0, 50, (2, 129)), []
    for where in ("cpu", device):
        moved = copy.deepcopy(model).to(where)
        found.append(step(moved, [x for x in moved.parameters() if x.requires_grad], ids.to(where), torch.float32))
    return [result(("experts", name), change(*found), EXACT)]


KINDS: dict[str, Callable[[str, str], Rows]] = {
    "compiled": compiled,
    "captured": captured,
    "repeated": repeated,
    "twice": twice,
    "experts": experts,
}


def main() -> None:
    """Compute all jobs; print those that are wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="one job of each kind")
    parser.add_argument("--job", nargs=2, help="a kind and a name: this alone")
    chosen = parser.parse_args()
    if chosen.job:
        kind, name = chosen.job
        print(json.dumps(KINDS[kind](chosen.device, name)))
        return
    named = {"twice": TWICE, "experts": EXPERTS, "captured": CAPTURED, "repeated": REPEATED}
    named["compiled"] = [*schemes_of_text(), *MIXERS, *EXPERTS]
    jobs = [[kind, name] for kind, names in named.items() for name in list(names)[: 1 if chosen.quick else None]]
    # 1: the process of a job ended early
    sys.exit(min(1, told(run(__file__, jobs, ["--device", chosen.device], "models-all"))))


if __name__ == "__main__":
    main()
