"""Look at the heads of a model on one sentence: the Python twin of `ordinate look`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from ordinate.core.checks import need, need_seed
from ordinate.core.finding import Finding, Table
from ordinate.probing._adapter import ModelAdapter, NotApplicable
from ordinate.probing._attach import attach
from ordinate.probing.activations.inputs import TARGETS, model_inputs
from ordinate.probing.activations.recording import record
from ordinate.probing.instrumentation.trained_length import model_name
from ordinate.probing.measures.head_effects import HeadEffect, check_heads, effects_table, head_effects
from ordinate.probing.measures.head_kinds import HeadKinds, head_kinds
from ordinate.probing.measures.score_split import ScoreSplit, score_split
from ordinate.probing.measures.target_attention import TargetAttention, target_attention, target_parts
from ordinate.probing.runner.look_finding import look_finding
from ordinate.probing.runner.token_labels import token_labels
from ordinate.report.finding_files import save_finding
from ordinate.report.finding_page import finding_page
from ordinate.report.findings import notebook_card

# tokens of a sentence: more are no picture that a person reads
MOST_TOKENS, FEWEST_TOKENS = 128, 4


@dataclass(frozen=True, eq=False)
class Look:
    """The heads of a model on one sentence; `print` shows the answer, a notebook the page.

    Args:
        name: name of the model.
        tokens: text of each token.
        pattern: the attention patterns.
        split: the scores, split into position and content.
        kinds: the kinds of heads; None: the model does not allow to measure them.
        not_measured: why, if so.
        effects: effects of ablated heads.
        finding: the answer with its tables and pictures.
        target_tokens: text of each token of a target; empty: none was given.
        written: attention of the decoder on the target, to itself and to the source; None: no target was given.
    """

    name: str
    tokens: tuple[str, ...]
    pattern: Float[ndarray, "layers h n n"]
    split: ScoreSplit
    kinds: HeadKinds | None
    not_measured: str
    effects: tuple[HeadEffect, ...]
    finding: Finding
    target_tokens: tuple[str, ...] = ()
    written: TargetAttention | None = None

    def table(self) -> Table:
        """Return a table with a row for each head: its kinds and what its scores are due to."""
        return self.finding.tables[0]

    def attention_table(self) -> Table:
        """Return a table with a row for each pair that a head attends over: weight, and both parts of the score."""
        parts = np.stack((self.pattern, self.split.position, self.split.content), -1)
        rows = [
            (f"{layer}.{head}", i, self.tokens[i], j, self.tokens[j], *parts[layer, head, i, j].tolist())
            for layer, head, i, j in np.argwhere(self.pattern).tolist()
        ]
        columns = ("head", "query", "query token", "key", "key token", "attention", "score by position", "by tokens")
        return Table(title="Attention of each head", columns=columns, rows=tuple(rows))

    def cross_table(self) -> Table:
        """Return a table with a row for each head of the decoder and pair of a target token and a source token.

        Raises:
            ValueError: no target was given.
        """
        must = "cross-attention needs a target; got none; give look(model, source, target=...)"
        return self._target_table("Cross-attention of each head", ("target", "source"), must)

    def decoder_table(self) -> Table:
        """Return a table with a row for each head of the decoder and pair of target tokens that it attends over.

        Raises:
            ValueError: no target was given.
        """
        must = "attention of the decoder needs a target; got none; give look(model, source, target=...)"
        return self._target_table("Self-attention of the decoder", ("query", "key"), must)

    def _target_table(self, title: str, sides: tuple[str, str], must: str) -> Table:
        if self.written is None:
            raise ValueError(must)
        across = sides[1] == "source"
        pattern, keys = (self.written.cross, self.tokens) if across else (self.written.decoder, self.target_tokens)
        rows = [
            (f"{layer}.{head}", i, self.target_tokens[i], j, keys[j], float(pattern[layer, head, i, j]))
            for layer, head, i, j in np.ndindex(*pattern.shape)
            if across or j <= i
        ]
        columns = ("head", *(f"{side}{end}" for side in sides for end in ("", " token")), "attention")
        return Table(title=title, columns=columns, rows=tuple(rows))

    def circuitsvis(self, layer: int) -> dict[str, Any]:
        """Return the arguments of `circuitsvis.attention.attention_patterns` for one layer."""
        return {"tokens": list(self.tokens), "attention": self.pattern[layer]}

    def page(self, command: str = "") -> str:
        """Return a self-contained HTML page.

        Args:
            command: the command that made it; empty: none.
        """
        heads = [f"{layer}.{head}" for layer, head in np.ndindex(*self.pattern.shape[:2])]
        labels = {"query": self.tokens, "key": self.tokens, "token": self.tokens, "head": heads}
        labels |= {"source token": self.tokens, "target token": self.target_tokens}
        labels |= {"target key": self.target_tokens, "target query": self.target_tokens}
        about = f"{self.name}, on a sentence of {len(self.tokens)} tokens."
        return finding_page(self.finding, about, tokens=self.tokens, labels=labels, command=command)

    def save(self, folder: str | Path, *, command: str = "", ending: str = ".csv") -> list[Path]:
        """Write the page and all tables to a folder; return the files.

        Args:
            folder: the folder; it is made.
            command: the command that made it.
            ending: format of the tables: .csv or .parquet.
        """
        tables = {"heads": self.table(), "attention": self.attention_table(), "scores": self.split.table()}
        tables |= {} if self.kinds is None else {"kinds": self.kinds.table()}
        tables |= {"ablation": effects_table(self.effects, self.tokens)} if self.effects else {}
        if self.written is not None:
            tables |= {"cross_attention": self.cross_table(), "decoder_attention": self.decoder_table()}
        return save_finding(self.finding, folder, "look", self.page(command), tables, ending)

    def __str__(self) -> str:
        return f"{self.finding.title}\n{self.finding.headline}"

    def _repr_html_(self) -> str:
        return notebook_card(self.finding)


def look(
    model: object,
    sentence: str | Tensor,
    *,
    target: str | Tensor | None = None,
    ablate: Sequence[tuple[int, int]] = (),
    seed: int = 0,
) -> Look:
    """Look at every head of a model on one sentence.

    Measured are the attention patterns, the scores split into position and content, the kind of each head (offset,
    first token, induction, duplicate token) against its null on random texts, and what ablating a head changes.

    Args:
        model: a model, its folder, or an adapter made by `attach`.
        sentence: a text, or token ids (1, tokens) for a model without a tokenizer.
        target: of an encoder-decoder, what its decoder writes for the sentence: a text, or token ids (1, tokens) that
            begin with the start token; the self-attention of the decoder and its cross-attention are shown. None: the
            encoder only.
        ablate: layer and head, both from 0, of heads to ablate.
        seed: seed of random texts and orders.

    Raises:
        ValueError: a sentence of fewer than 4 or more than 128 tokens, or an unknown head.
        NotApplicable: the attention of the model is not observable, or it takes no texts.
    """
    need_seed(seed)
    # before a model is loaded
    for what, text in (("sentence", sentence), ("target", target)):
        written = not isinstance(text, str) or bool(text.strip())
        need(written, f"a {what} has a word or more", f"got {text!r}", "give one")
    subject = model if isinstance(model, ModelAdapter) else attach(model, name=model_name(model))
    facts = subject.info
    facts.need_one_text("sentences that are looked at")
    ids = model_inputs(subject, sentence).ids
    if ids is None or facts.kind == "vision":
        raise NotApplicable(f"{facts.name} takes images; look reads a sentence")
    need(len(ids) == 1, "look reads one sentence", f"got {len(ids)}", "give one")
    fixed = _special_tokens(subject, isinstance(sentence, str))
    count, own = ids.shape[1], ids.shape[1] - sum(fixed)
    must = f"a sentence has {FEWEST_TOKENS} to {MOST_TOKENS} tokens"
    need(own >= FEWEST_TOKENS and count <= MOST_TOKENS, must, f"got {own}", "give another, or part of it")
    longest = facts.max_length
    need(longest is None or count <= longest, f"{facts.name} reads {longest} tokens", f"got {count}", "shorten it")
    check_heads(facts, ablate)
    targets = None if target is None else _target_ids(subject, target)
    parts = None if targets is None else target_parts(subject, ids, targets)
    effects = tuple(head_effects(subject, ids, ablate, seed=seed)) if ablate else ()
    pattern = record(subject, ids, "pattern").layers("pattern")[0].double().cpu().numpy()
    split = score_split(subject, ids, fixed=fixed, seed=seed)
    try:
        kinds, reason = head_kinds(subject, seed=seed), ""
    except NotApplicable as refused:
        kinds, reason = None, str(refused)
    written = None if parts is None or targets is None else target_attention(parts, targets)
    finding = look_finding(facts.name, pattern, split, kinds, reason, effects, written)
    labels, others = token_labels(subject, ids), () if targets is None else token_labels(subject, targets)
    return Look(facts.name, labels, pattern, split, kinds, reason, effects, finding, others, written)


def _target_ids(model: ModelAdapter, target: str | Tensor) -> Tensor:
    start, name = model.info.start_token, model.info.name
    if model.info.kind != "encoder-decoder":
        raise NotApplicable(f"{name} has no cross-attention: only encoder-decoders have; leave the target out")
    if isinstance(target, Tensor):
        return target
    if start is None:
        raise NotApplicable(f"the files of {name} name no token to begin a target with; give token ids")
    return torch.cat([torch.tensor([start]), model.tokenize(target).long()])[None]


def _special_tokens(model: ModelAdapter, encoded: bool) -> tuple[int, int]:
    """Return how many special tokens the text begins and ends with: they are not shuffled."""
    facts, tokenizer = model.info, model.tokenizer if encoded else None
    last = tokenizer is not None and facts.kind not in TARGETS and tokenizer.suffix_token is not None
    return int(encoded and facts.first_token is not None), int(last)
