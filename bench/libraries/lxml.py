# /// script
# dependencies = ["lxml==6.1.3"]
# ///
from lxml import etree


def work() -> None:
    tree = etree.fromstring("<flock><sheep n='1'/><sheep n='41'/></flock>")
    assert tree.xpath("sum(//@n)") == 42.0
