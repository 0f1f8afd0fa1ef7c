"""Options that say more about LMs: mixtures, ensemble weights, text steps, OOV policies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.scoring.lm_spec import LMSpec, are_shares, check_name
from attlm_fairseq.scoring.oov_policy import parse_policy
from attlm_fairseq.text import parse_steps


@dataclass(frozen=True)
class LMChanges:
    """Options that say more about LMs given by other options or by ``attlm.toml``: ``[NAME=]VALUE``, as the user gave them."""

    ensemble_weights: tuple[str, ...] = ()
    mixture: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    oov: tuple[str, ...] = ()

    def apply(self, config: RunConfig) -> RunConfig:
        """The configuration with these. Raises InputError."""
        lms = {lm.name: lm for lm in config.lms}
        for option in self.mixture:
            name, value = split_name(option)
            name = name or next(name for name in numbered("mix") if name not in lms)
            members = [part.rpartition(":") for part in value.split(",")]
            shares = [number_or_none(number) for _, _, number in members]
            if None in shares or not are_shares(shares, len(members)) or len({member for member, _, _ in members}) != len(members):
                raise InputError(f"--mixture {option!r}: expected LM:NUMBER,LM:NUMBER.., none negative, not all zero, each LM once")
            old = lms.get(check_name(name), LMSpec(name))
            if old.kenlm or old.checkpoints:
                raise InputError(f"--mixture {option!r}: {name!r} is one of the LMs already")
            lms[name] = replace(old, mixture=tuple((member, share) for (member, _, _), share in zip(members, shares, strict=True)))
        for option in self.ensemble_weights:
            name, value = split_name(option)
            ensembles = [lm for lm in lms.values() if len(lm.checkpoints) > 1 and name in (None, lm.name)]
            if len(ensembles) != 1:
                raise InputError(
                    f"--ensemble-weights {option!r}: there are {len(ensembles)} ensembles {name or ''}; give NAME=NUMBER:NUMBER.."
                )
            shares, ensemble = list(map(number_or_none, value.split(":"))), ensembles[0]
            if None in shares or not are_shares(shares, len(ensemble.checkpoints)):
                count = len(ensemble.checkpoints)
                raise InputError(f"--ensemble-weights {option!r}: expected {count} numbers, none negative, not all zero, with : between")
            lms[ensemble.name] = replace(ensemble, ensemble_weights=tuple(shares))
        text = config.text
        for option in self.text:
            name, value = split_name(option)
            steps = parse_steps(filter(None, value.split(",")))
            if name is None:
                text = steps
            lms |= {lm.name: replace(lm, text=steps) for lm in named(lms, name, "--text") if name}
        for option in self.oov:
            name, value = split_name(option)
            policy = parse_policy(value)
            lms |= {lm.name: replace(lm, oov=policy) for lm in named(lms, name, "--oov") if name or not lm.mixture}
        return replace(config, lms=tuple(lms.values()), text=text)


def split_name(option: str) -> tuple[str | None, str]:
    """``NAME=VALUE`` as name and value; ``VALUE`` has no name."""
    name, equals, value = option.partition("=")
    return (name, value) if equals and re.fullmatch(r"[\w-]+", name) else (None, option)


def named(lms: dict[str, LMSpec], name: str | None, option: str) -> list[LMSpec]:
    """The LM of this name, or all. Raises InputError."""
    if name is not None and name not in lms:
        raise InputError(f"{option} {name}=..: no LM has this name; there are {', '.join(lms) or 'none'}")
    return [lm for lm in lms.values() if name in (None, lm.name)]


def number_or_none(text: str) -> float | None:
    """The number that a text is."""
    try:
        return float(text)
    except ValueError:
        return None


def numbered(name: str) -> Iterator[str]:
    """``name``, ``name2``, ``name3``, .."""
    yield name
    number = 2
    while True:
        yield f"{name}{number}"
        number += 1
