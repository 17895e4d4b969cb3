# /// script
# dependencies = ["cloudpickle==3.1.2", "joblib==1.5.3"]
# ///
# Processes of three kinds of start, shared memory, locks; a pool of joblib's own processes.
# machines: Function not implemented
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import shared_memory

from joblib import Parallel, delayed


def square(number):
    return number * number


def fill(name):
    block = shared_memory.SharedMemory(name)
    block.buf[:3] = b"baa"
    block.close()


def work() -> None:
    for kind in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(kind)
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            assert list(pool.map(abs, [-1, -2, 3])) == [1, 2, 3], kind
    context = multiprocessing.get_context("fork")
    block = shared_memory.SharedMemory(create=True, size=100)
    child = context.Process(target=fill, args=(block.name,))
    child.start()
    child.join()
    assert bytes(block.buf[:3]) == b"baa"
    block.close()
    block.unlink()
    line, count = context.Queue(), context.Value("i", 0)

    def add():
        for _ in range(100):
            with count.get_lock():
                count.value += 1
        line.put("done")

    children = [context.Process(target=add) for _ in range(3)]
    for child in children:
        child.start()
    assert [line.get(timeout=20) for _ in children] == ["done"] * 3
    for child in children:
        child.join()
    assert count.value == 300
    assert Parallel(2)(delayed(square)(n) for n in range(6)) == [0, 1, 4, 9, 16, 25]
