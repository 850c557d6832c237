"""Positions of DeBERTa checkpoints: keys of config.json, and the scheme and the mixer that they describe."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ordinate.core import catalog
from ordinate.core.checks import need
from ordinate.models.shape import Shape
from ordinate.schemes.deberta import Deberta, DebertaTerms

MIXER = "softmax:variant.bias=true"
TERMS: Mapping[DebertaTerms, list[str]] = {"both": ["p2c", "c2p"], "c2p": ["c2p"], "p2c": ["p2c"]}
# the projection that each term needs, where positions have their own
PROJECTIONS: Mapping[DebertaTerms, str] = {"both": "both", "c2p": "key", "p2c": "query"}
REMEDY = "use save_pretrained instead"


@dataclass(frozen=True)
class Positions:
    """Positions of a DeBERTa.

    Args:
        learned: whether a learned vector is added to the token embeddings (`position_biased_input`).
        relative: the relative positions; None: none (`relative_attention`).
        terms: the terms of the scores; without relative positions they only divide the scores; None: none.
        own: whether relative positions have query and key projections of their own (not `share_att_key`).
    """

    learned: bool
    relative: Deberta | None
    terms: DebertaTerms | None
    own: bool

    @property
    def projections(self) -> tuple[str, ...]:
        """Names of the projections of their own that relative positions have."""
        kinds = {"both": ("query", "key"), "c2p": ("key",), "p2c": ("query",)}
        return kinds[self.terms] if self.own and self.terms is not None else ()

    @property
    def learned_name(self) -> str:
        """Name of the scheme of learned positions in the model."""
        return "schemes.0.parts.0" if self.relative is not None else "schemes.0"

    @property
    def relative_name(self) -> str:
        """Name of the scheme of relative positions in the model."""
        return "schemes.0.parts.1" if self.learned else "schemes.0"


def scheme_line(config: Mapping[str, Any]) -> str:
    """Return the scheme spec of a config.json."""
    own_width = config["embedding_size"] not in (None, config["hidden_size"])
    absolute = f"learned:width={config['embedding_size']}" if own_width else "learned"
    parts = [absolute] * config["position_biased_input"]
    if config["relative_attention"] and _terms(config) is not None:
        parts.append(_relative_line(config))
    return "+".join(parts) or "none"


def mixer_line(config: Mapping[str, Any]) -> str:
    """Return the mixer spec of a config.json."""
    return _mixer(_terms(config), bool(config["relative_attention"]), not config["share_att_key"], config)


def read_positions(shape: Shape) -> Positions:
    """Return the positions of a shape.

    Raises:
        ValueError: schemes or a mixer that no DeBERTa has.
    """
    singles = shape.scheme_spec.split_schemes(0)
    names = [catalog.parse(single)[0] for single in singles]
    plain = shape.scheme_spec == "+".join(singles)
    relative = _deberta(singles[-1], shape) if names[-1] == "deberta" else None
    must = "a deberta-v2 has the scheme deberta:version.shared=true, learned, both as learned+deberta, or none"
    fits = names in (["none"], ["learned"], ["deberta"], ["learned", "deberta"])
    shared = relative is None or relative.shared
    need(plain and fits and shared, must, f"got {shape.scheme_spec}", REMEDY)
    sizes = {"hidden_size": shape.width, "num_attention_heads": shape.heads}
    choices = [(relative.terms, own) for own in (False, True)] if relative else [(t, False) for t in (None, *TERMS)]
    found = [x for x in choices if _mixer(x[0], relative is not None, x[1], sizes) == shape.mixer_spec]
    must = f"a deberta-v2 has the mixer {MIXER}, with position_projections for the terms of its scheme if it has them"
    need(bool(found), must, f"got {shape.mixer_spec}", REMEDY)
    return Positions("learned" in names, relative, *found[0])


def position_settings(shape: Shape) -> dict[str, Any]:
    """Return the config.json keys of the positions of a shape."""
    found = read_positions(shape)
    relative = found.relative
    known = {
        "relative_attention": relative is not None,
        "position_biased_input": found.learned,
        "share_att_key": not found.own,
        "pos_att_type": [] if found.terms is None else TERMS[found.terms],
    }
    if relative is None:
        return known
    return known | {
        "max_relative_positions": relative.max_distance,
        "position_buckets": -1 if relative.buckets is None else relative.buckets,
        "norm_rel_ebd": "none" if relative.norm is None else "layer_norm",
    }


def _terms(config: Mapping[str, Any]) -> DebertaTerms | None:
    """Return the terms that `pos_att_type` names; as in transformers, other names in it have no effect."""
    given = config["pos_att_type"] or ()
    kinds = [kind.strip() for kind in given.lower().split("|")] if isinstance(given, str) else given
    known = {kind for kind in kinds if kind in TERMS["both"]}
    return next((ours for ours, theirs in TERMS.items() if set(theirs) == known), None)


def _relative_line(config: Mapping[str, Any]) -> str:
    reach, buckets = config["max_relative_positions"], config["position_buckets"]
    reach = config["max_position_embeddings"] if reach < 1 else reach
    must = "position_buckets must be above 1, and max_relative_positions not the half of them and one"
    came = f"got {buckets} and {reach}"
    need(buckets < 1 or (buckets > 1 and reach != buckets // 2 + 1), must, came, "load another checkpoint")
    options = [f"max_distance={reach}", f"buckets={buckets if buckets > 0 else 'none'}", f"terms={_terms(config)}"]
    options.append("version.shared=true")
    if "layer_norm" in [part.strip() for part in config["norm_rel_ebd"].lower().split("|")]:
        options.append(f"version.norm_eps={config['layer_norm_eps']}")
    if buckets > 0 and reach <= buckets // 2:
        options.append("version.unordered=true")
    return "deberta:" + ",".join(options)


def _mixer(terms: DebertaTerms | None, relative: bool, own: bool, sizes: Mapping[str, Any]) -> str:
    """Return the mixer; without relative positions, transformers divides the scores as it does with them."""
    if relative and own and terms is not None:
        return f"{MIXER},position_projections={PROJECTIONS[terms]}"
    if relative or terms is None:
        return MIXER
    head_width = sizes["hidden_size"] // sizes["num_attention_heads"]
    return f"{MIXER},variant.scale={(head_width * (1 + len(TERMS[terms]))) ** -0.5}"


def _deberta(line: str, shape: Shape) -> Deberta:
    _, options = catalog.parse(line)
    return Deberta(**catalog.bind(Deberta, options, shape.bindable_sizes))
