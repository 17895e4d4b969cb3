"""download.py URL HASH PATH LIMIT INDEXES: fetches a file whose hash is known, and keeps no other.

HASH is `sha256:…`, INDEXES a JSON list of [name, address] of the indexes that the operator has
named. The worker's credentials for an index are sent to where that index is, by the same scheme,
and not after a redirection: by uv's convention UV_INDEX_<NAME>_USERNAME and _PASSWORD, those in
UV_DEFAULT_INDEX, UV_INDEX_URL, UV_INDEX and UV_EXTRA_INDEX_URL, then those of netrc, which knows
hosts only: to the indexes that the operator has named, or to https at its own port.
Prints null, or the reason why there is no file, as JSON.
"""

import base64
import hashlib
import json
import netrc
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request

url, hashed, path, limit, indexes = sys.argv[1:6]


def origin(parts):
    return parts.scheme, parts.netloc.rpartition("@")[2].lower()


def credentials(wanted):
    named = [origin(urllib.parse.urlsplit(address)) for _, address in json.loads(indexes)]
    for name, address in json.loads(indexes):
        variable = "UV_INDEX_" + re.sub("[^A-Za-z0-9]", "_", name).upper()
        password = os.environ.get(variable + "_PASSWORD")
        user = os.environ.get(variable + "_USERNAME")
        if (user or password) and origin(urllib.parse.urlsplit(address)) == wanted:
            return user or "", password or ""
    for variable in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"):
        for address in os.environ.get(variable, "").split():
            parts = urllib.parse.urlsplit(address.partition("=")[2] or address)
            named.append(origin(parts))
            if parts.username and origin(parts) == wanted:
                unquote = urllib.parse.unquote
                return unquote(parts.username), unquote(parts.password or "")
    scheme, place = wanted
    host, _, port = place.partition(":")
    if wanted not in named and (scheme != "https" or port not in ("", "443")):
        return None
    try:
        hosts = netrc.netrc(os.environ.get("NETRC")).hosts
    except (OSError, netrc.NetrcParseError):
        return None
    # Its entry for all other hosts stands under this name.
    known = hosts.get(host) if host != "default" else None
    return known and (known[0], known[2] or "")


def fetch():
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https"):
        return f"{parts.scheme!r} is no way to fetch a file"
    host = parts.netloc.rpartition("@")[2]
    bare = urllib.parse.urlunsplit(parts._replace(netloc=host, fragment=""))
    request = urllib.request.Request(bare, headers={"User-Agent": "lambswool"})
    known = credentials(origin(parts))
    if known:
        token = base64.b64encode(":".join(known).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {token}")
    kind, _, expected = hashed.partition(":")
    digest, size = hashlib.new(kind), 0
    with urllib.request.urlopen(request, timeout=60) as answer, open(path, "wb") as file:
        while piece := answer.read(1 << 16):
            size += len(piece)
            if size > int(limit):
                return f"it is larger than {limit} bytes"
            digest.update(piece)
            file.write(piece)
    if digest.hexdigest() != expected:
        return f"its hash is {kind}:{digest.hexdigest()} and should be {hashed}"
    return None


try:
    print(json.dumps(fetch()))
except (OSError, ValueError) as error:
    print(json.dumps(str(error)))
