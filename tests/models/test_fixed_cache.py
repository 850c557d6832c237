"""A decoding step of fixed size computes what an ordinary one computes, in the same tensors, without waiting."""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch

from ordinate import Cache, Decoder, Geometry, Shape, generate
from ordinate.core import catalog
from ordinate.core.devices import as_if_on
from ordinate.mixers._mixer import KVCache, Mixer
from ordinate.models._generate import generate_with_cuda_graph
from ordinate.models.expert_options import ExpertOptions
from ordinate.models.fixed_cache import DecodingStep, FixedCache
from ordinate.models.prompt import Prompt
from ordinate.schemes._scheme import Scheme
from ordinate.testing.waiting import no_waiting

SCHEMES = [
    name for name in catalog.names("ordinate.schemes") if 1 in catalog.load("ordinate.schemes", Scheme, name).axes
]
MIXERS = ("softmax", "sigmoid", "shared_qk", "symmetric_values", "dape")
MODELS = [{"scheme": name} for name in SCHEMES] + [{"mixer": name} for name in MIXERS]
PROMPTS = {"one row": [[1, 2, 3, 4]], "left-padded rows": [[1, 2, 3, 4, 5], [7, 8]]}
MORE = {"layers": 1, "mixer": "softmax", "scheme": "rope", "kv_heads": 2}


def decoder(**options):
    torch.manual_seed(0)
    made = Decoder(Shape(**{"vocabulary": 13, "width": 32, "layers": 2, "heads": 4, "max_length": 256} | options))
    return made.double().eval()


def prompt_of(name):
    """Return a prompt, made on the device of the test."""
    return Prompt.from_lists(PROMPTS[name])


def read(model, prompt):
    """Return the cache of a prompt, and the logits after it."""
    cache, where = prompt.start_cache()
    return cache, model.next_token_logits(prompt.ids, where, cache)


def differences(model, prompt, step_of=DecodingStep, tokens=6):
    """Largest difference of logits between steps of fixed size and ordinary ones, of the same tokens."""
    with torch.inference_mode():
        cache, logits = read(model, prompt)
        step, found = step_of(model, cache.copy(), tokens), []
        for _ in range(tokens):
            step.ids.copy_(logits.argmax(-1, keepdim=True))
            logits = model.next_token_logits(step.ids, cache=cache)
            found.append(float((step() - logits).abs().max()))
    return max(found)


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("options", MODELS, ids=str)
def test_logits_are_those_of_an_ordinary_step(options, prompt):
    assert differences(decoder(**options), prompt_of(prompt)) < 1e-12


def test_after_a_prefix_and_with_fewer_key_heads():
    model, prefix = decoder(**MORE), Cache()
    with torch.inference_mode():
        model(torch.tensor([[3, 1, 4, 1, 5]]), cache=prefix)
    assert differences(model, Prompt.from_lists([[1, 2, 3], [4]], prefix=prefix)) < 1e-12


def test_steps_taken_back_leave_no_trace():
    def tried_before(model, cache, tokens):
        step = DecodingStep(model, cache, tokens)
        step.ids.fill_(9)
        for _ in range(2):
            step()
            step.cache.advance(-1)
        return step

    assert differences(decoder(), prompt_of("left-padded rows"), tried_before) < 1e-12


class Shown(FixedCache):
    """Mutant: keys that are not written yet are visible."""

    def with_past(self, new):
        self.k_document.fill_(0)
        return super().with_past(new)


class NotAdvanced(FixedCache):
    """Mutant: all tokens are written at one place."""

    def advance(self, tokens=1):
        self.q_pos += tokens


class SamePosition(FixedCache):
    """Mutant: all tokens have one position."""

    def advance(self, tokens=1):
        self.place += tokens


@pytest.mark.parametrize("mutant", [Shown, NotAdvanced, SamePosition])
def test_a_mutant_is_found(mutant):
    def mutated(model, cache, tokens):
        step = DecodingStep(model, cache, tokens)
        step.cache = mutant(cache, tokens)
        return step

    assert differences(decoder(), prompt_of("one row"), mutated) > 1e-6


@pytest.mark.parametrize("options", MODELS, ids=str)
def test_every_step_has_the_same_tensors_and_waits_for_nothing(options):
    model = decoder(**options)
    with torch.inference_mode():
        step = DecodingStep(model, read(model, prompt_of("left-padded rows"))[0], 4)
        kept = [step.ids, *(x for state in step.cache.states for x in (state.k, state.v))]
        kept += [step.cache.place, step.cache.q_pos, step.cache.k_pos, step.cache.k_document]
        before = [x.data_ptr() for x in kept]
        # backends prove themselves, and constants are made
        with as_if_on("cuda"):
            step()
        with no_waiting():
            step()
        now = [step.ids, *(x for state in step.cache.states for x in (state.k, state.v))]
    assert [x.data_ptr() for x in now] == before[: len(now)]
    assert [x.data_ptr() for x in kept] == before


REFUSED = [
    ({"sliding_windows": (3, None)}, "without a window; layer 0 has a window of 3 tokens; generate without"),
    (
        {"layers": 4, "mixer": "window:window=4"},
        r"layer 0 has the mixer Window, layer 1 .* layer 2 [^,]* Window, \.\.\.; gen",
    ),
    (
        {"mixer": "softmax,rwkv6", "scheme": "none"},
        "plain KV cache and without a window; layer 1 has the mixer Rwkv6;",
    ),
    (
        {"layers": 2, "experts": ExpertOptions(4, dense_layers=(0,))},
        "needs layers without experts, .*; layer 1 has experts, whose numbers of tokens vary; generate without",
    ),
    (
        {"mixer": "fox", "scheme": "none"},
        "layer 0 has the mixer ForgettingAttention, layer 1 has .*; generate without",
    ),
]


@pytest.mark.parametrize(("options", "says"), REFUSED, ids=str)
def test_what_has_no_fixed_size_is_refused_by_the_name_of_its_layer(options, says):
    model = decoder(**options)
    with torch.inference_mode():
        cache = read(model, prompt_of("one row"))[0]
    with pytest.raises(ValueError, match=says):
        DecodingStep(model, cache, 8)


def computes_nothing(self, *given, **options):
    raise AssertionError("the model was called before the refusal")


@pytest.mark.parametrize(("options", "says"), REFUSED, ids=str)
def test_generation_with_a_graph_refuses_it_before_anything_is_computed(options, says, monkeypatch):
    monkeypatch.setattr(Decoder, "hidden_states", computes_nothing)
    with as_if_on("cuda"), pytest.raises(ValueError, match=says):
        generate_with_cuda_graph(decoder(**options), torch.ones(1, 2, dtype=torch.long), 3, temperature=0)


def test_a_prefix_with_a_window_is_refused_before_anything_is_computed(monkeypatch):
    model, prefix = decoder(), Cache()
    with torch.inference_mode():
        model(torch.tensor([[3, 1, 4]]), Geometry.causal(3, window=2), prefix)
    monkeypatch.setattr(Decoder, "hidden_states", computes_nothing)
    with pytest.raises(ValueError, match="without a window; got a prefix with a window of 2 tokens; use a Cache"):
        generate_with_cuda_graph(model, Prompt.from_lists([[1, 2]], prefix=prefix), 3, temperature=0)


@pytest.mark.parametrize("prefix", [0, 3])
def test_more_tokens_than_a_scheme_has_positions_are_refused_before_anything_is_computed(prefix, monkeypatch):
    model = decoder(scheme="learned", max_length=8)
    cache = Cache() if prefix else None
    if prefix:
        with torch.inference_mode():
            model(torch.ones(1, prefix, dtype=torch.long), Geometry.causal(prefix), cache)
    monkeypatch.setattr(Decoder, "hidden_states", computes_nothing)
    # the shorter row begins at the same position
    prompt = Prompt.from_lists([[1, 2], [1]], prefix=cache)
    with pytest.raises(ValueError, match=r"serves positions 0 to 7 .*; got 8 to 8; build it with max_length=9"):
        generate_with_cuda_graph(model, prompt, 8 - prefix, temperature=0)
    # the last token is not read, so that one position less is enough: it is a GPU that is missing, or the model runs
    on_gpu = model.tokens.weight.is_cuda
    says, wrong = ("the model was called", AssertionError) if on_gpu else ("needs a model on a GPU", ValueError)
    with pytest.raises(wrong, match=says):
        list(generate_with_cuda_graph(model, prompt, 7 - prefix, temperature=0))


def has_fixed_size(model):
    """Whether all states of a model are plain KV caches of all tokens."""
    with torch.inference_mode():
        states = read(model, prompt_of("one row"))[0].states
    return all(type(state) is KVCache and state.k.shape[2] == 4 for state in states)


@pytest.mark.parametrize("name", catalog.names("ordinate.mixers"))
def test_mixers_say_whether_their_state_is_a_plain_cache_of_all_tokens(name):
    kind = catalog.load("ordinate.mixers", Mixer, name)
    if not kind.causal:
        pytest.skip("it has no causal form")
    spec = "window:window=3" if name == "window" else name
    model = decoder(mixer=spec, scheme=kind.default_scheme)
    if not model.blocks[0].mixer.supports_cache:
        pytest.skip("it does not support incremental decoding")
    assert has_fixed_size(model) == kind.supports_fixed_cache


def test_an_empty_cache_and_several_tokens_are_refused():
    with pytest.raises(ValueError, match="got an empty one; read the prompt first"):
        FixedCache(Cache(), 3)
    with torch.inference_mode():
        cache = FixedCache(read(decoder(), prompt_of("one row"))[0], 3)
    with pytest.raises(ValueError, match="one token at a time; got 2"):
        cache.next_geometry(2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there it has an effect")
def test_a_graph_without_a_gpu_is_refused():
    with pytest.raises(ValueError, match="needs a model on a GPU; got one on cpu; call generate"):
        generate_with_cuda_graph(decoder(), torch.ones(1, 2, dtype=torch.long), 3, temperature=0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="it imitates a GPU")
def test_a_graph_is_captured_on_the_device_of_the_model(monkeypatch):
    current, found, captured = [torch.device("cuda", 0)], [], []

    @contextmanager
    def device(chosen):
        current.append(chosen)
        yield
        current.pop()

    class Stream:
        def __init__(self):
            found.append(current[-1])

        def wait_stream(self, other):
            found.append(current[-1])

    def graph(made, stream=None):
        captured.append((made, stream))
        return nullcontext()

    replays = SimpleNamespace(replay=lambda: found.append("replayed"))
    pretended = {"device": device, "Stream": Stream, "current_stream": Stream, "graph": graph}
    pretended |= {"stream": lambda stream: nullcontext(), "CUDAGraph": lambda: replays}
    for name, one in pretended.items():
        monkeypatch.setattr(torch.cuda, name, one)
    with torch.inference_mode():
        step = DecodingStep(decoder(), read(decoder(), prompt_of("one row"))[0], 3)
        replay = step.captured()
        replay(torch.ones(1, 1, dtype=torch.long))
    # two streams that wait for each other, all on the device of the model
    assert found == [*4 * [step.ids.device], "replayed"]
    assert current == [torch.device("cuda", 0)]
    ((made, stream),) = captured
    assert made is replays
    assert isinstance(stream, Stream)
    assert step.ids.tolist() == [[1]]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("scheme", ["rope", "alibi", "t5", "learned"])
def test_a_replayed_graph_generates_the_same_tokens(scheme):
    model = decoder(scheme=scheme).float().cuda()
    prompt = torch.randint(0, 13, (2, 5), device="cuda")
    usual, replayed = (
        torch.cat(list(of(model, prompt, 12, temperature=0)), 1) for of in (generate, generate_with_cuda_graph)
    )
    assert usual.equal(replayed)
