"""Token embeddings of a study's models: those that the authors of each scheme add it to."""

from dataclasses import replace

import torch

from ordinate.models.shape import INITIAL_STD, Shape
from ordinate.study.plan import Plan


def with_token_embeddings(shape: Shape, plan: Plan) -> Shape:
    """Return the shape with the factor and the initial standard deviation of its token embeddings.

        table ~ N(0, (std / factor)^2),   x = factor * table[ids]

    Where the plan leaves them open, they are sqrt(width) and 1 for a scheme that declares `unit_token_variance`
    (Vaswani et al. 2017), and 1 and 0.02 for others (GPT-2). A model without a token table is left as it is.

    Args:
        shape: hyperparameters, with the scheme.
        plan: the plan of the run.
    Source: Vaswani et al. 2017, Attention Is All You Need, section 3.4, https://arxiv.org/abs/1706.03762; its code in
        tensor2tensor for the initial standard deviation.
    """
    if not shape.has_token_table:
        return shape
    with torch.device("meta"):
        # the scheme of the first layer is the one that acts on the tokens
        unit = shape.make_schemes().schemes[0].unit_token_variance
    scale, std = (shape.width**0.5, 1.0) if unit else (1.0, INITIAL_STD)
    return replace(
        shape,
        embedding_scale=scale if plan.embedding_scale is None else plan.embedding_scale,
        embedding_std=std if plan.embedding_std is None else plan.embedding_std,
    )
