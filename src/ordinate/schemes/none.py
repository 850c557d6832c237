"""No positional scheme at all."""

from ordinate.scheme import Scheme


class Unmarked(Scheme):
    """Say nothing about positions: order enters through the causal mask alone.

        x -> x

    Without a causal mask, attention without positions treats its input as a set. With one, a decoder can count what
    it sees and learns an order of its own.

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
