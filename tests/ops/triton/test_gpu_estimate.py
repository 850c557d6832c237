"""Least times of the kernels, counted from tiles and bytes."""

import pytest

from benchmarks.harness import gpu_estimate
from benchmarks.harness.gpu_estimate import KEY_HEADS, RATES, TOKENS, WORK, causal_tiles, estimate
from ordinate.ops.triton.tiles import CHUNK_TILES


def row(kernel, rows=64, columns=64, channels=128, type="bfloat16", products=0):
    sizes = {"rows": rows, "columns": columns, "channels": channels}
    return {"kernel": kernel, "type": type, "products": products, **sizes}


@pytest.mark.parametrize(("rows", "columns"), [(128, 64), (64, 64), (16, 64), (32, 128)])
def test_tiles_are_those_with_a_visible_pair(rows, columns):
    brute = sum(first <= begin + rows - 1 for begin in range(0, TOKENS, rows) for first in range(0, TOKENS, columns))
    assert causal_tiles(rows, columns) == brute


def test_work_is_that_of_causal_attention_and_the_hidden_part_of_tiles():
    # (rounded up by tiles) 4 flops a channel of half of all pairs, of 16 heads
    exact = 4 * 128 * 16 * TOKENS**2 / 2
    assert 1 < WORK["attention_forward"](row("attention_forward", 128)).flops / exact < 1.03
    assert 1 < WORK["attention_backward_keys"](row("attention_backward_keys")).flops / (2 * exact) < 1.03
    assert 1 < WORK["attention_backward_queries"](row("attention_backward_queries")).flops / (1.5 * exact) < 1.03
    # a band of 128 distances is a small part
    assert WORK["add_tiles"](row("add_tiles")).flops < 0.05 * exact


def test_a_decoding_step_is_bound_by_reading_the_cache():
    found = estimate("sm_90", row("attend_chunk", 16))
    assert found.bound == "memory"
    cache = 2 * KEY_HEADS * TOKENS * 128 * 2
    assert 1 < found.seconds * RATES["sm_90"].memory / cache < 1.05
    assert gpu_estimate.CHUNK_TILES == CHUNK_TILES


def test_float32_has_the_rate_of_tensor_cores_only_where_it_is_multiplied_by_tf32():
    bound = [estimate("sm_90", row("attention_forward", type=type)) for type in ("bfloat16", "float32")]
    assert [one.bound for one in bound] == ["products", "products"]
    assert bound[1].seconds / bound[0].seconds == pytest.approx(989 / 67)
    thrice = estimate("sm_90", row("attention_forward", type="float32", products=96))
    assert thrice.seconds / bound[0].seconds == pytest.approx(6)
    assert estimate("sm_90", row("attention_forward", channels=32)).bound == "exponentials"


def test_a_rotation_is_a_copy_and_its_angles():
    work = WORK["rotate_half"](row("rotate_half"))
    assert work.bytes == 2 * 16 * TOKENS * 128 * 2 + 2 * TOKENS * 64 * 4
