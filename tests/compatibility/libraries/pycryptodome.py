# /// script
# dependencies = ["pycryptodome==4.4.0"]
# ///
# Ciphers and hashes, by this processor's own instructions where it has them.
import hashlib

from Crypto.Cipher import AES, ChaCha20_Poly1305
from Crypto.Hash import SHA1, SHA3_256, SHA256
from Crypto.Protocol.KDF import PBKDF2
from Crypto.PublicKey import ECC
from Crypto.Random import get_random_bytes
from Crypto.Signature import DSS


def work() -> None:
    key = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
    block = bytes.fromhex("6bc1bee22e409f96e93d7e117393172a")
    assert AES.new(key, AES.MODE_ECB).encrypt(block).hex() == "3ad77bb40d7a3660a89ecaf32466ef97"
    box = ChaCha20_Poly1305.new(key=get_random_bytes(32))
    text, tag = box.encrypt_and_digest(b"wool")
    assert len(text) == 4 and len(tag) == 16 and len(box.nonce) == 12
    assert SHA3_256.new(b"").hexdigest().startswith("a7ffc6f8bf1ed766")
    derived = PBKDF2(b"password", b"salt", 20, 2, hmac_hash_module=SHA1)
    assert derived == hashlib.pbkdf2_hmac("sha1", b"password", b"salt", 2, 20)
    pair = ECC.generate(curve="P-256")
    seal = DSS.new(pair, "fips-186-3").sign(SHA256.new(b"wool"))
    DSS.new(pair.public_key(), "fips-186-3").verify(SHA256.new(b"wool"), seal)
