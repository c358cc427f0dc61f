"""LevelDB or RocksDB by their C interfaces, which have the same functions: `store.py load|verify NAME LIBRARY DIRECTORY
ACKNOWLEDGED`. Each batch writes the four keys of one group with one version, synced. Values follow from key and version."""

import ctypes
import hashlib
import random
import sys

GROUPS = 200
KEYS = 4


class Store:
    def __init__(self, name, library, directory):
        self.library, self.name = ctypes.CDLL(library), name
        options = self.call("options_create")
        self.call("options_set_create_if_missing", options, ctypes.c_ubyte(1))
        self.call("options_set_paranoid_checks", options, ctypes.c_ubyte(1))
        # Small, so that files are made and merged all the time.
        self.call("options_set_write_buffer_size", options, ctypes.c_size_t(256 << 10))
        self.synced = self.call("writeoptions_create")
        self.call("writeoptions_set_sync", self.synced, ctypes.c_ubyte(1))
        self.reading = self.call("readoptions_create")
        self.call("readoptions_set_verify_checksums", self.reading, ctypes.c_ubyte(1))
        self.store = self.must("open", options, directory.encode())

    def call(self, function, *arguments):
        called = getattr(self.library, f"{self.name}_{function}")
        called.restype = ctypes.c_void_p
        return called(*[ctypes.c_void_p(a) if isinstance(a, int) else a for a in arguments])

    def must(self, function, *arguments):
        error = ctypes.c_char_p()
        result = self.call(function, *arguments, ctypes.byref(error))
        if error.value is not None:
            sys.exit(f"{self.name}: {function}: {error.value.decode()}")
        return result

    def write(self, pairs):
        batch = self.call("writebatch_create")
        for key, value in pairs:
            self.call("writebatch_put", batch, key, ctypes.c_size_t(len(key)), value, ctypes.c_size_t(len(value)))
        self.must("write", self.store, self.synced, batch)
        self.call("writebatch_destroy", batch)

    def pairs(self):
        iterator = self.call("create_iterator", self.store, self.reading)
        self.call("iter_seek_to_first", iterator)
        valid = getattr(self.library, f"{self.name}_iter_valid")
        valid.restype = ctypes.c_ubyte
        while valid(ctypes.c_void_p(iterator)):
            yield tuple(self.bytes(f"iter_{part}", iterator) for part in ("key", "value"))
            self.call("iter_next", iterator)
        self.must("iter_get_error", iterator)

    def bytes(self, function, iterator):
        size = ctypes.c_size_t()
        return ctypes.string_at(self.call(function, iterator, ctypes.byref(size)), size.value)


def key_of(group, index):
    return f"{group:04}-{index}".encode()


def value_of(key, version):
    start = key + f" {version} ".encode()
    return start + hashlib.shake_128(start).digest(version * 7919 % 4000)


def acknowledged(path):
    versions = {}
    for line in open(path):
        group, version = line.split()
        versions[int(group)] = int(version)
    return versions


def load(store, path, seed):
    numbers, version = random.Random(seed), found(store)[1]
    with open(path, "a") as file:
        while True:
            version += 1
            group = numbers.randrange(GROUPS)
            keys = [key_of(group, index) for index in range(KEYS)]
            store.write([(key, value_of(key, version)) for key in keys])
            file.write(f"{group} {version}\n")
            file.flush()


def found(store):
    """The version of each group, and the latest one. Ends the program where something is wrong."""
    versions = {}
    for key, value in store.pairs():
        version = int(value.split(b" ")[1])
        if value != value_of(key, version):
            sys.exit(f"{key} has other bytes")
        versions.setdefault(int(key[:4]), []).append(version)
    for group, each in versions.items():
        if len(each) != KEYS or len(set(each)) != 1:
            sys.exit(f"group {group} has a part of a batch: {each}")
    return versions, max([each[0] for each in versions.values()], default=0)


def verify(store, path):
    versions, expected = found(store)[0], acknowledged(path)
    for group, version in expected.items():
        there = versions.get(group, [0])[0]
        if there < version:
            sys.exit(f"group {group} has version {there}, and {version} was acknowledged")
    print(f"{max(expected.values(), default=0)} batches acknowledged, {len(versions) * KEYS} keys found with all bytes")


if __name__ == "__main__":
    action, name, library, directory, path, seed = sys.argv[1:]
    opened = Store(name, library, directory)
    load(opened, path, seed) if action == "load" else verify(opened, path)
