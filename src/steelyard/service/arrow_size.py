"""Size of an Arrow stream after decompression."""

from __future__ import annotations

import struct


def n_unpacked_bytes(body: bytes) -> int:
    """Return the size of all buffers of an Arrow stream after decompression, without decompressing them.

    The metadata of a message is a flatbuffer: Message.header (field 2) is a RecordBatch, or a DictionaryBatch
    whose field 1 is a RecordBatch. A RecordBatch has a vector of buffers (field 2: offset and length, 8 bytes
    each) and, if it is compressed, field 3. A compressed buffer begins with its decompressed length, or -1 if
    it is stored uncompressed. Decompression allocates exactly this length, so a smaller length would fail.
    """
    import pyarrow as pa

    n_bytes = 0
    reader = pa.ipc.MessageReader.open_stream(body)
    try:
        while True:
            message = reader.read_next_message()
            if message.type not in {"record batch", "dictionary"}:
                continue
            metadata, data = memoryview(message.metadata), memoryview(message.body)
            batch = _table_field(metadata, _offset(metadata, 0), 2)
            if message.type == "dictionary":
                batch = _table_field(metadata, _offset(metadata, batch), 1)
            batch = _offset(metadata, batch)
            vector = _offset(metadata, _table_field(metadata, batch, 2))
            is_compressed = bool(_table_field(metadata, batch, 3))
            (n_buffers,) = struct.unpack_from("<I", metadata, vector)
            for k in range(n_buffers):
                offset, length = struct.unpack_from("<qq", metadata, vector + 4 + 16 * k)
                unpacked = struct.unpack_from("<q", data, offset)[0] if is_compressed and length >= 8 else -1
                n_bytes += length if unpacked < 0 else unpacked
    except StopIteration:
        return n_bytes
    except struct.error as error:
        raise ValueError("the metadata of a message is damaged") from error


def _offset(metadata: memoryview, position: int) -> int:
    """Follow a relative offset of a flatbuffer."""
    return position + int(struct.unpack_from("<I", metadata, position)[0])


def _table_field(metadata: memoryview, table: int, number: int) -> int:
    """Return the position of a field of a flatbuffer table, or 0 if the field is absent."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    size = struct.unpack_from("<H", metadata, vtable)[0]
    entry = struct.unpack_from("<H", metadata, vtable + 4 + 2 * number)[0] if 4 + 2 * number < size else 0
    return table + entry if entry else 0
