# /// script
# dependencies = ["grpcio==1.85.3"]
# ///
# A server and a client with the library's own threads, which talk through a Unix socket.
# machines: Failed to bind
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor

import grpc


class Farm(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == "/flock/Reverse":
            return grpc.unary_unary_rpc_method_handler(lambda request, context: request[::-1])
        return grpc.unary_stream_rpc_method_handler(
            lambda request, context: (bytes([byte]) for byte in request)
        )


def work() -> None:
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool, handlers=[Farm()])
        where = "unix:" + os.path.join(directory, "farm")
        server.add_insecure_port(where)
        server.start()
        with grpc.insecure_channel(where) as channel:
            reverse = channel.unary_unary("/flock/Reverse")
            futures = [reverse.future(b"%d-wool" % n, timeout=20) for n in range(10)]
            assert [f.result() for f in futures] == [b"loow-%d" % n for n in range(10)]
            assert list(channel.unary_stream("/flock/Split")(b"abc", timeout=20)) == [
                b"a",
                b"b",
                b"c",
            ]
        server.stop(None).wait()
