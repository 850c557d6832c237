"""Check of gradients with respect to all parameters."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.pretrained._family import TensorRule
from ordinate.pretrained.verification._check import Check, IncomparableError
from ordinate.pretrained.verification._runner import Runner
from ordinate.pretrained.verification.outputs import Outputs, Results, gradient_differences
from ordinate.pretrained.verification.result import CheckResult
from ordinate.pretrained.verification.tolerance import GRADIENT_FACTOR, angle_rounding, float32_tolerance
from ordinate.pretrained.weights import load

GRADIENTS = "gradients"


class GradientCheck(Check):
    """Gradients of a loss with respect to all parameters, by the names of Ordinate.

    The gradients of transformers are saved as if they were weights, and read by `load`: the mapping of names is that
    of the checkpoint, in both libraries.
    """

    name = "gradients"
    about = "gradients of a loss with respect to every parameter"
    relative_cost = 6.0

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner)
        self.inputs, self.seed = runner.plain_inputs(), runner.seed

    def ours(self, model: Any) -> Results:
        self.differentiate(lambda: self.runner.ours(model, self.inputs))
        found = {name: _gradient(tensor) for name, tensor in model.named_parameters()}
        model.zero_grad(set_to_none=True)
        shape = self.runner.shape
        for rule in self.incomplete_rules():
            found[rule.ours] = rule.read(rule.write(found[rule.ours], shape), shape)
        return {GRADIENTS: found}

    def theirs(self, model: Any) -> Results:
        self.differentiate(lambda: self.runner.theirs(model, self.inputs))
        tensors = model.state_dict(keep_vars=True)
        family, shape = self.runner.family, self.runner.shape
        # a family may check what follows from the shape
        kept = {family.stored_name(name, tensors) for name in family.computed(shape)}
        kept |= {name for name, _ in model.named_buffers()}
        gradients = {name: x.detach() if name in kept else _gradient(x) for name, x in tensors.items()}
        model.zero_grad(set_to_none=True)
        for rule in family.all_rules(shape):
            added = [family.stored_name(name, tensors) for name in rule.theirs[1:]] if rule.adds else []
            gradients |= {name: torch.zeros_like(gradients[name]) for name in added}
        _need_finite(gradients)
        with tempfile.TemporaryDirectory(prefix="ordinate-") as folder:
            model.save_pretrained(folder, state_dict=gradients)
            read = dict(load(Path(folder)).named_parameters())
        # what is a buffer in transformers, or a parameter that is not trained, has no gradient there
        buffers = {name for name, _ in model.named_buffers()}
        buffers |= {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
        fixed = {rule.ours for rule in family.all_rules(shape) if buffers.issuperset(rule.theirs)}
        return {GRADIENTS: {name: tensor.detach() for name, tensor in read.items() if name not in fixed}}

    def incomplete_rules(self) -> list[TensorRule]:
        """Return the mappings of tensors of which the checkpoint lacks a part."""
        return [rule for rule in self.runner.family.all_rules(self.runner.shape) if rule.incomplete]

    def differentiate(self, compute: Callable[[], Outputs]) -> None:
        """Compute the gradients of the loss of these outputs."""
        generator = torch.Generator().manual_seed(self.seed)
        with torch.enable_grad():
            losses = [_loss(tensor, generator) for tensor in compute().values()]
            torch.stack(losses).sum().backward()

    def names(self) -> dict[str, str]:
        """Return the name of each parameter in the checkpoint; of several that are one here, the first."""
        rules = self.runner.family.all_rules(self.runner.shape)
        rest = {rule.ours: len(rule.theirs) - 1 for rule in rules}
        return {
            rule.ours: rule.theirs[0] + (f" and {rest[rule.ours]} more" if rest[rule.ours] else "") for rule in rules
        }

    def judge(self, ours: Results, theirs: Results, exact: Results) -> CheckResult:
        own, other, wide = (results[GRADIENTS] for results in (ours, theirs, exact))
        angle = angle_rounding(self.runner.shape, self.runner.tokens)
        rounding = max(one.error for one in gradient_differences("", other, wide, {}))
        tolerance, basis = float32_tolerance(rounding, angle, GRADIENT_FACTOR)
        left_out = sorted(own.keys() - other.keys())
        notes = [f"transformers does not differentiate {', '.join(left_out)}"] if left_out else []
        parts = [rule.ours for rule in self.incomplete_rules()]
        notes += [f"only the parts that transformers has are compared of {', '.join(parts)}"] if parts else []
        found = gradient_differences("Ordinate and transformers", own, other, self.names())
        return CheckResult.judge(self.name, self.about, found, tolerance, basis, "; ".join(notes))


def _need_finite(gradients: Mapping[str, Tensor]) -> None:
    """Raise an error unless all gradients are finite: as weights, `load` would refuse them."""
    wrong = [name for name, gradient in gradients.items() if not bool(gradient.isfinite().all())]
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise IncomparableError(
            f"gradients must be finite to be compared; those of transformers for {wrong[0]}{more} are not; "
            "leave gradients out, by --checks"
        )


def _gradient(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad.detach()


def _loss(out: Float[Tensor, "*any columns"], generator: torch.Generator) -> Float[Tensor, ""]:
    """Return the cross-entropy of an output to drawn distributions over its columns; of one column to shares."""
    rows = out.flatten(0, -2)
    wanted = torch.rand(rows.shape, generator=generator, dtype=torch.float32).to(out.dtype)
    if out.shape[-1] == 1:
        return nn.functional.binary_cross_entropy_with_logits(rows, wanted)
    return nn.functional.cross_entropy(rows, wanted / wanted.sum(-1, keepdim=True))
