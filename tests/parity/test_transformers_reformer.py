import pytest
import torch

from ordinate import Geometry
from ordinate.mixers.reformer import Reformer
from ordinate.schemes import NoPosition


@pytest.mark.parametrize("causal", [False, True])
def test_one_hash_of_two_chunks_matches_transformers(causal, record):
    module = pytest.importorskip("transformers.models.reformer.modeling_reformer")
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "attention_head_size": 8, "num_buckets": 2}
    chunks = {"num_hashes": 1, "lsh_attn_chunk_length": 31, "lsh_attention_probs_dropout_prob": 0.0}
    config = pytest.importorskip("transformers").ReformerConfig(**sizes, **chunks, is_decoder=causal, hash_seed=0)
    theirs = module.LSHSelfAttention(config, layer_idx=0).eval()
    ours = Reformer(width=32, heads=4, chunk_length=31, rounds=1, buckets=2, mode="chunk")
    with torch.no_grad():
        ours.project.weight.copy_(torch.cat([theirs.query_key.weight, theirs.value.weight]))
        ours.out.weight.copy_(torch.eye(32))
    x, where = torch.randn(2, 62, 32), Geometry.causal(62) if causal else Geometry.full(62)
    what = "output, one hash, two chunks" + (", causal" if causal else "")
    out = theirs(x).hidden_states
    record(ours(x, NoPosition().at(where))[0], out, scheme="none", oracle=module.LSHSelfAttention, what=what)
