"""The ``attlm`` command group, and how errors are shown to the user."""

from __future__ import annotations

import contextlib
import difflib
import errno
import importlib
import io
import os
import re
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import cloup

from attlm_cli.printing import printed_notes
from attlm_fairseq.errors import InputError, InputWarning, NoDictionaryError
from attlm_fairseq.messages import note
from attlm_fairseq.version import __version__

COMMANDS = {
    "rescore": "Put the best hypothesis of each n-best list first.",
    "tune": "Find the weights that rescore needs, on lists with references.",
    "corrections": "Learn from lists with references what the lists get wrong.",
    "jackknife": "Score lists with what was learned from the other folds.",
    "eval": "Measure lists or texts against references.",
    "combine": "Join the lists of several systems for the same utterances.",
    "convert": "Write n-best lists in another format.",
    "lattices": "Make n-best lists from lattices.",
    "score": "Log-probability of each line of a text, or of each word.",
    "ppl": "Perplexity of a text.",
    "cloze": "Answer a cloze test, such as the Children's Book Test.",
    "blank": "Make a cloze test of a text.",
    "sample": "Draw sentences from a neural LM.",
    "export": "Write a checkpoint as a self-contained folder.",
    "attention": "Show which earlier states an LM reads for each word.",
    "fit": "Find the temperature and the caches of LMs on a text.",
    "mix": "Find the weights of a linear mixture of LMs on a text.",
    "ngram": "Estimate an n-gram LM with KenLM.",
}


# the extra of attlm-fairseq that installs an optional package
EXTRAS = {
    "fairseq": "train",
    "omegaconf": "train",
    "transformers": "hf",
    "flashlight": "decoding",
    "pyctcdecode": "decoding",
    "sentencepiece": "subword",
    "subword_nmt": "subword",
    "ray": "ray",
    "pyarrow": "ray",
}
PACKAGES = {"kenlm": "ufal-kenlm"} if sys.version_info >= (3, 13) else {}  # where the module has another name than the package
OF_ONE_FILE = ("tune", "rescore", "learn", "jackknife")  # commands that take the lists of one file
OWN = ("attlm_fairseq", "attlm_cli")


MANY_FILES = 65536


class OneLineError(click.ClickException):
    """Shows an InputError as one line, with exit code 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        click.echo(f"attlm: error: {self.format_message()}", err=True)


class Terminated(KeyboardInterrupt):
    """Another program, such as a batch system or a container, has asked this one to end."""

    number, what = signal.SIGTERM, "terminated"


class HungUp(KeyboardInterrupt):
    """The terminal or the connection has gone. ``nohup`` ignores this signal."""

    number, what = signal.SIGHUP, "the terminal has gone"


@contextlib.contextmanager
def _terminating() -> Iterator[None]:
    """Let these signals end the block like Ctrl-C: what is half written goes, and scores stay."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: object) -> None:
        for other in before:  # a second one would break what cleans up
            signal.signal(other, signal.SIG_IGN)
        raise Terminated if number == Terminated.number else HungUp

    handlers = {number: signal.getsignal(number) for number in (Terminated.number, HungUp.number)}
    before = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _allow_open_files() -> None:
    """Allow as many open files as the system lets this process have: formats such as ESPnet's keep a few open for each hypothesis."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_FILES if hard == resource.RLIM_INFINITY else min(hard, MANY_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Commands(cloup.Group):
    """Imports a command's module only when the command is called, so that start-up is fast."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return getattr(importlib.import_module(f"{__package__}.{name}"), f"{name}_command")

    def resolve_command(self, context: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], COMMANDS)
            meant = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(COMMANDS)}"
            raise OneLineError(f"there is no command {args[0]!r}: {meant}")
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(self, *arguments: Any, **options: Any) -> Any:
        if sys.stderr is None:  # standard error is closed: messages are lost, but the command still runs
            sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - for as long as the process lives
        _allow_open_files()
        try:
            with _terminating():
                return super().main(*arguments, **options)
        except OSError as error:  # a full disk, a name that is too long, a device that has gone
            where = error.filename or ("standard output or a temporary file" if error.errno == errno.ENOSPC else "")
            reason = error.strerror or str(error)
            ways = "; set TMPDIR to a folder that can be written" if "temporary directory" in reason else ""
            OneLineError(f"{where}{': ' if where else ''}cannot be read or written: {reason}{ways}").show()
            sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - at exit Python would try again to flush to the full disk
            sys.exit(OneLineError.exit_code)
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and not re.search("out of memory|can't allocate memory", str(error)):  # torch's
                raise
            where = (str(error) if isinstance(error, MemoryError) else "of the LMs") or "in a list or line of the input"
            OneLineError(
                f"there is not enough memory ({where}): --mbr needs the square of a list's hypotheses; "
                "shorter lists or lines, a smaller --memory or fewer LMs need less"
            ).show()
            sys.exit(OneLineError.exit_code)

    def invoke(self, context: click.Context) -> Any:
        if sys.stdout is None:
            raise OneLineError("standard output is closed: let it go somewhere, to /dev/null if nowhere else")
        if isinstance(sys.stdout, io.TextIOWrapper):
            # write UTF-8 whatever the locale, or a word could stop a command; file names that are not UTF-8 pass unchanged
            sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
        try:
            with printed_notes(), warnings.catch_warnings():
                warnings.simplefilter("default", InputWarning)
                warnings.showwarning = show_warning  # type: ignore[assignment]  # the documented way to replace it
                return super().invoke(context)
        except click.UsageError as error:
            if "extra argument" in error.message and error.ctx is not None and error.ctx.info_name in OF_ONE_FILE:
                told = f"{error.message}; `attlm convert A B -o all.jsonl` joins several files of lists"
                raise click.UsageError(told, error.ctx) from None
            raise
        except KeyboardInterrupt as error:
            what, number = (error.what, error.number) if isinstance(error, Terminated | HungUp) else ("interrupted", signal.SIGINT)
            try:
                click.echo(f"\nattlm: {what}{f'; {error}' if error.args else ''}", err=True)
            except OSError:  # the terminal has gone, and with it standard error
                sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - or Python would flush to it at exit
            raise SystemExit(128 + number) from None  # the exit code of a program that a signal has ended
        except NoDictionaryError as error:
            raise OneLineError(f"{error} or name it with --dict") from None
        except InputError as error:
            raise OneLineError(str(error)) from None
        except PermissionError as error:  # also raised by Path.exists in a folder without access
            where = "" if error.filename is None else f"{error.filename}: "
            raise OneLineError(f"{where}cannot be read or written: {error.strerror}; check the rights of it and its folders") from None
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if not package or package in OWN:  # a bug in this program, not a missing package
                raise
            wanted = f"attlm-fairseq[{EXTRAS[package]}]" if package in EXTRAS else PACKAGES.get(package, package)
            raise OneLineError(f"the Python package {package} is missing: pip install '{wanted}'") from None
        except BrokenPipeError:
            sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - at exit Python would try again to flush to the closed pipe
            raise SystemExit(141) from None  # the reader of our output has closed the pipe, as in `attlm score text | head`


def show_warning(message: Warning | str, category: type[Warning], *where: Any) -> None:
    """Log a warning in one line. Python's default would also quote a line of source code."""
    text = f"WARNING: {message}" if category is InputWarning else warnings.formatwarning(message, category, *where[:2]).rstrip()
    note(text)


@cloup.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="attlm")
def main() -> None:
    """Rescore MT and ASR n-best lists with neural and n-gram language models.

    \b
    Example:
      attlm tune dev.json --refs dev.ref --lm checkpoint_best.pt --kenlm lm.arpa
      attlm rescore test.json -o test.rescored.json
    """


if __name__ == "__main__":
    main()
