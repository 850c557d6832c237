"""Settings of generation in a checkpoint: those that change the tokens that are generated."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ordinate.core.checks import need, reading, shown
from ordinate.core.option_values import read_value
from ordinate.models.next_token_rules import NO_RULES, NextTokenRules
from ordinate.models.truncation import NO_TRUNCATION, Truncation
from ordinate.pretrained.checkpoint_files import CONFIG, GENERATION_CONFIG, read_config, read_generation_config
from ordinate.pretrained.config_types import REMEDY, check_types

RULES: Mapping[str, Any] = {field.name: field.default for field in fields(NextTokenRules)}
"""Names of the settings that are applied, with the values beside null that have no effect."""
NEEDING_END: Mapping[str, Any] = {
    "min_length": 0,
    "min_new_tokens": None,
    "exponential_decay_length_penalty": None,
}
"""Settings without an effect where there is no end token."""
UNAPPLIED: Mapping[str, Any] = {
    **dict.fromkeys(("guidance_scale", "num_beam_groups"), 1),
    **dict.fromkeys(("diversity_penalty", "penalty_alpha"), 0),
    **dict.fromkeys(("remove_invalid_values", "token_healing"), False),
    **dict.fromkeys(("stop_strings", "constraints", "force_words_ids", "watermarking_config", "dola_layers")),
}
"""Names of settings that are not, and the values beside null and [] that have no effect."""
SAMPLING: Mapping[str, Sequence[float]] = {
    "top_h": (),
    "top_k": (0,),
    "top_p": (1,),
    "min_p": (0,),
    "typical_p": (1,),
    "epsilon_cutoff": (0, 1),
    "eta_cutoff": (0, 1),
}
"""Names of truncations, and their values beside null that have no effect."""
SETTINGS = frozenset({*RULES, *UNAPPLIED})
# which config.json has by default in some families
FORCED = ("forced_bos_token_id", "forced_eos_token_id")
OF_DECODERS = frozenset({*SETTINGS, *SAMPLING, "do_sample", "temperature", "num_beams", "eos_token_id"})


@dataclass(frozen=True)
class GenerationSettings:
    """Settings of generation of a decoder.

    Args:
        file: name of the file that has them.
        end_tokens: end tokens.
        rules: rules that change the scores of tokens.
        temperature: softmax temperature; 0: greedy decoding; None: the checkpoint does not say.
        truncation: the tokens that are sampled.
        unapplied: settings with an effect in transformers that Ordinate does not have, as text; "": none.
    """

    file: str = CONFIG
    end_tokens: tuple[int, ...] = ()
    rules: NextTokenRules = NO_RULES
    temperature: float | None = None
    truncation: Truncation = NO_TRUNCATION
    unapplied: str = ""


def read_generation_settings(folder: str | Path, vocabulary: int) -> GenerationSettings:
    """Read the settings of generation of a published decoder: arguments of `ordinate.generate`.

    They are those of generation_config.json, or where there is none, of config.json, as in transformers; end tokens
    that the former lacks are read from the latter. A model in Ordinate's own format has none.

    Args:
        folder: the checkpoint.
        vocabulary: tokens of the model. End tokens outside of it count as none.

    Raises:
        ValueError: settings of another type, sizes, penalties and probabilities outside of their range, and tokens
            outside of the vocabulary.
    """
    folder = Path(folder)
    file = GENERATION_CONFIG if (folder / GENERATION_CONFIG).is_file() else CONFIG
    config = with_generation_settings(_with_text_ends(read_config(folder)), folder, ("eos_token_id",))
    with reading(folder / file):
        check_types({name: value for name, value in config.items() if name in OF_DECODERS}, {}, file)
        ends = end_tokens(config, vocabulary)
        rules = read_rules(config, ends)
        rules.check(vocabulary, ends)
        temperature, truncation = _read_sampling(config)
    told = unapplied(config, {**UNAPPLIED, "num_beams": 1})
    return GenerationSettings(file, ends, rules, temperature, truncation, told)


def _with_text_ends(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a config.json; without end tokens of its own, with those of its `text_config`, as in transformers."""
    inner, key = config.get("text_config"), "eos_token_id"
    without = config.get(key) is None and isinstance(inner, dict)
    return {**config, key: inner.get(key)} if without else config


def with_generation_settings(config: Mapping[str, Any], folder: Path, tokens: Collection[str]) -> dict[str, Any]:
    """Return a config.json with the generation settings that transformers takes from the folder.

    Where there is a generation_config.json, those in config.json have no effect. Special tokens that it lacks are
    taken from config.json.

    Args:
        config: the contents of config.json.
        folder: the checkpoint.
        tokens: keys of special tokens.

    Raises:
        ValueError: settings in generation_config.json of another type.
    """
    if not (folder / GENERATION_CONFIG).is_file():
        return dict(config)
    written, names = read_generation_config(folder), {*OF_DECODERS} - {"eos_token_id"}
    settings = {name: value for name, value in written.items() if name in names}
    named = {name: written[name] for name in tokens if written.get(name) is not None}
    with reading(folder / GENERATION_CONFIG):
        check_types(settings | named, {}, GENERATION_CONFIG)
    others = {name: value for name, value in config.items() if name not in names}
    # null, not the default of a family
    return others | dict.fromkeys(FORCED) | settings | named


def end_tokens(config: Mapping[str, Any], vocabulary: int) -> tuple[int, ...]:
    """Return the end-of-sequence tokens of a config that a text can have; (): none."""
    came = config.get("eos_token_id")
    listed = came if isinstance(came, list) else () if came is None else (came,)
    return tuple(token for token in listed if 0 <= token < vocabulary)


def read_rules(config: Mapping[str, Any], ends: Sequence[int]) -> NextTokenRules:
    """Read the rules that change the scores of tokens.

    Args:
        config: from `with_generation_settings`.
        ends: end tokens.

    Raises:
        ValueError: values of another type, or outside of their range.
    """
    told = {name: usual if config.get(name) is None else config[name] for name, usual in RULES.items()}
    forced = told["forced_eos_token_id"]
    told["forced_eos_token_id"] = (forced,) if isinstance(forced, int) else forced
    told |= {} if ends else NEEDING_END
    rules = read_value(NextTokenRules, {**told, "renormalize_logits": False})
    return with_renormalisation(rules, wanted=told["renormalize_logits"])


def with_renormalisation(rules: NextTokenRules, *, wanted: bool) -> NextTokenRules:
    """Return the rules with `renormalize_logits` if that is wanted and has an effect."""
    return replace(rules, renormalize_logits=wanted and rules.changes_probabilities)


def unapplied(config: Mapping[str, Any], names: Mapping[str, Any]) -> str:
    """Return those of these settings that have an effect, as text; "": none.

    Args:
        config: from `with_generation_settings`.
        names: their names, and their values beside null and [] that have no effect.
    """
    active = {name: config[name] for name, usual in names.items() if config.get(name) not in (None, [], usual)}
    return ", ".join(f"{name}={shown(value)}" for name, value in active.items())


def _read_sampling(config: Mapping[str, Any]) -> tuple[float | None, Truncation]:
    """Read the temperature and the truncation, which have no effect in greedy decoding."""
    temperature = config.get("temperature")
    if temperature is None and config.get("do_sample"):
        # as in transformers
        temperature = 1.0
    must = "temperature must not be negative"
    need(temperature is None or temperature >= 0, must, f"got {shown(temperature)}", REMEDY)
    if config.get("do_sample") is False or temperature == 0:
        return 0.0, NO_TRUNCATION
    told = {name: config.get(name) for name in SAMPLING}
    return temperature, Truncation(**{name: None if x in SAMPLING[name] else x for name, x in told.items()})
