"""A model that looks at images, as ViT does."""

from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import torch
from einops import rearrange
from huggingface_hub import PyTorchModelHubMixin
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.batch import Batch
from ordinate.checks import need, need_known, need_positive, need_whole
from ordinate.geometry import Geometry
from ordinate.models.block import Block
from ordinate.models.shape import Place, Shape
from ordinate.models.trunk import Layers, SafetensorsOnly
from ordinate.scheme import Scheme
from ordinate.shapes import Tokens
from ordinate.tensors import need_device, need_tensor

Images = Float[Tensor, "b channels y x"]
Pool = Literal["token", "mean", "both"]
Top = Literal["classes", "pooler", "none"]
Lay = Literal["stretched", "counted"]


@dataclass(frozen=True)
class VisionShape(Shape):
    """The sizes and choices that make a model for images: those of a `Shape`, and these.

    Its `vocabulary` is how many classes of images there are.

    Args:
        image: height and width of the images that it is made for; others are read too, see `grid` [pixels].
        patch: height and width of a patch, which becomes one token [pixels].
        channels: numbers of a pixel: 3 for colours.
        pool: what an image is told by: a class `token` that reads all patches, the `mean` of the patches, or `both`
            beside each other (DINOv2).
        registers: tokens beside the class token that stand for nothing, where the model can keep what it wants.
        class_position: whether the class token is marked by a trained vector, as patches are by theirs (ViT).
        top: what stands on it: `classes` says the class, `pooler` makes one vector of the class token; `none`.
        grid: where the patches of an image of another size stand. `stretched`: the whole image is laid on the cells
            that the model was made for, so that patches stand between them; tables are interpolated. `counted`: rows
            and columns count from 0 on, as always.
        labels: the names of the classes, in order; none: they are numbered.
    """

    scheme: str = "learned_grid"
    bias: tuple[Place, ...] = ("norm", "head")
    tied: bool = False
    image: tuple[int, int] = (224, 224)
    patch: tuple[int, int] = (16, 16)
    channels: int = 3
    pool: Pool = "token"
    registers: int = 0
    class_position: bool = False
    top: Top = "classes"
    grid: Lay = "stretched"
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("image", self.image), ("patch", self.patch), ("channels", (self.channels,))):
            for size in value:
                need_whole(name, size)
                need_positive(name, size)
        for name, known in (("pool", Pool), ("top", Top), ("grid", Lay)):
            need_known(name, getattr(self, name), get_args(known))
        need(not self.tied, "a model for images has no table of tokens to tie", "got tied=True", "leave it out")
        need(
            self.registers >= 0, "registers must not be negative", f"got {self.registers}", "give how many there are"
        )
        need(
            self.pool != "mean" or not (self.class_position or self.top == "pooler"),
            "a position or a pooler of the class token needs that token",
            "got pool='mean'",
            "give pool='token'",
        )
        need(
            len(self.labels) in (0, self.vocabulary),
            "each class has a name, or none has",
            f"got {len(self.labels)} names for {self.vocabulary} classes",
            "name them all",
        )
        self.cells(*self.image)

    @property
    def leading(self) -> int:
        """Tokens before those of the patches: the class token and the registers."""
        return self.registers + (self.pool != "mean")

    @property
    def sizes(self) -> dict[str, Any]:
        """What schemes and mixers may ask for by name: rows and columns too."""
        rows, columns = self.cells(*self.image)
        return super().sizes | {"rows": rows, "columns": columns}

    def cells(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of patches in an image of this size [pixels]."""
        rows, columns = height // self.patch[0], width // self.patch[1]
        need(
            (rows * self.patch[0], columns * self.patch[1]) == (height, width) and min(rows, columns) > 0,
            f"patches of {self.patch[0]} by {self.patch[1]} pixels must cover an image",
            f"got {height} by {width} pixels",
            "resize or crop it",
        )
        return rows, columns


class Vision(Layers, SafetensorsOnly, PyTorchModelHubMixin):
    """A reader of images: each patch becomes a token, and a vector that knows the whole image.

        x = [class token, registers, W patches + b marked by the scheme];  layers of Block, each token seeing all;
        norm(x);   logits = U x_0 + c, or of the mean over patches

    Schemes for two axes see the row and the column of a patch; others see the patches numbered row after row. The
    class token and the registers are not marked before the first layer, and stand in the middle of the image.

    `save_pretrained(folder)` writes model.safetensors and config.json, `Vision.from_pretrained(folder)` reads them.

    Args:
        shape: its sizes and choices.

    Raises:
        ValueError: sizes that do not fit, an unknown scheme or option, a scheme that the mixer does not honour, or a
            mixer that reads from left to right only.
    Source: Dosovitskiy et al. 2021, An Image is Worth 16x16 Words, https://arxiv.org/abs/2010.11929; registers from
        Darcet et al. 2024, Vision Transformers Need Registers, https://arxiv.org/abs/2309.16588.
    """

    def __init__(self, shape: VisionShape) -> None:
        seed = int(torch.randint(2**62, (), device="cpu"))
        super().__init__(shape)
        self.vision = shape
        for block in self.blocks:
            cast(Block, block).mixer.check_bidirectional()
        taken = [cast(Scheme, scheme).axes for scheme in self.schemes]
        self.axes = next((count for count in (2, 1) if all(count in axes for axes in taken)), 0)
        need(
            self.axes > 0, "the schemes of an image take one axis or two, all alike", f"got {taken}", "choose others"
        )
        pixels = shape.channels * shape.patch[0] * shape.patch[1]
        self.patches = nn.Linear(pixels, shape.width - self.first_scheme.claims)
        self.lead = nn.Embedding(shape.leading, shape.width) if shape.leading else None
        self.class_position = nn.Embedding(1, shape.width) if shape.class_position else None
        self.pooler = nn.Linear(shape.width, shape.width) if shape.top == "pooler" else None
        read = shape.width * (2 if shape.pool == "both" else 1)
        head = shape.top == "classes"
        self.head = nn.Linear(read, shape.vocabulary, bias="head" in shape.bias) if head else None
        self.initialise(seed)

    def forward(self, images: Images) -> Tokens:
        """A vector for the class token, each register and each patch, row after row.

        Args:
            images: the numbers of their pixels, usually from -1 to 1.
        """
        rows, columns = self._check_images(images)
        (height, width), lead = self.vision.patch, self.vision.leading
        pixels = rearrange(images, "b c (row h) (column w) -> b (row column) (c h w)", h=height, w=width)
        placed = self.place(self._where(rows, columns, images.device))
        cells = placed[0].block(slice(lead, None), slice(lead, None))
        x = cells.embed(self.patches(pixels.to(self.patches.weight.dtype)))
        if self.lead is not None:
            first = self.lead.weight
            if self.class_position is not None:
                first = torch.cat([first[:1] + self.class_position.weight, first[1:]])
            x = torch.cat([first.expand(x.shape[0], -1, -1), x], 1)
        return self.run(x, placed, None)[0]

    def predict(self, x: Tokens) -> Float[Tensor, "b classes"]:
        """How likely each class is, as logits, from the vectors that `forward` gave."""
        need(self.head is not None, "the model needs a head", "it has none", "build it with top='classes'")
        token, mean = x[:, 0], x[:, self.vision.leading :].mean(1)
        read = {"token": token, "mean": mean, "both": torch.cat([token, mean], -1)}
        return cast(nn.Linear, self.head)(read[self.vision.pool])

    def answer(self, batch: Batch) -> Float[Tensor, "b classes"]:
        """The logits of each image's class."""
        return self.predict(self(batch.inputs))

    def pool(self, x: Tokens) -> Float[Tensor, "b width"]:
        """One vector for each image, of its class token: tanh(W x_0 + b)."""
        need(self.pooler is not None, "the model needs a pooler", "it has none", "build it with top='pooler'")
        return torch.tanh(cast(nn.Linear, self.pooler)(x[:, 0]))

    def _where(self, rows: int, columns: int, device: torch.device) -> Geometry:
        """The leading tokens in the middle, then the patches, seen by the cells that the model was made for."""
        pos, made = Geometry.grid(rows, columns, device=device).q_pos, self.vision.cells(*self.vision.image)
        across = columns
        if self.vision.grid == "stretched" and (rows, columns) != made:
            # the edges of both images lie on each other, so that cells keep their centres
            ratio = torch.tensor(made, device=device).double() / torch.tensor((rows, columns), device=device)
            pos, across = (pos + 0.5) * ratio - 0.5, made[1]
        if self.axes == 1:
            pos = pos[..., :1] * across + pos[..., 1:]
        middle = pos[:, rows // 2 * columns + columns // 2, None]
        return Geometry.given(torch.cat([middle.expand(-1, self.vision.leading, -1), pos], 1), causal=False)

    def _check_images(self, images: Images) -> tuple[int, int]:
        """Raise unless these are images for this model, on its device; how many rows and columns of patches."""
        need_tensor("images", images)
        need_device("images", images, "the model", self.patches.weight)
        came, channels = tuple(images.shape), self.vision.channels
        need(
            images.ndim == 4 and came[1] == channels,
            f"images need the axes (batch, {channels} channels, height, width)",
            f"got {came}",
            "add or order its axes",
        )
        floating = images.is_floating_point()
        need(floating, "pixels are floating-point numbers", f"got {images.dtype}", "scale them: x / 127.5 - 1")
        return self.vision.cells(came[2], came[3])
