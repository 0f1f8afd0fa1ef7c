"""Count how often each correction fired, was right and was wrong, on lists from which it was not learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from attlm_fairseq.nbest.corrections.alignment import closest_reference, edits
from attlm_fairseq.nbest.corrections.corrections import Corrections
from attlm_fairseq.nbest.corrections.search import Edge
from attlm_fairseq.nbest.nbest_list import NbestList

EXAMPLES = 2
MAX_SHOWN = 20  # corrections in a table, unless a number is given


@dataclass
class RuleUse:
    """How often a rule (kind, source, target) removed errors, added errors or changed nothing. ``examples``: (before, after)."""

    kind: str
    source: str
    target: str
    right: int = 0
    wrong: int = 0
    neutral: int = 0
    examples: list[tuple[str, str]] = field(default_factory=list)

    @property
    def fired(self) -> int:
        return self.right + self.wrong + self.neutral


@dataclass
class Usage:
    """The effect of corrections on the 1-best hypotheses of lists, chosen by the search alone; ``print`` shows its table.

    Errors and words are sums.
    """

    rules: dict[tuple[str, str, str], RuleUse] = field(default_factory=dict, repr=False)
    lists: int = 0
    words: int = 0
    errors_before: int = 0
    errors_after: int = 0

    def add(self, nbest: NbestList, corrections: Corrections) -> None:
        """Count a list with references. Each rule is judged by itself, applied to the 1-best hypothesis alone."""
        words = corrections.channel.words_of(nbest.hypotheses[0].text)
        reference = closest_reference(words, list(map(corrections.channel.words_of, nbest.references)))
        best = corrections.best_of(words)
        self.lists += 1
        self.words += len(reference) - 2
        before = edits(words, reference)
        self.errors_before += before
        self.errors_after += edits(best.words, reference) if best else before
        for edge in best.fired if best else ():
            self._judge(words, reference, edge, before)

    def _judge(self, words: Sequence[str], reference: Sequence[str], edge: Edge, before: int) -> None:
        applied = [*words[: edge.begin], *edge.target, *words[edge.end :]]
        change = edits(applied, reference) - before
        rule = edge.rule or ("", "", "")
        use = self.rules.setdefault(rule, RuleUse(*rule))
        use.right += change < 0
        use.wrong += change > 0
        use.neutral += change == 0
        if len(use.examples) < EXAMPLES:
            use.examples.append((" ".join(words[1:-1]), " ".join(applied[1:-1])))

    def __str__(self) -> str:
        return self.table()

    def table(self, count: int = MAX_SHOWN) -> str:
        """Return what ``attlm corrections eval`` prints: errors, and the ``count`` corrections that were used most."""
        before, after = (100 * errors / (self.words or 1) for errors in (self.errors_before, self.errors_after))
        right, wrong, neutral = (sum(getattr(use, name) for use in self.rules.values()) for name in ("right", "wrong", "neutral"))
        lines = [
            f"{self.lists} lists, {self.words} words",
            f"WER {before:.2f} of the 1-best hypotheses, {after:.2f} corrected by the search alone",
            f"corrections fired: {right} right, {wrong} wrong, {neutral} neutral",
            "right wrong neutral",
        ]
        for use in self.most_used(count):
            lines.append(f"{use.right:5} {use.wrong:5} {use.neutral:7}  {use.kind:7} {use.source} -> {use.target}")
            lines += [f"{'':21}{text}" for text in use.examples[0]]
        return "\n".join(lines)

    def most_used(self, count: int = MAX_SHOWN) -> list[RuleUse]:
        """Return the ``count`` corrections that were used most, most used first."""
        return sorted(self.rules.values(), key=lambda use: (-use.fired, use.kind, use.source, use.target))[:count]
