"""The documentation builds without warnings, is complete, has no broken links, and works in a browser.

Needs the extra `docs`, and Chromium for the browser; tests without them are skipped.
"""

import html
import inspect
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import dmljax
from dmljax import directml
from dmljax.command_line.describe import function_name, operators_by_family

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    pytest.importorskip("sphinx", reason="the extra `docs` is not installed")
    around = tmp_path_factory.mktemp("around")
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-j", "auto", str(NOTEBOOKS), "site"]
    subprocess.run(build, check=True, timeout=1200, cwd=around)  # a busy machine may take minutes
    assert [path.name for path in around.iterdir()] == ["site"]  # the build writes nothing else
    return around / "site"


def test_every_operator_has_a_complete_page(site: Path) -> None:
    for type_, operator in directml.OPERATORS.items():
        name = type_.removeprefix("DML_OPERATOR_").lower()
        page = (site / "operators" / f"{name}.html").read_text()
        for part in (f"dmljax.{name}", operator.__name__, "Relatives", "PyTorch", "ONNX", "NumPy"):
            assert part in page
        for member in operator.members():
            assert member.name in page
        picture = re.search(rf'src="[^"]*{name}-1\.png"', page)
        assert picture
        assert picture.start() < page.index('<dt class="sig sig-object py')
        signature = text_of(page, "sig sig-object py")
        assert not re.search(r"=\s*_?[A-Z]{2}", signature), "a default by its private name"
        for parameter in inspect.signature(operator.function).parameters:
            assert f"<dt><strong>{parameter}</strong>" in page


def text_of(page: str, class_: str) -> str:
    """The text of the first element of a class that is a `dt`."""
    return html.unescape(re.sub("<[^>]*>", "", page.partition(f'<dt class="{class_}')[2].partition("</dt>")[0]))


def test_names_of_other_operators_are_links(site: Path) -> None:
    page = (site / "operators" / "gather_nd.html").read_text()
    assert re.search(
        r'<a [^>]*href="gather_nd1.html#dmljax.gather_nd1"[^>]*><code[^>]*>(<span[^>]*>)?gather_nd1<', page
    )


def test_no_code_is_wider_than_its_page(site: Path) -> None:
    for page in site.rglob("*.html"):
        # Printed output and commands wrap.
        text = re.sub(
            r'<div class="(output stream|highlight-(text|console|sh)).*?</pre>', "", page.read_text(), flags=re.S
        )
        for block in re.findall(r"<pre[^>]*>(.*?)</pre>", text, re.DOTALL):
            lines = html.unescape(re.sub(r"<[^>]*>", "", block)).splitlines()
            assert not [line for line in lines if len(line) > 88], page.name


def test_every_picture_is_described(site: Path) -> None:
    for page in site.rglob("*.html"):
        for image in re.findall(r"<img [^>]*>", page.read_text()):
            alt = re.search(r'alt="([^"]*)"', image)
            assert alt, (page.name, image)
            assert " " in alt[1], (page.name, image)


def test_every_operator_is_in_the_sidebar_below_its_family(site: Path) -> None:
    page = (site / "operators" / "gather_nd1.html").read_text()
    for title, operators in operators_by_family().items():
        family = page.partition(f"<summary>{title}</summary>")[2].partition("</details>")[0]
        names = [function_name(operator) for operator in operators]
        assert re.findall(r'href="([^"]+)"', family) == [f"{n}.html" if n != "gather_nd1" else "#" for n in names]
    assert "<details open><summary>Gathers and scatters" in page


def test_every_notebook_can_be_downloaded(site: Path) -> None:
    notebooks = sorted(NOTEBOOKS.glob("*.ipynb"))
    assert notebooks
    for path in notebooks:
        assert (site / path.name).read_bytes() == path.read_bytes()
        assert f'<a href="{path.name}" download>' in (site / f"{path.stem}.html").read_text()


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    pages = "".join(page.read_text() for page in site.rglob("*.html"))
    for module in (dmljax, dmljax.directml):
        for name, value in vars(module).items():
            if not (name.startswith("_") or inspect.ismodule(value) or name in ("OPERATORS", "NonzeroCoordinates")):
                assert f"{module.__name__}.{name}" in pages


def test_no_link_is_broken(site: Path) -> None:
    for page in site.rglob("*.html"):
        for target in re.findall(r'(?:href|src)="([^"#?]+)["#?]', page.read_text()):
            if not re.match(r"[a-z]+:", target):
                assert (page.parent / unquote(target)).exists(), f"{page.name}: {target}"


def test_the_pages_of_all_operators_agree_on_gradients() -> None:
    rows = [line for line in (NOTEBOOKS / "transformations.md").read_text().splitlines() if line.startswith("| grad |")]
    glance = (NOTEBOOKS / "at-a-glance.md").read_text()
    for name in re.findall(r"`(\w+)`", rows[-1]):
        assert re.search(rf"^\| \[`{name}`\]\([^|]*\|[^|]*\|[^|]*\| (none|0) \|", glance, re.MULTILINE), name


def test_a_page_tells_readers_nothing_about_how_it_is_made_and_claims_nothing_that_they_cannot_repeat() -> None:
    for page in NOTEBOOKS.rglob("*.md"):
        shown = re.sub(r"^%.*", "", page.read_text(), flags=re.MULTILINE)
        assert not re.search(r"not\s+in\s+the\s+project", shown), page.name
        assert not re.search(r"\bpytest |\.ci/run|python tests/|`?tests/benchmarks/\w+\.py", shown), page.name


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The site, served on this machine."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_the_site_renders_without_errors_in_a_browser(site: Path, address: str) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="the extra `docs` is not installed")
    said: list[str] = []

    def missed(request: Any) -> None:
        # Requests that the next page interrupts, such as for an icon, are aborted, not missing.
        if request.failure != "net::ERR_ABORTED":
            said.append(f"{request.frame.url}: {request.url}")

    with playwright.sync_playwright() as driver, driver.chromium.launch(executable_path=CHROMIUM) as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.on("console", lambda message: said.append(f"{page.url}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"{page.url}: {error}"))
        page.on("requestfailed", missed)
        for file in sorted(site.rglob("*.html")):
            page.goto(f"{address}/{file.relative_to(site)}")
            assert page.title()
            widths = page.eval_on_selector_all("article img", "images => images.map(image => image.naturalWidth)")
            assert all(widths), f"{file.name}: {widths}"
            assert widths or not re.match(r"\d-", file.name)
            if file.parent.name == "operators":
                assert bottom_of_picture(page) <= 800, file.name
        page.goto(f"{address}/index.html")
        page.fill("input[name=q]", "gather_nd1")
        page.press("input[name=q]", "Enter")
        page.wait_for_selector("#search-results a[href*='operators/gather_nd1']", timeout=20_000)
        page.goto(f"{address}/search.html?q=causal+mask")
        page.wait_for_selector("#search-results a[href*='operators/diagonal_matrix1']", timeout=20_000)
    assert not said


def bottom_of_picture(page: Any) -> float:
    """Where the first picture of a page ends, in pixels below the page's top."""
    box = page.locator("article img").first.bounding_box()
    return float(box["y"] + box["height"])


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_phone_shows_pictures_on_the_first_screen_and_operators_as_cards(address: str) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="the group `browser` is not installed")
    with playwright.sync_playwright() as driver, driver.chromium.launch(executable_path=CHROMIUM) as browser:
        page = browser.new_page(viewport={"width": 390, "height": 844})
        for name in ("index", "operators/convolution", "operators/element_wise_clip", "operators/multihead_attention1"):
            page.goto(f"{address}/{name}.html")
            assert bottom_of_picture(page) <= 844, name
        page.goto(f"{address}/operators.html")
        cells = page.eval_on_selector_all("tbody td", "all => all.map(cell => cell.getBoundingClientRect().toJSON())")
        assert len(cells) == 3 * len(directml.OPERATORS)
        assert all(cell["width"] > 300 and cell["right"] <= 390 for cell in cells)
        page.fill("#operator-filter input", "causal mask")
        assert page.locator("tbody tr:visible").count() == 2


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_the_list_of_operators_is_filtered(address: str) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="the extra `browser` is not installed")
    with playwright.sync_playwright() as driver, driver.chromium.launch(executable_path=CHROMIUM) as browser:
        page = browser.new_page()
        page.goto(f"{address}/operators.html")
        assert page.locator("tbody tr:visible").count() == len(directml.OPERATORS)
        page.fill("#operator-filter input", "causal MASK")
        names = page.locator("tbody tr:visible td:first-child").all_inner_texts()
        assert names == ["diagonal_matrix1", "multihead_attention1"]
        assert page.locator("#operator-filter span").inner_text() == "2 operators"
        assert page.locator("article h2:visible").count() == 2


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_the_first_page_fits_a_screen(address: str) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="the extra `browser` is not installed")
    with playwright.sync_playwright() as driver, driver.chromium.launch(executable_path=CHROMIUM) as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"{address}/index.html")
        assert bottom_of_picture(page) < 400
        assert page.locator("article p").last.bounding_box()["y"] < 780


WIDE_PAGES = [
    *("index", "install", "operators", "levels", "at-a-glance", "compilers", "transformations", "reference"),
    "onnxruntime-names",
    *("operators/multihead_attention1", "operators/average_pooling", "operators/element_wise_if", "3-dynamic-results"),
]
SCROLLING = """[...document.querySelectorAll("article :is(.table-wrapper, pre)")]
    .filter(box => box.scrollWidth > box.clientWidth + 1).map(box => box.textContent.slice(0, 80))"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_no_wider_than_the_window(address: str, scheme: str, width: int) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="the extra `docs` is not installed")
    with playwright.sync_playwright() as driver, driver.chromium.launch(executable_path=CHROMIUM) as browser:
        page = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 844}).new_page()
        for name in WIDE_PAGES:
            page.goto(f"{address}/{name}.html")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            # On a narrower screen, tables and code scroll in a box of their own.
            assert width < 1280 or not page.evaluate(SCROLLING), name
