"""A module of one's own, whichever way it writes its attention."""

import pytest
import torch
from torch import nn

from ordinate.probing._adapter import Hooks, Inputs, NotApplicable
from ordinate.probing._attach import attach


class Layer(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.way, self.norm = way, nn.LayerNorm(16)
        self.q, self.k, self.v, self.out = (nn.Linear(16, 16) for _ in range(4))
        self.think, self.think_norm = nn.Linear(16, 16), nn.LayerNorm(16)
        self.weigh = nn.Softmax(-1)

    def attend(self, q, k, v):
        if self.way == "sdpa":
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        mask = torch.full((q.shape[2], q.shape[2]), float("-inf")).triu(1).to(q)
        scores = q @ k.transpose(-1, -2) / 2 + mask
        return (self.weigh(scores) if self.way == "module" else scores.softmax(-1)) @ v

    def forward(self, x):
        h = self.norm(x)
        q, k, v = (part(h).unflatten(-1, (4, 4)).transpose(1, 2) for part in (self.q, self.k, self.v))
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))
        return x + self.think(self.think_norm(x)).relu()


class Small(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.tokens, self.places = nn.Embedding(30, 16), nn.Embedding(20, 16)
        if way == "torch":
            self.layers = nn.ModuleList(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True) for _ in range(2))
        else:
            self.layers = nn.ModuleList(Layer(way) for _ in range(2))
        self.head = nn.Linear(16, 30)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class All(Hooks):
    def __init__(self):
        self.seen, self.branches, self.streams = {}, {}, {}

    def residual(self, layer, x):
        self.streams[layer] = x.clone()

    def attention(self, layer, seen):
        self.seen[layer] = seen

    def attention_output(self, layer, a):
        self.branches[layer] = a.clone()


class Uniform(All):
    def attention_pattern(self, layer, weights):
        return torch.full_like(weights, 1 / weights.shape[-1])

    def qkv(self, layer, q, k, v):
        return q, k, v * 2


@pytest.fixture(scope="module", params=["sdpa", "softmax", "module", "torch"])
def way(request):
    return request.param


@pytest.fixture(scope="module")
def model(way):
    torch.manual_seed(0)
    return Small(way).double()


@pytest.fixture(scope="module")
def subject(model):
    return attach(model, name="mine")


def test_its_attention_is_seen(model, subject, way):
    ids, watch = torch.randint(30, (2, 7)), All()
    reading = subject.forward(Inputs(ids), watch)
    with torch.no_grad():
        expected = model.eval()(ids)
    torch.testing.assert_close(reading.logits, expected)
    assert (subject.info.layers, subject.info.heads, subject.info.width) == (2, 4, 16)
    assert subject.info.kind == ("encoder" if way == "torch" else "decoder")
    assert subject.info.position == "learned"
    assert subject.position_table(5).equal(model.places.weight[:5])
    for layer in (0, 1):
        seen = watch.seen[layer]
        torch.testing.assert_close(seen.pattern @ seen.v, seen.out)
        torch.testing.assert_close(seen.scores.softmax(-1), seen.pattern)
        x = watch.streams[layer]
        h = x if way == "torch" else model.layers[layer].norm(x)
        if way != "torch":
            torch.testing.assert_close(seen.q.transpose(1, 2).flatten(2), model.layers[layer].q(h))
        found = subject.projection(layer)
        bare = torch.einsum("bnw,hwd->bhnd", h, found.query)
        difference = seen.q - bare
        torch.testing.assert_close(difference, difference[:1, :, :1].expand_as(difference))


def test_its_attention_is_changed(subject):
    ids, watch = torch.randint(30, (2, 7)), Uniform()
    subject.forward(Inputs(ids), watch)
    usual = All()
    subject.forward(Inputs(ids), usual)
    torch.testing.assert_close(watch.seen[0].v, 2 * usual.seen[0].v)
    torch.testing.assert_close(watch.seen[0].out, watch.seen[0].v.mean(2, keepdim=True).expand_as(watch.seen[0].out))


def test_other_positions_are_rows_of_its_table(model, subject):
    ids = torch.randint(30, (2, 7))
    places = torch.arange(7).flip(0).expand(2, -1)
    kept = model.places.weight.detach().clone()
    moved = subject.forward(Inputs(ids, places)).logits
    with torch.no_grad():
        model.places.weight[:7] = kept[:7].flip(0)
        expected = model.eval()(ids)
        model.places.weight.copy_(kept)
    torch.testing.assert_close(moved, expected)


def test_who_sees_whom_is_its_own(subject):
    with pytest.raises(NotApplicable, match="made inside this module"):
        subject.forward(Inputs(torch.zeros(1, 3, dtype=torch.long), mask=torch.ones(1, 3, 3, dtype=torch.bool)))


def test_what_cannot_be_measured_is_refused_with_the_reason():
    with pytest.raises(NotApplicable, match="no token embedding"):
        attach(nn.Linear(3, 3))
    with pytest.raises(NotApplicable, match="int is not a torch"):
        attach(3)
    with pytest.raises(NotApplicable, match="cannot be instrumented"):
        attach(nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9)))
