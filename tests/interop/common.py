"""What a driver in Python does with its lock."""
import os
import sys
import time


class Rival:
    pass


def held(rival, inside):
    """One section of `stress`: nobody else may be inside."""
    try:
        os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        print("overlap", flush=True)
        return
    time.sleep(0.002)
    os.unlink(inside)


def run(rival):
    verb, url, key, lease = sys.argv[1:5]
    rival.open(url, key, int(lease) / 1000)
    if verb == "try":
        if not rival.acquire(0):
            sys.exit(75)
        rival.release()
    elif verb == "hold":
        if not rival.acquire(60):
            sys.exit(75)
        print("held", time.time(), flush=True)
        sys.stdin.readline()
        before = time.time()
        print("released" if rival.release() else "lost", before, flush=True)
    else:
        end, count = time.time() + float(sys.argv[5]), 0
        while time.time() < end:
            if not rival.acquire(5):
                continue
            held(rival, sys.argv[6])
            rival.release()
            count += 1
            time.sleep(0.005)
        print("sections", count)
