"""Vision transformer (ViT)."""

from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from ordinate.core.checks import need, need_known, need_positive, need_whole, shown
from ordinate.core.geometry import Geometry
from ordinate.core.shapes import Tokens
from ordinate.core.tensors import in_float64, need_device, need_tensor, on_device, widest_float
from ordinate.data.batch import Batch
from ordinate.models.backbone import LayerStack
from ordinate.models.block import Block
from ordinate.models.saved_model import SavedModel
from ordinate.models.shape import INITIAL_STD, BiasLocation, Shape
from ordinate.models.shape_checks import check_no_decoder_options
from ordinate.models.text_head import check_plain_head
from ordinate.ops.activation import ACTIVATIONS, Activation
from ordinate.schemes._scheme import Scheme

Images = Float[Tensor, "b channels y x"]
Pool = Literal["token", "mean", "both"]
VisionHead = Literal["classes", "pooler", "none"]
GridMode = Literal["stretched", "counted"]
LeadPosition = Literal["middle_patch", "centre"]
# largest side of an image: numbers of patches are counted in 64 bits
LARGEST_SIDE = 2**31


@dataclass(frozen=True)
class VisionShape(Shape):
    """Hyperparameters of a vision transformer: those of `Shape`, and these.

    Its `vocabulary` is the number of image classes.

    Args:
        image: height and width of training images; other sizes are supported too, see `grid` [pixels].
        patch: height and width of a patch, which becomes one token [pixels].
        channels: channels of a pixel: 3 for RGB.
        pool: image representation: the class `token`, the `mean` over patches, or `both` concatenated (DINOv2).
        registers: number of register tokens, extra learned tokens after the class token.
        class_position: whether the class token has a learned position embedding of its own (ViT).
        head: `classes` predicts the class, `pooler` computes a vector from the class token; `none`.
        pool_width: columns of the vector of the pooler; None: `width`.
        pool_activation: activation function of the pooler.
        grid: positions of patches in images of other sizes. `stretched`: the image is mapped onto the training grid,
            so patches get fractional positions, and tables are interpolated. `counted`: rows and columns count from
            0.
        lead_position: position of class token and registers for schemes in the layers: that of the `middle_patch`, or
            the `centre` of the image, which may lie between patches (DINOv3).
        labels: class names, in order; none: classes are numbered.
    """

    scheme: str = "learned_grid"
    bias: tuple[BiasLocation, ...] = ("norm", "head")
    tie_embeddings: bool = False
    image: tuple[int, int] = (224, 224)
    patch: tuple[int, int] = (16, 16)
    channels: int = 3
    pool: Pool = "token"
    registers: int = 0
    class_position: bool = False
    head: VisionHead = "classes"
    pool_width: int | None = None
    pool_activation: Activation = "tanh"
    grid: GridMode = "stretched"
    lead_position: LeadPosition = "middle_patch"
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_no_decoder_options(self)
        for name, known in (("pool", Pool), ("grid", GridMode), ("lead_position", LeadPosition)):
            need_known(name, getattr(self, name), get_args(known))
        need(
            not self.tie_embeddings,
            "a vision model has no token table to tie",
            "got tie_embeddings=True",
            "leave it out",
        )
        need(
            self.embedding_scale == 1 and self.embedding_std == INITIAL_STD and self.embedding_width is None,
            "embedding_scale, _std and _width are those of a token table, which a vision model does not have",
            f"got {self.embedding_scale:g}, {self.embedding_std:g} and {self.embedding_width}",
            "leave them out",
        )
        need(
            self.registers >= 0,
            "registers must not be negative",
            f"got {self.registers}",
            "give the number of registers",
        )
        need(
            self.pool != "mean" or not (self.class_position or self.head == "pooler"),
            "class_position and head='pooler' need a class token",
            "got pool='mean'",
            "give pool='token'",
        )
        need(
            self.leading_tokens > 0 or self.lead_position == "middle_patch",
            "lead_position is that of class token and registers",
            f"got {self.lead_position!r} without any",
            "leave it out",
        )
        self.patch_grid(*self.image)

    def with_defaults(self) -> "VisionShape":
        """Return a copy with all defaults filled in."""
        full = super().with_defaults()
        return replace(full, pool_width=None if self.pool_width == self.width else self.pool_width)

    @property
    def has_token_table(self) -> bool:
        """Whether its inputs are tokens with an embedding each: no, patches are projected."""
        return False

    @property
    def leading_tokens(self) -> int:
        """Number of tokens before the patches: class token and registers."""
        return self.registers + (self.pool != "mean")

    @property
    def bindable_sizes(self) -> dict[str, Any]:
        """Sizes that are bound by name to constructor arguments of schemes and mixers, including the patch grid."""
        rows, columns = self.patch_grid(*self.image)
        return super().bindable_sizes | {"rows": rows, "columns": columns}

    def _check_sizes(self) -> None:
        super()._check_sizes()
        for name, value in (("image", self.image), ("patch", self.patch), ("channels", (self.channels,))):
            for size in value:
                need_whole(name, size)
                need_positive(name, size)
                must = f"{name} must be at most {LARGEST_SIDE}"
                need(size <= LARGEST_SIDE, must, f"got {shown(size)}", "give a smaller number")

    def _check_head(self) -> None:
        need_known("head", self.head, get_args(VisionHead))
        need_known("pool_activation", self.pool_activation, ACTIVATIONS)
        if self.pool_width is not None:
            need_whole("pool_width", self.pool_width)
            need_positive("pool_width", self.pool_width)
        need(
            self.head == "pooler" or (self.pool_width is None and self.pool_activation == "tanh"),
            "pool_width and pool_activation are options of head='pooler'",
            f"got {self.pool_width} and {self.pool_activation} with head={self.head!r}",
            "leave them out",
        )
        need(
            len(self.labels) in (0, self.vocabulary),
            "labels needs a name for each class, or none at all",
            f"got {len(self.labels)} names for {self.vocabulary} classes",
            "name them all",
        )
        check_plain_head("a vision model", self.head_transform, self.head_activation, self.head_bias)
        need(self.padding is None, "images have no padding", f"got padding={self.padding}", "leave it out")

    def patch_grid(self, height: int, width: int) -> tuple[int, int]:
        """Size of the patch grid, rows and columns, of an image of this size [pixels]."""
        rows, columns = height // self.patch[0], width // self.patch[1]
        need(
            (rows * self.patch[0], columns * self.patch[1]) == (height, width) and min(rows, columns) > 0,
            f"patches of {self.patch[0]} by {self.patch[1]} pixels must cover an image",
            lambda: f"got {height} by {width} pixels",
            "resize or crop it",
        )
        return rows, columns


class VisionTransformer(LayerStack, SavedModel):
    """Vision transformer: patch embeddings, class token and registers, bidirectional layers, classification head.

        x = [class token, registers, W patches + b with position embeddings];  layers of Block, bidirectional;
        norm(x);   logits = U x_0 + c, or from the mean over patches

    Schemes with two axes get the row and column of a patch; others get the patch index in row-major order. The class
    token and the registers have no position embedding; for schemes in the layers they are where `lead_position` says.

    `save_pretrained(folder)` writes model.safetensors and config.json, `VisionTransformer.from_pretrained(folder)`
    reads them.

    Args:
        shape: hyperparameters.

    Raises:
        ValueError: sizes that do not fit, an unknown scheme or option, a scheme that the mixer does not support, or a
            mixer without a bidirectional form.
    Source: Dosovitskiy et al. 2021, An Image is Worth 16x16 Words, https://arxiv.org/abs/2010.11929; registers from
        Darcet et al. 2024, Vision Transformers Need Registers, https://arxiv.org/abs/2309.16588.
    """

    shape_class = VisionShape

    def __init__(self, shape: VisionShape) -> None:
        seed = int(torch.randint(2**62, (), device="cpu"))
        super().__init__(shape)
        self.vision = shape
        for block in self.blocks:
            for mixer in cast(Block, block).mixers:
                mixer.check_bidirectional()
        taken = [cast(Scheme, scheme).axes for scheme in self.schemes]
        self.axes = next((count for count in (2, 1) if all(count in axes for axes in taken)), 0)
        need(
            self.axes > 0,
            "schemes of a vision model must all take one axis or all two",
            f"got {taken}",
            "choose others",
        )
        pixels = shape.channels * shape.patch[0] * shape.patch[1]
        self.patches = nn.Linear(pixels, shape.width - self.first_scheme.appended_width)
        self.lead = nn.Embedding(shape.leading_tokens, shape.width) if shape.leading_tokens else None
        self.class_position = nn.Embedding(1, shape.width) if shape.class_position else None
        columns = shape.width if shape.pool_width is None else shape.pool_width
        self.pooler = nn.Linear(shape.width, columns) if shape.head == "pooler" else None
        self.pool_activation = ACTIVATIONS[shape.pool_activation]
        read = shape.width * (2 if shape.pool == "both" else 1)
        head = shape.head == "classes"
        self.head = nn.Linear(read, shape.vocabulary, bias="head" in shape.bias) if head else None
        self.initialise(seed)

    def forward(self, images: Images) -> Tokens:
        """Compute final hidden states of class token, registers and patches (in row-major order).

        Args:
            images: pixel values, usually from -1 to 1.
        """
        rows, columns = self._check_images(images)
        (height, width), lead = self.vision.patch, self.vision.leading_tokens
        pixels = rearrange(images, "b c (row h) (column w) -> b (row column) (c h w)", h=height, w=width)
        placed = self.bind_schemes(self._where(rows, columns, images.device))
        cells = placed[0].block(slice(lead, None), slice(lead, None))
        x = cells.embed(self.patches(pixels.to(self._like.dtype)))
        if self.lead is not None:
            first = self.lead.weight
            if self.class_position is not None:
                first = torch.cat([first[:1] + self.class_position.weight, first[1:]])
            x = torch.cat([first.expand(x.shape[0], -1, -1), x], 1)
        return self.run_layers(x, placed, None)[0]

    def logits(self, x: Tokens) -> Float[Tensor, "b classes"]:
        """Class logits from the hidden states of `forward`."""
        need(
            self.head is not None,
            "the model needs a classification head",
            "it has none",
            "build it with head='classes'",
        )
        self.check_hidden_states(x)
        token, mean = x[:, 0], x[:, self.vision.leading_tokens :].mean(1)
        read = {"token": token, "mean": mean, "both": torch.cat([token, mean], -1)}
        return cast(nn.Linear, self.head)(read[self.vision.pool])

    def batch_logits(self, batch: Batch) -> Float[Tensor, "b classes"]:
        """Class logits of a batch."""
        return self.logits(self(batch.inputs))

    def pool(self, x: Tokens) -> Float[Tensor, "b columns"]:
        """Pooled vector of each image, from its class token: f(W x_0 + b), f as `pool_activation` of the shape."""
        need(self.pooler is not None, "the model needs a pooler", "it has none", "build it with head='pooler'")
        self.check_hidden_states(x)
        return self.pool_activation(cast(nn.Linear, self.pooler)(x[:, 0]))

    def _where(self, rows: int, columns: int, device: torch.device) -> Geometry:
        """Geometry of an image: class token and registers in the middle, then the patches, on the training grid."""
        pos, made = Geometry.grid(rows, columns, device=device).q_pos, self.vision.patch_grid(*self.vision.image)
        across = columns
        if self.vision.grid == "stretched" and (rows, columns) != made:
            # aligns the image borders, not the centres of the corner patches (as align_corners=False)
            place = in_float64(pos)
            ratio = torch.tensor(made, device=place.device).double() / torch.tensor(
                (rows, columns), device=place.device
            )
            stretched = (place + 0.5) * ratio - 0.5
            pos, across = on_device(stretched, widest_float(device), device), made[1]
        if self.axes == 1:
            pos = pos[..., :1] * across + pos[..., 1:]
        if self.vision.lead_position == "centre":
            middle = on_device((in_float64(pos[:, :1]) + in_float64(pos[:, -1:])) / 2, widest_float(device), device)
        else:
            middle = pos[:, rows // 2 * columns + columns // 2, None]
        return Geometry.from_positions(
            torch.cat([middle.expand(-1, self.vision.leading_tokens, -1), pos], 1), causal=False
        )

    @property
    def _like(self) -> Tensor:
        """A parameter with the dtype and device that images need; a quantised patch layer has none."""
        parts = self.patches, self
        return next(x for part in parts for x in part.parameters() if x.is_floating_point())

    def _check_images(self, images: Images) -> tuple[int, int]:
        """Raise unless these are images for this model, on its device; return rows and columns of patches."""
        need_tensor("images", images)
        need_device("images", images, "the model", self._like)
        channels = self.vision.channels
        need(
            images.ndim == 4 and images.shape[1] == channels,
            f"images need the axes (batch, {channels} channels, height, width)",
            lambda: f"got {tuple(images.shape)}",
            "add or order its axes",
        )
        floating = images.is_floating_point()
        need(floating, "pixels must be floating-point numbers", f"got {images.dtype}", "scale them: x / 127.5 - 1")
        return self.vision.patch_grid(images.shape[2], images.shape[3])
