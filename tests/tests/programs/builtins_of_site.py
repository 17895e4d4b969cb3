# What people call in a cell of a code interpreter. Right: "ok" each.
def attempt(source):
    try:
        exec(source, {"__name__": "__main__"})
        return "ok"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


SOURCES = ("help(len)", "help('if')", "copyright", "print(credits)", "license", "repr(help)", "exit", "quit")


def handler(event, context):
    return {source: attempt(source) for source in SOURCES}
