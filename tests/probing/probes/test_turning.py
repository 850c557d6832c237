"""Relative rotations and symmetry by offset: one axis in texts, rows and columns in images."""

import math
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from ordinate import VisionShape, VisionTransformer
from ordinate.ops.low_rank_qk import low_rank_projection
from ordinate.ops.symmetry import symmetry_by_offset
from ordinate.probing._adapter import Hooks
from ordinate.probing._attach import attach
from ordinate.probing._probe import ProbeData
from ordinate.probing.measures import relative_symmetry
from ordinate.probing.measures.low_rank_heads import low_rank_intervention, qk_weights
from ordinate.probing.measures.qk_symmetry import measure_qk_symmetry
from ordinate.probing.measures.relative_rotation import (
    CaptureRotations,
    measured_offsets,
    pair_at_offset,
    relative_rotations,
)
from ordinate.probing.measures.samples import ForwardBudget, subsample
from ordinate.probing.probes.qk_roles import QKRoles

FAMILIES = Path(__file__).parents[1] / "adapters" / "families.py"
PICTURES = ProbeData(None, torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(3)).double(), "noise")


def drawn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def by_definition(m):
    return float(torch.trace(m @ m) / m.square().sum())


def dino():
    pytest.importorskip("transformers")
    model = runpy.run_path(str(FAMILIES))["make"]("dinov3")
    for name, parameter in model.named_parameters():
        # biases are no part of the bilinear form
        if name.endswith("q_proj.bias"):
            torch.nn.init.zeros_(parameter)
    return attach(model, name="dinov3")


def ours(scheme):
    torch.manual_seed(0)
    sizes = {"vocabulary": 3, "width": 32, "heads": 4, "kv_heads": 2, "layers": 2, "scheme": scheme}
    return attach(VisionTransformer(VisionShape(**sizes, image=(16, 16), patch=(4, 4))).double().eval(), name=scheme)


SUBJECTS = {"dinov3": dino, "axial": lambda: ours("axial"), "mixed": lambda: ours("mixed")}


@pytest.fixture(scope="module", params=SUBJECTS)
def subject(request):
    return SUBJECTS[request.param]()


class Kept(Hooks):
    def __init__(self):
        self.streams, self.seen = {}, {}

    def residual(self, layer, x):
        self.streams[layer] = x.double()

    def qkv(self, layer, q, k, v):
        self.seen[layer] = q.double(), k.double()


def chosen_of(subject):
    return subsample(subject.info, PICTURES, ForwardBudget(1))


@pytest.mark.parametrize("axes", [(40,), (3, 5), (14, 14)])
def test_a_pair_has_the_given_offset(axes):
    found = measured_offsets(axes)
    assert len(set(found)) == len(found)
    for offset in found:
        query, key = (np.unravel_index(place, axes) for place in pair_at_offset(axes, offset))
        assert tuple(int(a - b) for a, b in zip(query, key, strict=True)) == offset


def test_offsets_reach_all_around_a_patch_and_only_back_in_a_text():
    assert measured_offsets((40,)) == ((0,), (1,), (2,), (4,), (8,), (16,))
    assert measured_offsets((9,)) == ((0,), (1,), (2,), (4,), (8,))
    # the same reach along both axes, so that the map is square
    for axes in ((2, 5), (5, 2)):
        assert sorted(measured_offsets(axes)) == [(row, column) for row in (-1, 0, 1) for column in (-1, 0, 1)]
    assert len(measured_offsets((14, 14))) == 17**2


def test_the_bilinear_form_at_an_offset_gives_the_scores_of_all_patches_at_that_offset(subject):
    chosen, watch = chosen_of(subject), Kept()
    by, facts = relative_rotations(subject, chosen, 8), subject.info
    subject.forward(chosen.inputs(slice(0, 1)), watch)
    for layer in range(facts.layers):
        own = subject.projection(layer)
        norm = subject.blocks[layer].mixer_norm if facts.family == "ours" else subject.layers[layer].norm1
        x = norm(watch.streams[layer][0, facts.prefix :]).detach()
        q, k = (one[0, :, facts.prefix :] for one in watch.seen[layer])
        key, k = (one.repeat_interleave(facts.heads // facts.kv_heads, 0) for one in (own.key, k))
        forms = torch.einsum("hwd,hode,hve->howv", own.query, by[layer].expand(facts.heads, -1, -1, -1), key)
        for place, offset in enumerate(measured_offsets(facts.grid)):
            for query in np.ndindex(*facts.grid):
                there = tuple(a - b for a, b in zip(query, offset, strict=True))
                if min(there) < 0 or max(there) > 3:
                    continue
                i, j = (int(np.ravel_multi_index(one, facts.grid)) for one in (query, there))
                expected = (q[:, i] * k[:, j]).sum(-1)
                torch.testing.assert_close(x[i] @ forms[:, place] @ x[j], expected, rtol=1e-4, atol=1e-4)
        found = symmetry_by_offset(own.query, own.key, by[layer])
        by_hand = [[by_definition(form) for form in head] for head in forms]
        torch.testing.assert_close(found, torch.tensor(by_hand, dtype=torch.float64))


def rotation(rows, columns, grid=(4, 4), width=8):
    """Rotations of DINOv3 as in its paper: half of the pairs by rows, half by columns."""
    rates = 2 * math.pi * 2 * torch.tensor([100.0 ** (-4 * m / width) for m in range(width // 4)]).double()
    angle = torch.cat([rates * rows / grid[0], rates * columns / grid[1]])
    found = torch.zeros(width, width, dtype=torch.float64)
    for m, one in enumerate(angle):
        other = m + width // 2
        found[m, m] = found[other, other] = one.cos()
        # the query is rotated by its position, the key by the inverse of its own
        found[m, other], found[other, m] = one.sin(), -one.sin()
    return found


def test_dinov3_rotates_by_rows_and_columns_as_in_its_paper():
    subject = dino()
    by = relative_rotations(subject, chosen_of(subject), 8)
    assert set(by) == {0, 1}
    assert by[0] is by[1]
    expected = torch.stack([rotation(*offset) for offset in measured_offsets((4, 4))])
    torch.testing.assert_close(by[0][0], expected, rtol=1e-5, atol=1e-5)
    assert (expected - expected.mT).abs().max() > 0.5


def planted(there, against):
    """A DINOv3 whose first head is symmetric for keys at one offset, and antisymmetric for keys at another."""
    subject, odd = dino(), torch.zeros(8, 8, dtype=torch.float64)
    odd[:4, 4:], odd[4:, :4] = torch.eye(4), -torch.eye(4)
    attention, same = subject.attentions[0], drawn(32, 8)
    with torch.no_grad():
        subject.layers[0].norm1.weight.fill_(1)
        for head, turned in enumerate((rotation(*there).T, odd @ rotation(*against).T)):
            attention.q_proj.weight[8 * head : 8 * head + 8] = (same @ turned).T
            attention.k_proj.weight[8 * head : 8 * head + 8] = same.T
    return subject


def test_a_head_that_is_symmetric_at_one_offset_alone_is_seen_there():
    subject, there, against = planted((1, 0), (-1, 2)), (1, 0), (-1, 2)
    weights = measure_qk_symmetry(subject, chosen_of(subject), 0).value
    found = {offset: weights.symmetry_by_offset[0, :, place] for place, offset in enumerate(weights.offsets)}
    assert found[there][0] == pytest.approx(1, abs=1e-5)
    assert found[against][1] == pytest.approx(-1, abs=1e-5)
    assert max(one[0] for offset, one in found.items() if offset != there) < 0.99
    assert min(one[1] for offset, one in found.items() if offset != against) > -0.99
    (picture,) = relative_symmetry.symmetry_heatmaps(weights)
    panels = {panel.name: panel for panel in picture.panels}
    # a key one row above the query is drawn above the centre
    values = panels["layer 1, head 1"].values
    assert picture.first == -3
    assert values[3 - 1][3] == pytest.approx(1, abs=1e-5)
    # a key one row below and two columns to the left
    assert panels["layer 1, head 2"].values[3 + 1][3 - 2] == pytest.approx(-1, abs=1e-5)
    middle = np.median(weights.symmetry_by_offset, (0, 1))[weights.offsets.index((0, 0))]
    assert panels["median of all heads"].values[3][3] == pytest.approx(middle)


@pytest.mark.parametrize(("queries", "keys"), [(1, 4), (4, 1), (1, 2), (4, 2), (1, 1)])
def test_each_head_has_its_own_turn_where_some_differ(queries, keys):
    watch, each = (
        CaptureRotations(6, (2, 3), 1),
        {"queries": drawn(queries, 7, 6, 6), "keys": drawn(keys, 7, 6, 6, seed=1)},
    )
    given = torch.zeros(6, 4, 7, 6, dtype=torch.float64)
    q, k = watch.qk_before_rope(0, given, given[:, : 2 if keys == 2 else 4])
    # a separate matrix for each position and head
    q, k = (
        torch.einsum("bhnd,hnde->bhne", x, own.expand(x.shape[1], -1, -1, -1))
        for x, own in ((q, each["queries"]), (k, each["keys"]))
    )
    watch.qkv(0, q, k, k)
    for place, offset in enumerate(measured_offsets((2, 3))):
        query, key = (1 + one for one in pair_at_offset((2, 3), offset))
        found = watch.found[0][:, place].expand(4, -1, -1)
        for head in range(4):
            asked, held = each["queries"][head % queries, query], each["keys"][head * keys // 4, key]
            torch.testing.assert_close(found[head], asked @ held.T)
    assert len(watch.found[0]) == (1 if queries == keys == 1 else 4)


def test_random_heads_are_at_the_null_at_every_offset():
    width, heads = 64, 300
    turn = torch.stack([rotation(*offset) for offset in measured_offsets((4, 4))])[None]
    found = symmetry_by_offset(drawn(heads, width, 8), drawn(heads, width, 8, seed=1), turn)
    assert (found.mean(0) - 1 / width).abs().max() < 4.5 * math.sqrt(2 / heads) / width
    assert (found.std(0) * width / math.sqrt(2) - 1).abs().max() < 0.2


def test_each_head_has_one_subspace_for_all_rotations():
    query, key, turn = drawn(4, 20, 6), drawn(2, 20, 6, seed=1), torch.linalg.qr(drawn(4, 5, 6, 6, seed=2)).Q
    found = low_rank_projection(query, key, turn, 2)
    for head in range(4):
        met = torch.cat([query[head] @ one @ key[head // 2].T for one in turn[head]], -1)
        u = torch.linalg.svd(met).U[:, :2]
        torch.testing.assert_close(query[head] @ found[head], u @ u.T @ query[head])


def test_under_rows_and_columns_a_head_of_few_directions_needs_no_others(subject):
    chosen, scores = chosen_of(subject), []

    class Scores(Hooks):
        def __init__(self, inner):
            self.inner = inner

        def qk_before_rope(self, layer, q, k):
            return self.inner.qk_before_rope(layer, q, k)

        def attention_scores(self, layer, given):
            if layer == 0:
                scores.append(given)

    weights = measure_qk_symmetry(subject, chosen, 0).value
    for rank in (8, 3):
        subject.forward(chosen.inputs(slice(0, 2)), Scores(low_rank_intervention(qk_weights(weights), weights, rank)))
    subject.forward(chosen.inputs(slice(0, 2)), Scores(Hooks()))
    whole, fewer, plain = scores
    torch.testing.assert_close(whole, plain, rtol=1e-5, atol=1e-5)
    assert (fewer - plain).abs().max() > 1e-2


@pytest.mark.extended
def test_image_symmetry_is_reported_by_rows_and_columns():
    finding = QKRoles().measure(dino(), PICTURES)
    named = {one.name: one for one in finding.estimates}
    for offset in ("1 row", "3 rows", "1 column", "3 columns"):
        assert named[f"symmetry at offset {offset}, median head"].null == 1 / 32
    assert {"increase, rank 4", "increase, rank 4 from scores on real tokens"} <= set(named)
    chart = next(one for one in finding.charts if one.title == relative_symmetry.TITLE)
    assert [line.name.split(",")[0] for line in chart.lines] == ["rows", "columns"]
    assert chart.lines[0].x == tuple(map(float, range(-3, 4)))
    assert len(finding.pictures[-1].panels) == 9
    assert not [caveat for caveat in finding.caveats if "positional_heads" in caveat or "low-rank" in caveat]
    assert finding.model_validate_json(finding.model_dump_json()) == finding


def test_chart_lines_follow_their_axis():
    subject = planted((2, 0), (0, 1))
    weights = measure_qk_symmetry(subject, chosen_of(subject), 0).value
    rows, columns = relative_symmetry.symmetry_charts(weights)[0].lines
    by = {
        offset: float(np.median(weights.symmetry_by_offset[..., place]))
        for place, offset in enumerate(weights.offsets)
    }
    assert rows.y == tuple(by[step, 0] for step in range(-3, 4))
    assert columns.y == tuple(by[0, step] for step in range(-3, 4))
    named = {one.name: one.value for one in relative_symmetry.symmetry_estimates(weights, 32)}
    assert named["symmetry at offset 1 column, median head"] == by[0, 1]
    assert named["symmetry at offset 3 rows, median head"] == by[3, 0]


def test_format_of_offsets():
    formatted = [relative_symmetry.format_offset(offset) for offset in ((16,), (0, 0), (1, 0), (0, -1), (-2, 3))]
    assert formatted == ["16", "0", "1 row", "-1 column", "-2 rows and 3 columns"]


def test_images_that_turn_nothing_have_no_turns():
    subject = ours("none")
    assert relative_rotations(subject, chosen_of(subject), 8) == {}
    assert relative_symmetry.symmetry_heatmaps(measure_qk_symmetry(subject, chosen_of(subject), 0).value) == []
