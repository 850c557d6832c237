"""A small trained network of the logarithm of the distance."""

from typing import Literal, NamedTuple, cast

import torch
from jaxtyping import Float, Real
from torch import Tensor, nn

from ordinate.checks import need, need_known, need_positive
from ordinate.geometry import Geometry
from ordinate.ops.perceptron import perceptron
from ordinate.scheme import Scheme
from ordinate.shapes import Bias

Form = Literal["x_transformers", "crossformer", "swin_v2", "timm_cr"]
Coordinate = Literal["log", "plain", "swin"]


class _Plan(NamedTuple):
    coordinate: Coordinate
    depth: int
    activation: Literal["silu", "relu"]
    norm: bool = False
    squashed: bool = False


PLANS = {
    "x_transformers": _Plan("log", 2, "silu"),
    "crossformer": _Plan("plain", 3, "relu", norm=True),
    "swin_v2": _Plan("swin", 1, "relu", squashed=True),
    "timm_cr": _Plan("log", 1, "relu"),
}


class LogMlp(Scheme):
    """Add to each score what a small trained network makes of how far ahead or behind the key is.

        bias(h, i, j) = f_h(u(p_i - p_j))
        log:    u(x) = sign(x) log(1 + |x|)
        swin:   u(x) = sign(x) log2(1 + 8 |x| / reach) / 3
        plain:  u(x) = x

    On two axes u is taken of each, and f sees both. The logarithm lets far distances lie close together, so that
    those somewhat longer than in training look like ones that it has met.

    Enters at: scores.
    Args:
        heads: heads of the model.
        form: whose network it is: its activations, its depth and its coordinate; see the page. In `swin_v2` the bias
            is 16 sigmoid(f), between 0 and 16, and the last layer has no biases.
        dimensions: position axes, 1 for text, 2 for images.
        hidden: width of the hidden layers.
        depth: hidden layers. None: as the form has.
        coordinate: u. None: as the form has.
        norm: layer norms before the activations. None: as the form has.
        reach: distance that the coordinate `swin` takes for 1: the pretrained window less one [tokens]; only there.
    Raises:
        ValueError: an option that is unknown, missing or without effect, or a number that is not positive.
    Source: Wang et al. 2022, CrossFormer, section 3.2, https://arxiv.org/abs/2108.00154; Liu et al. 2022, Swin
        Transformer V2, section 3.3, https://arxiv.org/abs/2111.09883; networks from their code, x-transformers and
        timm.
    Departs: x-transformers has `plain` unless log_distance is set, and no biases in the first of its norms.
    """

    axes = (1, 2)
    shift_invariant = True
    citation = """@inproceedings{wang2022crossformer,
  title = {{CrossFormer}: A Versatile Vision Transformer Hinging on Cross-scale Attention},
  author = {Wang, Wenxiao and Yao, Lu and Chen, Long and Lin, Binbin and Cai, Deng and He, Xiaofei and Liu, Wei},
  booktitle = {International Conference on Learning Representations},
  year = {2022},
  url = {https://arxiv.org/abs/2108.00154}
}"""

    def __init__(
        self,
        *,
        heads: int,
        form: Form = "x_transformers",
        dimensions: int = 1,
        hidden: int = 32,
        depth: int | None = None,
        coordinate: Coordinate | None = None,
        norm: bool | None = None,
        reach: int | None = None,
    ) -> None:
        super().__init__()
        need_known("form of log_mlp", form, PLANS)
        plan = PLANS[form]
        depth = plan.depth if depth is None else depth
        self.coordinate = plan.coordinate if coordinate is None else coordinate
        need_known("coordinate", self.coordinate, ("log", "plain", "swin"))
        for name, value in (("heads", heads), ("hidden", hidden), ("depth", depth)):
            need_positive(name, value)
        need(dimensions in (1, 2), "log_mlp has 1 or 2 dimensions", f"got {dimensions}", "1 for text, 2 for images")
        need(
            (reach is not None) == (self.coordinate == "swin"),
            "reach belongs to the coordinate swin",
            f"got reach={reach} with {self.coordinate}",
            "give both or none",
        )
        need_positive("reach", 1 if reach is None else reach)
        self.reach, self.squashed = reach, plan.squashed
        self.activation = nn.functional.silu if plan.activation == "silu" else nn.functional.relu
        self.axes = (dimensions,)
        widths = [dimensions, *[hidden] * depth]
        inner = [nn.Linear(size, hidden) for size in widths[:-1]]
        self.layers = nn.ModuleList([*inner, nn.Linear(hidden, heads, bias=not plan.squashed)])
        normed = plan.norm if norm is None else norm
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in inner if normed)

    def bias(self, where: Geometry) -> Bias:
        """What the network adds for each head, query and key."""
        layers, norms = cast(list[nn.Linear], list(self.layers)), cast(list[nn.LayerNorm], list(self.norms))
        made = perceptron(self._coordinates(where.offset), layers, self.activation, norms)
        if self.squashed:
            made = 16 * made.sigmoid()
        return made.permute(0, 3, 1, 2).to(torch.promote_types(layers[0].weight.dtype, torch.float32))

    def _coordinates(self, offset: Real[Tensor, "#b i j axes"]) -> Float[Tensor, "#b i j axes"]:
        x = offset.double()
        if self.coordinate == "plain":
            return x
        if self.reach is None:
            return x.sign() * x.abs().log1p()
        return x.sign() * (8 * x.abs() / self.reach).log1p() / torch.log(x.new_tensor(8.0))
