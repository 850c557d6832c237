import dataclasses
import gc

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ordinate import Cache, Decoder, Shape, generate
from ordinate.models._generate import sample, truncate_at
from ordinate.models.prompt import Prompt
from ordinate.models.truncation import Truncation

SHAPE = Shape(vocabulary=13, width=16, layers=2, heads=4)


@pytest.fixture
def model():
    return Decoder(SHAPE).double()


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def written(model, prompt, count, **settings):
    return torch.cat(list(generate(model, prompt, count, **settings)), 1)


def test_greedy_takes_the_likeliest_of_the_full_forward_each_step(model):
    prompt = torch.randint(0, 13, (2, 3))
    text = torch.cat([prompt, written(model, prompt, 9, temperature=0)], 1)
    model.eval()
    for place in range(3, 12):
        assert torch.equal(text[:, place], model(text[:, :place])[:, -1].argmax(-1))


def test_one_choice_is_greedy(model):
    prompt = torch.randint(0, 13, (2, 3))
    only = written(model, prompt, 8, top_k=1, generator=seeded())
    assert torch.equal(only, written(model, prompt, 8, temperature=0))


def test_a_tiny_share_is_greedy(model):
    prompt = torch.randint(0, 13, (2, 3))
    only = written(model, prompt, 8, top_p=1e-6, generator=seeded())
    assert torch.equal(only, written(model, prompt, 8, temperature=0))


def test_one_seed_writes_one_text(model):
    prompt = torch.randint(0, 13, (2, 3))
    first = written(model, prompt, 12, generator=seeded(1))
    assert torch.equal(first, written(model, prompt, 12, generator=seeded(1)))
    assert not torch.equal(first, written(model, prompt, 12, generator=seeded(2)))


def drawn(logits, temperature=1.0, top_k=None, top_p=None):
    """All tokens that occur in many samples."""
    rows = torch.tensor(logits)[None].expand(3000, -1)
    return set(sample(rows, temperature, Truncation(top_k=top_k, top_p=top_p), seeded()).flatten().tolist())


@pytest.mark.parametrize(
    ("share", "kept"),
    [(0.3, {0}), (0.4, {0}), (0.45, {0, 1}), (0.69, {0, 1}), (0.75, {0, 1, 2}), (1.0, {0, 1, 2, 3})],
)
def test_top_p_keeps_the_smallest_set_that_holds_the_share(share, kept):
    assert drawn(torch.tensor([0.4, 0.3, 0.2, 0.1]).log().tolist(), top_p=share) == kept


@pytest.mark.parametrize("k", [1, 2, 3, 9])
def test_top_k_keeps_k_tokens_even_among_equals(k):
    assert len(drawn([1.0, 1.0, 1.0, 0.5], top_k=k)) == min(k, 4)
    assert len(drawn([1.0, 1.0, 1.0, 1.0], top_k=k)) == min(k, 4)


def test_temperature_divides_the_logits():
    rows = torch.tensor([[2.0, 0.0]]).expand(20_000, -1)
    share = 1 - sample(rows, 0.5, Truncation(), seeded()).double().mean().item()
    assert abs(share - torch.tensor(4.0).sigmoid().item()) < 0.005


@settings(max_examples=50)
@given(st.lists(st.floats(-8, 8), min_size=1, max_size=9), st.integers(1, 10), st.floats(0.01, 1))
def test_what_is_drawn_is_among_the_likeliest(logits, k, share):
    best = sorted(logits, reverse=True)[min(k, len(logits)) - 1]
    rows = torch.tensor([logits]).expand(50, -1)
    for token in sample(rows, 1.0, Truncation(top_k=k, top_p=share), seeded()).flatten().tolist():
        assert rows[0, token].item() >= torch.tensor(best).item()


@pytest.mark.parametrize("training", [True, False])
def test_the_training_flag_comes_back_however_it_ends(model, training):
    prompt = torch.zeros(1, 2, dtype=torch.long)
    model.train(training)
    written(model, prompt, 3, temperature=0)
    assert model.training is training
    unfinished = generate(model, prompt, 3, temperature=0)
    next(unfinished)
    assert model.training is False
    del unfinished
    gc.collect()
    assert model.training is training
    broken = generate(model, prompt + 99, 3, temperature=0)
    with pytest.raises(ValueError, match="token ids must lie in 0 to 12"):
        next(broken)
    assert model.training is training


def test_training_continues_after_generation(model):
    prompt = torch.zeros(1, 2, dtype=torch.long)
    written(model, prompt, 3, temperature=0)
    model(prompt).sum().backward()
    assert bool(model.tokens.weight.grad.isfinite().all())


def test_nothing_to_write_writes_nothing(model):
    assert list(generate(model, torch.zeros(1, 1, dtype=torch.long), 0, temperature=0)) == []


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"prompt": torch.zeros(1, 0, dtype=torch.long)}, r"the prompt needs at least one token; got \(1, 0\)"),
        ({"prompt": torch.zeros(3, dtype=torch.long)}, r"the prompt needs at least one token; got \(3,\)"),
        ({"max_new_tokens": -1}, "max_new_tokens must not be negative; got -1"),
        ({"temperature": -1.0}, "temperature must not be negative; got -1"),
        ({"temperature": float("nan")}, "temperature must be a finite number; got nan"),
        ({"top_k": 0}, "top_k must be above zero; got 0"),
        ({"top_p": 0.0}, "top_p must be above zero; got 0.0"),
        ({"top_p": 1.5}, r"top_p must lie in \(0, 1\]; got 1.5"),
        (
            {"temperature": 0, "top_k": 3, "min_p": 0.1},
            "greedy decoding truncates nothing; got top_k=3, min_p=0.1 with temperature 0; leave it out",
        ),
        ({"generator": None}, "sampling needs a generator; got None"),
    ],
)
def test_settings_without_a_meaning_are_refused_at_once(model, given, match, untyped):
    usual = {"prompt": torch.zeros(1, 1, dtype=torch.long), "max_new_tokens": 1, "generator": seeded()}
    with pytest.raises(ValueError, match=match):
        generate(model, **(usual | given))


def test_a_model_without_incremental_decoding_is_rejected():
    sizes = {"vocabulary": 11, "width": 16, "layers": 1, "heads": 2}
    model = Decoder(Shape(**sizes, mixer="reformer:mode=chunk"))
    with pytest.raises(ValueError, match="support incremental decoding; Reformer of this model does not"):
        generate(model, torch.zeros(1, 3, dtype=torch.long), 2, temperature=0)
    model = Decoder(Shape(**sizes, mixer="reformer"))
    assert len(list(generate(model, torch.zeros(1, 3, dtype=torch.long), 2, temperature=0))) == 2


def test_rows_of_several_lengths_write_what_each_writes_alone(model):
    rows = [[3, 1, 4], [1, 5, 9, 2, 6, 5], [3]]
    prompt = Prompt.from_lists(rows)
    assert prompt.real.sum(1).tolist() == [3, 6, 1]
    together = written(model, prompt, 6, temperature=0)
    for row, tokens in zip(rows, together, strict=True):
        assert torch.equal(written(model, torch.tensor([row]), 6, temperature=0)[0], tokens)


@pytest.mark.covering(0)
@pytest.mark.parametrize("scheme", ["rope", "alibi", "learned", "t5"])
def test_one_prefill_can_be_continued_many_times(scheme):
    model = Decoder(dataclasses.replace(SHAPE, scheme=scheme)).double().eval()
    prefix, after = torch.randint(0, 13, (1, 5)), Cache()
    with torch.inference_mode():
        model(prefix, cache=after)
    rows = [[3, 1, 4], [1, 5], [3, 1, 4, 1]]
    expected = [written(model, torch.cat([prefix, torch.tensor([row])], 1), 6, temperature=0)[0] for row in rows]
    # in turn, so that each begins while another is under way
    steps = [generate(model, Prompt.from_lists([row], prefix=after), 6, temperature=0) for row in rows]
    found = [torch.cat(parts, 1)[0] for parts in zip(*zip(*steps, strict=True), strict=True)]
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    together = written(model, Prompt.from_lists(rows, prefix=after), 6, temperature=0)
    assert all(torch.equal(one, other) for one, other in zip(together, expected, strict=True))
    assert len(after) == 5


def test_rows_end_by_themselves(model):
    prompt = torch.randint(0, 13, (4, 3))
    free = written(model, prompt, 12, top_k=3, generator=seeded())
    ends = [int(free[0, 2]), int(free[1, 5])]
    steps = list(generate(model, prompt, 12, top_k=3, generator=seeded(), end_tokens=ends))
    rows = truncate_at(steps, ends)
    for row, alone, tokens in zip(rows, free.tolist(), torch.cat(steps, 1).tolist(), strict=True):
        first = next((place for place, token in enumerate(alone) if token in ends), 12)
        # rows draw from one generator, so the others continue equally when a row has ended
        assert row == alone[: len(row)] == alone[:first][: len(row)]
        assert len(row) == min(first, len(steps))
        assert set(tokens[first + 1 :]) <= {alone[first]} if first < 12 else True
    assert len(rows[0]) <= 2


def test_writing_stops_when_all_rows_have_ended(model):
    prompt = torch.randint(0, 13, (1, 3))
    free = written(model, prompt, 9, temperature=0)[0].tolist()
    steps = list(generate(model, prompt, 9, temperature=0, end_tokens=[free[4]]))
    assert len(steps) == free.index(free[4]) + 1
    assert truncate_at(steps, [free[4]]) == [free[: free.index(free[4])]]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Prompt.from_lists([]), "the prompt needs at least one token"),
        (
            lambda: Prompt(torch.zeros(1, 2).long(), torch.tensor([[True, False]])),
            "must be left-padded; got padding",
        ),
        (
            lambda: Prompt(torch.zeros(1, 2).long(), torch.tensor([[True]])),
            r"real needs the shape of ids; got \(1, 1\) for",
        ),
        (lambda: Prompt(torch.zeros(3, 1).long(), prefix=read_rows(2)), "for each prompt; got 2 rows for 3 prompts"),
    ],
)
def test_prompts_that_do_not_fit_are_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def read_rows(rows):
    cache = Cache()
    Decoder(SHAPE)(torch.zeros(rows, 2).long(), cache=cache)
    return cache


def test_ends_are_tokens_of_the_model(model):
    with pytest.raises(ValueError, match="end tokens must lie in 0 to 12; got 13"):
        generate(model, torch.zeros(1, 1).long(), 1, temperature=0, end_tokens=[13])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_refused(temperature):
    with pytest.raises(ValueError, match="the model must predict numbers; got NaN"):
        sample(torch.tensor([[float("nan"), 1.0]]), temperature, Truncation(), seeded())


def test_a_fractional_token_id_is_refused(untyped):
    with pytest.raises(TypeError, match=r"a token id must be a whole number; got 1\.7"):
        Prompt.from_lists([[1.7]])
