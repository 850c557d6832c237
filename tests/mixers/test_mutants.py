"""The tests of mixers of 2023 and later against the formulas of their papers fail for small errors in the code."""

import importlib
import importlib.util
import runpy
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extended
PACKAGE = "ordinate.mixers"
FORMULA = "test_it_is_what_the_paper_writes_gradients_too"
# mixer, class, the module in which a line is replaced, and the line before and after
MUTANTS = [
    ("mamba", "Mamba", "mamba", "self.skip) * x", "self.skip)"),
    ("mamba", "Mamba", "mamba", "selective_scan(x * step, step", "selective_scan(x, step"),
    ("mamba", "Mamba", "mamba", "rate, b, c, start", "rate, c, b, start"),
    ("mamba", "Mamba", "mamba", "step + at_least_float32(self.step_bias)", "step"),
    ("mamba", "Mamba", "mamba", "rms_norm(part, self.variant.epsilon)", "rms_norm(part)"),
    ("mamba", "Mamba", "mamba", "part * at_least_float32(scale)", "part"),
    ("mamba2", "Mamba2", "mamba2", "y = y + at_least_float32(self.skip)[:, None, None] * x", "pass"),
    ("mamba2", "Mamba2", "mamba2", "x * step[..., None], logs", "x, logs"),
    ("mamba2", "Mamba2", "mamba2", "scalar_decay_attention(c, b,", "scalar_decay_attention(b, c,"),
    ("gated_short_convolution", "GatedShortConvolution", "gated_short_convolution", "before * inner", "inner"),
    (
        "gated_short_convolution",
        "GatedShortConvolution",
        "gated_short_convolution",
        "self.out(behind * inner)",
        "self.out(inner)",
    ),
    ("retnet", "Retention", "retnet", "-5 - head", "-4 - head"),
    ("retnet", "Retention", "retnet", "head_norm(y, None, gate)", "head_norm(y, None, None)"),
    ("gla", "GatedLinearAttention", "gla", " / self.temperature", ""),
    ("gla", "GatedLinearAttention", "gla", "read_after_update(q * q.shape[3] ** -0.5", "read_after_update(q"),
    ("deltanet", "DeltaNet", "_delta_rule", "repeat_keys(unit_norm(part)", "repeat_keys(part"),
    ("deltanet", "DeltaNet", "_delta_rule", "rates = 2 * rates", "rates = rates"),
    (
        "gated_deltanet",
        "GatedDeltaNet",
        "gated_deltanet",
        "self.decay(self.step(x))[1]",
        "2 * self.decay(self.step(x))[1]",
    ),
    (
        "kimi_delta_attention",
        "KimiDeltaAttention",
        "kimi_delta_attention",
        "self.decay(self.step(x)",
        "self.decay(2 * self.step(x)",
    ),
    (
        "kimi_delta_attention",
        "KimiDeltaAttention",
        "kimi_delta_attention",
        'gate_activation="sigmoid"',
        'gate_activation="silu"',
    ),
    ("kimi_delta_attention", "KimiDeltaAttention", "_delta_rule", "q * q.shape[3] ** -0.5", "q"),
    ("fox", "ForgettingAttention", "fox", "new.k, -sums, self.scale", "new.k, sums, self.scale"),
    ("fox", "ForgettingAttention", "fox", "self.q_norm(q), self.k_norm(k)", "q, self.k_norm(k)"),
    ("path", "PathAttention", "path", "2 * torch.sigmoid", "torch.sigmoid"),
    ("path", "PathAttention", "path", "unit_norm(self._heads(mixed))", "self._heads(mixed)"),
    ("dape", "DapeAttention", "dape", "-p * torch.log1p(a * far)", "-p * torch.log1p(far)"),
    ("dape", "DapeAttention", "dape", "torch.cat([scores, prior], 1)", "torch.cat([prior, scores], 1)"),
    ("latent", "Latent", "latent", "(content + shared) ** -0.5", "content**-0.5"),
    ("latent", "Latent", "latent", "latent = _normalised(self.latent_norm, latent)", "pass"),
    ("latent", "Latent", "latent", "_normalised(norm, down(x))", "down(x)"),
]


def mutated(name, mixer, line, other):
    """A copy of the module of a mixer in which one line is replaced, there or in the module that it is based on."""
    made = None
    for part in dict.fromkeys((name, mixer)):
        found = importlib.util.find_spec(f"{PACKAGE}.{part}")
        source = Path(found.origin).read_text(encoding="utf-8")
        assert part != name or source.count(line) == 1
        made = importlib.util.module_from_spec(found)
        sys.modules[found.name] = made
        exec(compile(source.replace(line, other) if part == name else source, found.origin, "exec"), vars(made))
    return made


@pytest.mark.parametrize(("mixer", "kind", "module", "line", "other"), MUTANTS)
def test_a_small_error_in_a_formula_is_noticed(monkeypatch, mixer, kind, module, line, other):
    for part in (mixer, module):
        # the right modules come back afterwards
        name = f"{PACKAGE}.{part}"
        monkeypatch.setitem(sys.modules, name, importlib.import_module(name))
    tests = runpy.run_path(str(Path(__file__).with_name(f"test_{mixer}.py")))
    formula = tests[FORMULA]
    formula.__globals__[kind] = getattr(mutated(module, mixer, line, other), kind)
    failed = 0
    for case in cases(formula):
        try:
            formula(**case)
        except AssertionError as error:
            failed += "not close" in str(error)
    assert failed


def cases(test):
    """The arguments of each case of a parametrized test."""
    found = [{}]
    for mark in getattr(test, "pytestmark", []):
        names, values = mark.args
        rows = [dict(zip(names, row, strict=True)) if isinstance(names, tuple) else {names: row} for row in values]
        found = [case | row for case in found for row in rows]
    return found
