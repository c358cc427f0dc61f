"""library.py SOCKET DEVICE: the messages of a library of files (docs/format/fs-link.md).

Says hello for the mount with this st_dev, and prints what the server answers. Then asks what standard input says, a line
each: `acquire INODE`, or `post INODE`, which is the same and takes no answer. When standard input ends, it says that there
will be no more, waits until the other end has closed the connection, and ends.
"""
import array
import socket
import struct
import sys

VERSION = 4


def answer(link):
    try:
        message, ancillary, _, _ = link.recvmsg(4096, socket.CMSG_LEN(8))
    except OSError:
        message, ancillary = b"", []
    files = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(data[: len(data) - len(data) % files.itemsize])
    if not message:
        print("closed", flush=True)
        sys.exit(1)
    (code,) = struct.unpack_from("<I", message)
    fields = {100: "<III", 101: "<IQQQ", 102: "<II"}.get(code, "<")
    print(code, *struct.unpack_from(fields, message, 4), len(files), flush=True)


link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
link.connect(sys.argv[1])
link.send(struct.pack("<IIQ", 1, VERSION, int(sys.argv[2])))
answer(link)
for line in sys.stdin:
    words = line.split()
    try:
        link.send(struct.pack("<IIQ", 2, 2, int(words[1])))
    except OSError:
        pass
    if words[0] == "acquire":
        answer(link)
    else:
        print("posted", flush=True)
try:
    link.shutdown(socket.SHUT_WR)
except OSError:
    pass
answer(link)
