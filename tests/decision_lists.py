"""Lists for decisions."""

from __future__ import annotations

import numpy as np

from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList


def some_lists(seed: int, count: int = 40) -> list[NbestList]:
    generator = np.random.default_rng(seed)
    lists = []
    for number in range(count):
        reference = list(generator.choice(list("abcdef"), size=7))
        hypotheses = []
        for rank in range(1, int(generator.integers(1, 8)) + 1):
            words = [word if generator.random() < 0.75 else generator.choice(list("abcdef")) for word in reference]
            words = [word for word in words if generator.random() < 0.9]
            hypotheses.append(Hypothesis(" ".join(words), scores={"am": float(np.round(generator.normal(), 2))}, rank=rank))
        lists.append(NbestList(str(number), hypotheses, (" ".join(reference),)))
    return lists
