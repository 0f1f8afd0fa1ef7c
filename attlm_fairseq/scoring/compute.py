"""Device, precision and memory of neural LMs. This module does not import torch, so that KenLM-only runs start quickly."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from attlm_fairseq.errors import InputError

if TYPE_CHECKING:
    import torch

PRECISIONS = ("float32", "bfloat16")
NORMALISERS = ("exact", "sampled", "none")
DEFAULT_MEMORY = 1 << 30
SMALLEST_MEMORY = 128 << 20  # with less memory, matrix products are too small to be efficient
UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


class Arithmetic(NamedTuple):
    """How neural LMs compute: the precision of products, and the normaliser of the softmax."""

    precision: str = "float32"
    normaliser: str = "exact"


EXACT = Arithmetic()


def device_name(given: str | torch.device, what: str = "device") -> str:
    """Return torch's name of a device: ``cpu``, or a CUDA device that torch sees.

    Raises:
        InputError: it is another device. The message begins with ``what``.
    """
    device = str(given)
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise InputError(f"{what} {device!r}: expected cpu, cuda or cuda:N")
    if device != "cpu":
        import torch

        if int(device.partition(":")[2] or 0) >= torch.cuda.device_count():
            raise InputError(f"{what} {device!r}: there is no {device} here, torch sees {torch.cuda.device_count()} CUDA devices")
    return device


@dataclass(frozen=True)
class DeviceConfig:
    """Where and how neural LMs compute.

    Attributes:
        device: ``cpu``, ``cuda`` or ``cuda:N``; a ``torch.device`` is kept as its name.
        precision: ``float32``, or ``bfloat16``, in which factors and results of matrix products are rounded.
        memory: bytes for scoring, without models and lists.
        normaliser: that of the softmax: ``exact``, ``sampled`` or ``none``, see ``--normaliser``.

    Raises:
        InputError: a value is unknown, the memory is not above 0, or there is no such device.
    """

    device: str = "cpu"
    precision: str = "float32"
    memory: int = DEFAULT_MEMORY
    normaliser: str = "exact"

    def __post_init__(self) -> None:
        """Raise InputError for an unknown name, so that scores are what their record says."""
        for what, value, known in (("precision", self.precision, PRECISIONS), ("normaliser", self.normaliser, NORMALISERS)):
            if value not in known:
                raise InputError(f"{what} {value!r}: expected one of {', '.join(known)}")
        if not isinstance(self.memory, int) or self.memory <= 0:
            raise InputError(f"memory {self.memory!r}: expected a number of bytes, such as 1 << 30")
        object.__setattr__(self, "device", device_name(self.device))

    @property
    def arithmetic(self) -> Arithmetic:
        """Return what decides on the digits of scores."""
        return Arithmetic(self.precision, self.normaliser)


DEFAULT_DEVICE = DeviceConfig()


def parse_memory(text: str) -> int:
    """Parse a size such as ``500M`` or ``2G`` and return bytes.

    Raises:
        InputError: the text is not a size, or the size is below SMALLEST_MEMORY.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found:
        raise InputError(f"--memory {text!r}: expected a size such as 500M or 2G")
    size = int(min(float(found[1]) * (1 << UNITS[found[2].upper()]), float(1 << 62)))  # more does not fit 64 bits
    if size < SMALLEST_MEMORY:
        raise InputError(f"--memory {text}: at least {SMALLEST_MEMORY >> 20}M are needed")
    return size


def parse_devices(text: str, precision: str, memory: int, option: str = "--devices") -> tuple[DeviceConfig, ...]:
    """Return one DeviceConfig per process of ``cpu``, ``cpu:4`` (four processes), ``cuda``, ``cuda:0,cuda:1``.

    Every process may use the given memory.

    Raises:
        InputError: the text has another form, names a CUDA device twice, or names one that torch does not see. The
            message names the ``option``.
    """
    devices: list[str] = []
    for part in text.split(","):
        if found := re.fullmatch(r"cpu(?::([1-9]\d{0,3}))?", part):
            devices += ["cpu"] * int(found[1] or 1)
        elif re.fullmatch(r"cuda(:\d+)?", part):
            devices.append(part)
        else:
            several = ", cpu:N (N processes), cuda, cuda:N, or several of them joined by commas"
            raise InputError(f"{option} {text!r}: expected cpu{several if option == '--devices' else ', cuda or cuda:N'}")
    named = ["cuda:0" if device == "cuda" else device for device in devices if device != "cpu"]
    if len(set(named)) != len(named):
        raise InputError(f"{option} {text!r} names a device twice")
    return tuple(DeviceConfig(device_name(device, option), precision, memory) for device in devices)


def parse_device(text: str) -> str:
    """Parse the device of a single process: ``cpu``, ``cuda`` or ``cuda:1``.

    Raises:
        InputError: as in ``parse_devices``, or the text means several processes.
    """
    computes = parse_devices(text, DEFAULT_DEVICE.precision, DEFAULT_DEVICE.memory, "--device")
    if len(computes) > 1:
        raise InputError(f"--device {text!r}: this command runs as one process: expected cpu, cuda or cuda:N")
    return computes[0].device
