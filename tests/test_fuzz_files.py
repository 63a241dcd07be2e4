"""Files of data sets under fuzzing: an array of the published shape or a `DataError` comes out, whatever the bytes are, and no more
memory is taken than what is published, `FACTOR` bytes for each of the file's, and `CONSTANT`."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import struct
import subprocess
import sys
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torchvision.datasets
from hypothesis import example, given
from hypothesis import strategies as st

from fuzzing import fuzz, mangled
from gelu_study.datasets import readers
from gelu_study.errors import DataError

SHAPES = {"x_train": (2, 3, 3), "y_train": (2,)}
SHAPE = SHAPES["x_train"]
PUBLISHED = 20  # bytes
FACTOR, CONSTANT = 12, 1_500_000
"""A zip's directory takes some 8 bytes of memory for each of its own; Python's parser at work on the header of an array, an error's
traceback and the buffers of a compressed stream take about 1 MB."""


def outcome(read: Callable[..., object], path: Path, content: bytes, *arguments: object) -> object:
    """What is read of a file of that content, or None after a `DataError` of one line that names it; memory is measured."""
    path.write_bytes(content)
    tracemalloc.start()
    try:
        return read(path, *arguments)
    except DataError as error:
        said = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < PUBLISHED + FACTOR * len(content) + CONSTANT, f"{peak:,} bytes for a file of {len(content):,}"
    assert str(path) in said and "\n" not in said
    return None


# ------------------------------------------------------------------------------------------- what the files are made of

COUNTS = st.one_of(st.sampled_from([0, 1, 2, 3, 9, 18, 2**16, 2**31 - 1, 2**31, 2**32 - 1]), st.integers(0, 2**32 - 1))


@st.composite
def idx_files(draw: st.DrawFn) -> bytes:
    """A header that says something near the truth or far from it, and pixels, of which there may be too few or too many."""
    dimensions = draw(st.sampled_from([3, 3, 3, 0, 1, 2, 4, 255]))
    counts = draw(st.one_of(st.just(list(SHAPE)), st.lists(COUNTS, min_size=3, max_size=3)))
    start = draw(st.sampled_from([b"\0\0\x08", b"\0\0\x08", b"\0\0\x0d", b"\x01\0\x08", b"\x1f\x8b\x08"]))
    pixels = bytes(draw(st.sampled_from([18, 18, 0, 17, 19, 5_000])))
    return start + bytes([dimensions]) + struct.pack(f">{len(counts)}I", *counts) + pixels


def _gzip_members(content: bytes) -> st.SearchStrategy[bytes]:
    whole = gzip.compress(content)
    named = b"\x1f\x8b\x08\x08" + bytes(6) + b"a name without an end"
    return st.sampled_from(
        [whole, whole * 3, whole + b"more", whole[:-4], gzip.compress(b"") * 500 + whole, named * 20, whole + bytes(99)]
    )


def npy(header: bytes, pixels: bytes = bytes(18), version: bytes = b"\x01\0", length: int | None = None) -> bytes:
    return b"\x93NUMPY" + version + struct.pack("<H", len(header) if length is None else length) + header + pixels


_DTYPES = st.sampled_from(
    ["|u1", "|u1", "<f8", "|O", "|V99999999", "<U999999999", "|S2147483647", "<M8[ns]", "x", "", "u1,u1", "(9999,9999)u1"]
)
_SHAPES = st.one_of(
    st.sampled_from(
        [
            "(2, 3, 3)",
            "(2,)",
            "()",
            "(2, 3, 3, )",
            "[2, 3, 3]",
            "(2147483648, 28, 28)",
            "(-1,)",
            "(True, 3, 3)",
            "2",
            "None",
            "(2.0, 3, 3)",
        ]
    ),
    st.lists(st.integers(-3, 2**70), max_size=4).map(lambda shape: str(tuple(shape))),
    st.sampled_from(
        ["0x" + "f" * 5_000, "(0x" + "f" * 5_000 + ",)", "(" * 3_000, "9" * 5_000, "-" * 9_000 + "1", "'\\d'", "0 is 0", "\0"]
    ),
)
HEADERS = st.builds(
    "{{'descr': {!r}, 'fortran_order': {}, 'shape': {}, }}\n".format,
    _DTYPES,
    st.sampled_from(["False", "True", "0", "None"]),
    _SHAPES,
).map(str.encode)
VERSIONS = st.sampled_from([b"\x01\0", b"\x01\0", b"\x01\0", b"\x02\0", b"\x03\0", b"\xff\xff"])
ARRAYS = st.one_of(
    st.builds(
        npy, HEADERS, st.sampled_from([18, 18, 0, 5, 100_000]).map(bytes), VERSIONS, st.sampled_from([None, None, None, 0, 65_535])
    ),
    mangled(st.builds(npy, HEADERS)),
    st.just(npy(b"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3, 3), }\n")),
    st.just(npy(b"{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3, 3), }\n")),
    st.just(npy(b" " * 65_000, version=b"\x02\0")),
)
METHODS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
# offsets in an entry of a zip's directory, and the bytes that a number there has
_ENTRY = {
    "version": (6, 2),
    "flags": (8, 2),
    "method": (10, 2),
    "packed": (20, 4),
    "size": (24, 4),
    "name": (28, 2),
    "extra": (30, 2),
    "offset": (42, 4),
}


def _zip64(size: int) -> bytes:
    return struct.pack("<HHQQQ", 1, 24, size, size, size)


def npz_of(shape: bytes) -> bytes:
    """An archive of arrays whose headers declare that shape."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for array in SHAPES:
            archive.writestr(f"{array}.npy", npy(b"{'descr': '|u1', 'fortran_order': False, 'shape': (" + shape + b"), }\n"))
    return buffer.getvalue()


@st.composite
def npz_files(draw: st.DrawFn) -> bytes:
    """An archive of arrays, of which some are missing, twice there or strange, whose directory may say something untrue."""
    buffer = io.BytesIO()
    names = draw(
        st.lists(
            st.sampled_from(["x_train.npy", "y_train.npy", "other", "x_train.npy/", "../x_train.npy", "é"]), max_size=3, unique=True
        )
    )
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in dict.fromkeys(["x_train.npy", "y_train.npy", *names] if draw(st.booleans()) else names):
            entry = zipfile.ZipInfo(name)
            entry.extra = draw(st.sampled_from([b"", b"", b"", _zip64(2**40), _zip64(2**64 - 1), b"\x01\0\xff\xff"]))
            archive.writestr(entry, draw(ARRAYS), compress_type=draw(st.sampled_from(METHODS)))
    content = bytearray(buffer.getvalue())
    for _ in range(draw(st.integers(0, 2))):
        offset, size = _ENTRY[draw(st.sampled_from(sorted(_ENTRY)))]
        at = content.find(b"PK\x01\x02", draw(st.integers(0, len(content))))
        if at >= 0:
            value = draw(st.sampled_from([0, 1, 2**16 - 1, 2**31, 2**32 - 1]))
            content[at + offset : at + offset + size] = (value % 256**size).to_bytes(size, "little")
    return bytes(content)


# ------------------------------------------------------------------------------------------- properties


@fuzz(200)
@given(content=st.one_of(idx_files(), mangled(idx_files()), st.binary(max_size=40)), name=st.sampled_from(["any", "any.gz"]))
def test_any_bytes_as_idx(content, name, tmp_path):
    values = outcome(readers.read_idx, tmp_path / name, content, SHAPE)
    assert values is None or (values.shape, values.dtype, values.flags.c_contiguous) == (SHAPE, np.uint8, True)


@fuzz(200)
@given(content=st.one_of(idx_files().flatmap(_gzip_members), mangled(idx_files().flatmap(_gzip_members))))
def test_any_bytes_as_gzipped_idx(content, tmp_path):
    values = outcome(readers.read_idx, tmp_path / "any.gz", content, SHAPE)
    assert values is None or (values.shape, values.dtype, values.flags.c_contiguous) == (SHAPE, np.uint8, True)


@fuzz(300)
@given(content=st.one_of(npz_files(), mangled(npz_files()), st.binary(max_size=64)))
@example(content=npz_of(b"9" * 9_900))
@example(content=npz_of(b"1," * 4_900))
@example(content=npz_of(b"()," * 300))
def test_any_bytes_as_npz(content, tmp_path):
    arrays = outcome(readers.read_npz, tmp_path / "any.npz", content, SHAPES)
    if arrays is not None:
        found = {name: (values.shape, values.dtype, values.flags.c_contiguous) for name, values in arrays.items()}
        assert found == {name: (shape, np.uint8, True) for name, shape in SHAPES.items()}


# ------------------------------------------------------------------------------------------- batches of CIFAR, published for the moment

CIFAR_SHAPES = {"x_train": (5, 32, 32, 3), "y_train": (5,), "x_test": (1, 32, 32, 3), "y_test": (1,)}


class Acts:
    """What a pickle that would do something is made of."""

    def __reduce__(self) -> tuple[object, ...]:
        return (print, ("it acted",))


_IMAGES = st.one_of(
    st.builds(
        lambda n, width: np.zeros((n, width), np.uint8),
        st.sampled_from([1, 1, 1, 0, 2, 7]),
        st.sampled_from([3072, 3072, 0, 3, 3071]),
    ),
    st.sampled_from([None, [], [[0] * 3072], "text", 3, np.zeros((1, 3072)), np.zeros(3072, "V1"), np.array(1, np.uint8), Acts()]),
)
_LABELS = st.one_of(
    st.just([3]),
    st.lists(st.integers(-1, 300), max_size=3),
    st.sampled_from([None, "7", [None], ["a"], (3,), {3}, [10**30], [1.5], [[1]]]),
)
BATCHES = st.one_of(
    st.fixed_dictionaries({"data": _IMAGES}, optional={"labels": _LABELS, "fine_labels": _LABELS, "more": st.just([Acts()])}),
    st.sampled_from([[], None, {}, "text", {b"data": 1}]),
).map(lambda batch: pickle.dumps(batch, protocol=2))


SOUND_BATCH = pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": [3]}, protocol=2)


@fuzz(100, slower=2)
@given(
    replaced=st.dictionaries(st.integers(0, 5), st.one_of(BATCHES, mangled(BATCHES), st.binary(max_size=40)), max_size=6),
    known=st.booleans(),
)
def test_any_bytes_as_batches_of_cifar(replaced, known, tmp_path, capsys):
    """With their MD5 sums published, so that they are opened, or without."""
    published = torchvision.datasets.CIFAR10
    names = [name for name, _ in published.train_list + published.test_list]
    contents = [replaced.get(place, SOUND_BATCH) for place in range(6)]
    batches = tmp_path / published.base_folder
    batches.mkdir(exist_ok=True)
    for name, content in zip(names, contents, strict=True):
        (batches / name).write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        if known:
            sums = [
                [name, hashlib.md5(content, usedforsecurity=False).hexdigest()]
                for name, content in zip(names, contents, strict=True)
            ]
            patch.setattr(published, "train_list", sums[:5])
            patch.setattr(published, "test_list", sums[5:])
        try:
            arrays = readers.read_folder("cifar10", tmp_path, CIFAR_SHAPES)
        except DataError as error:
            said = str(error)
            arrays = None
        assert (arrays is not None and known) or said
    if arrays is not None:
        assert {name: (values.shape, values.dtype) for name, values in arrays.items()} == {
            name: (shape, np.uint8) for name, shape in CIFAR_SHAPES.items()
        }
    assert not capsys.readouterr().out, "a pickle acted"


# ------------------------------------------------------------------------------------------- bombs


def bomb_of_gzip() -> bytes:
    """Sound pixels and 200 MB of noughts, in some 200 kB."""
    packer = zlib.compressobj(9, wbits=31)
    head = b"\0\0\x08\x03" + struct.pack(">3I", *SHAPE) + bytes(18)
    return packer.compress(head) + b"".join(packer.compress(bytes(1_000_000)) for _ in range(200)) + packer.flush()


def bomb_of_deflate() -> bytes:
    """A member of an archive whose header is of a version that may be 4 GB long, and is 200 MB of spaces."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x_train.npy", "w") as stream:
        stream.write(b"\x93NUMPY\x02\0" + struct.pack("<I", 200_000_000))
        for _ in range(200):
            stream.write(b" " * 1_000_000)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("y_train.npy", b"")
    return buffer.getvalue()


def bomb_of_entries() -> bytes:
    """An archive with 20,000 members, all at the same place."""
    entry = b"PK\x01\x02" + bytes(24) + struct.pack("<H", 1) + bytes(16) + b"a"
    end = b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 20_000, 20_000, 20_000 * len(entry), 0, 0)
    return entry * 20_000 + end


def large_member() -> bytes:
    """A member that says that it has 2^40 bytes."""
    content = bytearray(npz_of(b"1099511627776,"))
    at = content.find(b"PK\x01\x02")
    content[at + 20 : at + 28] = struct.pack("<II", 2**32 - 1, 2**32 - 1)
    return bytes(content)


BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "idx that claims 2^31 images": ("a", lambda: b"\0\0\x08\x03" + struct.pack(">3I", 2**31, 28, 28) + bytes(100)),
    "gzip": ("a.gz", bomb_of_gzip),
    "deflate": ("a.npz", bomb_of_deflate),
    "entries": ("a.npz", bomb_of_entries),
    "member of 2^40 bytes": ("a.npz", large_member),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_takes_no_more_memory_than_its_file_allows(kind, tmp_path):
    name, make = BOMBS[kind]
    read, shape = (readers.read_npz, SHAPES) if name.endswith("npz") else (readers.read_idx, SHAPE)
    assert outcome(read, tmp_path / name, make(), shape) is None


READ_ALL = """
import resource, sys
from pathlib import Path
import numpy as np
from gelu_study.datasets import readers
from gelu_study.errors import DataError

resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
pages = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (pages + 100_000_000, resource.RLIM_INFINITY))
for path in map(Path, sys.argv[1:]):
    try:
        if path.suffix == ".npz":
            readers.read_npz(path, {"x_train": (2, 3, 3), "y_train": (2,)})
        else:
            readers.read_idx(path, (2, 3, 3))
    except DataError as error:
        print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited and measured as Linux does")
def test_bombs_are_refused_in_a_process_that_may_take_100_mb(tmp_path):
    files = []
    for kind, (name, make) in BOMBS.items():
        files.append(tmp_path / f"{kind.replace(' ', '-')}{Path(name).suffix}")
        files[-1].write_bytes(make())
    done = subprocess.run(
        [sys.executable, "-c", READ_ALL, *map(str, files)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    *said, kilobytes = done.stdout.splitlines()
    assert all(str(file) in line for file, line in zip(files, said, strict=True))
    assert int(kilobytes) < 80_000
