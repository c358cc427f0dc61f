"""locks.py DIRECTORY: locks files of DIRECTORY as it is told on standard input, an order a line, and says on standard
output how each order ended: `ok`, what was asked for, or the name of an error.

    open F FILE                opens FILE, which is made if need be, as F; also for an absolute path
    dup G F, close F           another descriptor of an open file; the end of one
    fork, join                 makes a child that has all descriptors, and ends it
    read F, write F TEXT       of the whole file
    sync F                     makes it durable
    flock F MODE [nb]          MODE: sh, ex, un; without `nb` it waits for the lock
    posix F MODE START LENGTH [nb], ofd F MODE START LENGTH [nb]
                               a lock of the process (F_SETLK), of the open file (F_OFD_SETLK)
    posixget F MODE START LENGTH, ofdget F MODE START LENGTH
                               `un`, or the lock in the way: MODE START LENGTH PID
    alarm SECONDS ORDER        ORDER, which a signal ends: `interrupted`
    crowd FILE COUNT KIND      COUNT children that lock FILE, count up in it, and end. Says `started` before they lock
    sections FILE PLAIN KIND   locks FILE, counts up in it and unlocks until PLAIN/stop is there. PLAIN is a directory
                               that has nothing to do with the locks: PLAIN/inside is there while somebody is inside,
                               and PLAIN/rounds.PID says how often this process was. Says how often that was
    sqlite FILE COUNT          COUNT transactions that count up in a database

KIND is flock, posix, ofd, or reopen: flock on a file that is opened for each lock, which its close frees.
"""

import errno
import fcntl
import os
import signal
import struct
import sys

FLOCK = {"sh": fcntl.LOCK_SH, "ex": fcntl.LOCK_EX, "un": fcntl.LOCK_UN}
RANGE = {"sh": fcntl.F_RDLCK, "ex": fcntl.F_WRLCK, "un": fcntl.F_UNLCK}
# Of several names.
NAMES = {errno.EAGAIN: "EAGAIN", errno.EDEADLK: "EDEADLK"}
# Get, set, set and wait: <fcntl.h>.
COMMANDS = {"posix": (5, 6, 7), "ofd": (36, 37, 38)}
# struct flock of a machine with 64 bits.
LAYOUT = "hhqqi4x"

directory = sys.argv[1]
files = {}
children = []


def main():
    for line in sys.stdin:
        print(outcome(line.split()), flush=True)


def outcome(order):
    try:
        return globals()["do_" + order[0]](*order[1:])
    except InterruptedError:
        return "interrupted"
    except OSError as error:
        return NAMES.get(error.errno) or errno.errorcode[error.errno]


def do_open(name, path):
    files[name] = open_file(path)
    return "ok"


def open_file(path):
    return os.open(os.path.join(directory, path), os.O_RDWR | os.O_CREAT, 0o644)


def do_dup(name, of):
    files[name] = os.dup(files[of])
    return "ok"


def do_close(name):
    os.close(files.pop(name))
    return "ok"


def do_fork():
    end, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        # It ends when it is told to, and with its parent.
        os.read(end, 1)
        os._exit(0)
    os.close(end)
    children.append((child, told))
    return "ok"


def do_join():
    child, told = children.pop()
    os.close(told)
    os.waitpid(child, 0)
    return "ok"


def do_read(name):
    return "-" + os.pread(files[name], 4096, 0).decode()


def do_write(name, text):
    os.pwrite(files[name], text.encode(), 0)
    return "ok"


def do_copy(name, to):
    os.copy_file_range(files[name], files[to], 4, 0, 0)
    return "ok"


def do_hole(name):
    os.lseek(files[name], 0, os.SEEK_HOLE)
    return "ok"


def do_sync(name):
    os.fsync(files[name])
    return "ok"


def do_flock(name, mode, now=None):
    fcntl.flock(files[name], FLOCK[mode] | (fcntl.LOCK_NB if now else 0))
    return "ok"


def set_range(kind, name, mode, start, length, now=None):
    command = COMMANDS[kind][1 if now else 2]
    fcntl.fcntl(files[name], command, struct.pack(LAYOUT, RANGE[mode], os.SEEK_SET, int(start), int(length), 0))
    return "ok"


def get_range(kind, name, mode, start, length):
    asked = struct.pack(LAYOUT, RANGE[mode], os.SEEK_SET, int(start), int(length), 0)
    told, _, start, length, pid = struct.unpack(LAYOUT, fcntl.fcntl(files[name], COMMANDS[kind][0], asked))
    if told == fcntl.F_UNLCK:
        return "un"
    mode = next(mode for mode in RANGE if RANGE[mode] == told)
    return f"{mode} {start} {length} {pid}"


def do_posix(*words):
    return set_range("posix", *words)


def do_ofd(*words):
    return set_range("ofd", *words)


def do_posixget(*words):
    return get_range("posix", *words)


def do_ofdget(*words):
    return get_range("ofd", *words)


def do_alarm(seconds, *order):
    def interrupt(*_):
        raise InterruptedError

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, float(seconds))
    try:
        return outcome(order)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def lock(file, kind, mode):
    if kind in COMMANDS:
        asked = struct.pack(LAYOUT, RANGE[mode], os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(file, COMMANDS[kind][2], asked)
    else:
        fcntl.flock(file, FLOCK[mode])


def count_up(file):
    count = int(os.pread(file, 20, 0) or b"0")
    os.pwrite(file, b"%020d" % (count + 1), 0)


def do_crowd(path, count, kind):
    started, has_started = os.pipe()
    crowd = [one_of_crowd(path, kind, has_started) for _ in range(int(count))]
    os.close(has_started)
    while os.read(started, len(crowd)):
        pass
    os.close(started)
    print("started", flush=True)
    ends = [os.waitpid(child, 0)[1] for child in crowd]
    return "ok" if not any(ends) else "failed"


def one_of_crowd(path, kind, has_started):
    child = os.fork()
    if child:
        return child
    try:
        file = open_file(path)
        os.close(has_started)
        lock(file, kind, "ex")
        count_up(file)
        lock(file, kind, "un")
    except OSError:
        os._exit(1)
    os._exit(0)


def do_sections(path, plain, kind):
    inside, stop, rounds = os.path.join(plain, "inside"), os.path.join(plain, "stop"), 0
    noted = os.open(os.path.join(plain, f"rounds.{os.getpid()}"), os.O_WRONLY | os.O_CREAT)
    file = None if kind == "reopen" else open_file(path)
    while not os.path.exists(stop):
        locked = open_file(path) if file is None else file
        lock(locked, kind, "ex")
        # `EEXIST` if somebody else is inside.
        os.close(os.open(inside, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        count_up(locked)
        os.unlink(inside)
        if file is None:
            os.close(locked)
        else:
            lock(locked, kind, "un")
        rounds += 1
        os.pwrite(noted, b"%020d" % rounds, 0)
    return str(rounds)


def do_sqlite(path, count):
    import sqlite3

    database = sqlite3.connect(os.path.join(directory, path), timeout=60, isolation_level=None)
    database.execute("PRAGMA journal_mode=DELETE")
    database.execute("CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY, count INTEGER)")
    database.execute("INSERT OR IGNORE INTO counter VALUES (1, 0)")
    for _ in range(int(count)):
        database.execute("BEGIN IMMEDIATE")
        (before,) = database.execute("SELECT count FROM counter").fetchone()
        database.execute("UPDATE counter SET count = ?", (before + 1,))
        database.execute("COMMIT")
    (total,) = database.execute("SELECT count FROM counter").fetchone()
    (said,) = database.execute("PRAGMA integrity_check").fetchone()
    database.close()
    return f"{said} {total}"


main()
