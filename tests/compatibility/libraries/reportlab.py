# /// script
# dependencies = ["reportlab==5.1.0", "pypdf"]
# ///
# Writes a document of several pages and reads its text again.
import io

from pypdf import PdfReader
from reportlab.graphics.barcode import qr
from reportlab.graphics.shapes import Drawing
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.platypus import PageBreak, Paragraph, SimpleDocTemplate, Table


def work() -> None:
    kept = io.BytesIO()
    style = getSampleStyleSheet()["Normal"]
    drawing = Drawing(80, 80)
    drawing.add(qr.QrCodeWidget("wool"))
    story = [Paragraph("Bericht über Schafe", style), Table([["a", 1], ["b", 2]]), drawing]
    SimpleDocTemplate(kept, pagesize=A4).build([*story, PageBreak(), Paragraph("second", style)])
    assert kept.getvalue().startswith(b"%PDF-")
    pages = PdfReader(io.BytesIO(kept.getvalue())).pages
    assert len(pages) == 2 and "Bericht über Schafe" in pages[0].extract_text()
