# A host's own name, and ports by their names. Expected: [an address of 127.0.0.0/8, 443, 6, 443].
import socket
def attempt(f):
    try: return f()
    except BaseException as e: return f"{type(e).__name__}: {e}"
def handler(event, context):
    return [attempt(lambda: socket.gethostbyname(socket.gethostname())), attempt(lambda: socket.getservbyname("https")), attempt(lambda: socket.getprotobyname("tcp")),
            attempt(lambda: socket.getaddrinfo("127.0.0.1", "https", type=socket.SOCK_STREAM)[0][4][1])]
