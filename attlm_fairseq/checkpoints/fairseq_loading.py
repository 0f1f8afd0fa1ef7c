"""Load checkpoints in fairseq's own commands: a refused file is one line, and no option in it is run as code.

fairseq calls ``eval`` on some options of its models, such as ``--decoder-layers`` of ``fconv_lm``, which come from the
checkpoint. ``close_eval`` makes it take plain values alone, and options that are more than these are refused before.
"""

from __future__ import annotations

import argparse
import ast
import operator
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from attlm_fairseq.checkpoints.plain_data import checked_sparse_tensors, first_sentence, require_undamaged
from attlm_fairseq.errors import InputError

NOT_EVALUATED = {
    "data",
    "save_dir",
    "restore_file",
    "finetune_from_model",
    "path",
    "tensorboard_logdir",
    "log_file",
    "user_dir",
    "init_from",
    "teacher",
    "continue_once",
    "wandb_project",
    "aim_repo",
    "aim_run_hash",
    "azureml_logging",
    "document_marker",
}
"""Options that are never evaluated and can look like calls: ``wmt14 (en-de)``."""

FROM_CHECKPOINT = "attlm_from_checkpoint"
TRAINED_WITH = "attlm_trained_with"
"""The entry of the state of a fairseq task that builds the model of a checkpoint, not one to be trained."""


def refuse_unusable(load: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap fairseq's ``load_checkpoint_to_cpu``. Raises InputError for a file that cannot be loaded, or only by running what it holds.

    A checkpoint that is loaded says so: its ``task_state`` has the entries ``FROM_CHECKPOINT`` and ``TRAINED_WITH``, its task.
    """

    @wraps(load)
    def loaded(path: str, *arguments: Any, **named: Any) -> Any:
        try:
            with checked_sparse_tensors():
                state = load(path, *arguments, **named)
            if Path(path).is_file():  # fairseq's PathManager can take it from elsewhere
                require_undamaged(Path(path))
            # fairseq merges it into the state of the task, before it has the task build the model
            state["task_state"] = {**(state.get("task_state") or {}), FROM_CHECKPOINT: True, TRAINED_WITH: name_of(state, "task")}
        except InputError:
            raise
        except OSError as error:
            if error.filename is None:  # of torch, for an archive that is cut short
                raise InputError("is not a checkpoint written by fairseq-train, or is cut short", path=path) from None
            raise
        except pickle.UnpicklingError as error:
            raise InputError(f"refused: it is not a checkpoint of plain data or holds code ({first_sentence(error)})", path=path) from None
        except Exception as error:  # broken bytes make torch and fairseq raise almost anything
            why = f"{type(error).__name__}: {first_sentence(error)}"
            raise InputError(f"is not a checkpoint written by fairseq-train, or is cut short ({why})", path=path) from None
        close_eval()
        try:
            for name, value in option_values({"cfg": state.get("cfg"), "args": state.get("args")}):
                if reason := refusal(name, value):
                    shown = repr(value[:60]) if isinstance(value, str | bytes) else f"a {type(value).__name__}"
                    raise InputError(f"refused: its option {name} is {shown}, {reason}", path=path)
        except RecursionError:
            raise InputError("refused: its options are nested too deep", path=path) from None
        overrides = named.get("arg_overrides", arguments[0] if arguments else None) or {}
        trained_with, given = name_of(state, "task"), overrides.get("task")
        if isinstance(given, str) and trained_with not in (None, given):
            raise InputError(
                f"was trained with --task {trained_with}, which fairseq-validate takes from it: give --task {trained_with}, not "
                f"--task {given}, or evaluate with fairseq-eval-lm, which takes --task and its options from the command line",
                path=path,
            )
        from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY  # later: they import this

        if (model := name_of(state, "model")) and model not in {*MODEL_REGISTRY, *ARCH_MODEL_REGISTRY}:
            raise InputError(
                f"architecture {model!r} is neither fairseq's nor this package's: install the version of attlm that has it, or give "
                "--user-dir the folder that has it",
                path=path,
            )
        return state

    return loaded


def name_of(state: Mapping[str, Any], part: str) -> str | None:
    """Return the name of a part of a checkpoint's options, such as ``task`` and ``model``; None if they do not say it."""
    options = state.get("cfg")
    chosen = options.get(part) if isinstance(options, DictConfig | dict) else None
    name = chosen.get("_name") if isinstance(chosen, DictConfig | dict) else None
    return name if isinstance(name, str) else None


PLAIN_TYPES = (bool, int, float, type(None))
"""What an option may be besides texts and containers. An object of another type can hide options in attributes, or be read as a text."""


def refusal(name: str, value: Any) -> str | None:
    """Return why a checkpoint with such an option is refused; None if it is not."""
    if not isinstance(value, str | bytes):
        return "expected a number, a text, or a list or dictionary of these"
    if name not in NOT_EVALUATED and runs(value):
        return "which fairseq could run as Python code"
    return "which lets fairseq write, fetch or start something" if acts(name, value) else None


def option_values(options: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and value of every text in the options of a checkpoint, nested options included, and of what is of no plain type."""
    seen: dict[int, Any] = {}  # by id(), which is unique only among objects that are kept
    waiting = [("", options)]
    while waiting:
        name, value = waiting.pop()
        if type(value) in (*PLAIN_TYPES, str, bytes) or isinstance(value, Enum) or id(value) in seen:  # seen: an object that holds itself
            if type(value) in (str, bytes):
                yield name, value
            continue
        seen[id(value)] = value
        if type(value) in (DictConfig, ListConfig):
            waiting.append((name, OmegaConf.to_container(value, resolve=False)))
        elif type(value) is argparse.Namespace:
            waiting.append((name, vars(value)))
        elif type(value) is dict:
            waiting += [(str(key), each) for key, each in value.items()]
        elif type(value) in (list, tuple, set):
            waiting += [(name, each) for each in value]
        else:
            yield name, value


def acts(name: str, text: str | bytes) -> bool:
    """Return whether an option lets a criterion or task of fairseq write a file, fetch one or start a program."""
    text = text if isinstance(text, str) else text.decode(errors="replace")
    return name == "save_predictions" or (name, text) == ("dataset_impl", "fasta") or text.startswith(("http:", "https:", "s3:"))


PLAIN_NODES = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Attribute, ast.Load),
    *(ast.Tuple, ast.List, ast.Set, ast.Dict),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.UnaryOp, ast.unaryop),
)
"""What the values of real options are made of, and names of files look like. Anything else can run what the file names: a comprehension can
assign to a class, and an index or ``%`` then calls it."""


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


def close_eval() -> None:
    """Let fairseq's modules evaluate plain values alone: their global ``eval`` hides Python's."""
    for name, module in list(sys.modules.items()):
        if name.startswith("fairseq.") and module is not None:
            vars(module).setdefault("eval", plain_value)


MAX_MEMBERS = 1 << 16  # members of a list: models have some hundred layers


def plain_value(text: str) -> Any:
    """Return the value of numbers, texts and containers of these, such as ``[(512, 3)] * 20 + [(1024, 3)]``.

    Raises:
        TypeError: it is no text, as ``eval`` does, on which fairseq relies.
        InputError: it is something else.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected a text, found {type(text).__name__}")
    try:
        return _value_of(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, ArithmeticError, MemoryError, RecursionError):
        raise InputError(f"fairseq's option {text[:60]!r} is no plain value: expected numbers, texts or lists of these") from None


def _value_of(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value):
            return value
        case ast.List(members):
            return list(map(_value_of, members))
        case ast.Tuple(members):
            return tuple(map(_value_of, members))
        case ast.Dict(names, members):
            return dict(zip((_value_of(name) for name in names if name is not None), map(_value_of, members), strict=True))
        case ast.UnaryOp(ast.USub(), of):
            return operator.neg(_value_of(of))
        case ast.UnaryOp(ast.UAdd(), of):
            return operator.pos(_value_of(of))
        case ast.BinOp(left, (ast.Add() | ast.Sub() | ast.Mult() | ast.Div()) as sign, right):
            one, other = _value_of(left), _value_of(right)
            if isinstance(sign, ast.Mult):
                lengths = [len(of) if isinstance(of, list | tuple | str | bytes) else 0 for of in (one, other)]
                if any(lengths) and max(lengths) * max(of for of in (one, other) if isinstance(of, int)) > MAX_MEMBERS:
                    raise ValueError("too long")
            return _OPERATORS[type(sign)](one, other)
        case _:
            raise ValueError("no plain value")


_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
