# /// script
# dependencies = ["pyzmq==27.3.0"]
# ///
# Messages between threads of this process, through the library's own thread.
# machines: SIGABRT
import threading

import zmq


def work() -> None:
    with zmq.Context() as context:
        with context.socket(zmq.PAIR) as ours:
            ours.bind("inproc://farm")

            def answer():
                with context.socket(zmq.PAIR) as theirs:
                    theirs.connect("inproc://farm")
                    for _ in range(100):
                        theirs.send(theirs.recv()[::-1])

            thread = threading.Thread(target=answer)
            thread.start()
            for number in range(100):
                ours.send(b"%03d" % number)
                assert ours.poll(20_000) and ours.recv() == (b"%03d" % number)[::-1]
            thread.join()
