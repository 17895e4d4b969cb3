# What psutil finds of processes. Right: this one alone, which has no parent.
import os


def handler(event, context):
    own = str(os.getpid())
    numbers = [name for name in os.listdir("/proc") if name.isdigit()]
    with os.scandir("/proc") as entries:
        kinds = [entry.is_dir() for entry in entries if entry.name == own]
    with open(f"/proc/{own}/stat") as file:
        stat = file.read()
    fields = stat.rpartition(")")[2].split()
    return [numbers == [own], kinds == [True], [stat.startswith(f"{own} ("), fields[1]], os.path.exists(f"/proc/{own}"), "self" in os.listdir("/proc")]
