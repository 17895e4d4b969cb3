# Limits for a child, as graders set them before it starts. Right: "[(2, 2), 1048576, (64, 64)]".
import resource
import subprocess
import sys


def before():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (2, 2))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    resource.prlimit(0, resource.RLIMIT_NOFILE, (64, 64))


CODE = """
import resource as r
print([r.getrlimit(r.RLIMIT_CPU), r.getrlimit(r.RLIMIT_FSIZE)[0], r.getrlimit(r.RLIMIT_NOFILE)])
"""


def handler(event, context):
    done = subprocess.run([sys.executable, "-c", CODE], preexec_fn=before, capture_output=True, text=True)
    return (done.stdout + done.stderr).strip()
