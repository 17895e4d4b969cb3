"""Framing, on the vectors that the Rust side reads too."""

import json
import os
import signal
import socket
import threading
from pathlib import Path

import pytest

from lambswool_guest import codec, wire

VECTORS = json.loads(
    (Path(__file__).resolve().parents[2] / "vectors" / "wire.json").read_text("utf-8")
)


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    ours.settimeout(30)
    channel = wire.Channel(theirs.fileno())
    with ours, theirs:
        yield ours, channel


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_vector_is_read_as_it_says(pair, vector):
    ours, channel = pair
    ours.sendall(bytes.fromhex(vector["frame_hex"]))
    assert channel.receive() == (vector["header"], bytes.fromhex(vector["body_hex"]))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_vector_is_written_with_the_same_meaning(pair, vector):
    ours, channel = pair
    body = bytes.fromhex(vector["body_hex"])
    channel.send(vector["header"], body)
    ours.settimeout(1)
    frame = ours.recv(1 << 20)
    header = int.from_bytes(frame[:4], "little")
    assert int.from_bytes(frame[4:8], "little") == len(body)
    assert json.loads(frame[8 : 8 + header]) == vector["header"]
    assert frame[8 + header :] == body


def test_frames_that_arrive_together_or_byte_by_byte_are_the_same_frames(pair):
    ours, channel = pair
    stream = b"".join(bytes.fromhex(vector["frame_hex"]) for vector in VECTORS)
    expected = [(vector["header"], bytes.fromhex(vector["body_hex"])) for vector in VECTORS]
    ours.sendall(stream)
    assert [channel.receive() for _ in VECTORS] == expected

    def trickle() -> None:
        for at in range(len(stream)):
            ours.sendall(stream[at : at + 1])

    thread = threading.Thread(target=trickle)
    thread.start()
    assert [channel.receive() for _ in VECTORS] == expected
    thread.join()


def test_the_end_between_frames_is_none_and_inside_one_is_broken(pair):
    ours, channel = pair
    ours.sendall(bytes.fromhex(VECTORS[0]["frame_hex"]))
    ours.shutdown(socket.SHUT_WR)
    assert channel.receive() is not None
    assert channel.receive() is None

    for cut in (1, 8, 20):
        theirs, other = socket.socketpair()
        with theirs, other:
            theirs.sendall(bytes.fromhex(VECTORS[0]["frame_hex"])[:cut])
            theirs.shutdown(socket.SHUT_WR)
            with pytest.raises(wire.BrokenFrame):
                wire.Channel(other.fileno()).receive()


@pytest.mark.parametrize(
    "prefix", [(wire.MAX_HEADER_BYTES + 1, 0), (2, wire.MAX_BODY_BYTES + 1)], ids=["header", "body"]
)
def test_an_announced_excess_is_refused_before_it_arrives(pair, prefix):
    ours, channel = pair
    ours.sendall(b"".join(length.to_bytes(4, "little") for length in prefix))
    with pytest.raises(wire.BrokenFrame):
        channel.receive()


def test_a_signal_handler_that_sends_in_the_middle_of_a_frame_does_not_cut_it(pair):
    ours, channel = pair
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    body = os.urandom(8 << 20)
    sent = 0

    def interrupt(*_: object) -> None:
        nonlocal sent
        sent += 1
        channel.send({"n": sent}, b"from the handler")

    received = []

    def read() -> None:
        data = bytearray()
        while piece := ours.recv(3000):
            data += piece
        while data:
            header = int.from_bytes(data[:4], "little")
            end = 8 + header + int.from_bytes(data[4:8], "little")
            received.append((json.loads(data[8 : 8 + header]), bytes(data[8 + header : end])))
            del data[:end]

    reader = threading.Thread(target=read)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        reader.start()
        channel.send({"n": 0}, body)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    socket.socket(fileno=os.dup(channel._fd)).shutdown(socket.SHUT_WR)
    reader.join()
    assert sent > 0
    assert ({"n": 0}, body) in received
    assert sorted(header["n"] for header, _ in received) == list(range(sent + 1))


def test_a_send_from_within_a_send_waits_for_its_turn(pair, monkeypatch):
    ours, channel = pair
    nested = []

    def interrupted_sum(counts: list[int]) -> int:
        total = sum(counts)
        if not nested:  # between the count and the write that relies on it
            nested.append(channel.send({"n": 2}))
        return total

    monkeypatch.setattr(wire, "sum", interrupted_sum, raising=False)
    channel.send({"n": 1})
    other = wire.Channel(ours.fileno())
    assert [other.receive(), other.receive()] == [({"n": 1}, b""), ({"n": 2}, b"")]
    ours.settimeout(0.1)
    with pytest.raises(TimeoutError):
        ours.recv(1)


def test_a_signal_handler_that_raises_leaves_the_rest_of_the_frame_to_the_next_sender(pair):
    ours, channel = pair
    body = b"x" * (4 << 20)

    def interrupt(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(TimeoutError):
            channel.send({"n": 1}, body)  # nobody reads: it blocks
    finally:
        signal.signal(signal.SIGALRM, before)
    sender = threading.Thread(target=channel.send, args=({"n": 2}, b"after"))
    sender.start()
    other = wire.Channel(ours.fileno())
    assert other.receive() == ({"n": 1}, body)
    assert other.receive() == ({"n": 2}, b"after")
    sender.join()


VALUES = [
    None,
    True,
    0,
    -1.5,
    1e300,
    10**40,
    "",
    "grüß 世界 🐑 \x00\x1f\u2028",
    [],
    {},
    {"a": [1, {"b": None}], "": "x"},
    {1: "int key", None: "null key", False: "f", 1.5: "f"},
    (1, 2),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_the_codec_writes_what_json_writes(value):
    assert codec.dumps(value) == json.dumps(value, ensure_ascii=False).encode()
    assert json.loads(codec.dumps(value)) == json.loads(json.dumps(value))


HALVES = ["\ud800", "a\udfffb", "\ud83d\udc11", "中\udc80", {"\ud800": ["\udcff"]}]


@pytest.mark.parametrize("value", HALVES, ids=ascii)
def test_halves_of_surrogate_pairs_are_escaped_and_nothing_else(value):
    written = codec.dumps(value)
    assert json.loads(written.decode()) == json.loads(json.dumps(value))
    assert written.decode().isascii() == ("中" not in str(value))
    assert codec.loads(written) == json.loads(written)


def test_a_header_is_ascii():
    assert codec.header({"id": "ü\ud800"}) == b'{"id": "\\u00fc\\ud800"}'


@pytest.mark.parametrize(
    "text",
    [
        b"1",
        b' \r\n\t{"a" : [1.0, -2, 3e5, true, false, null, "\\u00fc\\ud83d\\udc11"] } \n',
        '"ü🐑"'.encode(),
        b"[NaN, Infinity, -Infinity]",
        "\ufeff[1]".encode(),
        "[1]".encode("utf-16"),
    ],
)
def test_the_codec_reads_what_json_reads(text):
    assert repr(codec.loads(text)) == repr(json.loads(text))


@pytest.mark.parametrize(
    "text", [b"", b" ", b"{", b"[1,]", b"1 2", b'"\x01"', b"\xff", b"nul", b'{"a"']
)
def test_the_codec_fails_in_the_words_of_json(text):
    with pytest.raises(ValueError) as expected:
        json.loads(text)
    with pytest.raises(ValueError) as raised:
        codec.loads(text)
    assert (type(raised.value), str(raised.value)) == (type(expected.value), str(expected.value))


@pytest.mark.parametrize("value", [{1, 2}, object(), float("nan"), [float("inf")], b"x"])
def test_the_codec_writes_nothing_that_is_no_json(value):
    with pytest.raises((TypeError, ValueError)):
        codec.dumps(value)


def test_a_circle_is_refused():
    circle: list = []
    circle.append(circle)
    with pytest.raises(ValueError, match="Circular"):
        codec.dumps(circle)
