"""The papers' equations as plain loops over sentences, positions and memory slots: slow, obvious, and independent of the package.

Each function takes the weights by the names of the paper and returns log-probabilities; gradients come from autograd through the
loops. Nothing here is imported from attlm_fairseq.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor


def lstm_states(sequence: list[Tensor], layers: list[dict[str, Tensor]]) -> list[Tensor]:
    """Top-layer outputs ``h_1 .. h_T`` of an LSTM with one bias a gate (input, forget, cell, output), from zero states.

    What enters a layer is multiplied by its ``mask``, if it has one: the same for all positions.
    """
    for layer in layers:
        sequence = [x * layer.get("mask", 1) for x in sequence]
        hidden = cell = torch.zeros(layer["W_h"].shape[1], dtype=sequence[0].dtype)
        outputs = []
        for x in sequence:
            gates = layer["W_x"] @ x + layer["W_h"] @ hidden + layer["b"]
            i, f, g, o = gates.chunk(4)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            hidden = torch.sigmoid(o) * torch.tanh(cell)
            outputs.append(hidden)
        sequence = outputs
    return sequence


def rnn_states(sequence: list[Tensor], layers: list[dict[str, Tensor]]) -> list[Tensor]:
    """Top-layer outputs of a plain RNN, ``h_t = tanh(W x_t + U h_{t-1} + b)``, from zero states. For a ``mask`` see above."""
    for layer in layers:
        sequence = [x * layer.get("mask", 1) for x in sequence]
        hidden = torch.zeros(layer["W_h"].shape[1], dtype=sequence[0].dtype)
        outputs = []
        for x in sequence:
            hidden = torch.tanh(layer["W_x"] @ x + layer["W_h"] @ hidden + layer["b"])
            outputs.append(hidden)
        sequence = outputs
    return sequence


def higher_order_states(sequence: list[Tensor], layers: list[dict[str, Tensor]], N: int) -> list[Tensor]:
    """Top-layer outputs of Soltani and Jiang (2016), FOFE (alpha = 0.6) or, where a layer has weights of gates, gated."""
    for layer in layers:
        sequence = [x * layer.get("mask", 1) for x in sequence]
        outputs: list[Tensor] = []
        for t, x in enumerate(sequence):
            total = layer["from_input.weight"] @ x + layer["from_input.bias"]
            for n in range(1, min(N, t) + 1):  # missing states are left out
                fed_back = layer[f"from_states.{n - 1}.weight"] @ outputs[t - n]
                if "gate_inputs.0.weight" in layer:
                    W_1n, W_2n = (layer[f"{kind}.{n - 1}.weight"] for kind in ("gate_inputs", "gate_states"))
                    total = total + torch.sigmoid(W_1n @ x + W_2n @ outputs[t - n]) * fed_back
                else:
                    total = total + 0.6**n * fed_back
            outputs.append(torch.tanh(total))
        sequence = outputs
    return sequence


def lstmn_states(sequence: list[Tensor], layers: list[dict[str, Tensor]]) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Top-layer outputs of Cheng, Dong and Lapata (2016), and the top layer's weights of ``h_0 .. h_{t-1}``."""
    weights: list[list[Tensor]] = []
    for layer in layers:
        sequence = [x * layer.get("mask", 1) for x in sequence]
        zeros = torch.zeros(layer["W_h"].shape[1], dtype=sequence[0].dtype)
        h, c, read, weights = [zeros], [zeros], zeros, []
        for x in sequence:
            query = layer["W_query"] @ x + layer["W_read"] @ read
            s = softmax([layer["v"] @ torch.tanh(layer["W_key"] @ h_i + query) for h_i in h])
            read = sum(s_i * h_i for s_i, h_i in zip(s, h, strict=True))
            cell = sum(s_i * c_i for s_i, c_i in zip(s, c, strict=True))
            i, f, g, o = (layer["W_x"] @ x + layer["W_h"] @ read + layer["b"]).chunk(4)
            c.append(torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g))
            h.append(torch.sigmoid(o) * torch.tanh(c[-1]))
            weights.append(s)
        sequence = h[1:]
    return sequence, weights


def weighted_average_states(sequence: list[Tensor], layers: list[dict[str, Tensor]]) -> list[Tensor]:
    """Top-layer outputs of Ostmeyer and Cowell (2017): both sums over all words are computed again at each position."""
    for layer in layers:
        sequence = [x * layer.get("mask", 1) for x in sequence]
        hidden = torch.tanh(layer["s_0"])
        z, a, outputs = [], [], []
        for x in sequence:
            u, of_g = (layer["W_x"] @ x + layer["b"]).chunk(2)
            g, score = layer["W_h"].chunk(2)
            z.append(u * torch.tanh(of_g + g @ hidden))
            a.append(layer["W_a"] @ x + score @ hidden)
            total = sum(torch.exp(a_i) for a_i in a)
            hidden = torch.tanh(sum(z_i * torch.exp(a_i) for z_i, a_i in zip(z, a, strict=True)) / total)
            outputs.append(hidden)
        sequence = outputs
    return sequence


def mogrifier_states(
    sequence: list[Tensor], layers: list[dict[str, Tensor]], rounds: list[list[Tensor]], capped: bool = False
) -> list[Tensor]:
    """Top-layer outputs of the Mogrifier LSTM; ``rounds``: of each layer Q^1, R^2, Q^3, ..; ``capped``: the input gate is min(i, 1 - f)."""
    for layer, matrices in zip(layers, rounds, strict=True):
        sequence = [x * layer.get("mask", 1) for x in sequence]
        hidden = cell = torch.zeros(layer["W_h"].shape[1], dtype=sequence[0].dtype)
        outputs = []
        for x in sequence:
            for i, matrix in enumerate(matrices, 1):
                if i % 2 == 1:
                    x = 2 * torch.sigmoid(matrix @ hidden) * x
                else:
                    hidden = 2 * torch.sigmoid(matrix @ x) * hidden
            i, f, g, o = (layer["W_x"] @ x + layer["W_h"] @ hidden + layer["b"]).chunk(4)
            i, f = torch.sigmoid(i), torch.sigmoid(f)
            cell = f * cell + (torch.minimum(i, 1 - f) if capped else i) * torch.tanh(g)
            hidden = torch.sigmoid(o) * torch.tanh(cell)
            outputs.append(hidden)
        sequence = outputs
    return sequence


def softmax(scores: list[Tensor]) -> list[Tensor]:
    exponentials = [torch.exp(score) for score in scores]
    total = sum(exponentials)
    return [value / total for value in exponentials]


def attentive_features(
    h: list[Tensor], W: dict[str, Tensor], current: bool = False, skip: int = 0, merge: str = "concat"
) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Salton et al. (2017), Eq. 3-7, 9 (without ``W_q``: single) and 10 (combined): ``h'_t`` and the weights ``a_1 .. a_{t-1}`` for each t.

    Not in the paper: without ``W_s``, the score is ``h_i . h_t``; ``current``: ``h_t`` is in the memory too; ``skip``: the newest
    states in memory that are not read; other merges of ``h_t`` and ``c_t``, with ``W_f`` and ``b_f`` of the second layer, or ``W_a``.
    """
    features, weights = [], []
    for t in range(len(h)):
        memory = h[: max(0, (t + 1 if current else t) - skip)]
        context = torch.zeros_like(h[t])
        a = []
        if memory:
            scores = []
            for h_i in memory:
                if "W_s" not in W:
                    scores.append(sum(x * y for x, y in zip(h_i, h[t], strict=True)))
                    continue
                inner = W["W_s"] @ h_i
                if "W_q" in W:
                    inner = inner + W["W_q"] @ h[t]
                scores.append(sum(v * x for v, x in zip(W["v_s"], torch.tanh(inner), strict=True)))
            a = softmax(scores)
            for a_i, h_i in zip(a, memory, strict=True):
                context = context + a_i * h_i
        if merge in ("concat", "feedforward"):
            merged = torch.tanh(W["W_c"] @ torch.cat([h[t], context]) + W["b_c"])
            features.append(merged if merge == "concat" else torch.tanh(W["W_f"] @ merged + W["b_f"]))
        elif merge == "sum":
            features.append(h[t] + W["W_a"] @ context)
        else:
            features.append(h[t] * context if merge == "product" else context)
        weights.append(a)
    return features, weights


def next_token_log_probs(features: list[Tensor], W: Tensor, b: Tensor) -> Tensor:
    """Eq. 8: (T, V) natural-log probabilities of the token after each position."""
    return torch.stack([torch.log_softmax(W @ feature + b, dim=0) for feature in features])


def mixture_log_probs(sources: list[list[Tensor]], L: list[Tensor], c: list[Tensor], P: Tensor, W: Tensor, b: Tensor) -> Tensor:
    """MoS (Yang et al. 2018) and DOC (Takase et al. 2018): (T, V), with softmax k over the outputs ``sources[k]`` of its layer."""
    rows = []
    for t, first in enumerate(sources[0]):
        priors = softmax(list(P @ first))
        total = 0
        for k, pi in enumerate(priors):
            z = torch.tanh(L[k] @ sources[k][t] + c[k])
            exponentials = torch.exp(W @ z + b)
            total = total + pi * exponentials / exponentials.sum()
        rows.append(torch.log(total))
    return torch.stack(rows)


def pointer_log_probs(
    h: list[Tensor], words: list[int], L: int, W_q: Tensor, b_q: Tensor, s: Tensor, U: Tensor, b: Tensor
) -> tuple[Tensor, list[list[Tensor]], Tensor]:
    """Merity et al. (2017): ``p`` (T, V) over the last L words, the weights of the pointer for each t, and the gates (T,)."""
    rows, weights, gates = [], [], []
    for t, h_t in enumerate(h):
        q = torch.tanh(W_q @ h_t + b_q)
        window = range(max(0, t - L + 1), t + 1)
        *a, g = softmax([q @ h[i] for i in window] + [q @ s])
        vocabulary = torch.exp(U @ h_t + b)
        p = g * vocabulary / vocabulary.sum()
        for a_i, i in zip(a, window, strict=True):
            p = p + a_i * torch.nn.functional.one_hot(torch.tensor(words[i]), len(p))
        rows.append(torch.log(p))
        weights.append(a)
        gates.append(g)
    return torch.stack(rows), weights, torch.stack(gates)


def squared_variation(priors: Tensor) -> Tensor:
    """Takase et al. (2018): of the priors (N, K), summed over N predictions, (standard deviation / mean)^2 over the K softmaxes."""
    sums = [priors[:, k].sum() for k in range(priors.shape[1])]
    mean = sum(sums) / len(sums)
    return sum((value - mean) ** 2 for value in sums) / (len(sums) - 1) / mean**2


def projected_states(h: list[Tensor], W_p: Tensor, b_p: Tensor) -> list[Tensor]:
    """A plain LSTM's states, made as small as the embeddings."""
    return [W_p @ h_t + b_p for h_t in h]


def averaging_features(h: list[Tensor], W_c: Tensor, b_c: Tensor) -> list[Tensor]:
    """Salton and Kelleher (2018): the memory begins with a zero vector that counts; the current state is stored before averaging."""
    features, memory = [], [torch.zeros_like(h[0])]
    for h_t in h:
        memory.append(h_t)
        context = sum(memory) / len(memory)
        features.append(torch.tanh(W_c @ torch.cat([h_t, context]) + b_c))
    return features


def selection_features(
    h: list[Tensor],
    selection: str,
    W_kh: Tensor,
    b_k: Tensor,
    gate1: tuple[Tensor, Tensor] | None,
    gate2: tuple[Tensor, Tensor] | None,
    skip: int = 0,
) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Liu et al. (2016): ``[h_t; r_t]`` and alpha over ``h_0 .. h_{t-1}``, the newest ``skip`` left out; gates as (matrix, bias)."""
    features, weights = [], []
    memory = [torch.zeros_like(h[0])]
    for h_t in h:
        k = W_kh @ h_t + b_k
        ones = torch.ones_like(k)
        w_h2 = ones if gate2 is None else torch.sigmoid(gate2[0] @ h_t + gate2[1])
        if selection == "independent":
            w_h1 = torch.sigmoid(gate1[0] @ h_t + gate1[1])
        else:
            w_h1 = {"none": ones, "tied": w_h2, "complementary": ones - w_h2}[selection]
        read = memory[: max(0, len(memory) - skip)]
        alpha = softmax([((h_i * w_h1) * k).sum() for h_i in read])
        r = sum((alpha_i * (h_i * w_h2) for alpha_i, h_i in zip(alpha, read, strict=True)), torch.zeros_like(k))
        features.append(torch.cat([h_t, r]))
        weights.append(alpha)
        memory.append(h_t)
    return features, weights


def key_value_predict_features(
    h: list[Tensor], parts: int, L: int, W_Y: Tensor, W_h: Tensor, w: Tensor, W_r: Tensor, W_x: Tensor, skip: int = 0
) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Daniluk et al. (2017): attention (1 part), key-value (2), key-value-predict (3); alpha over the window, oldest first.

    The window ends ``skip`` positions before the last output.
    """
    size = len(h[0]) // parts
    pieces = [[h_t[part * size : (part + 1) * size] for part in range(parts)] for h_t in h]
    features, weights = [], []
    for t, current in enumerate(pieces):
        memory = pieces[max(0, t - L - skip) : max(0, t - skip)]
        r = torch.zeros(size, dtype=h[0].dtype)
        alpha = []
        if memory:
            scores = []
            for slot in memory:
                M = torch.tanh(W_Y @ slot[0] + W_h @ current[0])
                scores.append(w @ M)
            alpha = softmax(scores)
            r = sum(alpha_i * slot[min(1, parts - 1)] for alpha_i, slot in zip(alpha, memory, strict=True))
        features.append(torch.tanh(W_r @ r + W_x @ current[-1]))
        weights.append(alpha)
    return features, weights


def ngram_features(h: list[Tensor], N: int, W_N: Tensor) -> list[Tensor]:
    """Daniluk et al. (2017): part k of the output k - 1 positions back, k = 1 .. N; zeros where there is none."""
    size = len(h[0]) // N
    features = []
    for t in range(len(h)):
        parts = []
        for k in range(N):
            parts.append(h[t - k][k * size : (k + 1) * size] if t >= k else torch.zeros(size, dtype=h[0].dtype))
        features.append(torch.tanh(W_N @ torch.cat(parts)))
    return features


def recurrent_memory_features(
    h: list[Tensor], words: list[int], N: int, tables: dict[str, Tensor], compose: dict[str, Tensor], skip: int = 0
) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Tran, Bisazza and Monz (2016): ``m_t`` and the weights of N words, oldest first: the last ones, without the newest ``skip``.

    ``tables``: rows of A, B and, with positions, A_T, B_T; row N - 1 of a table of positions is that of the newest word.
    ``compose``: W_1 .. W_6 and b_1 .. b_6, or C alone.
    """
    features, weights = [], []
    for t, h_t in enumerate(h):
        keys, values = [], []
        for i in range(max(0, t - skip - N + 1), max(0, t - skip + 1)):
            a_i, b_i = tables["A"][words[i]], tables["B"][words[i]]
            if "A_T" in tables:
                position = N - (t - skip - i)
                a_i, b_i = a_i + tables["A_T"][position - 1], b_i + tables["B_T"][position - 1]
            keys.append(a_i)
            values.append(b_i)
        p = softmax([(a_i * h_t).sum() for a_i in keys])
        s = sum((p_i * b_i for p_i, b_i in zip(p, values, strict=True)), torch.zeros_like(h_t))
        if "C" in compose:
            m = compose["C"] @ h_t + s
        else:
            W, b = ([compose[f"{kind}_{k}"] for k in range(1, 7)] for kind in "Wb")
            z = torch.sigmoid(W[0] @ s + b[0] + W[1] @ h_t + b[1])
            r = torch.sigmoid(W[2] @ s + b[2] + W[3] @ h_t + b[3])
            m = (1 - z) * h_t + z * torch.tanh(W[4] @ s + b[4] + W[5] @ (r * h_t) + b[5])
        features.append(m)
        weights.append(p)
    return features, weights


def adversarial_softmax_nll(h: Tensor, W: Tensor, b: Tensor, target: int, epsilon: float) -> Tensor:
    """Wang, Gong and Liu (2019): the target's vector moves by ``- epsilon |w_y| h / |h|``, a constant, if ``w_y . h > 0``."""
    rows = list(W)
    if W[target] @ h > 0:
        rows[target] = W[target] + (-epsilon * W[target].norm() * h / h.norm()).detach()
    logits = [w @ h + bias for w, bias in zip(rows, b, strict=True)]
    return torch.log(sum(torch.exp(logit) for logit in logits)) - logits[target]


def activation_terms(features: list[Tensor], states: list[Tensor], alpha: float, beta: float) -> Tensor:
    """AR and TAR of Merity, Keskar and Socher (2018), of one row without padding: ``alpha mean f^2 + beta mean (h_{t+1} - h_t)^2``."""
    activation = sum((f * f).mean() for f in features) / len(features)
    pairs = [((after - before) ** 2).mean() for before, after in pairwise(states)]
    return alpha * activation + beta * sum(pairs) / max(1, len(pairs))


def taught_nll(log_probs: Tensor, target: int, q: list[Tensor], weight: float) -> Tensor:
    """Distillation (Hinton et al. 2015): the loss of one prediction, its ``log_probs`` (V,) and those of teachers, mean ``q`` (V,) each."""
    loss = -(1 - weight) * log_probs[target]
    for word, log_prob in enumerate(log_probs):
        loss = loss - weight * sum(each[word] for each in q) / len(q) * log_prob
    return loss
