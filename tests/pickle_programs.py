"""Pickles put together opcode by opcode, as an attacker does: by hand, and at random from what torch's ``weights_only`` loading allows."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from pathlib import Path

import torch


def global_(module: str, name: str) -> bytes:
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def integer(value: int) -> bytes:
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def tuple_(*values: bytes) -> bytes:
    return b"(" + b"".join(values) + b"t"


def call(function: bytes, *arguments: bytes) -> bytes:
    return function + tuple_(*arguments) + b"R"


def build(instance: bytes, state: bytes) -> bytes:
    return instance + state + b"b"


def bytes_(value: bytes) -> bytes:
    return call(global_("_codecs", "encode"), text(value.decode("latin1")), text("latin1"))


def number_type(code: bytes | None = None) -> bytes:
    return call(global_("numpy", "dtype"), text("i8") if code is None else code, b"\x89", b"\x88")


def empty_array() -> bytes:
    return call(global_("numpy.core.multiarray", "_reconstruct"), global_("numpy", "ndarray"), tuple_(integer(0)), bytes_(b"b"))


def array_state(content: bytes, kind: bytes | None = None, shape: tuple[int, ...] | None = None) -> bytes:
    sizes = (len(content) // 8,) if shape is None else shape
    return tuple_(integer(1), tuple_(*map(integer, sizes)), number_type() if kind is None else kind, b"\x89", bytes_(content))


NONE, FALSE, TRUE = b"N", b"\x89", b"\x88"
CONSTANTS = [
    NONE, FALSE, TRUE, b")", b"]", b"}", b"\x8f",
    *map(integer, (0, 1, 2, 3, 4, 7, 16, -1, -2, 1 << 20, (1 << 31) - 1, -(1 << 31), 1 << 40, (1 << 63) - 1, -(1 << 63))),
    *(b"G" + struct.pack(">d", number) for number in (0.0, 1.0, -0.5, float("nan"), float("inf"))),
    *map(text, ("i8", "f8", "O", "b", "<", ">", "|", "cpu", "meta", "cuda:0", "storage", "latin1", "0", "a", "__class__", "__dict__",
                "__setstate__", "__call__", "code", "dtype", "shape", "data", "_untyped_storage", "_val", "grad", "torch.strided")),
    *map(bytes_, (b"b", b"A" * 8, b"B" * 64, b"\0" * 16)),
    b"U\x08AAAAAAAA",
]  # fmt: skip
TYPES = [
    "float32",
    "float64",
    "int64",
    "int8",
    "uint8",
    "bool",
    "complex64",
    "bfloat16",
    "quint8",
    "qint32",
    "float8_e4m3fn",
    "bits8",
    "int4",
]
REBUILDERS = [
    f"_rebuild_{name}"
    for name in [
        "parameter",
        "parameter_with_state",
        "qtensor",
        "tensor",
        "tensor_v2",
        "tensor_v3",
        "sparse_tensor",
        "meta_tensor_no_storage",
        "nested_tensor",
        "wrapper_subclass",
        "device_tensor_from_numpy",
        "device_tensor_from_cpu_tensor",
    ]
]
GLOBALS = [
    *(global_("torch._utils", name) for name in REBUILDERS),
    global_("torch._tensor", "_rebuild_from_type_v2"),
    global_("collections", "OrderedDict"), global_("collections", "Counter"), global_("torch.nn.parameter", "Parameter"),
    global_("torch.serialization", "_get_layout"), global_("torch", "Size"), global_("torch", "Tensor"), global_("torch", "device"),
    global_("_codecs", "encode"), global_("builtins", "bytearray"), global_("builtins", "set"), global_("builtins", "complex"),
    global_("torch.storage", "UntypedStorage"), global_("torch.storage", "TypedStorage"),
    global_("torch", "FloatStorage"), global_("torch", "LongStorage"), global_("torch", "FloatTensor"),
    *(global_("torch", name) for name in TYPES),
]  # fmt: skip
OURS = [
    global_("argparse", "Namespace"), global_("numpy", "dtype"), global_("numpy", "ndarray"),
    global_("numpy.core.multiarray", "_reconstruct"),
]  # fmt: skip
"""What the plugin allows besides."""


class Programs:
    """Random programs for the pickle machine, most of whose calls have arguments of a fitting kind."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.remembered = 0

    def program(self) -> bytes:
        """A whole pickle: a list of values, in which later ones use earlier ones."""
        values = b"".join(self.value(self.random.randint(1, 5)) + b"a" for _ in range(self.random.randint(1, 6)))
        return b"\x80\x02]" + values + b"."

    def value(self, depth: int) -> bytes:
        kinds = ["constant", "again", "global"]
        if depth:
            kinds += ["tuple", "dict", "call", "new", "build", "array", "tensor", "rebuilt", "rebuilt", "namespace", "sparse"]
        made = getattr(self, f"_{self.random.choice(kinds)}")(depth - 1)
        if self.random.random() < 0.4 and self.remembered < 250:
            made += b"q" + bytes([self.remembered])
            self.remembered += 1
        return made

    def _constant(self, _: int) -> bytes:
        return self.random.choice(CONSTANTS)

    def _again(self, depth: int) -> bytes:
        return b"h" + bytes([self.random.randrange(self.remembered)]) if self.remembered else self._constant(depth)

    def _global(self, _: int) -> bytes:
        return self.random.choice(GLOBALS if self.random.random() < 0.6 else OURS)

    def _values(self, depth: int, most: int = 4) -> list[bytes]:
        return [self.value(depth) for _ in range(self.random.randint(0, most))]

    def _tuple(self, depth: int) -> bytes:
        return tuple_(*self._values(depth))

    def _dict(self, depth: int) -> bytes:
        pairs = (self._constant(0) + self.value(depth) for _ in range(self.random.randint(0, 3)))
        return b"}(" + b"".join(pairs) + b"u"

    def _call(self, depth: int) -> bytes:
        return call(self._global(depth), *self._values(depth))

    def _new(self, depth: int) -> bytes:
        return self._global(depth) + tuple_(*self._values(depth)) + b"\x81"

    def _build(self, depth: int) -> bytes:
        return build(self.value(depth), self.random.choice([self._dict, self._tuple, self.value])(depth))

    def _namespace(self, depth: int) -> bytes:
        made = global_("argparse", "Namespace") + b")\x81"
        return build(made, tuple_(NONE, self._dict(depth)) if self.random.random() < 0.5 else self._dict(depth))

    def _array(self, depth: int) -> bytes:
        content = bytes(self.random.choice([0, 8, 16, 64, 1 << 14]))
        made = build(self._again(depth) if self.random.random() < 0.3 else empty_array(), array_state(content))
        return self._spoiled(made)

    def _sizes(self, dimensions: int | None = None) -> bytes:
        dimensions = self.random.randint(0, 3) if dimensions is None else dimensions
        return tuple_(*(integer(self.random.choice([0, 1, 1, 2, 2, 2, 3, 4, 8, -1, 1 << 16, 1 << 40])) for _ in range(dimensions)))

    def _shape(self) -> list[bytes]:
        """Sizes and strides."""
        dimensions = self.random.randint(0, 3)
        return [self._sizes(dimensions), self._sizes(dimensions)]

    def _storage(self) -> bytes:
        kind, size = self.random.choice([("FloatStorage", 16), ("LongStorage", 8), ("DoubleStorage", 8), ("ByteStorage", 64)])
        key = "0"
        if self.random.random() < 0.05:
            size, key = self.random.choice([0, 1, 128, -1, 1 << 40]), self.random.choice("01")
        return tuple_(text("storage"), global_("torch", kind), text(key), text("cpu"), integer(size)) + b"Q"

    def _tensor(self, depth: int) -> bytes:
        hooks = call(global_("collections", "OrderedDict"))
        offset = integer(self.random.choice([0, 0, 0, 1, 8, -1, 1 << 40]))
        made = call(global_("torch._utils", "_rebuild_tensor_v2"), self._storage(), offset, *self._shape(), FALSE, hooks)
        return self._spoiled(made)

    def _sparse(self, depth: int) -> bytes:
        layout = call(global_("torch.serialization", "_get_layout"), text(self.random.choice(["torch.sparse_coo", "torch.sparse_csr"])))
        parts = [self._tensor(depth), self._tensor(depth), self._sizes(), TRUE]
        return call(global_("torch._utils", "_rebuild_sparse_tensor"), layout, tuple_(*parts[: self.random.randint(2, 4)]))

    def _rebuilt(self, depth: int) -> bytes:
        """A call of one of torch's functions with arguments in about the right places."""
        kind, new = global_("torch", self.random.choice(TYPES)), self.random.choice([self._tensor, self._array, self.value])(depth)
        some = self._values(depth, 2)
        name = self.random.choice(REBUILDERS)
        arguments = {
            "_rebuild_tensor": [self._storage(), integer(0), *self._shape()],
            "_rebuild_tensor_v3": [self._storage(), integer(0), *self._shape(), FALSE, b"}", kind],
            "_rebuild_qtensor": [
                self._storage(), integer(0), *self._shape(),
                tuple_(global_("torch", "per_tensor_affine"), self._constant(0), self._constant(0)), FALSE, b"}",
            ],
            "_rebuild_meta_tensor_no_storage": [kind, *self._shape(), FALSE],
            "_rebuild_nested_tensor": [new, *(self._tensor(depth) for _ in range(3))],
            "_rebuild_wrapper_subclass": [
                self._global(depth), kind, *self._shape(), integer(0), self.value(0), text("cpu"), FALSE,
            ],
            "_rebuild_device_tensor_from_numpy": [new, kind, text("cpu"), FALSE],
            "_rebuild_device_tensor_from_cpu_tensor": [new, kind, text("cpu"), FALSE],
            "_rebuild_parameter": [new, FALSE, b"}"],
            "_rebuild_parameter_with_state": [new, FALSE, b"}", self._dict(depth)],
        }.get(name)  # fmt: skip
        if arguments is None or self.random.random() < 0.15:
            return call(
                global_("torch._tensor", "_rebuild_from_type_v2"), self._global(0), self._global(0), self._tuple(depth), self._dict(depth)
            )
        return self._spoiled(call(global_("torch._utils", name), *arguments, *(some if self.random.random() < 0.1 else [])))

    def _spoiled(self, program: bytes) -> bytes:
        """Mostly as it is; sometimes with one constant for another."""
        if self.random.random() < 0.9:
            return program
        old = self.random.choice(CONSTANTS[7:])
        return program.replace(old, self.random.choice(CONSTANTS), 1)


def write_checkpoint_file(path: Path, program: bytes) -> Path:
    """A file as torch.save writes it, with 64 bytes of storage under the key 0, and this pickle."""
    plain = io.BytesIO()
    torch.save([torch.zeros(16)], plain)
    with zipfile.ZipFile(plain) as whole, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as out:
        for name in whole.namelist():
            out.writestr(name, program if name.endswith("data.pkl") else whole.read(name))
    return path
