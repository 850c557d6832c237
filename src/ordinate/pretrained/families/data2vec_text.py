"""data2vec of texts."""

from ordinate.pretrained.roberta_like import RobertaLike


class Data2vecText(RobertaLike):
    """data2vec of texts: RoBERTa, trained to predict what the model makes of the whole text from a masked one.

    Source: Baevski et al. 2022, https://arxiv.org/abs/2202.03555.
    """

    model_type = "data2vec-text"
    prefix = "data2vec_text."
    masked_lm_class = "Data2VecTextForMaskedLM"
    causal_lm_class = "Data2VecTextForCausalLM"
    base_class = "Data2VecTextModel"
