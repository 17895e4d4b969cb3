# /// script
# dependencies = ["pillow==13.0.0"]
# ///
# Draws, writes text, and keeps pictures in all formats that its own libraries make.
import io

from PIL import Image, ImageDraw, ImageFilter, ImageFont, features


def work() -> None:
    for codec in ("jpg", "zlib", "webp", "freetype2", "avif"):
        assert features.check(codec), codec
    picture = Image.new("RGB", (300, 200), "white")
    draw = ImageDraw.Draw(picture)
    draw.ellipse((50, 50, 250, 150), fill=(200, 0, 0))
    draw.text((10, 10), "Wölle", fill="black", font=ImageFont.load_default(24))
    dark = sum(picture.crop((0, 0, 100, 45)).convert("L").histogram()[:100])
    assert 50 < dark < 2000, dark
    small = picture.resize((60, 40), Image.Resampling.LANCZOS).filter(ImageFilter.GaussianBlur(1))
    for kind in ("PNG", "JPEG", "WEBP", "TIFF", "AVIF", "GIF", "JPEG2000"):
        kept = io.BytesIO()
        small.save(kept, kind)
        red = Image.open(io.BytesIO(kept.getvalue())).convert("RGB").getpixel((30, 20))
        assert red[0] > 150 and red[1] < 60, (kind, red)
