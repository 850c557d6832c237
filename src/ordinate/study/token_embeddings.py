"""Token embeddings of a study's models: they keep their ratio to what a scheme adds to them in training."""

from dataclasses import replace

from ordinate.models.shape import Shape
from ordinate.study.plan import Plan


def with_token_embeddings(shape: Shape, plan: Plan) -> Shape:
    """Return the shape with the factor and the initial standard deviation of its token embeddings.

        table ~ N(0, (std / factor)^2),   x = factor * table[ids]

    Where the plan leaves the factor open, it is std * sqrt(width): the table starts with the standard deviation
    width^(-1/2). With std = 1 this is the factor of Vaswani et al. A model without a token table is left as it is.

    Args:
        shape: hyperparameters.
        plan: the plan of the run.
    Source: Vaswani et al. 2017, Attention Is All You Need, section 3.4, https://arxiv.org/abs/1706.03762; its code in
        tensor2tensor for the initial standard deviation.
    Departs: token embeddings and waves are smaller by the same factor, 0.02 unless the plan says otherwise: our
        pre-norm models are better so (docs/baselines.md).
    """
    if not shape.has_token_table:
        return shape
    std = plan.embedding_std
    scale = std * shape.width**0.5 if plan.embedding_scale is None else plan.embedding_scale
    return replace(shape, embedding_scale=scale, embedding_std=std)
