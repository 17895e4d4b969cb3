# /// script
# dependencies = ["websockets==17.4"]
# ///
# A client with a thread of its own and a server without one talk through a pair of sockets.
import socket
import threading

from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.sync.client import connect


def serve(theirs: socket.socket) -> None:
    server = ServerProtocol(extensions=[ServerPerMessageDeflateFactory()])
    text = b""
    while data := theirs.recv(65536):
        server.receive_data(data)
        for event in server.events_received():
            if isinstance(event, Request):
                server.send_response(server.accept(event))
            elif isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.CONT):
                text += event.data
                if event.fin:
                    server.send_text(text.decode()[::-1].encode())
                    text = b""
        for part in server.data_to_send():
            if part:
                theirs.sendall(part)
        if server.close_expected():
            break
    theirs.close()


def work() -> None:
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve, args=(theirs,))
    thread.start()
    with connect("ws://flock/talk", sock=ours, open_timeout=20) as client:
        for text in ("baa", "wölle" * 20_000):
            client.send(text)
            assert client.recv(timeout=20) == text[::-1]
        assert client.ping().wait(20)
    thread.join(20)
    assert not thread.is_alive()
