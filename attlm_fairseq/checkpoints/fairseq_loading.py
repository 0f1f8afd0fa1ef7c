"""Load checkpoints in fairseq's own commands: a refused file is one line, and no option in it is run as code.

fairseq calls ``eval`` on some options of its models, such as ``--decoder-layers`` of ``fconv_lm``, which come from the
checkpoint.
"""

from __future__ import annotations

import argparse
import ast
import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any

from omegaconf import DictConfig, OmegaConf

from attlm_fairseq.checkpoints.reading import checked_sparse_tensors, first_sentence
from attlm_fairseq.errors import InputError

NAMES_OF_FILES = {
    "data",
    "save_dir",
    "restore_file",
    "finetune_from_model",
    "path",
    "tensorboard_logdir",
    "log_file",
    "user_dir",
    "init_from",
}
"""Options that are never evaluated and can look like calls: ``wmt14 (en-de)``."""

FROM_CHECKPOINT = "attlm_from_checkpoint"
"""The entry of the state of a fairseq task that builds the model of a checkpoint, not one to be trained."""


def refuse_unusable(load: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap fairseq's ``load_checkpoint_to_cpu``. Raises InputError for a file that cannot be loaded, or only by running what it holds.

    A checkpoint that is loaded says so: its ``task_state`` has the entry ``FROM_CHECKPOINT``.
    """

    @wraps(load)
    def loaded(path: str, *arguments: Any, **named: Any) -> Any:
        try:
            with checked_sparse_tensors():
                state = load(path, *arguments, **named)
            # fairseq merges it into the state of the task, before it has the task build the model
            state["task_state"] = {**(state.get("task_state") or {}), FROM_CHECKPOINT: True}
        except (OSError, InputError):
            raise
        except pickle.UnpicklingError as error:
            raise InputError(f"refused: it is not a checkpoint of plain data or holds code ({first_sentence(error)})", path=path) from None
        except Exception as error:  # broken bytes make torch and fairseq raise almost anything
            why = f"{type(error).__name__}: {first_sentence(error)}"
            raise InputError(f"is not a checkpoint written by fairseq-train, or is cut short ({why})", path=path) from None
        for name, text in option_texts({"cfg": state.get("cfg"), "args": state.get("args")}):
            if name not in NAMES_OF_FILES and runs(text):
                raise InputError(f"refused: its option {name} is {text[:60]!r}, which fairseq could run as Python code", path=path)
        return state

    return loaded


def option_texts(options: Any) -> Iterator[tuple[str, str | bytes]]:
    """Yield the name and value of every text in the options of a checkpoint, nested options included."""
    seen: dict[int, Any] = {}  # by id(), which is unique only among objects that are kept
    waiting = [("", options)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, str | bytes | bytearray):
            yield name, value if isinstance(value, str) else bytes(value)
        if id(value) in seen:  # an object that holds itself
            continue
        seen[id(value)] = value
        if isinstance(value, DictConfig):
            value = OmegaConf.to_container(value, resolve=False)
            waiting.append((name, value))
        elif isinstance(value, argparse.Namespace):
            waiting.append((name, vars(value)))
        elif isinstance(value, Mapping):
            waiting += [(str(key), each) for key, each in value.items()]
        elif isinstance(value, list | tuple | set):
            waiting += [(name, each) for each in value]


PLAIN_NODES = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Attribute, ast.Load),
    *(ast.Tuple, ast.List, ast.Set, ast.Dict),
    *(ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop, ast.BoolOp, ast.boolop, ast.Compare, ast.cmpop),
)
"""What the values of real options are made of. Anything else can run what the file names: a comprehension can assign to a class, and an
index then calls it."""


def runs(text: str | bytes) -> bool:
    """Return whether ``eval`` of a text could call something. ``${...}`` could: omegaconf replaces it by other texts of the file."""
    expression = text.lstrip(" \t") if isinstance(text, str) else text.lstrip(b" \t")
    if "${" in text if isinstance(text, str) else b"${" in text:
        return True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = ast.parse(expression, mode="eval")
    except (SyntaxError, ValueError):
        return False
    except (MemoryError, RecursionError):
        return True
    return not all(isinstance(node, PLAIN_NODES) for node in ast.walk(parsed))
