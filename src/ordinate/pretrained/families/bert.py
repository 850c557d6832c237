"""BERT."""

from ordinate.pretrained.next_sentence_like import NextSentenceLike


class Bert(NextSentenceLike):
    """BERT, trained by masked language modelling, and models with its architecture (such as MiniLM).

    Source: Devlin et al. 2019, https://arxiv.org/abs/1810.04805.
    """

    model_type = "bert"
    masked_lm_class = "BertForMaskedLM"
    causal_lm_class = "BertLMHeadModel"
    base_class = "BertModel"
