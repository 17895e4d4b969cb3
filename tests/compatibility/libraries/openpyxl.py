# /// script
# dependencies = ["openpyxl==3.1.5", "pillow==13.0.0"]
# ///
# Writes a workbook with formulas, a chart, dates and a picture, and reads it again.
import datetime
import os
import tempfile

from openpyxl import Workbook, load_workbook
from openpyxl.chart import BarChart, Reference
from openpyxl.drawing.image import Image
from openpyxl.styles import Font
from PIL import Image as Picture


def work() -> None:
    book = Workbook()
    sheet = book.active
    sheet.append(["farm", "sheep", "since"])
    for number in range(200):
        sheet.append([f"hill {number} ä", number, datetime.date(2026, 1, 1)])
    sheet["D1"] = "=SUM(B2:B201)"
    sheet["A1"].font = Font(bold=True)
    chart = BarChart()
    chart.add_data(Reference(sheet, min_col=2, min_row=1, max_row=20), titles_from_data=True)
    sheet.add_chart(chart, "F2")
    with tempfile.TemporaryDirectory() as directory:
        picture, path = os.path.join(directory, "p.png"), os.path.join(directory, "farm.xlsx")
        Picture.new("RGB", (8, 8), "red").save(picture)
        sheet.add_image(Image(picture), "F20")
        book.save(path)
        again = load_workbook(path, read_only=False).active
        assert again["D1"].value == "=SUM(B2:B201)" and again["A1"].font.bold
        assert sum(row[1] for row in again.iter_rows(min_row=2, values_only=True)) == 19900
        assert again["C2"].value == datetime.datetime(2026, 1, 1) and len(again._charts) == 1
