"""A reference machine: imports modules, then is what clones of the machine go on from.

```text
  monitor                                    reference machine
    │ ◄──── ready ─────────────────────────── │
    │ ───── import {modules, path} ─────────► │   each module on its own: one that fails stops none
    │ ◄──── imported + {milliseconds, …} ──── │   the report is the body: it may be long
    │ ───── settle ─────────────────────────► │   rehearses, and waits: it is frozen here
    ├─ clone ──► wake ─► load ─► …            the rest is `instance`
```

What a fork of a zygote gets by being forked, a clone gets by `wake`. `json` and `traceback` are
imported although the guest could do without: most handlers want them, and they are shared by all.
"""

import json  # noqa: F401 - for the clones
import linecache  # noqa: F401 - for the clones
import posix
import traceback  # noqa: F401 - for the clones

from lambswool_guest import (
    codec,
    imports,
    instance,
    interpreter,
    pool_search,
    pools,
    rehearsal,
    reseed,
    running,
    sharing,
    stdlib,
)
from lambswool_guest.capture import Capture
from lambswool_guest.logs import Logs
from lambswool_guest.wire import Channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from lambswool_guest.places import Places


def serve(fd: int, places: "Places") -> "NoReturn":
    """Imports what it is told on `fd`, then goes on as an instance."""
    channel = Channel(fd)
    sharing.forget_binding()
    stdlib.begin(places)
    stdlib.hold("json", "linecache", "traceback")
    interpreter.prepare(places)
    instance.later.update(imports=imports, rehearsal=rehearsal, running=running)
    instance.hide()
    logs = Logs()
    logs.install()
    reseed.remember_hooks()
    channel.send({"kind": "ready", "pid": posix.getpid()})
    while (message := channel.receive()) is not None:
        header, _ = message
        if header["kind"] == "settle":
            break
        said = imports.run(header["modules"], header["path"], places)
        channel.send({"kind": "imported"}, codec.header(said))
    pools.most = 1
    pool_search.find()
    reseed.before_forks()
    rehearsal.in_zygote(places, logs)
    sharing.settle()
    instance.go_on(channel, places, logs, Capture("/tmp"))
