import math

import pytest
from torch import nn

from ordinate.models.decoder import Decoder
from ordinate.models.shape import Shape
from ordinate.training.optimiser import learning_rate_at, make_optimiser


def test_the_learning_rate_rises_then_falls_along_a_cosine():
    rates = [learning_rate_at(step, peak=1.0, warmup_steps=4, steps=12) for step in range(12)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4] == 1.0
    assert rates[8] == pytest.approx(0.55)
    assert rates[6] == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2)
    assert learning_rate_at(12, peak=1.0, warmup_steps=4, steps=12) == pytest.approx(0.1)


def test_without_warmup_it_begins_at_the_top():
    assert learning_rate_at(0, peak=2.0, warmup_steps=0, steps=5) == 2.0


def test_matrices_decay_and_tables_norms_and_biases_do_not():
    model = Decoder(Shape(vocabulary=16, width=8, layers=1, heads=2, scheme="learned", norm="layer"))
    optimiser = make_optimiser(model, 1e-3, 0.1)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decayed, free = ({names[id(p)] for p in group["params"]} for group in optimiser.param_groups)
    assert [group["weight_decay"] for group in optimiser.param_groups] == [0.1, 0.0]
    assert all(name.endswith(("project.weight", "out.weight", "widen.weight", "narrow.weight")) for name in decayed)
    assert {"tokens.weight", "norm.weight", "norm.bias", "schemes.0.table"} <= free
    assert len(decayed) + len(free) == len(names)


def test_a_tied_table_is_not_decayed():
    table, head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
    head.weight = table.weight
    optimiser = make_optimiser(nn.Sequential(table, head), 1e-3, 0.1)
    assert [len(group["params"]) for group in optimiser.param_groups] == [0, 1]
