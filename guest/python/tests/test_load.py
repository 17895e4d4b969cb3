"""Loading a handler: what it finds, and what it is told when it cannot be loaded."""

import os
import py_compile
import sys
import textwrap

import pytest

from test_zygote import zygote  # noqa: F401 - a fixture

ECHO = """
    def handler(event, context):
        return event
"""


def test_a_loaded_handler_says_how_long_it_took(start):
    guest = start(ECHO)
    assert guest.pid == guest.process.pid
    answer = guest.load()
    assert answer.kind == "loaded"
    assert answer.header["milliseconds"] > 0


@pytest.fixture
def compiled(task, loaded):
    """`loaded`, with bytecode that need not be checked, as a deploy leaves it."""

    def compiled(code: str, **fields):
        (task / "main.py").write_text(textwrap.dedent(code))
        unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(task / "main.py"), invalidation_mode=unchecked, doraise=True)
        return loaded(code, **fields)

    return compiled


LOOK = """
    import sys
    def handler(event, context):
        module, spec = sys.modules[__name__], __spec__
        return [sorted(vars(module)), __name__, __file__, __package__, module.__cached__,
                type(__loader__).__name__, __loader__ is spec.loader, __loader__.path, spec.name,
                spec.origin, spec.cached, spec.has_location, spec.parent,
                spec.submodule_search_locations]
"""


def test_a_module_looks_the_same_from_its_bytecode_as_imported(loaded, compiled):
    imported = loaded(LOOK).call().value
    assert compiled(LOOK).call().value == imported


def test_a_module_with_bytecode_is_loaded_without_the_import_system(loaded, compiled):
    # That would have made a finder for the directory.
    code = """
        import sys
        FOUND = any(__file__.startswith(path + "/main") for path in sys.path_importer_cache)
        def handler(event, context): return FOUND
    """
    assert loaded(code).call().value is True
    assert compiled(code).call().value is False


def test_a_module_from_its_bytecode_has_the_builtins_that_all_have(compiled):
    code = """
        import builtins
        builtins.added = 7
        def handler(event, context):
            return [added, __builtins__ is vars(builtins), callable(help), eval("added")]
    """
    assert compiled(code).call().value == [7, True, True, 7]


@pytest.mark.parametrize("rival", ["main/__init__.py", "main.abi3.so", "main.pyc"])
def test_what_an_import_would_prefer_or_weigh_is_left_to_the_import(task, compiled, start, rival):
    compiled("def handler(e, c): return 'file'")
    path = task / rival
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        "def handler(e, c): return 'package'" if rival.endswith(".py") else "no library"
    )
    guest = start()
    answer = guest.load()
    if rival == "main/__init__.py":
        assert guest.call().value == "package"
    elif rival == "main.abi3.so":
        assert answer.header["error_type"] == "ImportError"
    else:
        assert guest.call().value == "file"


def test_a_module_that_raises_is_not_left_behind(start, task, compiled):
    (task / "main.py").write_text("raise ValueError('no')")
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(task / "main.py"), invalidation_mode=unchecked)
    guest = start()
    for _ in range(2):
        answer = guest.load()
        assert (answer.header["error_type"], answer.message) == ("ValueError", "no")


def test_the_environment_is_lambdas_and_the_deployments(loaded):
    guest = loaded(
        """
        import os, sys
        AT_IMPORT = os.environ["GREETING"]
        def handler(event, context):
            names = ["LAMBDA_TASK_ROOT", "AWS_LAMBDA_FUNCTION_NAME", "AWS_LAMBDA_FUNCTION_VERSION",
                     "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "_HANDLER"]
            return [AT_IMPORT, [os.environ[n] for n in names], os.getcwd(), sys.argv[1:],
                    os.popen("echo $GREETING").read()]
        """,
        environment={"GREETING": "grüß 🐑", "_HANDLER": "forged"},
    )
    at_import, lambdas, cwd, arguments, in_shell = guest.call().value
    assert at_import == "grüß 🐑"
    assert lambdas == [cwd, "greet", "7", "256", "main.handler"]
    assert arguments == []
    assert in_shell == "grüß 🐑\n"


def test_a_time_zone_among_the_variables_takes_effect(loaded):
    code = """
    import time
    def handler(event, context):
        return time.localtime(0).tm_hour
    """
    assert loaded(code, environment={"TZ": "XYZ-5"}).call().value == 5


@pytest.mark.parametrize("name", ["", "A=B", "A\0B"])
def test_an_impossible_variable_is_named(start, name):
    answer = start(ECHO).load(environment={name: "x"})
    assert answer.header["error_type"] == "Runtime.InvalidEnvironment"
    assert repr(name) in answer.message


def test_code_comes_before_packages_before_the_standard_library(loaded, task, packages):
    for name in ("both", "fractions"):
        (packages / f"{name}.py").write_text("WHERE = 'packages'")
    (task / "both.py").write_text("WHERE = 'task'")
    guest = loaded(
        """
        import sys, both, fractions
        def handler(event, context):
            return [both.WHERE, fractions.WHERE, sys.path]
        """
    )
    code, package, path = guest.call().value
    assert (code, package) == ("task", "packages")
    assert path[:2] == [str(task), str(packages)]
    assert not any("lambswool" in entry for entry in path)
    assert len(path) > 2


def test_a_module_inside_a_package_is_loaded_by_its_dotted_name(start, task):
    (task / "app").mkdir()
    (task / "app" / "__init__.py").write_text("")
    (task / "app" / "entry.py").write_text("from . import __name__ as n\ndef f(event): return n")
    guest = start()
    answer = guest.load(module="app.entry", function="f", convention="open-lambda")
    assert answer.kind == "loaded"
    assert guest.call().value == "app"


def test_a_handler_named_like_a_loaded_module_is_still_the_handler(start, task):
    # `codecs` is loaded before any code of ours; `site` is not, and `-S` left it out.
    for name in ("codecs", "statistics"):
        (task / f"{name}.py").write_text("def handler(event, context): return __name__")
    guest = start()
    assert guest.load(module="statistics").kind == "loaded"
    assert guest.call().value == "statistics"
    frozen = start().load(module="codecs")
    if frozen.kind == "failed":  # an interpreter with frozen modules never looks at the file
        assert "rename the handler's file" in frozen.message


def test_a_missing_function_is_named_with_those_that_there_are(start):
    code = """
    from os.path import join
    def main(event): ...
    class Thing: ...
    _hidden = lambda: 0
    """
    answer = start(code).load()
    assert answer.header["error_type"] == "Runtime.HandlerNotFound"
    assert answer.message == "no function `handler` in module main; it defines: Thing, main"
    assert answer.header["id"] == ""


def test_a_name_that_is_no_function_is_refused(start):
    answer = start("handler = 3").load()
    assert answer.message == "`handler` in module main is no function but int"


def test_a_missing_module_is_named_with_what_the_code_holds(start):
    answer = start(ECHO).load(module="mian")
    assert answer.message == "no module 'mian' in the code: it holds main.py"


def test_a_missing_dependency_is_the_import_error_itself(start):
    answer = start("import nothing_of_the_kind\ndef handler(e, c): ...").load()
    assert answer.header["error_type"] == "ModuleNotFoundError"
    assert answer.message == "No module named 'nothing_of_the_kind'"
    told = answer.header["traceback"]
    assert told[0] == "Traceback (most recent call last):"
    assert "main.py" in told[1]
    assert told[2].strip() == "import nothing_of_the_kind"
    assert not any("lambswool_guest" in line or "importlib" in line for line in told)


def test_a_syntax_error_shows_file_line_and_caret(start, task):
    answer = start("x = 1\ndef handler(event context):\n    pass\n").load()
    assert answer.header["error_type"] == "SyntaxError"
    told = answer.header["traceback"]
    assert f'File "{task}/main.py", line 2' in "\n".join(told)
    assert any("def handler(event context):" in line for line in told)
    assert any(set(line.strip()) == {"^"} for line in told)
    assert not any("\n" in line for line in told)


@pytest.mark.parametrize(
    ("statement", "kind", "words"),
    [
        ("import sys; sys.exit(4)", "SystemExit", "the code called sys.exit(4)"),
        ("exit()", "SystemExit", "the code called sys.exit()"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt", ""),
        ("1 / 0", "ZeroDivisionError", "division by zero"),
        ("class Odd(BaseException): ...\nraise Odd('x')", "main.Odd", "x"),
    ],
)
def test_whatever_an_import_raises_is_told(start, statement, kind, words):
    guest = start(f"print('so far')\n{statement}")
    answer = guest.load()
    assert answer.header["error_type"] == kind
    assert answer.message == words
    assert answer.logs == [("", "stdout", b"so far\n")]
    # Nothing more is answered; the end of the channel is the end.
    guest.peer.sock.shutdown(1)
    assert guest.peer.ended()
    assert guest.process.wait(10) == 0


def test_output_while_loading_has_no_invocation(start):
    answer = start("import os\nprint('a')\nos.write(2, b'b\\n')\ndef handler(e, c): ...").load()
    assert answer.kind == "loaded"
    assert answer.logs == [("", "stdout", b"a\n"), ("", "stderr", b"b\n")]


def test_the_channel_closing_ends_the_process_quietly(start):
    guest = start(ECHO)
    guest.peer.sock.close()
    assert guest.process.wait(10) == 0


def test_the_channel_is_closed_to_what_the_handler_starts(loaded):
    guest = loaded(
        """
        import os, subprocess
        def handler(event, context):
            return subprocess.run(["ls", "-l", "/proc/self/fd"], close_fds=False,
                                  capture_output=True, text=True).stdout
        """
    )
    assert "socket:" not in guest.call().value


def test_json_is_not_imported_for_a_handler_that_does_not_ask_for_it(loaded):
    guest = loaded("import sys\ndef handler(e, c): return sorted(sys.modules)")
    modules = guest.call({"a": "ü"}).value
    unwanted = {"json", "re", "enum", "os", "socket", "logging", "threading", "typing", "traceback"}
    assert not unwanted & set(modules)
    assert os.path.sep == "/"


OBSERVED = """
    import early
    def handler(event, context):
        import late.inside
        if event:
            raise ValueError
        import fractions
"""


@pytest.mark.parametrize("event", [None, 1])
def test_an_observed_handler_says_what_it_imports_from_its_packages(start, packages, event):
    (packages / "late").mkdir()
    for name in ("early", "late/__init__", "late/inside", "never"):
        (packages / f"{name}.py").write_text("")
    guest = start(OBSERVED)
    said = guest.load(observe=True)
    assert (said.kind, said.body) == ("imports", b"early")
    assert guest.answer().kind == "loaded"
    said = guest.call(event)
    assert (said.kind, said.body) == ("imports", b"late\nlate.inside")
    assert guest.answer().kind == ("failed" if event else "done")
    assert guest.call(event).kind == ("failed" if event else "done"), "only of the first call"


MEDDLING = """
    import sys
    import again
    import first
    def handler(event, context):
        del sys.modules[event]
        import again
        import last
"""


@pytest.mark.parametrize(
    ("gone", "heard"), [("again", b"again\nlast"), ("lambswool_guest.imports", b"")]
)
def test_an_observed_handler_may_take_modules_away(start, packages, gone, heard):
    for name in ("again", "first", "last"):
        (packages / f"{name}.py").write_text("")
    guest = start(MEDDLING)
    assert guest.load(observe=True).body == b"again\nfirst"
    assert guest.answer().kind == "loaded"
    said = guest.call(gone)
    assert (said.kind, said.body) == ("imports", heard)
    assert guest.answer().kind == "done"


MANY = """
    import sys, types
    import early
    def handler(event, context):
        for number in range(20_000):
            name = f"m{number:099}"
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__file__ = early.__file__
        return 1
"""


def test_what_is_said_of_imports_has_an_end(start, packages):
    (packages / "early.py").write_text("")
    guest = start(MANY)
    assert (guest.load(observe=True).body, guest.answer().kind) == (b"early", "loaded")
    names = guest.call().body.split(b"\n")
    assert names == [b"m%099d" % number for number in range((1 << 20) // 101)]
    assert guest.answer().value == 1


def test_a_handler_that_is_not_observed_says_nothing(start, packages):
    (packages / "early.py").write_text("")
    guest = start("import early\ndef handler(event, context):\n  return 1")
    assert guest.load(observe=False).kind == "loaded"
    assert guest.call().kind == "done"


def test_a_python_that_the_handler_starts_finds_what_the_handler_finds(loaded, task, packages):
    (packages / "bin").mkdir()
    (packages / "bundled.py").write_text("print('as a module')")
    command = packages / "bin" / "bundled"
    command.write_text(f"#!{sys.executable}\nimport bundled")
    command.chmod(0o755)
    (task / "vendored").mkdir()
    (task / "vendored" / "extra.py").write_text("")
    answer = loaded(
        """
        import subprocess, sys, extra
        def handler(event, context):
            run = lambda *words: subprocess.run(words, capture_output=True, text=True, check=True)
            import os
            return [run(sys.executable, "-m", "bundled").stdout, run("bundled").stdout,
                    run(sys.executable, "-c", "import extra, main").stdout, os.environ["PATH"]]
        """,
        environment={"PYTHONPATH": f"{task}/vendored"},
    ).call()
    said = "as a module\n"
    assert answer.value == [said, said, "", f"{packages}/bin:/usr/bin:/opt/bin"]


def test_pools_of_threads_get_their_number_unless_the_handlers_environment_says_one(loaded):
    names = ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"]
    code = f"import os\ndef handler(e, c): return [os.environ.get(name) for name in {names}]"
    assert loaded(code, threads=3).call().value == ["3"] * 4
    environment = {"OMP_NUM_THREADS": "5"}
    guest = loaded(code, threads=3, environment=environment)
    assert guest.call().value == ["3", "5", "3", "3"]


def test_libraries_are_told_where_packages_are_and_that_no_call_is_traced(loaded, packages):
    guest = loaded(
        """
        import importlib, os, site, sys, sysconfig
        def handler(event, context):
            paths = sysconfig.get_paths()
            where = [paths["purelib"], paths["platlib"], sysconfig.get_path("purelib"),
                     *site.getsitepackages()]
            loaders = [type(module.__loader__) is type(module.__spec__.loader)
                       and "Loader" not in vars(module) for module in (site, sysconfig)]
            return [where, paths["scripts"], os.path.isdir(paths["stdlib"]), loaders,
                    site.getsitepackages(["/x"])[0].startswith("/x/"),
                    importlib.reload(sysconfig) is sysconfig, os.environ["_X_AMZN_TRACE_ID"]]
        """
    )
    where, scripts, *rest, trace = guest.call().value
    assert where == [str(packages)] * 4 and scripts == f"{packages}/bin"
    assert rest == [True, [True, True], True, True]
    assert trace.startswith("Root=1-") and trace.endswith(";Sampled=0")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("help(len)", "Help on built-in function len"),
        ("help('if')", 'The "if" statement'),
        ("help()", "help> "),
        ("print(copyright)", "Copyright (c)"),
        ("print(credits)", "Python"),
        ("license", ""),
        ("print(repr(exit), repr(quit))", "Use exit() or"),
    ],
)
def test_what_site_defines_is_there(loaded, source, said):
    guest = loaded(f"def handler(event, context):\n    {source}")
    for _ in range(2):
        answer = guest.call()
        assert answer.kind == "done" and said in answer.text("stdout"), answer


WHERE = """
    import sys
    def handler(event, context):
        files = {name: getattr(one, "__file__", None) for name, one in sys.modules.items()}
        return sorted(name for name, file in files.items() if file and "/lib/python" not in file)
"""


def test_no_file_but_the_functions_lies_beside_python_and_packages(start, zygote, task):  # noqa: F811
    for guest in (start(WHERE), zygote.fork()):
        assert guest.load(observe=True).kind == "imports"
        assert guest.answer().kind == "loaded"
        assert guest.call().kind == "imports"
        assert guest.answer().value == ["main"]


def test_exit_leaves_the_standard_input_open(loaded):
    guest = loaded("import os\ndef handler(event, context):\n    os.fstat(0)\n    quit(event)")
    for _ in range(2):
        assert guest.call(3).message == "the code called sys.exit(3)"
