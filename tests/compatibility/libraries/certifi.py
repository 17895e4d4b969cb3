# /// script
# dependencies = ["certifi==2026.10.19.post1", "charset-normalizer==3.5.3"]
# ///
# Loads the public certificates into the interpreter's ssl module, and guesses encodings.
import ssl

import certifi
from charset_normalizer import from_bytes


def work() -> None:
    context = ssl.create_default_context(cafile=certifi.where())
    assert context.cert_store_stats()["x509_ca"] > 100
    assert len(context.get_ca_certs()) > 100 and context.verify_mode == ssl.CERT_REQUIRED
    text = "Всеки човек има право на образование. Образованието трябва да бъде безплатно. " * 4
    best = from_bytes(text.encode("cp1251")).best()
    assert best is not None and str(best) == text, best and best.encoding
    japanese = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。" * 4
    assert str(from_bytes(japanese.encode("shift_jis")).best()) == japanese
