"""Training speed and peak memory of every model against fairseq's own `lstm_lm`, in one run.

Same sizes (2 x 650, V = 10,000), dropout (0.5), batch (32 sentences of 35 words) and optimiser (SGD, clipped) for all, each through
fairseq's own Trainer: forward, loss, backward, clipping, update. Each model is a process of its own, so that its peak memory is its
own, beyond what its imports took. The models of one dtype and the baseline run side by side: all take a step in turn, round after
round, and the median counts, so what else the machine does slows all of them alike. Then the next dtype begins, with the baseline
measured again. Two ratios: by the clock, and by the CPU time that a step took, which other work hardly changes.
Beside them what the matrix products of such a step would take at the rate that the machine reaches, in the same run and dtype, on the
output layer's product alone: the share of that rate (clock), and the ratio that a step of nothing but products at that rate would have.
With ``--lengths TEXT`` the batches have the lengths of consecutive sentences of the text, cut at 35 words, and padding: words and
operations are those of the sentences alone.

A model that fails has its error as its row. fairseq's `lstm_lm` is measured in float32 alone: its --bf16 does not run on a CPU. The
states of key-value-predict have 651 numbers and those of the 4-gram RNN 652, which divide into their parts.

    python benchmarks/training_speed.py [--models single,combined] [--steps 5] [--dtypes float32] [--device cuda] [--lengths train.txt]
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import itertools
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BASELINE = "fairseq lstm_lm"
SENTENCES, WORDS, VOCABULARY, SIZE, DROPOUT = 32, 35, 10_000, 650, 0.5
MODELS = {
    "plain": ("plain_lstm_lm", SIZE, []),
    "single": ("attentive_lstm_lm", SIZE, ["--attention-score", "single"]),
    "combined": ("attentive_lstm_lm", SIZE, ["--attention-score", "combined"]),
    "averaging": ("averaging_lstm_lm", SIZE, []),
    "selection": ("amsrn_lm", SIZE, ["--selection", "tied", "--output-layer", "untied"]),
    "key-value-predict": ("kvp_lstm_lm", 651, ["--kvp-mode", "key-value-predict", "--output-layer", "untied"]),
    "RNN": ("rnn_lm", SIZE, []),
    "HORNN": ("hornn_lm", SIZE, []),
    "RM": ("rm_lm", SIZE, []),
    "RMR": ("rm_lm", SIZE, ["--rm-second-lstm"]),
    "LSTMN": ("lstmn_lm", SIZE, []),
    "Mogrifier": ("mogrifier_lstm_lm", SIZE, []),
    "4-gram": ("ngram_rnn_lm", 652, ["--ngram-order", "4", "--output-layer", "untied"]),
}
ON_A_GPU = {"Mogrifier graphs": ("mogrifier_lstm_lm", SIZE, ["--cuda-graphs"])}
LSTM_OPERATIONS = (
    *("aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward", "aten::_cudnn_rnn", "aten::_cudnn_rnn_backward"),
    *("_Layer", "_LayerBackward"),  # of attlm_fairseq.modules.kernels.lstm_over_time
)
OUTPUT_OPERATIONS = ("_LinearNLL", "_LinearNLLBackward")


def arguments(model: str, dtype: str, data: Path, device: str) -> list[str]:
    """Return the command line of fairseq-train."""
    words = [
        str(data),
        "--optimizer",
        "sgd",
        "--lr",
        "1.0",
        "--clip-norm",
        "5",
        "--sentence-avg",
        "--batch-size",
        str(SENTENCES),
        "--seed",
        "1",
    ]
    words += [] if device == "cuda" else ["--cpu"]
    sizes = ["--decoder-embed-dim", str(SIZE), "--decoder-layers", "2", "--dropout", str(DROPOUT)]
    if model == BASELINE:
        words += ["--task", "language_modeling", "--criterion", "cross_entropy", "--arch", "lstm_lm", "--decoder-hidden-size", str(SIZE)]
        return [*words, *sizes, "--decoder-out-embed-dim", str(SIZE), "--share-decoder-input-output-embed"]
    arch, hidden, own = (MODELS | ON_A_GPU)[model]
    words += ["--user-dir", str(ROOT / "attlm_fairseq"), "--task", "sentence_reset_lm", "--criterion", "lm_cross_entropy", "--arch", arch]
    own = [*own, "--output-bias", "zero"]  # there is no training text to count words in
    return [*words, *sizes, "--decoder-hidden-size", str(hidden), *own, *(["--compute-dtype", dtype] if dtype == "bf16" else [])]


def lengths_of(text: Path | None) -> list[list[int]]:
    """Return the numbers of words, with the end, of the sentences of some batches."""
    if text is None:
        return [[WORDS] * SENTENCES]
    with gzip.open(text, "rt") if text.suffix == ".gz" else text.open() as lines:
        found = [min(WORDS, len(line.split()) + 1) for line in itertools.islice(lines, 100 * SENTENCES)]
    return [found[begin : begin + SENTENCES] for begin in range(0, len(found) - SENTENCES + 1, SENTENCES)]


def batch_of(lengths: list[int]) -> dict[str, Any]:
    import torch

    counts, pad = torch.tensor(lengths), 1
    present = torch.arange(max(lengths)) < counts.unsqueeze(1)
    words = torch.randint(4, VOCABULARY, present.shape)
    source, target = words.masked_fill(~present, pad), words.roll(-1, dims=1).masked_fill(~present, pad)
    net_input = {"src_tokens": source, "src_lengths": counts}
    return {"id": torch.arange(len(lengths)), "nsentences": len(lengths), "ntokens": sum(lengths), "net_input": net_input, "target": target}


def work(model: str, dtype: str, device: str, text: Path | None) -> None:
    """One model in this process: a step for each line on standard input, its seconds as the answer; then how the time divides."""
    import logging

    logging.disable(logging.CRITICAL)
    import torch
    from fairseq import options, tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.trainer import Trainer

    set_precision(dtype)
    answer = os.fdopen(os.dup(1), "w")  # fairseq prints where it likes
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "dict.txt").write_text("".join(f"w{index} 1\n" for index in range(VOCABULARY - 4)))
        args = options.parse_args_and_arch(options.get_training_parser(), arguments(model, dtype, Path(folder), device))
        config = convert_namespace_to_omegaconf(args)
        torch.manual_seed(1)
        task = tasks.setup_task(config.task)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    trainer = Trainer(config, task, task.build_model(config.model), task.build_criterion(config.criterion))
    trainer.begin_epoch(1)
    batches = itertools.cycle([batch_of(lengths) for lengths in lengths_of(text)])

    def step() -> tuple[float, float]:
        """Return the seconds per word: wall time and CPU time."""
        batch = next(batches)
        updates = trainer.get_num_updates()
        begin = time.perf_counter(), time.process_time()
        trainer.train_step([batch])
        if device == "cuda":
            torch.cuda.synchronize()
        if trainer.get_num_updates() == updates:  # fairseq goes on after a lack of GPU memory, and such a step is fast
            raise RuntimeError("the step changed no weights: there was not enough GPU memory for it")
        return (time.perf_counter() - begin[0]) / batch["ntokens"], (time.process_time() - begin[1]) / batch["ntokens"]

    def say(value: Any) -> None:
        print(json.dumps(value), file=answer, flush=True)

    trained = [parameter for parameter in trainer.model.parameters() if parameter.requires_grad]
    # every matrix is in one product a word, and in two of the backward pass; but embeddings that the output layer lacks are looked up
    products = sum(parameter.numel() for parameter in trained if parameter.dim() == 2)
    if model != BASELINE:
        own = trainer.model.decoder.model
        in_output = {id(parameter) for parameter in own.output.parameters()}
        tables = {id(part.weight): part.weight.numel() for part in own.modules() if isinstance(part, torch.nn.Embedding)}
        products -= sum(count for table, count in tables.items() if table not in in_output)
    say([sum(map(torch.Tensor.numel, trained)), 3 * 2 * products])
    for line in sys.stdin:
        if line.strip() == "step":
            say(step())
        else:
            say({"peak": peak(step, trainer, device, before), "outside": outside(step, device) if line.strip() == "profile" else None})


def peak(step: Callable[[], Any], trainer: Any, device: str, before: int) -> int:
    """Return peak memory in bytes, on a CPU above ``before`` KiB."""
    import torch

    if device == "cuda":
        trainer.cuda_env = None  # with it fairseq's trainer starts again to look for the peak in the midst of a step
        torch.cuda.reset_peak_memory_stats()
        step()
        return torch.cuda.max_memory_allocated()
    return 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


def outside(step: Callable[[], Any], device: str) -> float | None:
    """Return the share of a step outside LSTM and output layer."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]) as found:
        step()
    return share_outside(found.key_averages(), device)


def share_outside(events: Any, device: str) -> float | None:
    """Share of the time that is neither the LSTM's nor the output layer's; None where these are not operations of their own (fairseq)."""
    kind = "device" if device == "cuda" else "cpu"
    inside = {
        name: sum(getattr(event, f"{kind}_time_total") for event in events if event.key in name)
        for name in (LSTM_OPERATIONS, OUTPUT_OPERATIONS)
    }
    if not all(inside.values()):
        return None
    return 1 - sum(inside.values()) / sum(getattr(event, f"self_{kind}_time_total") for event in events)


def machine(device: str) -> str:
    """Return the machine's name, and whether it has instructions for bf16."""
    import torch

    if device == "cuda":
        return torch.cuda.get_device_name()
    bf16 = "with" if has_bf16(device) else "without"
    return f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}, {bf16} bf16 instructions"


def matmul_rate(device: str, dtype: str, count: int = SENTENCES * WORDS, words: int = VOCABULARY) -> float:
    """Floating-point operations a second of the output layer's product, the best of ten; in bf16 with sizes that suit its instructions.

    With a ``count`` of rows and a number of columns ``words`` it is that of another product.
    """
    import torch

    size, kind = SIZE, torch.float32
    if dtype == "bf16":
        words, size, kind = -(-words // 32) * 32, 672, torch.bfloat16
    set_precision(dtype)
    rows, weight = (torch.randn(count, size, device=device, dtype=kind) for count in (count, words))
    out, best = torch.empty(len(rows), words, device=device, dtype=kind), 0.0
    for _ in range(10):
        begin = time.perf_counter()
        torch.mm(rows, weight.t(), out=out)
        if device == "cuda":
            torch.cuda.synchronize()
        best = max(best, 2 * out.numel() * size / (time.perf_counter() - begin))
    set_precision("float32")  # for what this process computes next
    return best


def set_precision(dtype: str) -> None:
    """Choose what torch does to float32: nothing, TF32 on a GPU, or products rounded to bf16 by the CPU's library (``mkldnn``)."""
    import torch

    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    for library in (torch.backends.mkldnn.matmul, torch.backends.mkldnn.rnn):
        library.fp32_precision = "bf16" if dtype == "mkldnn" else "none"


def has_bf16(device: str) -> bool:
    """Return whether bf16 is computed rather than emulated."""
    import torch

    from attlm_fairseq.modules.kernels.products import has_bfloat16_instructions

    return torch.cuda.is_bf16_supported(including_emulation=False) if device == "cuda" else has_bfloat16_instructions()


class WorkerError(Exception):
    """Raised if the process of a model has ended. The message is the last line that it printed."""


class Worker:
    """A model in its own process."""

    def __init__(self, model: str, dtype: str, device: str, text: Path | None) -> None:
        self.model, self.dtype = model, dtype
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
        command = [sys.executable, __file__, "--worker", model, dtype, "--device", device]
        command += [] if text is None else ["--lengths", str(text)]
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - a pipe that nobody reads can fill up and stop the process
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=environment
        )
        self.error = ""
        self.parameters = 0
        self.operations = 0  # floating-point operations of a word's matrix products
        self.seconds: list[tuple[float, float]] = []  # wall time and CPU time per word

    def ask(self, what: str) -> Any:
        """Send a line and return the answer. Raises WorkerError."""
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either
            self.process.stdin.write(what + "\n")
            self.process.stdin.flush()
        return self.receive()

    def receive(self) -> Any:
        """Return the next answer. Raises WorkerError."""
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            said = self.errors.read().strip().splitlines()
            code = self.process.wait()
            raise WorkerError(said[-1] if said and code > 0 else f"exit code {code}")  # killed: the last line says nothing
        return json.loads(line)

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()

    def words_a_second(self, clock: int) -> float:
        """Return the median by wall time (0) or CPU time (1); nan if the model failed."""
        return math.nan if self.error else 1 / statistics.median(seconds[clock] for seconds in self.seconds)


def measure(asked: list[tuple[str, str]], options: argparse.Namespace) -> None:
    """Measure models, each with its dtype, side by side, and print their rows. The first one is the baseline."""
    workers = [Worker(*one, options.device, options.lengths) for one in asked]  # which begin all at once
    rates: dict[str, list[float]] = {dtype: [] for _, dtype in asked}

    def of_each(act: Callable[[Worker], None]) -> None:
        for worker in workers:
            try:
                if not worker.error:
                    act(worker)
            except WorkerError as error:
                worker.error = str(error)

    def begin(worker: Worker) -> None:
        worker.parameters, worker.operations = worker.receive()

    def print_row(worker: Worker) -> None:
        end = worker.ask("end" if options.no_profile else "profile")
        ratios = [worker.words_a_second(clock) / workers[0].words_a_second(clock) for clock in (0, 1)]
        share = worker.operations / statistics.median(rates[worker.dtype]) * worker.words_a_second(0)
        outside = "" if end["outside"] is None else f"{end['outside']:.0%}"
        print(
            f"{worker.model:20}{worker.dtype:9}{worker.parameters / 1e6:9.1f} M"
            f"{worker.words_a_second(0):10,.0f}{ratios[0]:7.1f}{ratios[1]:7.1f}{share:10.0%}{ratios[0] / share:9.1f}"
            f"{end['peak'] / 2**20:10,.0f}  {outside}",
            flush=True,
        )

    of_each(begin)
    for number in range(options.steps + 1):
        of_each(lambda worker: worker.seconds.append(worker.ask("step")))
        if not number:  # the first one warms up
            for worker in workers:
                worker.seconds.clear()
        for dtype, found in rates.items():
            found.append(matmul_rate(options.device, dtype))
    of_each(print_row)
    for worker in workers:
        if worker.error:
            print(f"{worker.model:20}{worker.dtype:9}failed: {worker.error}", flush=True)
        worker.close()
    for dtype, found in rates.items():
        recurrent = max(matmul_rate(options.device, dtype, SENTENCES, 4 * SIZE) for _ in range(10))
        print(
            f"{dtype}: {max(found) / 1e9:,.0f} GFLOP/s in the output layer's product, {recurrent / 1e9:,.0f} in the recurrent ones",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", help=f"joined by commas, default all: {','.join(MODELS)}; on a GPU {','.join(ON_A_GPU)}")
    parser.add_argument(
        "--dtypes",
        help="joined by commas: float32, tf32 (GPUs), mkldnn (CPUs: float32 products that torch's CPU library rounds to bf16), bf16; "
        "default float32, and bf16 if there are instructions for it",
    )
    parser.add_argument("--steps", type=int, default=5, help="measured for each model, after one that is not; default %(default)s")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument(
        "--lengths", type=Path, metavar="TEXT", help="text, as it is or .gz, with the lengths of sentences; default: all full"
    )
    parser.add_argument("--no-profile", action="store_true", help="leave the last column out: on a GPU it takes longer than the others")
    parser.add_argument("--worker", nargs=2, metavar=("MODEL", "DTYPE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(*options.worker, options.device, options.lengths)
        return
    known = MODELS | ON_A_GPU if options.device == "cuda" else MODELS
    models = options.models.split(",") if options.models else list(known)
    if unknown := [name for name in models if name not in known]:
        parser.error(f"--models: {', '.join(unknown)} is none of {', '.join(known)}")
    dtypes = (options.dtypes or ("float32,bf16" if has_bf16(options.device) else "float32")).split(",")
    able = ("float32", "tf32" if options.device == "cuda" else "mkldnn", "bf16")
    if unknown := [name for name in dtypes if name not in able]:
        parser.error(f"--dtypes: {', '.join(unknown)} is none of {', '.join(able)}, those of --device {options.device}")
    print(f"training, 2 x {SIZE}, V = {VOCABULARY:,}, batches of {SENTENCES} x {WORDS}, {options.steps} steps; {machine(options.device)}")
    print(f"{'model':20}{'dtype':9}{'parameters':>11}{'words/s':>10}{'ratio':>7}{'CPU':>7}", end="")
    print(f"{'products':>10}{'at most':>9}{'peak MiB':>10}  outside LSTM and output layer", flush=True)
    for dtype in dtypes:  # one after another: the processes of all of them could need more memory than there is
        measure([(BASELINE, "float32"), *((model, dtype) for model in models)], options)


if __name__ == "__main__":
    main()
