# Who am I, and where is my home? Right: a name, without an exception, and the same ids in every way.
import getpass
import os
import pathlib
import pwd


def handler(event, context):
    entry = pwd.getpwuid(os.getuid())
    return [getpass.getuser() == entry.pw_name, entry.pw_dir, str(pathlib.Path.home()), os.getuid(), os.getgid()]
