# /// script
# dependencies = ["redis==8.1.0"]
# ///
import redis


def work() -> None:
    connection = redis.Redis(host="localhost").connection_pool.make_connection()
    packed = b"".join(connection.pack_command("SET", "flock", 42))
    assert packed == b"*3\r\n$3\r\nSET\r\n$5\r\nflock\r\n$2\r\n42\r\n", packed
