# /// script
# dependencies = ["pyjwt[crypto]==2.15.1"]
# ///
# Signs and checks tokens with keys of three kinds.
import datetime

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519


def work() -> None:
    now = datetime.datetime.now(datetime.UTC)
    claims = {"sub": "dölly", "aud": "farm", "exp": now + datetime.timedelta(minutes=1)}
    secret = "s" * 32
    assert (
        jwt.decode(jwt.encode(claims, secret), secret, ["HS256"], audience="farm")["sub"] == "dölly"
    )
    for key, kind in (
        (ec.generate_private_key(ec.SECP256R1()), "ES256"),
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    ):
        token = jwt.encode(claims, key, kind, headers={"kid": "1"})
        assert jwt.decode(token, key.public_key(), [kind], audience="farm")["aud"] == "farm"
        assert jwt.get_unverified_header(token)["kid"] == "1"
    late = jwt.encode({"exp": now - datetime.timedelta(hours=1)}, secret)
    for token, error in (
        (late, jwt.ExpiredSignatureError),
        (late[:-2] + "AA", jwt.InvalidSignatureError),
    ):
        try:
            jwt.decode(token, secret, ["HS256"])
        except error:
            continue
        raise AssertionError(error)
