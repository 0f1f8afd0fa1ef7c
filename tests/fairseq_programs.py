"""fairseq's commands and ``attlm`` without the wait for their imports, for tests that run many of them.

A server imports torch and fairseq once. :func:`programs` returns a folder of commands (``fairseq-train``, .., ``attlm``). Each lets the
server fork a process that runs it with the caller's arguments, folder, environment and standard streams. A second server has also taken
this checkout's plugin, as fairseq takes ``--user-dir``; it runs the commands with that option. All others begin without the plugin.
"""

from __future__ import annotations

import argparse
import atexit
import functools
import gc
import importlib
import json
import logging
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

COMMANDS = {  # module and function of each command
    f"fairseq-{name}": (f"fairseq_cli.{name.replace('-', '_')}", "cli_main")
    for name in ("eval-lm", "generate", "hydra-train", "interactive", "preprocess", "train", "validate")
}
ATTLM = {"attlm": ("attlm_cli.main", "main")}
LATE_IMPORTS = ("torch._dynamo",)  # by the first optimiser
PLUGIN = str(Path(__file__).resolve().parents[1] / "attlm_fairseq")
CLIENT = """#!{python} -SE
import json, os, socket, sys
given = [os.path.realpath(value) for option, value in zip(sys.argv, sys.argv[1:]) if option == "--user-dir"]
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r} + (".plugin" if given == [{plugin!r}] else ""))
    request = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(request).to_bytes(8, "little")], [0, 1, 2])
    server.sendall(request)
    code = server.recv(1)
sys.exit(code[0] if code else 70)
"""


@functools.cache
def programs() -> Path:
    """Start the server of this process of tests, and return the folder with the commands that it runs."""
    folder = Path(tempfile.mkdtemp(prefix="fairseq-"))
    address = str(folder / "server")
    for command in (*COMMANDS, *ATTLM):
        path = folder / "bin" / command
        path.parent.mkdir(exist_ok=True)
        path.write_text(CLIENT.format(python=sys.executable, address=address, plugin=PLUGIN))
        path.chmod(0o755)
    server = subprocess.Popen([sys.executable, __file__, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.stdin.close)  # the sign for the server to end, which it also sees if this process is killed
    assert server.stdout.readline() == b"ready\n"
    return folder / "bin"


def serve(address: str) -> None:
    """Import fairseq's commands, and fork a process for each request until standard input is closed."""
    level = logging.root.level
    logging.disable()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in (*(module for module, _ in COMMANDS.values()), *LATE_IMPORTS):
            importlib.import_module(module)
        warm_up_hydra()
    # Commands set up logging while they are imported: that is left to each.
    for name in [name for name in sys.modules if name.partition(".")[0] == "fairseq_cli"]:
        del sys.modules[name]
    logging.root.handlers.clear()
    logging.root.setLevel(level)
    logging.disable(logging.NOTSET)
    assert not any(name.startswith("attlm") for name in sys.modules)
    ready, told = os.pipe()
    with_plugin = os.fork() == 0
    if with_plugin:
        address += ".plugin"
        importlib.import_module("fairseq_cli")  # as in a command: the plugin then sets its process up
        importlib.import_module("fairseq.utils").import_user_module(argparse.Namespace(user_dir=PLUGIN))
    else:
        os.close(told)
    gc.collect()
    gc.freeze()  # or each command looks through all of torch and fairseq, and copies the pages that it looks at
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that wait for the commands
    with socket.socket(socket.AF_UNIX) as listening, selectors.DefaultSelector() as events:
        listening.bind(address)
        listening.listen(64)
        events.register(listening, selectors.EVENT_READ)
        events.register(sys.stdin, selectors.EVENT_READ)
        if with_plugin:
            os.close(told)
        else:
            os.read(ready, 1)  # until the other listens, too, or has failed, which the commands will tell
            print("ready", flush=True)
        while all(key.fileobj is listening for key, _ in events.select()):
            connection, _ = listening.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                answer(connection)
            connection.close()


def warm_up_hydra() -> None:
    """Parse some options as fairseq does for each command: the parser keeps what it learns of its grammar in the process."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    lists = ["optimization.lr='[0.25]'", "optimization.update_freq='[1]'", "task._name='x'", "common.seed=1", "common.cpu=False"]
    OverridesParser.create().parse_overrides([*lists, "task=language_modeling", "dataset.gen_subset='a/b-c.d, e'", "common.lr=-1.5e-05"])


def answer(connection: socket.socket) -> None:
    """Run one command in a process of its own and send its exit code back. Does not return."""
    size, streams, _, _ = socket.recv_fds(connection, 8, 3)
    request = b""
    while len(request) < int.from_bytes(size, "little"):
        request += connection.recv(1 << 16)
    command = os.fork()
    if command == 0:
        connection.close()
        run_command(json.loads(request), streams)
    code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    connection.sendall(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


def run_command(request: list, streams: list[int]) -> None:
    """Become the command: what a console script does, then what Python does at its end. Does not return."""
    sys.argv, folder, environment = request
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if "attlm_fairseq" in sys.modules:
        taken = sys.modules["fairseq.utils"].import_user_module.memo
        taken.update(path for path in map(os.path.abspath, sys.argv) if os.path.realpath(path) == PLUGIN)
    code: object = 1
    try:
        module, function = (COMMANDS | ATTLM)[Path(sys.argv[0]).name]
        code = getattr(importlib.import_module(module), function)()
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())  # the plugin's, if the command has loaded it
    if isinstance(code, str):
        print(code, file=sys.stderr)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else bool(code))


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file: the commands do not see the tests' modules
    serve(sys.argv[1])
