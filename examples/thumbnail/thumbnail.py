"""Makes a thumbnail: an image comes in as bytes, a JPEG goes out."""

import io

from PIL import Image, ImageOps

LARGEST = (160, 160)


def handler(event, context):
    image = Image.open(io.BytesIO(event))
    size = f"{image.width}x{image.height}"
    print(f"{image.format} {size}, {len(event)} bytes of {context.content_type}")
    # Cameras store how they were held instead of turning the picture.
    image = ImageOps.exif_transpose(image).convert("RGB")
    image.thumbnail(LARGEST)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=85)
    return out.getvalue(), "image/jpeg"
