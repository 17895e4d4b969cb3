# /// script
# dependencies = ["matplotlib==3.11.2"]
# ///
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def work() -> None:
    figure = Figure(figsize=(1, 1), dpi=20)
    canvas = FigureCanvasAgg(figure)
    figure.patch.set_facecolor("red")
    canvas.draw()
    assert bytes(canvas.buffer_rgba())[:4] == b"\xff\x00\x00\xff"
