"""Attention as numbers: tables of tab-separated columns, and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from attlm_fairseq.attention.distance import DistanceProfile
from attlm_fairseq.attention.weights import SentenceAttention

DECIMALS = 6


def sentence_table(attention: SentenceAttention) -> Iterator[str]:
    """Tab-separated lines, one a prediction: the word, whether it is unknown to the LM, its log-probability, the weight of each input.

    The first line names the columns. A cell is empty if there is no such state in memory, or if log-probabilities were not asked for.
    """
    columns = attention.columns
    yield "\t".join(["predicted", "oov", "log_prob", *(attention.inputs[column] for column in columns)])
    for row, predicted in enumerate(attention.predicted):
        cells = [f"{attention.weights[row, column]:.{DECIMALS}f}" if attention.in_memory[row, column] else "" for column in columns]
        log_prob = "" if attention.log_probs is None else f"{attention.log_probs[row]:.{DECIMALS}f}"
        yield "\t".join([predicted, str(int(attention.unknown_prediction(row))), log_prob, *cells])


def sentence_record(attention: SentenceAttention) -> dict[str, Any]:
    """For JSON. ``weights`` has a row for each of ``predicted`` and a column for each of ``inputs``; null: not in memory."""
    columns = attention.columns
    return {
        "words": list(attention.words),
        "oov": list(attention.oov),
        "inputs": [attention.inputs[column] for column in columns],
        "predicted": list(attention.predicted),
        "log_probs": None if attention.log_probs is None else [round(value, DECIMALS) for value in attention.log_probs],
        "weights": [
            [round(float(weights[column]), DECIMALS) if in_memory[column] else None for column in columns]
            for weights, in_memory in zip(attention.weights, attention.in_memory, strict=True)
        ],
    }


def distance_table(profile: DistanceProfile) -> Iterator[str]:
    """Tab-separated lines, one a distance; the first names the columns, those of ``attlm_fairseq.attention.distance.AtDistance``."""
    yield "distance\tpredictions\tmean\tequal\tshare"
    for row in profile.rows():
        name = "h_0" if row.distance is None else row.distance
        yield f"{name}\t{row.predictions}\t{row.mean:.{DECIMALS}f}\t{row.equal:.{DECIMALS}f}\t{row.share:.{DECIMALS}f}"


def distance_record(profile: DistanceProfile) -> dict[str, Any]:
    """For JSON: what was counted, and a row for each distance; its ``distance`` is null for ``h_0``."""
    return {
        "sentences": profile.sentences,
        "predictions": profile.predictions,
        "without_memory": profile.without_memory,
        "start_share": round(profile.start_share, DECIMALS),
        "distances": [{name: rounded(value) for name, value in asdict(row).items()} for row in profile.rows()],
    }


def rounded(value: float | int | None) -> float | int | None:
    return round(value, DECIMALS) if isinstance(value, float) else value
