"""The finding of a look at one sentence: answer, tables and pictures."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from ordinate.core.finding import Finding, Grade, Heatmap, HeatmapGrid, Table
from ordinate.probing.measures.formatting import format_percent, heatmap_of
from ordinate.probing.measures.head_effects import HeadEffect
from ordinate.probing.measures.head_kinds import STRONG, WEAK, HeadKinds, offset_name
from ordinate.probing.measures.score_split import ScoreSplit
from ordinate.probing.measures.target_attention import TargetAttention

# rows and columns of a picture that are not averaged, and most pictures of scores
SIDE, MOST_SCORES = 4096, 128
METHOD = (
    "Pictures: this sentence. Position and content: a score is due to position as far as it is that of the same "
    "tokens in 32 random orders; the rest is due to the tokens that stand there. Kinds of heads: {texts} texts of "
    "{tokens} distinct random tokens, and as many that end in the same tokens but repeat them. Offset: attention at "
    "the offset that has the most in the other texts, up to {reach} tokens away. Induction: attention to the token "
    "after the earlier occurrence. Yes: {strong} of the attention above the null; weakly: {weak}; both significant "
    "(exact sign-flip tests over texts, adjusted over heads and kinds by Benjamini and Hochberg at 5 %). No: the "
    "95 % interval excludes {weak}. Otherwise it cannot be told. Ablation: the output of the head (z) is set to zero."
)
NULL = (
    "Offsets and first token: uniform attention. Induction and duplicate token: attention to the same position in "
    "texts without the repetition. Ablation: the effects of other heads."
)
CAVEATS = (
    "Layers and heads are counted from 0, as LAYER.HEAD.",
    "The kinds are of random tokens: heads that act on words, syntax or sense are not looked for.",
    "A head that is ablated alone may be compensated by others.",
)


def look_finding(
    name: str,
    pattern: Float[ndarray, "layers h n n"],
    split: ScoreSplit,
    kinds: HeadKinds | None,
    reason: str,
    effects: Sequence[HeadEffect],
    written: TargetAttention | None = None,
) -> Finding:
    """Return the answer with its tables and pictures.

    Args:
        name: name of the model.
        pattern: the attention patterns.
        split: the scores by position and content.
        kinds: the kinds of heads; None: not measured.
        reason: why they were not measured.
        effects: effects of ablated heads.
        written: attention of the decoder on a target; None: none.
    """
    sizes = {"texts": 0, "tokens": 0, "reach": 0} if kinds is None else {
        "texts": kinds.texts, "tokens": kinds.tokens, "reach": kinds.reach
    }  # fmt: skip
    grade, found = _kinds_answer(kinds, reason)
    return Finding(
        question="look",
        title=f"Does {name} have offset, first-token, induction or duplicate-token heads, and what do they do here?",
        grade=grade,
        answer=" ".join([found, _split_answer(split), *map(str, effects)]),
        tables=(_heads_table(pattern, split, kinds), *([kinds.table()] if kinds else [])),
        pictures=(*_target_pictures(written), *_pictures(pattern, split, kinds)),
        method=METHOD.format(**sizes, strong=f"{STRONG:g}", weak=f"{WEAK:g}"),
        null=NULL,
        caveats=CAVEATS,
    )


def _kinds_answer(kinds: HeadKinds | None, reason: str) -> tuple[Grade, str]:
    """Return whether there are heads of these kinds, and which."""
    if kinds is None:
        return "cannot be told", f"{reason[:1].upper()}{reason[1:]}."
    places = list(np.ndindex(*kinds.offset.shape))
    found = [(one, said) for place in places for one, said in kinds.labels(*place)]
    unclear = sum(bool(kinds.unclear(*place)) for place in places)
    rest = f" Some kind cannot be told for {unclear} {'head' if unclear == 1 else 'heads'}." if unclear else ""
    if not found:
        whole = f"None of {len(places)} heads has a tenth of its attention above the null"
        return "cannot be told" if unclear else "no", f"{whole}.{rest}"
    grade: Grade = "yes" if any(said == "yes" for _, said in found) else "weakly"
    several = sum(bool(kinds.labels(*place)) for place in places)
    listed = "; ".join(
        f"{one}{'' if said == 'yes' else ', weakly'}: {count}" for (one, said), count in Counter(found).most_common()
    )
    return grade, f"{several} of {len(places)} heads are of such a kind ({listed}).{rest}"


def _split_answer(split: ScoreSplit) -> str:
    shares = split.position_share
    low, middle, high = (format_percent(float(x)) for x in (shares.min(), np.median(shares), shares.max()))
    return f"In this sentence position explains {middle} of the score variance of the median head ({low} to {high})."


def _heads_table(pattern: Float[ndarray, "layers h n n"], split: ScoreSplit, kinds: HeadKinds | None) -> Table:
    columns = ("head", "layer", "index", "kinds", "cannot be told", "due to position", "due to tokens")
    columns += ("on the first token here", "main offset", *(own.name for own in (kinds.kinds if kinds else ())))
    rows = []
    for layer, head in np.ndindex(*pattern.shape[:2]):
        known: list[str | float | None] = ["", "all"]
        rest: list[str | float | None] = [None]
        if kinds is not None:
            labels = [one if said == "yes" else f"{one} ({said})" for one, said in kinds.labels(layer, head)]
            known = [", ".join(labels), ", ".join(kinds.unclear(layer, head))]
            rest = [
                offset_name(int(kinds.offset[layer, head])),
                *(float(own.value[layer, head]) for own in kinds.kinds),
            ]
        shares = [float(part[layer, head]) for part in (split.position_share, split.content_share)]
        first = float(pattern[layer, head, 1:, 0].mean())
        rows.append((f"{layer}.{head}", layer, head, *known, *shares, first, *rest))
    caption = "Last columns: shares of attention on random texts. The table below has their nulls and p-values."
    return Table(title="Each head", columns=columns, rows=tuple(rows), caption=caption)


def _target_pictures(written: TargetAttention | None) -> list[HeatmapGrid]:
    if written is None:
        return []

    def panels(pattern: Float[ndarray, "layers h i j"]) -> tuple[Heatmap, ...]:
        places = np.ndindex(*pattern.shape[:2])
        return tuple(heatmap_of(f"{layer}.{head}", pattern[layer, head], SIDE) for layer, head in places)

    caption = "Heads of the decoder; the pictures below and the tables of heads are of the encoder."
    return [
        HeatmapGrid(title="Cross-attention", x="source token", y="target token", panels=panels(written.cross),
                    caption=caption),
        HeatmapGrid(title="Self-attention of the decoder", x="target key", y="target query",
                    panels=panels(written.decoder), caption=caption),
    ]  # fmt: skip


def _pictures(
    pattern: Float[ndarray, "layers h n n"], split: ScoreSplit, kinds: HeadKinds | None
) -> tuple[HeatmapGrid, ...]:
    places = list(np.ndindex(*pattern.shape[:2]))
    heads, tokens = pattern.shape[0] * pattern.shape[1], pattern.shape[-1]
    chosen = sorted(places, key=lambda place: -split.position_share[place])[:MOST_SCORES]
    fewer = f" Of {heads} heads the {MOST_SCORES} with the largest share." if heads > MOST_SCORES else ""

    def panel(place: tuple[int, ...], values: ndarray, note: str) -> object:
        return heatmap_of(f"{place[0]}.{place[1]}", values[place], SIDE, note)

    def noted(place: tuple[int, ...]) -> str:
        return "" if kinds is None else ", ".join(one for one, _ in kinds.labels(*place))

    received = heatmap_of("received by each token", pattern.mean(2).reshape(heads, tokens), SIDE)
    last = heatmap_of("from the last token", pattern[:, :, -1].reshape(heads, tokens), SIDE)
    return (
        HeatmapGrid(title="Attention patterns", x="key", y="query",
                    panels=tuple(panel(place, pattern, noted(place)) for place in places)),
        HeatmapGrid(title="Heads and sentence", x="token", y="head", panels=(received, last),
                    caption="Left: mean attention on each token, over queries. Right: attention of the last token."),
        HeatmapGrid(title="Scores due to position", x="key", y="query", middle=0.0,
                    panels=tuple(panel(place, split.position,
                                       f"{format_percent(float(split.position_share[place]))} of the variance")
                                 for place in sorted(chosen)),
                    caption=f"Before the softmax, each row centred.{fewer}"),
        HeatmapGrid(title="Scores due to the tokens", x="key", y="query", middle=0.0,
                    panels=tuple(panel(place, split.content,
                                       f"{format_percent(float(split.content_share[place]))} of the variance")
                                 for place in sorted(chosen)),
                    caption="Before the softmax, each row centred."),
    )  # fmt: skip
