# /// script
# dependencies = ["cryptography==50.0.2"]
# ///
# Makes keys and certificates, signs, encrypts, and shakes hands by TLS within the process.
import datetime
import os
import ssl
import tempfile

from cryptography import x509
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from cryptography.x509.oid import NameOID


def certificate(key):
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "farm.example")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(days=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=1))
    names = x509.SubjectAlternativeName([x509.DNSName("farm.example")])
    return builder.add_extension(names, critical=False).sign(key, hashes.SHA256())


def shake_hands(key, cert) -> str:
    pem = cert.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "both.pem")
        with open(path, "wb") as file:
            file.write(pem + private)
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server.load_cert_chain(path)
        client = ssl.create_default_context(cafile=path)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname="farm.example")
    other = server.wrap_bio(to_server, to_client, server_side=True)
    waiting = [one, other]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not waiting
    one.write(b"baa")
    assert other.read(3) == b"baa"
    return one.version()


def work() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    assert shake_hands(key, certificate(key)) == "TLSv1.3"
    secret = Fernet(Fernet.generate_key())
    assert secret.decrypt(secret.encrypt(b"wool")) == b"wool"
    big = rsa.generate_private_key(65537, 2048)
    seal = big.sign(b"wool", padding.PKCS1v15(), hashes.SHA256())
    big.public_key().verify(seal, b"wool", padding.PKCS1v15(), hashes.SHA256())
    small = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32))
    assert (
        small.public_key().public_bytes_raw().hex().startswith("3b6a27bcceb6a42d62a3a8d02a6f0d73")
    )
    box = AESGCM(bytes(16))
    assert box.encrypt(bytes(12), b"", None).hex() == "58e2fccefa7e3061367f1d57a4e7455a"
    derived = Scrypt(b"NaCl", 64, 1024, 8, 16).derive(b"password")
    assert derived.hex().startswith("fdbabe1c9d3472007856e7190d01e9fe")
