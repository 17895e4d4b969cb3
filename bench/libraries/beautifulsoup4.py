# /// script
# dependencies = ["beautifulsoup4==4.15.0"]
# ///
from bs4 import BeautifulSoup


def work() -> None:
    page = BeautifulSoup("<ul><li>one<li>two</ul>", "html.parser")
    assert [item.get_text() for item in page.find_all("li")] == ["onetwo", "two"]
