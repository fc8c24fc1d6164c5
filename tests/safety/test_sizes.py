"""Memory for loading is bounded by the size of the file, even if the file contains very large numbers."""

from __future__ import annotations

import re
import resource
import struct
import warnings
from pathlib import Path

import numpy as np
import pytest

from steelyard.exceptions import FileFormatError, MemoryLimitError, SteelyardError
from steelyard.persistence import from_bytes
from steelyard.persistence.envelope import ALIGNMENT, PRELUDE_SIZE
from tests.safety import documents
from tests.safety.fuzz_files import original
from tests.safety.mutation import resealed
from tests.safety.subjects import SUBJECTS

MAX_NUMBERS_PER_FILE = 60
MAX_EXTRA_BYTES = 400 << 20  # address space for loading a file of some kilobytes


def with_numbers(data: bytes, value: int):
    """Yield copies of a file, each with one integer of its header replaced by ``value``."""
    (n_header,) = struct.unpack_from("<Q", data, 12)
    header = data[PRELUDE_SIZE : PRELUDE_SIZE + n_header].rstrip(b" ")
    rest = data[PRELUDE_SIZE + n_header :]
    places = list(re.finditer(rb"(?<=[:\[,])\d+(?=[,\]}])", header))
    for found in places[:: 1 + len(places) // MAX_NUMBERS_PER_FILE]:
        text = header[: found.start()] + str(value).encode() + header[found.end() :]
        text += b" " * (-len(text) % ALIGNMENT)
        start = bytearray(data[:PRELUDE_SIZE])
        struct.pack_into("<Q", start, 12, len(text))
        yield resealed(start + text + rest)


def memory_was_short(error: BaseException | None) -> bool:
    """Return whether loading ran out of memory. MemoryLimitError is raised before and does not count."""
    while error is not None:
        if isinstance(error, MemoryError) and not isinstance(error, MemoryLimitError):
            return True
        error = error.__cause__ or error.__context__
    return False


@pytest.fixture
def little_memory():
    size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + MAX_EXTRA_BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the size of a process is read from /proc")
@pytest.mark.parametrize("value", [40_000, 2_000_000_000])
@pytest.mark.parametrize("name", documents.FILES)
def test_large_number_in_any_document_allocates_little_memory(name, value, little_memory):
    document = documents.made()[name]
    for data in with_numbers(document.data, value):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = document.read(data)
                for use in document.uses:
                    use(made)
        except FileFormatError as error:
            assert not memory_was_short(error), error
        except SteelyardError:
            pass


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the size of a process is read from /proc")
@pytest.mark.parametrize("value", [40_000, 2_000_000_000])
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_large_number_in_file_header_allocates_little_memory(subject, value, little_memory):
    taken = 0
    for data in with_numbers(original(subject), value):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = from_bytes(data)
                taken += 1
                np.asarray(model.predict(subject.questions))
        except FileFormatError as error:
            assert not memory_was_short(error), error
        except SteelyardError:
            pass
