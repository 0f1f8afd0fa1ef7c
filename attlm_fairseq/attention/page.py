"""Attention as one HTML file that needs nothing else: no font, no script, no other file; for light and dark screens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from attlm_fairseq.attention.distance import DistanceProfile
from attlm_fairseq.attention.figures import cell_text, summary
from attlm_fairseq.attention.highlight import highlights, printable
from attlm_fairseq.attention.weights import SentenceAttention

STYLE = """
:root { color-scheme: light dark; --unknown: #b3261e; --none: rgba(128, 128, 128, .14); --strong: #fff }
@media (prefers-color-scheme: dark) { :root { --unknown: #ff8a80 } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5em; color: CanvasText; background: Canvas }
h1 { font-size: 1.2em } h2 { font-size: 1em; margin-top: 2em } p { margin: .4em 0 }
.scroll { overflow: auto; max-height: 95vh }
table { border-collapse: separate; border-spacing: 1px; font-size: 12px }
th { font-weight: normal; white-space: nowrap; background: Canvas; position: sticky }
.heat td { min-width: 2.3em; height: 2.1em; text-align: center; padding: 0; background: rgba(40, 110, 200, var(--a)) }
.heat td.none { background: var(--none) } .heat td.strong { color: var(--strong) }
.heat thead th { writing-mode: vertical-rl; text-orientation: sideways; transform: rotate(180deg); text-align: left }
.heat thead th { padding: .4em 0; top: 0 }
.heat tbody th { text-align: right; padding: 0 .5em; left: 0 }
.unknown { color: var(--unknown); text-decoration: underline dotted }
mark { background: rgba(40, 110, 200, var(--a)); color: inherit; padding: .1em .15em; border-radius: .2em }
mark.strong { color: var(--strong) }
.lines { list-style: none; padding: 0 } .lines li { margin: .25em 0 } .to { font-weight: 600 }
.distance td { text-align: right; padding: 0 .8em 0 0; font-variant-numeric: tabular-nums }
.distance .bar { width: 22em; padding: 0 1em 0 0 }
.bar div { position: relative; height: 1.1em; background: rgba(40, 110, 200, .75); min-width: 1px }
.distance { width: 100% } .distance th { padding-right: 1em }
@media (max-width: 40rem) { body { margin: 1em .7em } .distance .bar { width: 6em } }
.bar i { position: relative; display: block; top: -1.1em; height: 1.1em; margin-bottom: -1.1em; border-right: 2px solid #d9822b }
""".strip()


def page(lm: str, sections: Iterable[str]) -> Iterator[str]:
    """The pieces of the file. ``sections`` are HTML."""
    title = f"Attention of {escape(printable(lm))}"
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>{title}</title>\n<style>\n{STYLE}\n</style>\n</head>\n"
    yield f"<body>\n<h1>{title}</h1>\n"
    yield from sections
    yield "</body>\n</html>\n"


def sentence_section(attention: SentenceAttention, threshold: float | None = None, heading: str = "") -> Iterator[str]:
    """The heat map: inputs across, predicted words down. With a threshold, the text with what each prediction reads highlighted."""
    columns = attention.columns
    if heading:
        yield f"<h2>{escape(heading)}</h2>\n"
    yield "<p>Across: the state in memory after reading this input. Down: the predicted word. Grey: not in memory.</p>\n"
    yield '<div class="scroll"><table class="heat">\n<thead><tr><th></th>'
    yield from (f"<th>{word(attention.inputs[column], attention.unknown_input(column))}</th>" for column in columns)
    yield "</tr></thead>\n<tbody>\n"
    for row, (weights, in_memory) in enumerate(zip(attention.weights.tolist(), attention.in_memory, strict=True)):
        predicted = word(attention.predicted[row], attention.unknown_prediction(row))
        if attention.log_probs is not None:
            predicted = f'<span title="ln p = {attention.log_probs[row]:.3f}">{predicted}</span>'
        yield f"<tr><th>{predicted}</th>"
        for column in columns:
            weight = weights[column]
            if in_memory[column]:
                yield f'<td{shade(weight)} title="{escape(printable(attention.inputs[column]))}: {weight:.4f}">{cell_text(weight)}</td>'
            else:
                yield '<td class="none"></td>'
        yield "</tr>\n"
    yield "</tbody></table></div>\n"
    if threshold is not None:
        yield f"<p>Highlighted: what is read with a weight of {threshold:g} or more.</p>\n"
        yield '<ul class="lines">\n'
        for found in highlights(attention, threshold):
            text = []
            for column, highlighted in zip(found.columns, found.highlighted, strict=True):
                plain = word(attention.inputs[column], attention.unknown_input(column))
                weight = attention.weights[found.row, column]
                text.append(f'<mark{shade(weight)} title="{weight:.4f}">{plain}</mark>' if highlighted else plain)
            predicted = word(attention.predicted[found.row], attention.unknown_prediction(found.row))
            yield f'<li dir="auto">{" ".join(text)} → <span class="to">{predicted}</span></li>\n'
        yield "</ul>\n"


def distance_section(profile: DistanceProfile) -> Iterator[str]:
    """Mean attention by distance as a table with bars."""
    rows = profile.rows()
    largest = max((max(row.mean, row.equal) for row in rows), default=1.0)
    yield f"<p>{escape(summary(profile))}. Distance 0 is the current state, 1 the one before it; mean weight of the predictions with "
    yield 'such a state in memory.<br>Bar: mean weight. Orange: had all states in memory been read alike.</p>\n<table class="distance">\n'
    yield "<tr><th>distance</th><th></th><th>mean</th><th>equal</th><th>share of all</th><th>predictions</th></tr>\n"
    for row in rows:
        bar = f'<div style="width:{row.mean / largest:.2%}"></div><i style="width:{row.equal / largest:.2%}"></i>'
        name = "h_0" if row.distance is None else row.distance
        yield f'<tr><td>{name}</td><td class="bar">{bar}</td><td>{row.mean:.4f}</td><td>{row.equal:.4f}</td>'
        yield f"<td>{row.share:.2%}</td><td>{row.predictions:,}</td></tr>\n"
    yield "</table>\n"


def word(text: str, unknown: bool) -> str:
    """A word as HTML, apart from its neighbours' direction of writing; one that the LM does not know is marked."""
    text = f"<bdi>{escape(printable(text))}</bdi>"
    return f'<span class="unknown" title="unknown to the LM">{text}</span>' if unknown else text


def shade(weight: float) -> str:
    """Attributes of a cell: its colour, and whether its text must be light on it. Square root as in the pictures."""
    strength = max(0.0, weight) ** 0.5
    return f'{" class=strong" if strength > 0.85 else ""} style="--a:{strength:.3f}"'


def text_sections(profile: DistanceProfile, examples: Sequence[tuple[int, SentenceAttention]], threshold: float | None) -> Iterator[str]:
    """Of a text: attention by distance, then the first sentences with their line numbers."""
    yield from distance_section(profile)
    if len(examples) < profile.sentences:
        yield f"<p>Below: the first {len(examples)} of {profile.sentences:,} sentences.</p>\n"
    for number, attention in examples:
        yield from sentence_section(attention, threshold, f"Line {number}")
