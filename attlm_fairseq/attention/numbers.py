"""Attention as numbers: tables of tab-separated columns, and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from attlm_fairseq.attention.distance import DistanceProfile
from attlm_fairseq.attention.persistence import Persistence
from attlm_fairseq.attention.weights import SentenceAttention

DECIMALS = 6


def sentence_table(attention: SentenceAttention) -> Iterator[str]:
    """Yield tab-separated lines, the names of the columns first, then one line per prediction.

    Columns: the word, whether the LM does not know it, its ln p, the weight of each input and, if requested, the share of
    each input in the LSTM's cell. The field of a state that is not in memory is empty, and so is ln p unless requested.
    """
    columns = attention.columns
    read = range(0) if attention.contributions is None else range(1, len(attention.inputs))
    shares = [f"cell: {attention.inputs[column]}" for column in read]
    yield "\t".join(["predicted", "oov", "log_prob", *(attention.inputs[column] for column in columns), *shares])
    for row, predicted in enumerate(attention.predicted):
        cells = [f"{attention.weights[row, column]:.{DECIMALS}f}" if attention.in_memory[row, column] else "" for column in columns]
        if attention.contributions is not None:
            cells += [f"{attention.contributions[row, column]:.{DECIMALS}f}" if column <= row + 1 else "" for column in read]
        log_prob = "" if attention.log_probs is None else f"{attention.log_probs[row]:.{DECIMALS}f}"
        yield "\t".join([predicted, str(int(attention.unknown_prediction(row))), log_prob, *cells])


def sentence_record(attention: SentenceAttention) -> dict[str, Any]:
    """Return a sentence for JSON.

    ``weights`` has a row for each of ``predicted`` and a column for each of ``inputs``; null is a state not in memory.
    ``contributions``, if requested, has a row for each of ``predicted``: the shares of the inputs read so far, ``<s>`` first.
    """
    columns = attention.columns
    shares = {} if attention.contributions is None else {"contributions": contribution_rows(attention.contributions)}
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
        **shares,
    }


def contribution_rows(contributions: np.ndarray) -> list[list[float]]:
    """Return the shares of the inputs read so far at each position, without ``h_0``."""
    return [[round(float(share), DECIMALS) for share in shares[1 : row + 2]] for row, shares in enumerate(contributions)]


def distance_table(profile: DistanceProfile) -> Iterator[str]:
    """Yield tab-separated lines, the names of the columns first (see ``AtDistance``), then one line per distance."""
    yield "distance\tpredictions\tmean\tequal\tshare" + ("\tcontribution" if profile.persistence else "")
    for row in profile.rows():
        name = "h_0" if row.distance is None else row.distance
        values = [f"{value:.{DECIMALS}f}" for value in (row.mean, row.equal, row.share)]
        shares = ["" if row.contribution is None else f"{row.contribution:.{DECIMALS}f}"] if profile.persistence else []
        yield "\t".join([str(name), str(row.predictions), *values, *shares])


def distance_record(profile: DistanceProfile) -> dict[str, Any]:
    """Return a profile for JSON: its counts and a row per distance; the ``distance`` of ``h_0`` is null."""
    return {
        "sentences": profile.sentences,
        "predictions": profile.predictions,
        "without_memory": profile.without_memory,
        "start_share": round(profile.start_share, DECIMALS),
        **({"persistence": persistence_record(profile.persistence)} if profile.persistence else {}),
        "distances": [{name: rounded(value) for name, value in asdict(row).items()} for row in profile.rows()],
    }


def persistence_record(persistence: Persistence) -> dict[str, Any]:
    """Return the figures of ``Persistence`` for JSON; null without predictions."""
    values = {"correlation": persistence.correlation, "attended": persistence.attended, "expected": persistence.expected}
    found = {name: None if math.isnan(value) else rounded(value) for name, value in values.items()}
    return {"predictions": persistence.predictions, **found}


def rounded(value: float | int | None) -> float | int | None:
    return round(value, DECIMALS) if isinstance(value, float) else value
