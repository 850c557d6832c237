"""NoPE: no position encoding (Haviv et al., 2022)."""

from ordinate.schemes._scheme import Scheme


class NoPosition(Scheme):
    """NoPE: no position encoding; order enters through the causal mask alone.

        x -> x

    Without a causal mask, attention is permutation-equivariant. With one, a decoder can infer positions from the
    number of visible tokens.

    Enters at: nowhere.
    Source: Haviv et al. 2022, Transformer Language Models without Positional Encodings Still Learn Positional
        Information, https://arxiv.org/abs/2203.16634. Departs: nowhere.
    """

    axes = (1, 2, 3)
    shift_invariant = True
    citation = """@inproceedings{haviv2022transformer,
  title = {Transformer Language Models without Positional Encodings Still Learn Positional Information},
  author = {Haviv, Adi and Ram, Ori and Press, Ofir and Izsak, Peter and Levy, Omer},
  booktitle = {Findings of EMNLP},
  year = {2022},
  url = {https://arxiv.org/abs/2203.16634}
}"""
