import itertools
from collections import Counter

import pytest
import torch

from ordinate import Decoder, Geometry, Shape
from ordinate.models.cache import Cache
from ordinate.schemes import Randomized, Rope
from ordinate.schemes._composition import Sum
from ordinate.testing import check_scheme


def ids(scheme, where):
    """The id of each query and of each key in the first row."""
    placed = scheme.at(where).where
    return placed.q_pos[0, :, 0].tolist(), placed.k_pos[0, :, 0].tolist()


def test_training_draws_sorted_ids_from_the_whole_range_none_twice():
    scheme, met = Randomized(max_length=50), set()
    for _ in range(100):
        queries, keys = ids(scheme, Geometry.causal(20))
        assert queries == keys == sorted(set(queries))
        assert len(queries) == 20
        met |= set(queries)
    assert met == set(range(50))


@pytest.mark.extended
def test_every_choice_of_ids_is_as_likely():
    scheme, draws = Randomized(max_length=5), 5000
    counts = Counter(tuple(ids(scheme, Geometry.causal(2))[0]) for _ in range(draws))
    assert set(counts) == set(itertools.combinations(range(5), 2))
    # five standard deviations of a share of one tenth
    assert all(abs(count / draws - 0.1) < 5 * (0.09 / draws) ** 0.5 for count in counts.values())


def test_a_text_as_long_as_the_range_gets_every_id():
    assert ids(Randomized(max_length=9), Geometry.causal(9))[0] == list(range(9))


def test_each_forward_pass_draws_anew_and_a_seed_repeats_it():
    scheme, where = Randomized(max_length=1000), Geometry.causal(20)
    torch.manual_seed(5)
    first, second = ids(scheme, where), ids(scheme, where)
    assert first != second
    torch.manual_seed(5)
    assert ids(scheme, where) == first
    assert where.q_pos[0, :, 0].tolist() == list(range(20))


def test_one_position_has_one_id_wherever_it_stands():
    scheme = Randomized(max_length=1000)
    queries, keys = ids(scheme, Geometry.cross(5, 9))
    assert keys[:5] == queries
    queries, _ = ids(scheme, Geometry.packed((4, 1, 6)))
    assert queries[:4] == queries[5:9]
    assert queries[4] == queries[5]
    given = torch.tensor([[[4], [0], [30], [4]], [[30], [30], [1], [0]]], dtype=torch.int32)
    placed = scheme.at(Geometry.from_positions(given)).where.q_pos[..., 0]
    assert placed[0, 0] == placed[0, 3]
    assert placed[0, 2] == placed[1, 0] == placed[1, 1]
    assert placed[1, 3] == placed[0, 1] < placed[1, 2] < placed[0, 0] < placed[0, 2]


def test_the_structure_of_the_geometry_stays_and_offsets_no_longer_follow_places():
    where = Geometry.padded(torch.tensor([[False, True, True], [True, True, True]]), window=2)
    placed = Randomized(max_length=100).at(where).where
    assert placed.visible.equal(where.visible)
    assert where.consecutive
    assert not placed.consecutive


def test_other_schemes_of_a_sum_see_the_drawn_positions():
    torch.manual_seed(3)
    drawn = Randomized(max_length=500).at(Geometry.causal(7)).where
    torch.manual_seed(3)
    rope = Rope(head_width=8)
    at = Sum(Randomized(max_length=500), rope).at(Geometry.causal(7))
    q = torch.randn(1, 2, 7, 8, dtype=torch.float64)
    for made, plain in zip(at.encode(q, q).pair, rope.at(drawn).encode(q, q).pair, strict=True):
        assert made.equal(plain)


def decoder(scheme):
    torch.manual_seed(0)
    shape = Shape(vocabulary=13, width=16, layers=2, heads=2, max_length=40, scheme=scheme)
    return Decoder(shape).double()


def test_training_reaches_all_rows_of_a_table_by_short_texts():
    model, reached = decoder("randomized+learned"), torch.zeros(40, dtype=torch.bool)
    (table,) = [value for name, value in model.named_parameters() if name.endswith(".table")]
    for _ in range(60):
        table.grad = None
        model(torch.zeros(1, 5, dtype=torch.long)).square().sum().backward()
        felt = (table.grad != 0).any(-1)
        assert felt.sum() == 5
        reached |= felt
    assert reached.all()


EVALUATIONS = [
    {"evaluation": "unchanged"},
    {"evaluation": "evenly_spaced", "eval_length": 12},
    {"evaluation": "random", "eval_length": 12},
]


@pytest.mark.parametrize("part", ["learned", "rope", "sinusoidal"])
@pytest.mark.parametrize("options", EVALUATIONS)
def test_cached_decoding_equals_the_full_pass_in_evaluation(options, part):
    given = ",".join(f"{name}={value}" for name, value in options.items())
    model, tokens = decoder(f"randomized:{given}+{part}").eval(), torch.arange(12)[None] % 13
    full, cache = model(tokens), Cache()
    assert full.equal(model(tokens))
    pieces = [model(piece, cache=cache) for piece in tokens.split([1, 4, 1, 6], 1)]
    assert torch.allclose(torch.cat(pieces, 1), full, rtol=0, atol=1e-12)


def test_plain_evaluation_leaves_the_tokens_where_they_are():
    where = Geometry.causal(9)
    assert Randomized(max_length=50).eval().at(where).where is where


@pytest.mark.parametrize(("longest", "length"), [(50, 7), (64, 64), (10, 9), (5, 1)])
def test_even_evaluation_spreads_a_text_over_the_range(longest, length):
    scheme = Randomized(max_length=longest, evaluation="evenly_spaced", eval_length=length).eval()
    exact = [int(place * longest / length + 1e-9) for place in range(length)]
    assert ids(scheme, Geometry.causal(length))[0] == exact
    assert len(set(exact)) == length


def test_drawn_evaluation_draws_once_from_its_seed():
    def made(**options):
        scheme = Randomized(max_length=50, evaluation="random", eval_length=8, **options).eval()
        return ids(scheme, Geometry.causal(8))[0]

    assert made() == made(seed=0) == [3, 15, 25, 35, 40, 43, 46, 48]
    assert made(seed=1) != made()
    assert made(seed=1) == sorted(set(made(seed=1)))


def test_it_marks_nothing_itself():
    scheme = Randomized(max_length=50)
    assert scheme.hooks == ("remap_positions",)
    assert scheme.state_dict() == {}


def test_training_with_a_cache_is_refused():
    with pytest.raises(ValueError, match="got cached tokens, whose ids were drawn before; call eval"):
        Randomized(max_length=50).at(Geometry.causal(1, cached=3))


@pytest.mark.parametrize("training", [True, False])
def test_a_text_longer_than_the_range_is_refused(training):
    scheme = Randomized(max_length=9).train(training)
    with pytest.raises(ValueError, match=r"Randomized serves positions 0 to 8 \(max_length 9\); got 0 to 9"):
        scheme.at(Geometry.causal(10))
    with pytest.raises(ValueError, match="got -1 to -1"):
        scheme.at(Geometry.from_positions(torch.tensor([[[-1]]])))


def test_a_text_longer_than_evaluation_allows_is_refused():
    scheme = Randomized(max_length=50, evaluation="evenly_spaced", eval_length=8)
    scheme.at(Geometry.causal(9))
    with pytest.raises(
        ValueError, match=r"positions 0 to 7 in evaluation \(eval_length 8\); got 8; build it with eval_length=9"
    ):
        scheme.eval().at(Geometry.causal(9))


def test_fractional_positions_and_other_axes_are_refused():
    with pytest.raises(ValueError, match=r"Randomized takes integer positions; got torch.float32; round them"):
        Randomized(max_length=9).at(Geometry.from_positions(torch.tensor([[[0.5]]])))
    with pytest.raises(ValueError, match="Randomized takes positions with 1 axis; got 2 axes"):
        Randomized(max_length=9).at(Geometry.grid(2, 2))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_length": 0}, "max_length must be above zero; got 0"),
        (
            {"evaluation": "evenly_spaced"},
            "got eval_length=None with evaluation='evenly_spaced'; give both, or neither",
        ),
        ({"eval_length": 5}, "got eval_length=5 with evaluation='unchanged'; give both, or neither"),
        (
            {"evaluation": "evenly_spaced", "eval_length": 10},
            "got eval_length 10, max_length 9; give an eval_length from 1 to max_length",
        ),
        ({"evaluation": "random", "eval_length": 0}, "got eval_length 0, max_length 9"),
        (
            {"evaluation": "evenly_spaced", "eval_length": 5, "seed": 1},
            "got seed=1 with evaluation='evenly_spaced', where it has no effect",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(options, says):
    with pytest.raises(ValueError, match=says):
        Randomized(**{"max_length": 9, **options})


@pytest.mark.usefixtures("untyped")
def test_an_unknown_word_is_refused():
    with pytest.raises(ValueError, match="no evaluation is named 'evn'; there are: evenly_spaced, random, unchanged"):
        Randomized(max_length=9, evaluation="evn")


@pytest.mark.extended
@pytest.mark.parametrize("evaluation", ["evenly_spaced", "random"])
def test_it_keeps_the_contract_with_other_options(evaluation):
    outcomes = check_scheme(Randomized, evaluation=evaluation, eval_length=62)
    assert {came.name: came.message for came in outcomes if came.message} == {}
