"""Dynamic position bias: an MLP of the (logarithmic) offset (CrossFormer, Swin v2)."""

import math
from typing import Literal, NamedTuple, cast

import torch
from jaxtyping import Float, Real
from torch import Tensor, nn

from ordinate.core.checks import need, need_known, need_positive
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Bias
from ordinate.core.tensors import in_float64, on_device
from ordinate.ops.linear_layer import weight_and_bias
from ordinate.ops.mlp_bias import mlp
from ordinate.schemes._scheme import Scheme

LogMlpForm = Literal["x_transformers", "crossformer", "swin_v2", "timm_cr"]
Coordinate = Literal["log", "linear", "swin"]


class _Plan(NamedTuple):
    coordinate: Coordinate
    depth: int
    activation: Literal["silu", "relu"]
    norm: bool = False
    bounded: bool = False


FORMS = {
    "x_transformers": _Plan("log", 2, "silu"),
    "crossformer": _Plan("linear", 3, "relu", norm=True),
    "swin_v2": _Plan("swin", 1, "relu", bounded=True),
    "timm_cr": _Plan("log", 1, "relu"),
}


class LogMlp(Scheme):
    """Dynamic position bias: a relative position bias computed by an MLP from the signed offset.

        bias(h, i, j) = f_h(u(p_i - p_j))
        log:    u(x) = sign(x) log(1 + |x|)
        swin:   u(x) = sign(x) log2(1 + 8 |x| / reach) / 3
        linear: u(x) = x

    On two axes, u is applied to each offset and f takes both. The logarithm compresses large distances, so distances
    somewhat longer than in training lie near those of training.

    Enters at: scores.
    Args:
        heads: heads of the model.
        form: which published MLP: its activations, depth and coordinate; see the page. In `swin_v2` the bias is 16
            sigmoid(f), between 0 and 16, and the last layer has no biases.
        axes: position axes, 1 for text, 2 for images.
        hidden: width of the hidden layers.
        depth: hidden layers. None: set by the form.
        coordinate: u. None: set by the form.
        norm: layer norms before the activations. None: set by the form.
        reach: distance scaled to 1 by the coordinate `swin`, and only by it: the pretrained window size - 1 [tokens].
    Raises:
        ValueError: an option that is unknown, missing or without effect, or a number that is not positive.
    Source: Wang et al. 2022, CrossFormer, section 3.2, https://arxiv.org/abs/2108.00154; Liu et al. 2022, Swin
        Transformer V2, section 3.3, https://arxiv.org/abs/2111.09883; networks from their code, x-transformers and
        timm.
    Departs: x-transformers has `linear` unless log_distance is set, and no biases in the first of its norms.
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
        form: LogMlpForm = "x_transformers",
        axes: int = 1,
        hidden: int = 32,
        depth: int | None = None,
        coordinate: Coordinate | None = None,
        norm: bool | None = None,
        reach: int | None = None,
    ) -> None:
        super().__init__()
        need_known("form of log_mlp", form, FORMS)
        plan = FORMS[form]
        depth = plan.depth if depth is None else depth
        self.coordinate = plan.coordinate if coordinate is None else coordinate
        need_known("coordinate", self.coordinate, ("log", "linear", "swin"))
        for name, value in (("heads", heads), ("hidden", hidden), ("depth", depth)):
            need_positive(name, value)
        need(axes in (1, 2), "log_mlp has 1 or 2 axes", f"got {axes}", "1 for text, 2 for images")
        need(
            (reach is not None) == (self.coordinate == "swin"),
            "reach is required by coordinate='swin', and used by it only",
            f"got reach={reach} with {self.coordinate}",
            "give both or neither",
        )
        need_positive("reach", 1 if reach is None else reach)
        self.reach, self.bounded = reach, plan.bounded
        self.activation = nn.functional.silu if plan.activation == "silu" else nn.functional.relu
        self.axes = (axes,)
        widths = [axes, *[hidden] * depth]
        inner = [nn.Linear(size, hidden) for size in widths[:-1]]
        self.layers = nn.ModuleList([*inner, nn.Linear(hidden, heads, bias=not plan.bounded)])
        normed = plan.norm if norm is None else norm
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in inner if normed)

    def bias(self, where: Geometry) -> Bias:
        layers, norms = list(self.layers), cast(list[nn.LayerNorm], list(self.norms))
        made = mlp(self._coordinates(where.offset), layers, self.activation, norms)
        if self.bounded:
            made = 16 * made.sigmoid()
        wide = torch.promote_types(weight_and_bias(layers[0])[0].dtype, torch.float32)
        return on_device(made.permute(0, 3, 1, 2), wide, where.q_pos.device)

    def _coordinates(self, offset: Real[Tensor, "#b i j axes"]) -> Float[Tensor, "#b i j axes"]:
        x = in_float64(offset)
        if self.coordinate == "linear":
            return x
        if self.reach is None:
            return x.sign() * x.abs().log1p()
        return x.sign() * (8 * x.abs() / self.reach).log1p() / math.log(8)
