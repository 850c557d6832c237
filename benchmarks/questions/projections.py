"""Where queries, keys and values come from, one product for all heads, and gradients with the scale elsewhere."""

import torch
from torch import Tensor

from benchmarks.questions._number import Numbers, averaged, change, exact
from ordinate.models.encoder import Encoder, EncoderShape
from ordinate.models.encoder_decoder import EncoderDecoder
from ordinate.models.encoder_decoder_shape import EncoderDecoderShape

TOKENS, DRAWS = 64, 30
# the standard deviation of queries and keys: of layers after a norm with small weights, and of unit vectors
SPREADS = {"small scores": 0.25, "unit queries and keys": 1.0, "large scores": 4.0}


def measure(quick: bool) -> Numbers:
    """Return all numbers of this file."""
    return one_product() | self_attention() | cross_attention() | gradients(3 if quick else DRAWS)


def one_product() -> Numbers:
    """One matrix product for eight heads against eight products."""
    torch.manual_seed(0)
    x, weight = torch.randn(10, 64).double(), torch.randn(64, 3 * 64).double()
    together = (x @ weight).unflatten(-1, (3, 8, 8)).permute(1, 2, 0, 3)
    apart = torch.stack([x @ part for part in weight.split(8, 1)]).unflatten(0, (3, 8))
    return {"largest difference, one product and 24 for eight heads": exact(float((together - apart).abs().max()))}


def self_attention() -> Numbers:
    """Change of the queries of one token of an encoder when all other tokens are replaced."""
    torch.manual_seed(0)
    model = Encoder(EncoderShape(vocabulary=50, width=32, heads=4, layers=2, scheme="learned", head="none")).double()
    ids = torch.randint(50, (2, 9))
    ids[1, 4] = ids[0, 4]
    seen = [recorded(block.mixer, model, ids)[0][:, :, 4] for block in model.blocks]
    return {
        f"change of a token's query when all others are replaced, layer {n}": change(q[0], q[1])
        for n, q in enumerate(seen, 1)
    }


def recorded(mixer: torch.nn.Module, model: torch.nn.Module, ids: Tensor) -> tuple[Tensor, ...]:
    """Queries, keys and values of one layer of an encoder."""
    inputs: list[Tensor] = []
    with torch.no_grad(), mixer.register_forward_pre_hook(lambda _, given: inputs.append(given[0])):
        model(ids)
        return mixer.project_qkv(inputs[0])


def cross_attention() -> Numbers:
    """Change of the values of cross-attention with another target, and with another source."""
    torch.manual_seed(0)
    model = EncoderDecoder(EncoderDecoderShape(vocabulary=50, width=32, layers=2, heads=4, start=0, end=1)).double()
    sources, targets = torch.randint(2, 50, (2, 1, 7)), torch.randint(2, 50, (2, 1, 5))
    # what cross-attention reads is computed by `encode_source`, which is not given the target
    values: list[Tensor] = []
    cross = model.decoder.blocks[0].cross
    project = cross.project_context

    def noted(*given: object) -> object:
        found = project(*given)
        values.append(found.v)
        return found

    cross.project_context = noted
    with torch.no_grad():
        for source, target in ((0, 0), (0, 1), (1, 0)):
            model(sources[source], targets[target])
    return {
        "change of the values of cross-attention, another target": change(values[0], values[1]),
        "change of the values of cross-attention, another source": change(values[0], values[2]),
    }


def gradients(draws: int) -> Numbers:
    """Norm of the gradient at the queries with the scale behind the softmax, as a multiple of that with it inside."""
    found: Numbers = {}
    for width in (64, 1024):
        for name, spread in SPREADS.items():
            ratios = []
            for seed in range(draws):
                drawn = torch.Generator().manual_seed(seed)
                q, k, v, up = torch.randn(4, TOKENS, width, generator=drawn, dtype=torch.float64)
                sizes = [gradient(spread * q, spread * k, v, up, inside).norm() for inside in (False, True)]
                ratios.append(float(sizes[0] / sizes[1]))
            found[f"gradient at the queries, scale behind / inside, head width {width}, {name}"] = averaged(ratios)
    return found


def gradient(q: Tensor, k: Tensor, v: Tensor, up: Tensor, inside: bool) -> Tensor:
    """Gradient at the queries, for random gradients of the outputs."""
    q, scale = q.requires_grad_(), q.shape[-1] ** -0.5
    scores = q @ k.mT
    out = torch.softmax(scale * scores, -1) @ v if inside else scale * torch.softmax(scores, -1) @ v
    (found,) = torch.autograd.grad(out, q, up)
    return found
