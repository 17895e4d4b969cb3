# /// script
# dependencies = ["rich==15.0.0", "typer==0.29.2"]
# ///
# Prints tables and progress, and runs a command line within the process.
import io

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.traceback import Traceback
from typer.testing import CliRunner

app = typer.Typer()


@app.command()
def shear(name: str, times: int = 1):
    typer.echo(f"{name} " * times)


@app.command()
def count():
    raise typer.Exit(3)


def work() -> None:
    out = io.StringIO()
    console = Console(file=out, width=60, force_terminal=True)
    table = Table("farm", "sheep")
    table.add_row("Hügel", "[red]3[/red]")
    console.print(table)
    assert "Hügel" in out.getvalue() and "\x1b[31m3" in out.getvalue()
    assert sum(track(range(20), console=console)) == 190
    try:
        raise ValueError("baa")
    except ValueError:
        console.print(Traceback())
    assert "ValueError" in out.getvalue()
    runner = CliRunner()
    said = runner.invoke(app, ["shear", "dolly", "--times", "2"])
    assert (said.exit_code, said.output) == (0, "dolly dolly \n"), said
    assert runner.invoke(app, ["count"]).exit_code == 3
    assert "shear" in runner.invoke(app, ["--help"]).output
