"""Languages of a model that translates between several: a token of the source, and the first token of the target."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ordinate.core.checks import need, need_known

if TYPE_CHECKING:
    from ordinate.data.tokenizer import Tokenizer
    from ordinate.models.encoder_decoder import EncoderDecoder


@dataclass(frozen=True)
class LanguageOptions:
    """Languages of a model of several."""

    source_language: Annotated[
        str | None,
        Parameter(
            help="Language of the sentences, a special token of tokenizer.json (NLLB: eng_Latn, mBART-50: en_XX), in "
            "place of the one that it adds."
        ),
    ] = None
    target_language: Annotated[
        str | None,
        Parameter(help="Language to translate to, likewise: the first token of each translation."),
    ] = None

    def write_in(self, tokenizer: "Tokenizer", model: "EncoderDecoder") -> None:
        """Give the model the first token of translations to this language.

        Raises:
            ValueError: the tokenizer has no such special token.
        """
        if self.target_language is None:
            return
        token = _token_of("--target-language", self.target_language, tokenizer, model)
        model.shape = replace(model.shape, rules=replace(model.shape.rules, forced_bos_token_id=token))

    def encoder(self, tokenizer: "Tokenizer", model: "EncoderDecoder") -> Callable[[str], list[int]]:
        """Return the function that encodes a sentence of this language.

        Raises:
            ValueError: the tokenizer has no such special token, or marks no language of a sentence.
        """
        if self.source_language is None:
            return lambda sentence: tokenizer.encode(sentence).tolist()
        token = _token_of("--source-language", self.source_language, tokenizer, model)
        languages, marked = _languages(tokenizer, model).values(), tokenizer.encode("a").tolist()
        places = [index for index, one in enumerate(marked) if one in languages]
        must = "tokenizer.json must add the token of one language to each sentence, for --source-language"
        need(len(places) == 1, must, f"it adds {len(places)}", "leave it out")
        # the token is one of those before the sentence, or of those behind it, whose number is the same for all
        place = places[0] if places[0] < len(marked) / 2 else places[0] - len(marked)
        return lambda sentence: _replaced(tokenizer.encode(sentence).tolist(), place, token)


def _replaced(ids: list[int], place: int, token: int) -> list[int]:
    ids[place] = token
    return ids


def _token_of(option: str, name: str, tokenizer: "Tokenizer", model: "EncoderDecoder") -> int:
    languages = _languages(tokenizer, model)
    must = f"{option} needs a tokenizer.json with special tokens of languages"
    need(bool(languages), must, "this model has none", "leave it out")
    need_known("language", name, languages)
    return languages[name]


def _languages(tokenizer: "Tokenizer", model: "EncoderDecoder") -> Mapping[str, int]:
    """Return the special tokens by name, without those that begin, end or pad texts, or stand for unknown ones."""
    shape = model.shape
    others: Sequence[int | None] = [shape.start, shape.padding, *shape.end_tokens, tokenizer.mask_token]
    found = {name: token for token, name in tokenizer.special_tokens.items()}
    return {
        name: token
        for name, token in found.items()
        if token not in others and token != tokenizer.unknown_token and token < shape.vocabulary
    }
