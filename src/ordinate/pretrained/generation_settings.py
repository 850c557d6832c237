"""Settings of generation in a checkpoint: those that change the tokens that greedy and beam search write."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ordinate.core.checks import shown
from ordinate.pretrained.checkpoint_files import CONFIG, GENERATION_CONFIG, read_config, read_generation_config

SETTINGS: Mapping[str, Any] = {
    **dict.fromkeys(("repetition_penalty", "encoder_repetition_penalty", "guidance_scale", "num_beam_groups"), 1),
    **dict.fromkeys(("no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "min_length", "min_new_tokens"), 0),
    **dict.fromkeys(("diversity_penalty", "penalty_alpha"), 0),
    **dict.fromkeys(("renormalize_logits", "remove_invalid_values", "token_healing"), False),
    **dict.fromkeys(("bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "sequence_bias", "stop_strings")),
    **dict.fromkeys(("constraints", "force_words_ids", "forced_bos_token_id", "forced_eos_token_id")),
    **dict.fromkeys(("exponential_decay_length_penalty", "watermarking_config", "dola_layers")),
}
"""Names, and the values beside null and [] that have no effect; sampling, beams and lengths are arguments here."""


def with_generation_settings(config: Mapping[str, Any], folder: Path, tokens: Collection[str]) -> dict[str, Any]:
    """Return a config.json with the generation settings that transformers takes from the folder.

    Where there is a generation_config.json, those in config.json have no effect. Special tokens that it lacks are
    taken from config.json.

    Args:
        config: the contents of config.json.
        folder: the checkpoint.
        tokens: keys of special tokens.
    """
    if not (folder / GENERATION_CONFIG).is_file():
        return dict(config)
    written = read_generation_config(folder)
    settings = {name: value for name, value in written.items() if name in SETTINGS}
    named = {name: written[name] for name in tokens if written.get(name) is not None}
    return {name: value for name, value in config.items() if name not in SETTINGS} | settings | named


def unapplied(config: Mapping[str, Any], applied: Collection[str] = ()) -> str:
    """Return the generation settings of a config that have an effect and are not applied, as text; "": none.

    Args:
        config: from `with_generation_settings`.
        applied: names of settings that are.
    """
    active = {name: config[name] for name, usual in SETTINGS.items() if config.get(name) not in (None, [], usual)}
    return ", ".join(f"{name}={shown(value)}" for name, value in active.items() if name not in applied)


def unapplied_in(folder: Path) -> str:
    """Return the generation settings of a published decoder that Ordinate does not apply, as text; "": none."""
    named = GENERATION_CONFIG if (folder / GENERATION_CONFIG).is_file() else CONFIG
    told = unapplied(with_generation_settings(read_config(folder), folder, ()))
    return f"{named} has {told}" if told else ""
