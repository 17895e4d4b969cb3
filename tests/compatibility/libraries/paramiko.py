# /// script
# dependencies = ["paramiko==5.1.0"]
# ///
# An SSH server and its client, a thread each, which talk through a pair of sockets.
import socket
import threading

import paramiko


class Server(paramiko.ServerInterface):
    def __init__(self):
        self.asked = threading.Event()
        self.command = b""

    def check_auth_password(self, username, password):
        good = (username, password) == ("dolly", "wool")
        return paramiko.AUTH_SUCCESSFUL if good else paramiko.AUTH_FAILED

    def get_allowed_auths(self, username):
        return "password"

    def check_channel_request(self, kind, chanid):
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel, command):
        self.command = command
        self.asked.set()
        return True


def work() -> None:
    ours, theirs = socket.socketpair()
    key = paramiko.ECDSAKey.generate()
    served = paramiko.Transport(theirs)
    served.add_server_key(key)
    server = Server()
    served.start_server(server=server, event=threading.Event())
    client = paramiko.Transport(ours)
    client.start_client(timeout=20)
    assert client.get_remote_server_key().get_base64() == key.get_base64()
    try:
        client.auth_password("dolly", "wrong")
    except paramiko.AuthenticationException:
        pass
    else:
        raise AssertionError("the password is another")
    client.auth_password("dolly", "wool")
    channel = client.open_session(timeout=20)
    other = served.accept(20)
    channel.exec_command("count")
    assert server.asked.wait(20) and server.command == b"count"
    other.sendall(b"42\n" * 1000)
    other.send_exit_status(7)
    other.close()
    got = b""
    while part := channel.recv(4096):
        got += part
    assert got == b"42\n" * 1000 and channel.recv_exit_status() == 7
    client.close()
    served.close()
