"""XLM-RoBERTa."""

from ordinate.pretrained.roberta_like import RobertaLike


class XlmRoberta(RobertaLike):
    """XLM-RoBERTa: RoBERTa, trained on a hundred languages.

    Source: Conneau et al. 2020, https://arxiv.org/abs/1911.02116.
    """

    model_type = "xlm-roberta"
    masked_lm_class = "XLMRobertaForMaskedLM"
    causal_lm_class = "XLMRobertaForCausalLM"
    base_class = "XLMRobertaModel"
