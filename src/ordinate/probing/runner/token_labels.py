"""What is written for each token on the axes of pictures: its text, or the name of a special token."""

from jaxtyping import Int
from torch import Tensor

from ordinate.probing._adapter import ModelAdapter

START = "<start>"


def token_labels(model: ModelAdapter, ids: Int[Tensor, "1 n"]) -> tuple[str, ...]:
    """Return the label of each token.

    A special token has the name that the file of the tokenizer gives it (<s>, </s>, [CLS], [SEP], <pad>), the start
    token of a decoder that its tokenizer does not know `<start>`, and a token without text its id: #17.

    Args:
        model: the model; without a tokenizer, labels are ids.
        ids: the tokens.
    """
    tokenizer, start = model.tokenizer, model.info.start_token
    names = {} if start is None else {start: START}
    if tokenizer is None:
        return tuple(names.get(token, f"#{token}") for token in ids[0].tolist())
    names |= {start: text} if start is not None and (text := tokenizer.decode([start])) else {}
    names |= tokenizer.special_tokens
    return tuple(names.get(token) or tokenizer.decode([token]) or f"#{token}" for token in ids[0].tolist())
