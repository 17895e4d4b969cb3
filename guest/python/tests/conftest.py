"""The real guest as a subprocess, its channel a real socket pair."""

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest

TESTS = Path(__file__).resolve().parent
GUEST = TESTS.parent / "src" / "lambswool_guest"
NATIVE = TESTS.parent.parent / "native"
# The interpreter that the guest runs under; the tests themselves may run under another.
PYTHON = os.environ.get("GUEST_PYTHON", sys.executable)
PATIENCE = 60


class Peer:
    """The worker's end of a channel."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(PATIENCE)

    def send(self, header: dict, body: bytes = b"") -> None:
        self.sock.sendall(encode(header, body))

    def receive(self) -> tuple[dict, bytes] | None:
        prefix = self._exactly(8)
        if not prefix:
            return None
        header, body = struct.unpack("<II", prefix)
        return json.loads(self._exactly(header)), self._exactly(body)

    def ended(self) -> bool:
        """Whether the other end has closed, with nothing more to read."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            piece = self.sock.recv(min(length - len(data), 1 << 20))
            if not piece:
                assert not data, "the channel closed inside a frame"
                return b""
            data += piece
        return bytes(data)


@dataclass
class Answer:
    """What came back for one request."""

    header: dict
    body: bytes
    logs: list[tuple[str, str, bytes]] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return self.header["kind"]

    @property
    def value(self) -> object:
        assert self.kind == "done", self.header
        return json.loads(self.body)

    @property
    def message(self) -> str:
        assert self.kind == "failed", (self.header, self.body)
        return self.header["message"]

    def text(self, stream: str) -> str:
        return b"".join(body for _, name, body in self.logs if name == stream).decode()


class Guest:
    """A started guest of role `instance`, or a child of a zygote; already `ready`."""

    def __init__(
        self, peer: Peer, process: subprocess.Popen | None = None, output: int | None = None
    ) -> None:
        self.peer = peer
        self.process = process
        self.output = output
        self.calls = 0
        ready = peer.receive()
        assert ready is not None, "the guest died before it was ready"
        assert ready[0]["kind"] == "ready"
        self.pid = ready[0]["pid"]

    def load(self, **fields: object) -> Answer:
        request = {
            "kind": "load",
            "module": "main",
            "function": "handler",
            "convention": "lambda",
            "name": "greet",
            "version": "7",
            "memory_mb": 256,
            "environment": {},
            "binary": False,
            "threads": 1,
        }
        self.peer.send(request | fields)
        return self.answer()

    def call(self, event: object = None, *, body: bytes | None = None, **fields: object) -> Answer:
        self.calls += 1
        request = {
            "kind": "invoke",
            "id": f"call-{self.calls}",
            "remaining_ms": 5000,
            "content_type": "application/json",
        }
        self.peer.send(request | fields, json.dumps(event).encode() if body is None else body)
        return self.answer()

    def answer(self) -> Answer:
        logs, parts = [], []
        while (message := self.peer.receive()) is not None:
            header, body = message
            if header["kind"] == "part":
                assert set(header) == {"kind", "id"} and body
                parts.append(body)
                continue
            if header["kind"] != "log":
                if header["kind"] != "imports":
                    assert {name for name, *_ in logs} <= {header.get("id", "")}
                written = self.written()
                if written:
                    logs.append((header.get("id", ""), "stderr", written))
                return Answer(header, body, logs, parts)
            assert set(header) == {"kind", "id", "stream"}
            assert 0 < len(body) <= 64 << 10
            logs.append((header["id"], header["stream"], body))
        raise EOFError(logs)

    def written(self) -> bytes:
        """What was written around the guest since the last answer: the worker's to read."""
        if self.output is None:
            return b""
        size = os.fstat(self.output).st_size
        text = os.pread(self.output, size, 0)
        os.ftruncate(self.output, 0)
        return text


def skip(name: str, why: str) -> NoReturn:
    """Says that the machine lacks `name`, as the Rust tests do: see `crates/skips`."""
    if name in os.environ.get("LAMBSWOOL_REQUIRE", "").split(","):
        pytest.fail(f"{why}, and LAMBSWOOL_REQUIRE says that this machine has {name}")
    skipped = os.environ.get("LAMBSWOOL_SKIPPED")
    if skipped:
        test = os.environ["PYTEST_CURRENT_TEST"].split(" ")[0]
        with open(skipped, "a") as file:
            file.write(f"{name}: {test}: {why}\n")
    pytest.skip(why)


def encode(header: dict, body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<II", len(text), len(body)) + text + body


@pytest.fixture(scope="session")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The guest as it is laid into a sandbox, but for the landing, which takes a warden."""
    root = tmp_path_factory.mktemp("lambswool")
    (root / "lambswool_guest").symlink_to(GUEST)
    shutil.copy(TESTS / "landing.py", root / "lambswool_landing.py")
    shared = root / "lambswool_sharing.abi3.so"
    compiler = ["cc", "-shared", "-fPIC", "-O2", "-o", shared, NATIVE / "sharing.c"]
    subprocess.run(compiler, check=True)
    bundle = [PYTHON, "-I", "-S", "-B", GUEST / "bundle.py", root, root]
    subprocess.run(bundle, check=True, stdout=subprocess.DEVNULL)
    return root


def spawn(
    role: str,
    task: Path,
    packages: Path,
    channel: socket.socket,
    layer: Path,
    output: int | None = None,
) -> subprocess.Popen:
    """Starts the interpreter as a sandbox does, the channel as fd 3. `output`: its 1 and 2."""
    fd = channel.fileno()
    main = layer / "lambswool_guest" / "__main__.py"
    program = [layer / "instance.pyc"] if role == "instance" else [main, role]

    def place() -> None:
        # Whoever starts the tests in the background has it ignored, and an exec keeps that.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.dup2(fd, 3)
        os.set_inheritable(3, True)

    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/tmp", "TMPDIR": "/tmp"}
    if "LD_LIBRARY_PATH" in os.environ:
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    scratch = task.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    places = ("--task", task, "--packages", packages, "--scratch", scratch)
    return subprocess.Popen(
        [PYTHON, "-I", "-S", "-B", *program, *places],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if output is None else output,
        stderr=output,
        pass_fds=(3,),
        preexec_fn=place,
        cwd="/",
    )


def nameless_file() -> int:
    """In the place of an instance's pipe: a test reads it when an answer is there."""
    flags = os.O_TMPFILE | os.O_RDWR | os.O_APPEND
    return os.open(tempfile.gettempdir(), flags, 0o600)


@pytest.fixture
def task(tmp_path: Path) -> Path:
    directory = tmp_path / "task"
    directory.mkdir()
    return directory


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    directory = tmp_path / "packages"
    directory.mkdir()
    return directory


@pytest.fixture
def start(task: Path, packages: Path, layer: Path) -> Iterator[Callable[..., Guest]]:
    """Starts an instance whose `main.py` is the given code; each call starts another."""
    started: list[Guest] = []

    def start(code: str | None = None) -> Guest:
        if code is not None:
            (task / "main.py").write_text(textwrap.dedent(code))
        ours, theirs = socket.socketpair()
        output = nameless_file()
        with theirs:
            process = spawn("instance", task, packages, theirs, layer, output)
        guest = Guest(Peer(ours), process, output)
        started.append(guest)
        return guest

    yield start
    for guest in started:
        guest.peer.sock.close()
        assert guest.process is not None
        try:
            guest.process.wait(PATIENCE)
        finally:
            guest.process.kill()
            os.close(guest.output)


@pytest.fixture
def loaded(start: Callable[..., Guest]) -> Callable[..., Guest]:
    """`start`, and the load succeeded."""

    def loaded(code: str, **fields: object) -> Guest:
        guest = start(code)
        answer = guest.load(**fields)
        assert answer.kind == "loaded", answer.header
        return guest

    return loaded
