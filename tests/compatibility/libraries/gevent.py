# /// script
# dependencies = ["gevent==26.9.0"]
# ///
# Greenlets, queues, a pool of threads and a pair of sockets on the library's own loop.
import gevent
from gevent import queue, socket
from gevent.threadpool import ThreadPool


def work() -> None:
    order = []

    def walk(name, pause):
        for _ in range(2):
            gevent.sleep(pause)
            order.append(name)

    gevent.joinall([gevent.spawn(walk, "slow", 0.5), gevent.spawn(walk, "fast", 0.01)], timeout=20)
    assert order == ["fast", "fast", "slow", "slow"], order
    line = queue.Queue(1)
    taker = gevent.spawn(lambda: [line.get() for _ in range(10)])
    for number in range(10):
        line.put(number)
    assert taker.get(timeout=20) == list(range(10))
    ours, theirs = socket.socketpair()
    echo = gevent.spawn(lambda: theirs.sendall(theirs.recv(100)[::-1]))
    ours.sendall(b"baa")
    assert ours.recv(100) == b"aab"
    echo.join()
    ours.close()
    theirs.close()
    pool = ThreadPool(2)
    assert pool.map(lambda n: n * n, range(10)) == [n * n for n in range(10)]
    pool.kill()
    with gevent.Timeout(0.05, False):
        gevent.sleep(20)
        raise AssertionError("it is late")
