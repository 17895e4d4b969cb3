# Stands behind an attack that is carried out on the host itself: answers each event of its standard input.
import resource
import sys

# As in a sandbox: a channel whose other end somebody else has made, and a limit that is lower than what may be asked for.
CHANNEL = socket.socketpair()
os.dup2(CHANNEL[0].fileno(), 3)
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
signal.alarm(60)


def become(fds, uid):
    """Who attacks has every capability already."""


def host_fds():
    """What stands for a slot's root."""
    return [os.open("/usr", os.O_RDONLY)]


def answer(event):
    if event["who"] != "package":
        return handler(event, None)
    HOST.update(event["host"])
    return attack(globals().get("own_fds", host_fds)(), os.getuid(), 0)


for line in sys.stdin:
    try:
        said = answer(json.loads(line))
    except BaseException as error:
        said = f"{type(error).__name__}: {error}"
    print(json.dumps(said), flush=True)
