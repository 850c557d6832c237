from relations import accuracy, answer, reach, steps


def model(*means, curve=()):
    return {"accuracy": dict(zip(("1", "2", "4", "8"), means, strict=False)), "curve": list(curve)}


def test_what_is_learnt_in_every_seed_is_bold_and_a_spread_is_shown():
    assert accuracy([model(0.99), model(0.98)]) == "**0.98**"
    assert accuracy([model(0.99), model(0.49)]) == "0.74 (0.49 to 0.99)"


def test_the_slowest_seed_gives_the_steps():
    fast, slow, never = model(1, curve=[0.96, 1]), model(1, curve=[0.5, 0.95]), model(1, curve=[0.5, 0.9])
    assert steps([fast, slow], 25) == "50"
    assert steps([fast, never], 25) == "–"


def test_the_reach_ends_at_the_first_length_below_nine_tenths():
    assert reach([model(1, 0.95, 0.5, 0.99), model(1, 0.9, 0.5, 0.99)]) == "2x"
    assert reach([model(0.8, 1, 1, 1)]) == "–"


def test_the_answer_counts_the_seeds_of_what_some_learn():
    found = {
        "copying": {"rope": [model(1), model(0.96)], "alibi": [model(1), model(0.5)], "t5": [model(0), model(0)]}
    }
    assert answer(found) == "- **copying**: rope; alibi (1 of 2 seeds)"
