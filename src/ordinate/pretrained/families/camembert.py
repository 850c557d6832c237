"""CamemBERT."""

from ordinate.pretrained.roberta_like import RobertaLike


class Camembert(RobertaLike):
    """CamemBERT: RoBERTa, trained on French.

    Source: Martin et al. 2020, https://arxiv.org/abs/1911.03894.
    """

    model_type = "camembert"
    masked_lm_class = "CamembertForMaskedLM"
    causal_lm_class = "CamembertForCausalLM"
    base_class = "CamembertModel"
