"""Copies a GGUF file with some metadata changed, to ask llama.cpp about settings that no file at hand has."""
import shutil
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, BOOL, ARRAY = 8, 7, 9


class _Reader:
    def __init__(self, file):
        self.file = file

    def take(self, length):
        data = self.file.read(length)
        if len(data) != length:
            raise EOFError("the file ends within its header")
        return data

    def number(self, code):
        return struct.unpack("<" + code, self.take(struct.calcsize(code)))[0]

    def text(self):
        return self.take(self.number("Q"))

    def skip(self, kind):
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            element, count = self.number("I"), self.number("Q")
            if element == STRING:
                for _ in range(count):
                    self.text()
            else:
                self.take(SIZES[element] * count)
        else:
            self.take(SIZES[kind])

    def value(self, kind):
        """The encoded bytes of a value."""
        start = self.file.tell()
        self.skip(kind)
        end = self.file.tell()
        self.file.seek(start)
        return self.take(end - start)


def _text(data):
    return struct.pack("<Q", len(data)) + data


def patch(source, target, changes):
    """Writes `source` to `target` with each key of `changes` set to a str or a bool; None leaves the key out."""
    with open(source, "rb") as file:
        reader = _Reader(file)
        magic, version = reader.take(4), reader.number("I")
        tensor_count, entry_count = reader.number("Q"), reader.number("Q")
        entries = []
        for _ in range(entry_count):
            key, kind = reader.text().decode(), reader.number("I")
            value = reader.value(kind)
            if key not in changes:
                entries.append((key, kind, value))
        for key, value in changes.items():
            if isinstance(value, bool):
                entries.append((key, BOOL, bytes([value])))
            elif value is not None:
                entries.append((key, STRING, _text(value.encode())))
        table_start = file.tell()
        for _ in range(tensor_count):
            reader.text()
            reader.take(8 * reader.number("I") + 4 + 8)
        table_end = file.tell()
        file.seek(table_start)
        table = reader.take(table_end - table_start)

        # Offsets in the table count from the data section, so it can move as a whole. None of the files uses another
        # alignment than the default.
        aligned = -table_end % 32
        file.seek(table_end + aligned)
        with open(target, "wb") as out:
            out.write(magic + struct.pack("<IQQ", version, tensor_count, len(entries)))
            for key, kind, value in entries:
                out.write(_text(key.encode()) + struct.pack("<I", kind) + value)
            out.write(table)
            out.write(bytes(-out.tell() % 32))
            shutil.copyfileobj(file, out)
