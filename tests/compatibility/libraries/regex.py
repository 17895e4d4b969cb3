# /// script
# dependencies = ["regex==2026.11.19"]
# ///
# Patterns that `re` does not know, with a time limit.
import regex


def work() -> None:
    assert regex.findall(r"\p{Lu}\p{Ll}+", "Über Äpfel und Öl") == ["Über", "Äpfel", "Öl"]
    assert regex.findall(r"\X", "e\u0301a") == ["e\u0301", "a"]
    assert regex.search(r"(?:wool){d<=1}", "a wol cap").group() == "wol"
    nested = regex.fullmatch(r"(\((?:[^()]|(?1))*\))", "(a(b)(c(d)))")
    assert nested is not None and nested.captures(1)
    try:
        regex.fullmatch(r"(a+)+(b+)+(?:x|y)", "a" * 40 + "b" * 40 + "!", timeout=0.05)
    except TimeoutError:
        pass
    assert regex.sub(r"(?V1)[[a-z]--[aeiou]]", "", "wool") == "oo"
