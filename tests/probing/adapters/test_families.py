"""Every family: what is read is what the model computes, and each change does what it says."""

import runpy
import weakref
from pathlib import Path

import pytest
import torch

from ordinate.probing._adapter import Hooks, Inputs, NotApplicable
from ordinate.probing._attach import attach

pytest.importorskip("transformers")
FAMILIES = runpy.run_path(str(Path(__file__).parent / "families.py"))
ALL, DECODERS, ENCODERS, IMAGES = (FAMILIES[name] for name in ("ALL", "DECODERS", "ENCODERS", "IMAGES"))
make, subject = FAMILIES["make"], FAMILIES["subject"]
WINDOWED, NORMED, ARRANGED, UNHOOKED = (FAMILIES[name] for name in ("WINDOWED", "NORMED", "ARRANGED", "UNHOOKED"))
TOKENS = 9
# one for each way in which attention and its parts are found; the others are in the extended tier
WAYS = ("gpt2", "llama", "gptj", "bloom", "falcon", "deberta_v2", "t5", "dinov3")
each_model = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in WAYS else pytest.mark.extended) for name in ALL]
)


def these(names):
    return [pytest.param(name, marks=pytest.mark.extended if name in ARRANGED else ()) for name in names]


def given(name, rows=2):
    generator = torch.Generator().manual_seed(1)
    if name in IMAGES:
        return Inputs(images=torch.randn(rows, 3, 16, 16, generator=generator, dtype=torch.float64))
    return Inputs(torch.randint(4, 60, (rows, TOKENS), generator=generator))


def moved(inputs, **changes):
    return Inputs(**{**vars(inputs), **changes})


def off(x, y):
    return float((x - y).abs().max() / y.abs().max())


class All(Hooks):
    def __init__(self):
        self.streams, self.seen, self.branches, self.rotated = {}, {}, {}, {}

    def residual(self, layer, x):
        self.streams[layer] = x.clone()

    def attention(self, layer, seen):
        self.seen[layer] = seen

    def attention_output(self, layer, a):
        self.branches[layer] = a.clone()

    def qk_before_rope(self, layer, q, k):
        self.rotated[layer] = q.clone(), k.clone()


class Headless(All):
    skip_head = True


@each_model
def test_a_pass_without_a_head_ends_with_the_last_layer_and_leaves_nothing_behind(name):
    seen, inputs, one, called = Headless(), given(name), subject(name), []
    whole = one.forward(inputs)
    head = next((x for place, x in one.model.named_modules() if place in ("lm_head", "cls", "classifier")), None)
    handle = None if head is None else head.register_forward_hook(lambda *_: called.append(1))
    reading = one.forward(inputs, seen)
    if handle is not None:
        handle.remove()
    assert reading.logits is None
    assert not called
    assert torch.equal(reading.residual, seen.streams[one.info.layers])
    assert off(reading.residual, whole.residual) < 1e-5
    assert set(seen.seen) == set(range(one.info.layers))
    again = one.forward(inputs)
    assert torch.equal(again.residual, whole.residual)
    assert (again.logits is None) == (whole.logits is None)


@each_model
def test_what_is_read_is_what_the_model_computes(name):
    seen, inputs, one = All(), given(name), subject(name)
    reading = one.forward(inputs, seen)
    with torch.no_grad():
        if name in IMAGES:
            out = one.model(pixel_values=inputs.images, output_hidden_states=True)
        else:
            out = one.model(
                input_ids=inputs.ids, attention_mask=torch.ones_like(inputs.ids), output_hidden_states=True
            )
    logits = getattr(out, "logits", None)
    assert (logits is None) == (reading.logits is None)
    if logits is not None:
        assert off(reading.logits.flatten(), logits.flatten()) < 1e-6
    assert sorted(seen.streams) == [0, 1, 2]
    assert off(seen.streams[1], out.hidden_states[1]) < 1e-6
    assert seen.streams[2].equal(reading.residual)
    assert sorted(seen.seen) == sorted(seen.branches) == [0, 1]
    for layer in seen.seen.values():
        groups = layer.q.shape[1] // layer.k.shape[1]
        v = layer.v.repeat_interleave(groups, 1)
        assert off(layer.pattern.double() @ v, layer.out) < 1e-6
        assert off(layer.scores.softmax(-1).double(), layer.pattern.double()) < 1e-6
        assert layer.q.shape[1:] == (one.info.heads, reading.residual.shape[1], layer.q.shape[3])
    assert bool(seen.rotated) == ("rope" in one.info.position and name not in UNHOOKED)


# one mask cannot describe layers with sliding windows and layers without
@pytest.mark.parametrize("name", these(name for name in ALL if name not in WINDOWED))
def test_permuted_tokens_positions_and_sight_permute_the_result(name):
    one, inputs = subject(name), given(name)
    usual = one.forward(inputs)
    length, prefix = usual.residual.shape[1], one.info.prefix
    order = torch.cat([torch.arange(prefix), prefix + torch.randperm(length - prefix)])
    if name in IMAGES:
        pixels = inputs.images.unflatten(2, (4, 4)).unflatten(4, (4, 4)).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
        pixels = pixels[:, order[prefix:] - prefix].unflatten(1, (4, 4)).permute(0, 3, 1, 4, 2, 5)
        both = Inputs(images=pixels.flatten(2, 3).flatten(3, 4))
    else:
        both = Inputs(inputs.ids[:, order])
    both = moved(both, positions=order.expand(2, -1))
    if name in DECODERS:
        sight = torch.ones(length, length, dtype=torch.bool).tril()
        both = moved(both, mask=sight[order][:, order][None])
    assert off(one.forward(both).residual, usual.residual[:, order]) < ALL[name][2]
    alone = moved(both, positions=None)
    assert off(one.forward(alone).residual, usual.residual[:, order]) > 1e-4


@pytest.mark.parametrize("name", these(ALL))
def test_the_usual_positions_change_nothing(name):
    one, inputs = subject(name), given(name)
    length = one.forward(inputs).residual.shape[1]
    places = torch.arange(length).expand(2, -1)
    assert off(one.forward(moved(inputs, positions=places)).residual, one.forward(inputs).residual) < 1e-12


@pytest.mark.parametrize("name", ["mpt", "deberta_v2", "dinov3", "gpt2"])
def test_each_row_may_stand_elsewhere(name):
    one, inputs, watch = subject(name), given(name), All()
    length, prefix = one.forward(inputs).residual.shape[1], one.info.prefix
    order = torch.stack(
        [torch.cat([torch.arange(prefix), prefix + torch.randperm(length - prefix)]) for _ in range(2)]
    )
    both = one.forward(moved(inputs, positions=order), watch)
    for row in range(2):
        own = {name: x[row : row + 1] for name, x in vars(inputs).items() if isinstance(x, torch.Tensor)}
        alone = one.forward(Inputs(**own, positions=order[row : row + 1]))
        assert off(both.residual[row : row + 1], alone.residual) < 1e-6
        assert both.logits is None or off(both.logits[row : row + 1], alone.logits) < 1e-6
    assert not both.residual[:1].equal(both.residual[1:])


@pytest.mark.parametrize("name", ["t5", "deberta_v2"])
def test_where_only_distances_count_far_positions_need_no_table_of_all_pairs(name):
    one, inputs = subject(name), given(name)
    # of a million places there would be a million million pairs
    far = 1_000_000 + torch.arange(TOKENS).expand(2, -1)
    assert off(one.forward(moved(inputs, positions=far)).residual, one.forward(inputs).residual) < 1e-12
    apart = 1_000_000 + 3 * torch.arange(TOKENS).expand(2, -1)
    assert off(one.forward(moved(inputs, positions=apart)).residual, one.forward(inputs).residual) > 1e-6


@pytest.mark.parametrize("name", ["gpt2", "llama", "gptj", "bloom", "mpt", "falcon", "opt", "gpt_neox", "mistral"])
def test_sight_takes_the_place_of_causality(name):
    one, inputs = subject(name), given(name)
    usual = one.forward(inputs).residual
    causal = torch.ones(1, TOKENS, TOKENS, dtype=torch.bool).tril()
    causal = causal & ~causal.tril(-4) if name == "mistral" else causal
    assert off(one.forward(moved(inputs, mask=causal)).residual, usual) < 1e-6
    full = one.forward(moved(inputs, mask=torch.ones_like(causal))).residual
    assert off(full[:, 0], usual[:, 0]) > 1e-4
    alone = one.forward(moved(inputs, mask=torch.eye(TOKENS, dtype=torch.bool)[None])).residual
    other = inputs.ids.clone()
    other[:, 3] = (other[:, 3] + 1) % 60
    changed = one.forward(moved(inputs, ids=other, mask=torch.eye(TOKENS, dtype=torch.bool)[None])).residual
    rest = [token for token in range(TOKENS) if token != 3]
    assert off(changed[:, rest], alone[:, rest]) < 1e-12


class Severed(Hooks):
    def attention_output(self, layer, a):
        return torch.zeros_like(a)


@pytest.mark.parametrize("name", these([*DECODERS, *ENCODERS]))
def test_without_branches_no_token_learns_of_another(name):
    one, inputs = subject(name), given(name)
    other = inputs.ids.clone()
    other[:, 3] = (other[:, 3] + 1) % 60
    first, second = one.forward(inputs, Severed()).residual, one.forward(moved(inputs, ids=other), Severed()).residual
    rest = [token for token in range(TOKENS) if token != 3]
    assert first[:, rest].equal(second[:, rest])
    assert not first[:, 3].equal(second[:, 3])
    assert not one.forward(inputs).residual[:, 4:].equal(one.forward(moved(inputs, ids=other)).residual[:, 4:])


class Uniform(All):
    def attention_pattern(self, layer, weights):
        return torch.full_like(weights, 1 / weights.shape[-1])


class Mean(All):
    def attention_scores(self, layer, scores):
        return torch.zeros_like(scores)


class Silent(All):
    def qkv(self, layer, q, k, v):
        return q, k, torch.zeros_like(v)


class Blind(All):
    def qkv(self, layer, q, k, v):
        return torch.zeros_like(q), k, v


class Same(All):
    def qkv(self, layer, q, k, v):
        return q, k, v

    def attention_scores(self, layer, scores):
        return scores

    def attention_pattern(self, layer, weights):
        return weights

    def residual(self, layer, x):
        return x

    def attention_output(self, layer, a):
        return a


@each_model
def test_attention_patterns_are_patched_as_requested(name):
    one, inputs = subject(name), given(name)
    for kind in (Uniform, Mean):
        watch = kind()
        one.forward(inputs, watch)
        for seen in watch.seen.values():
            mean = seen.v.mean(2, keepdim=True).repeat_interleave(seen.q.shape[1] // seen.v.shape[1], 1)
            assert off(seen.out, mean.expand_as(seen.out)) < 1e-6
    silent = Silent()
    one.forward(inputs, silent)
    assert all(bool((seen.out == 0).all()) for seen in silent.seen.values())
    blind, usual = Blind(), All()
    one.forward(inputs, blind)
    stream = one.forward(inputs, usual).residual
    assert bool((blind.seen[0].q == 0).all())
    assert not blind.seen[0].pattern.equal(usual.seen[0].pattern)
    assert one.forward(inputs, Same()).residual.equal(stream)


@pytest.mark.parametrize("name", these([*DECODERS, *ENCODERS]))
def test_vectors_stand_in_the_place_of_tokens(name):
    one, inputs = subject(name), given(name)
    table = one.token_table()
    assert table.shape == (60, 32)
    assert off(one.forward(Inputs(embeddings=table[inputs.ids])).residual, one.forward(inputs).residual) < 1e-12
    other = one.forward(Inputs(embeddings=table[inputs.ids].flip(0))).residual
    assert off(other, one.forward(inputs).residual.flip(0)) < 1e-12


@each_model
def test_matrices_make_the_queries(name):
    one, inputs, watch = subject(name), given(name), All()
    one.forward(inputs, watch)
    found = one.projection(1)
    x, facts = watch.streams[1], one.info
    assert found.query.shape[:2] == (facts.heads, 32)
    assert found.key.shape[:2] == found.value.shape[:2] == (facts.kv_heads, 32)
    values = watch.seen[1].v
    centred = x - x.mean(-1, keepdim=True)
    entering = [part / part.square().mean(-1, keepdim=True).sqrt() * found.norm_weight for part in (centred, x)]
    made = [torch.einsum("bnw,gwe->bgne", part, found.value) for part in (*entering, x)]
    # what is added to them is one vector a head
    bare = values - values[:, :, :1]
    assert min(off(part - part[:, :, :1], bare) for part in made) < 1e-4
    assert found.output_norm == (name in NORMED)
    if not found.output_norm:
        read = torch.einsum("bhne,hew->bnw", watch.seen[1].out, found.out)
        branch = watch.branches[1]
        assert off(read - read[:, :1], branch - branch[:, :1]) < 1e-6


def test_no_map_outlives_its_layer():
    alive, most = weakref.WeakSet(), []

    class Count(Hooks):
        def attention(self, layer, seen):
            alive.add(seen)
            most.append(len(alive))

    for name in ("gpt2", "bloom"):
        subject(name).forward(given(name), Count())
    assert max(most) == 1


@pytest.mark.parametrize("name", ["gpt2", "bert", "falcon", "bloom", "dinov3"])
def test_a_model_is_left_as_it_was(name):
    model = make(name)
    model.train()
    first = next(model.children())
    first.eval()
    before = model.config._attn_implementation, [module.training for module in model.modules()]
    one = attach(model)
    one.forward(given(name), Same())
    with pytest.raises(RuntimeError, match="stop"):
        one.forward(given(name), Stop())
    assert (model.config._attn_implementation, [module.training for module in model.modules()]) == before
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert "forward" not in vars(module)


class Stop(Hooks):
    def attention(self, layer, seen):
        raise RuntimeError("stop")


@pytest.mark.parametrize("name", ["gpt2", "opt", "roberta", "bart", "vit"])
def test_the_table_of_positions_begins_with_the_first(name):
    one = subject(name)
    rows = one.position_table(7)
    wide = one.position_table(one.info.max_length)
    assert rows.equal(wide[:7])
    with pytest.raises(ValueError, match="positions"):
        one.position_table(one.info.max_length + 1)


@pytest.mark.parametrize("name", ["gpt2", "roberta", "mpt", "gptj"])
def test_a_text_beyond_the_last_position_is_refused_in_words(name):
    one = subject(name)
    longest = one.info.max_length
    one.forward(Inputs(torch.full((1, longest), 5)))
    with pytest.raises(NotApplicable, match=f"{name} reads {longest} tokens; got {longest + 1}; shorten the text"):
        one.forward(Inputs(torch.full((1, longest + 1), 5)))


def test_registers_have_no_position_and_the_others_have_theirs():
    one = subject("dinov2_registers")
    assert (one.info.position, one.info.prefix) == ("learned", 3)
    # [CLS], then 16 patches
    torch.testing.assert_close(
        one.position_table(17), one.model.dinov2_with_registers.embeddings.position_embeddings[0]
    )
    inputs, streams = given("dinov2_registers"), []

    class First(Hooks):
        def residual(self, layer, x):
            if layer == 0:
                streams.append(x.clone())

    one.forward(inputs, First())
    order = torch.cat([torch.arange(3), 3 + torch.randperm(16, generator=torch.Generator().manual_seed(0))])
    one.forward(moved(inputs, positions=order.expand(2, -1)), First())
    rows = one.position_table(17)
    assert streams[1][:, :3].equal(streams[0][:, :3])
    change = rows[order[3:] - 2] - rows[1:]
    torch.testing.assert_close(streams[1][:, 3:] - streams[0][:, 3:], change.expand(2, -1, -1))


@pytest.mark.parametrize("name", ["llama", "bloom", "t5"])
def test_models_that_add_no_positions_have_no_table(name):
    with pytest.raises(NotApplicable, match="adds no position embeddings to its tokens"):
        subject(name).position_table(3)


@pytest.mark.parametrize("family", ["Marian", "Pegasus", "Bart"])
@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_embeddings_have_the_scale_in_which_positions_are_added(family, part):
    hf = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = FAMILIES["BART"] | {"pad_token_id": 1, "decoder_start_token_id": 1, "scale_embedding": True}
    model = getattr(hf, f"{family}Model")(getattr(hf, f"{family}Config")(**sizes)).double().eval()
    source = torch.arange(5)[None] + 4
    one = attach(model, part=part, source=source if part == "decoder" else None)
    inputs, streams = given("t5"), []

    class First(Hooks):
        def residual(self, layer, x):
            if layer == 0:
                streams.append(x.clone())

    table = one.token_table()
    weight = model.get_input_embeddings().weight
    torch.testing.assert_close(table, weight * 32**0.5)
    one.forward(inputs, First())
    one.forward(Inputs(embeddings=table[inputs.ids]), First())
    torch.testing.assert_close(streams[1], streams[0])
    step = torch.randn(32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    one.forward(Inputs(embeddings=table[inputs.ids] + step), First())
    if family != "Bart":
        # its embeddings are followed by a norm
        torch.testing.assert_close(streams[2] - streams[0], step.expand_as(streams[0]))
