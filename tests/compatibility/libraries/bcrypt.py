# /// script
# dependencies = ["bcrypt==5.0.0", "argon2-cffi==25.1.0"]
# ///
# Hashes passwords, on several threads.
from concurrent.futures import ThreadPoolExecutor

import argon2
import bcrypt


def work() -> None:
    known = b"$2b$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"
    assert bcrypt.hashpw(b"U*U", b"$2b$05$CCCCCCCCCCCCCCCCCCCCC.") == known
    salt = bcrypt.gensalt(5)
    assert bcrypt.checkpw(b"wool", bcrypt.hashpw(b"wool", salt)) and salt != bcrypt.gensalt(5)
    hasher = argon2.PasswordHasher(time_cost=1, memory_cost=8192, parallelism=4)
    with ThreadPoolExecutor(3) as pool:
        hashes = list(pool.map(hasher.hash, ["wool"] * 3))
    assert len(set(hashes)) == 3 and all(hasher.verify(each, "wool") for each in hashes)
    try:
        hasher.verify(hashes[0], "flax")
    except argon2.exceptions.VerifyMismatchError:
        return
    raise AssertionError("another password")
