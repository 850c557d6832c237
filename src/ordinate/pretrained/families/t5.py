"""T5."""

from ordinate.pretrained.t5_like import T5Like


class T5(T5Like):
    """T5: bucketed relative position bias shared by all layers (none in cross-attention), unscaled scores, RMSNorm.

    T5 1.0 ties the head to the embeddings and divides its input by sqrt(width); T5 1.1 (FLAN-T5) does neither, and
    gates the feed-forward.

    Source: Raffel et al. 2020, https://arxiv.org/abs/1910.10683.
    """

    model_type = "t5"
    generation_class = "T5ForConditionalGeneration"
    encoder_class = "T5EncoderModel"
