"""Families that rotate a part of each head, or keys before queries: shown and changed as whole heads."""

import pytest
import torch

from ordinate.core.progress import ignore
from ordinate.probing._adapter import Hooks, Inputs, NotApplicable
from ordinate.probing._attach import attach
from ordinate.probing.runner.probe_runner import ProbeSpec, run_probe
from ordinate.testing.analytic_model import random_sequences

hf = pytest.importorskip("transformers")
SIZES = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4} | {
    "intermediate_size": 48,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
OLD = {"vocab_size": 50, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "bos_token_id": 1} | {
    "eos_token_id": 2
}
# DeepSeek puts what it rotates behind the rest
BEHIND = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8} | {
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "rope_interleave": False,
    "num_key_value_heads": 4,
}
FAMILIES = {
    "phi": lambda: hf.PhiConfig(**SIZES, rope_parameters={"rope_theta": 1e4, "partial_rotary_factor": 0.5}),
    "stablelm": lambda: hf.StableLmConfig(
        **SIZES, rope_parameters={"rope_theta": 1e4, "partial_rotary_factor": 0.25}
    ),
    "gptj": lambda: hf.GPTJConfig(**OLD, rotary_dim=4),
    "codegen": lambda: hf.CodeGenConfig(**OLD, rotary_dim=8),
    "llama": lambda: hf.LlamaConfig(**SIZES),
}
IDS = Inputs(torch.randint(3, 50, (2, 24), generator=torch.Generator().manual_seed(0)))


def made(config):
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return attach(model)


@pytest.fixture(scope="module", params=FAMILIES)
def subject(request):
    return made(FAMILIES[request.param]())


class Each(Hooks):
    """Multiplies each channel of queries, and divides that of keys."""

    def __init__(self, by):
        self.by, self.seen = by, []

    def qk_before_rope(self, layer, q, k):
        self.seen.append((layer, q.shape[-1], k.shape[-1]))
        return q * self.by, k / self.by


def test_whole_heads_are_shown_once_a_layer_and_what_is_changed_is_rotated(subject):
    plain = subject.forward(IDS).residual
    # both channels of a pair equally, so that dot products do not change
    same = Each(torch.full((8,), 3.0, dtype=torch.float64))
    torch.testing.assert_close(subject.forward(IDS, same).residual, plain, rtol=1e-5, atol=1e-5)
    assert same.seen == [(0, 8, 8), (1, 8, 8)]
    other = Each(torch.linspace(0.2, 4, 8, dtype=torch.float64))
    rotated = subject.forward(IDS, other).residual
    assert (rotated - plain).abs().max() > 1e-2


def test_what_enters_the_products_is_what_was_shown_rotated(subject):
    class Both(Hooks):
        def __init__(self):
            self.before, self.after = {}, {}

        def qk_before_rope(self, layer, q, k):
            self.before[layer] = q, k

        def qkv(self, layer, q, k, v):
            self.after[layer] = q, k

    watch = Both()
    subject.forward(IDS, watch)
    for layer in (0, 1):
        for before, after in zip(watch.before[layer], watch.after[layer], strict=True):
            # a rotation keeps lengths, and turns nothing at the first place
            torch.testing.assert_close(
                before.norm(dim=-1), after.norm(dim=-1), rtol=1e-5, atol=1e-5, check_dtype=False
            )
            torch.testing.assert_close(before[:, :, 0], after[:, :, 0], rtol=1e-5, atol=1e-5, check_dtype=False)
            assert (before - after)[:, :, 1:].abs().amax() > 1e-2


@pytest.mark.extended
@pytest.mark.covering(0)
def test_nothing_is_left_unmeasured_for_want_of_whole_heads(subject):
    for name in ("qk_roles", "privacy"):
        found = run_probe(ProbeSpec(name, {}), subject, random_sequences(6, 24), 0, ignore)
        missing = " ".join(one for one in found.caveats if one.startswith("Not measured"))
        assert "channels" not in missing
        assert "one subspace" not in missing


def test_what_is_rotated_behind_the_rest_is_looked_at_but_not_changed():
    one = made(hf.DeepseekV3Config(**SIZES | BEHIND))
    assert "rope" in one.info.position
    for attention in one.attentions:
        attention.head_dim = 8

    class Look(Hooks):
        def qk_before_rope(self, layer, q, k):
            assert q.shape[-1] == 4

    one.forward(IDS, Look())
    with pytest.raises(NotApplicable, match="as they are `marked`"):
        one.forward(IDS, Each(torch.ones(4)))
