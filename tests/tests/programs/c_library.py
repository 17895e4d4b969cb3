# What the C library has beside its main file. Expected: as under a plain Python: every probe is true.
import ctypes, grp, locale, mimetypes, os, pwd, socket, time
from ctypes.util import find_library

SETS = "ISO-8859-1 ISO-8859-15 CP437 CP1252 KOI8-R SHIFT_JIS EUC-JP ISO-2022-JP GB18030 BIG5 EUC-KR UTF-16LE UTF-7"
SERVICES = {"http": 80, "https": 443, "ssh": 22, "smtp": 25, "domain": 53, "ntp": 123, "imaps": 993, "ldap": 389}
LIBRARIES = "c m z ssl crypto sqlite3 stdc++ gcc_s dl pthread expat mvec".split()


def converted():
    libc = ctypes.CDLL(None)
    libc.iconv_open.restype = ctypes.c_void_p
    return [s for s in SETS.split() if libc.iconv_open(s.encode(), b"UTF-8") == ctypes.c_void_p(-1).value] == []


def libraries():
    return [n for n in LIBRARIES if not find_library(n) or not ctypes.CDLL(find_library(n))] == []


def names():
    addresses = {a[4][0] for a in socket.getaddrinfo("localhost", "https", type=socket.SOCK_STREAM)}
    return "127.0.0.1" in addresses and socket.getfqdn() == socket.gethostname()


PROBES = {
    "iconv": converted,
    "find_library": libraries,
    "nothing is found": lambda: find_library("nothing") is None,
    "services": lambda: all(socket.getservbyname(n) == p for n, p in SERVICES.items()),
    "by port": lambda: socket.getservbyport(443) == "https",
    "protocols": lambda: [socket.getprotobyname(n) for n in ("tcp", "udp", "icmp", "ip")] == [6, 17, 1, 0],
    "own name": lambda: socket.gethostbyname(socket.gethostname()).startswith("127."),
    "names": names,
    "by name of service": lambda: socket.getaddrinfo("127.0.0.1", "https", type=socket.SOCK_STREAM)[0][4][1] == 443,
    "locale": lambda: locale.setlocale(locale.LC_ALL, "C.UTF-8") == "C.UTF-8",
    "strftime": lambda: time.strftime("%A %d %B %Y é", time.gmtime(0)) == "Thursday 01 January 1970 é",
    "collation": lambda: sorted(["é", "z", "a"], key=locale.strxfrm) == ["a", "z", "é"],
    "mime": lambda: mimetypes.guess_type("a.docx")[0].endswith("wordprocessingml.document"),
    "mime file": lambda: os.path.getsize("/etc/mime.types") > 1000,
    "root": lambda: (pwd.getpwnam("root").pw_uid, grp.getgrgid(0).gr_name) == (0, "root"),
    "nobody": lambda: pwd.getpwuid(65534).pw_name == "nobody",
    "expanduser": lambda: os.path.expanduser("~nobody") == "/",
    "vectors": lambda: bool(ctypes.CDLL("libmvec.so.1")),
}


def attempt(probe):
    try:
        return probe()
    except BaseException as e:
        return f"{type(e).__name__}: {e}"


def handler(event, context):
    return {name: got for name, probe in PROBES.items() if (got := attempt(probe)) is not True}
