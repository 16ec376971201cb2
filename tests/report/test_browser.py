"""The page as a person sees it: opened from its file in headless Chromium, at the width of a phone and of a screen."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from onefold.report import collect, grids, report, sections

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
WIDTHS = (390, 1280)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--proxy-server=127.0.0.1:1",  # whatever were fetched would fail
    "--enable-logging=stderr",
    "--virtual-time-budget=4000",
)
PROBE = """
<script>
const seen = { errors: [], width: innerWidth, dark: matchMedia("(prefers-color-scheme: dark)").matches };
const names = (table) => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent);
const values = (table, column) => [...table.tBodies[0].rows].map((row) => row.cells[column].dataset.value);
seen.resources = performance.getEntriesByType("resource").map((entry) => entry.name);
seen.overflow = document.documentElement.scrollWidth - innerWidth;
seen.pictures = [...document.querySelectorAll("figure svg")].map((svg) => {
  const box = svg.getBoundingClientRect();
  const drawn = [...svg.querySelectorAll("path, use, line")].filter((each) => {
    const inner = each.getBBox();
    return inner.width + inner.height > 0;
  });
  const text = [...svg.querySelectorAll("text")].map((each) => each.getBoundingClientRect());
  const inside = text.every((t) => t.left >= box.left - 2 && t.right <= box.right + 2 && t.bottom <= box.bottom + 2);
  const colours = new Set(drawn.map((each) => getComputedStyle(each).fill + getComputedStyle(each).stroke));
  return { label: svg.getAttribute("aria-label"), role: svg.getAttribute("role"), width: box.width, height: box.height,
           letters: (10 * box.width) / svg.viewBox.baseVal.width,
           drawn: drawn.length, text: Math.min(...text.map((t) => Math.max(t.width, t.height))), inside,
           colours: colours.size };
});
seen.grids = [...document.querySelectorAll(".pictures")].map((each) => ({
  kind: each.className, columns: getComputedStyle(each).gridTemplateColumns.split(" ").length,
  titles: [...each.querySelectorAll("figure")].map((figure) => {
    const [card, svg] = [figure, figure.querySelector("svg")].map((part) => part.getBoundingClientRect());
    return [card.top, svg.top];
  }),
}));
seen.tables = [...document.querySelectorAll("table.sortable")].map((table) => {
  const clicked = { name: table.dataset.name, before: names(table), columns: [] };
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.querySelector("button").click();
    const up = { state: head.getAttribute("aria-sort"), names: names(table), values: values(table, column) };
    head.querySelector("button").click();
    const down = { state: head.getAttribute("aria-sort"), names: names(table), values: values(table, column) };
    clicked.columns.push({ up, down });
  });
  return clicked;
});
seen.heads = [...document.querySelectorAll("thead th")].map((head) => head.firstChild.nodeType === Node.TEXT_NODE);
const papers = () => [...document.querySelectorAll(".paper")].filter((each) => each.offsetParent).length;
seen.papers = [papers()];
document.querySelectorAll("input.papers").forEach((box) => box.click());
seen.papers.push(papers());
seen.contents = [...document.querySelectorAll("nav a")].map((link) => [link.textContent, link.getAttribute("href")]);
const headings = document.querySelectorAll("section h3, section details[id] > summary");
seen.headings = [...headings].map((each) => each.textContent);
const folded = [...document.querySelectorAll("details[id]")];
seen.folded = folded.map((each) => each.id);
seen.opened = folded.map((each) => {
  location.hash = each.id;
  dispatchEvent(new HashChangeEvent("hashchange"));
  return each.open;
});
seen.bold = [...document.querySelectorAll("table[data-name=results] tr.default th, table[data-name=results] td strong")]
  .map((each) => each.textContent);
seen.cells = [...document.querySelectorAll("table.sortable td")].map((cell) => cell.firstChild.textContent);
seen.ink = getComputedStyle(document.body).color;
seen.paper = getComputedStyle(document.body).backgroundColor;
const look = () => [...document.querySelectorAll(".wide")].filter((each) => each.offsetParent).map((each) => {
  each.dispatchEvent(new Event("scroll"));
  const [box, head] = [each, each.querySelector("th")].map((part) => part.getBoundingClientRect());
  const hint = each.nextElementSibling;
  return { room: each.scrollWidth - each.clientWidth, fades: getComputedStyle(each).maskImage !== "none",
           stays: Math.abs(head.left - box.left) < 1,
           shadow: getComputedStyle(each.querySelector("th"), "::after").content === '""',
           hint: hint?.className === "hint" && hint.offsetParent !== null &&
                 getComputedStyle(hint).visibility === "visible" };
});
seen.wide = [look()];
document.querySelectorAll(".wide").forEach((each) => { each.scrollLeft = each.scrollWidth; });
seen.wide.push(look());
const note = document.createElement("pre");
note.id = "probe";
note.textContent = JSON.stringify(seen);
document.body.append(note);
</script>
"""


@pytest.fixture(scope="module")
def page(everything: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page")
    path, _ = report([everything], out / "report.html")
    (out / "probed.html").write_text(path.read_text().replace("</body>", PROBE + "</body>"))
    return path


def browse(url: Path, *flags: str) -> tuple[str, str]:
    """Standard output, and what was logged."""
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, *flags, url.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    return done.stdout, done.stderr


@cache
def probed(page: Path, width: int) -> tuple[dict[str, Any], str]:
    # A window is not made as narrow as a phone is; a frame in it is.
    frame = page.with_name(f"frame-{width}.html")
    content = html.escape((page.parent / "probed.html").read_text(), quote=True)
    frame.write_text(
        f'<!doctype html><body style="margin:0"><iframe style="border:0;width:{width}px;height:900px" '
        f'srcdoc="{content}">'
        "</iframe><script>onload = () => { const inner = document.querySelector('iframe').contentDocument;"
        "document.body.append(inner.getElementById('probe')); }</script>"
    )
    dom, logged = browse(frame, "--dump-dom", "--window-size=1400,1000")
    after = dom.rpartition('<pre id="probe">')[2]
    return json.loads(html.unescape(after[: after.index("</pre>")])), logged


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_fetched_and_nothing_goes_wrong(page: Path, width: int) -> None:
    seen, logged = probed(page, width)
    assert seen["width"] == width
    assert [name for name in seen["resources"] if not name.startswith("data:")] == []
    assert "CONSOLE" not in logged
    text = page.read_text()
    assert not re.search(r"https?:|//\w+\.|@import|url\((?!#)", text)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_picture_is_there_and_readable(page: Path, width: int) -> None:
    seen, _ = probed(page, width)
    assert seen["overflow"] <= 0
    assert len(seen["pictures"]) == page.read_text().count("<figure>") > 40
    for picture in seen["pictures"]:
        assert picture["role"] == "img"
        assert re.search(r"\d", picture["label"])
        assert picture["width"] > 200, picture
        assert picture["height"] > 120, picture
        assert picture["drawn"] >= 8, picture
        assert picture["colours"] >= 2, picture
        assert picture["inside"], picture
        assert picture["text"] > 9, picture


@pytest.mark.parametrize(("width", "columns"), [(390, 1), (900, 2), (1280, 4)])
def test_letters_have_one_size_and_panels_of_a_row_are_level(page: Path, width: int, columns: int) -> None:
    seen, _ = probed(page, width)
    sizes = {round(picture["letters"], 1) for picture in seen["pictures"]}
    assert sizes == {14.0} if width > 390 else min(sizes) > 9.5
    assert {grid["columns"] for grid in seen["grids"] if grid["kind"] == "pictures four"} == {columns}
    for grid in seen["grids"]:
        rows: dict[float, set[float]] = {}
        for card, drawing in grid["titles"]:
            rows.setdefault(card, set()).add(drawing)
        assert max(map(len, rows.values())) == 1  # a title of two lines moves its neighbours' drawings, too


@pytest.mark.parametrize("width", WIDTHS)
def test_tables_sort_by_a_click(page: Path, width: int) -> None:
    seen, _ = probed(page, width)
    assert [table["name"] for table in seen["tables"]] == [
        "results",
        "ensembles",
        "corruption",
        "corruption-acc",
        "corruption-nll",
        "corruption-ece",
        "ood",
        "ood-all",
        "health",
        "costs",
    ]
    for table in seen["tables"]:
        first, *columns = table["columns"]
        assert first["up"]["names"] == sorted(table["before"], key=str.lower)
        for column in columns:
            for way, backward in (("up", False), ("down", True)):
                assert column[way]["state"] == ("descending" if backward else "ascending")
                numbers = [float(value) for value in column[way]["values"] if value]
                assert numbers == sorted(numbers, reverse=backward)
                assert sorted(column[way]["names"]) == sorted(table["before"])


def test_the_numbers_on_the_page_are_those_of_the_runs(page: Path, everything: Path) -> None:
    """After all the sorting, the same numbers are there."""
    (section,) = sections(collect([everything])[0])
    cells = [cell.text for grid in grids(section) for _, row in grid.rows for cell in row]
    assert sorted(probed(page, 1280)[0]["cells"]) == sorted(cells)


def test_a_table_shows_that_there_is_more_of_it(page: Path) -> None:
    """It fades out on the right until it has been scrolled, and its first column stays."""
    before, after = probed(page, 390)[0]["wide"]
    cut = [table["room"] > 1 for table in before]
    assert sum(cut) > 5
    assert [table["fades"] for table in before] == cut
    assert sum(table["hint"] for table in before) > 5
    assert not any(table["shadow"] for table in before)
    assert [table["shadow"] for table in after] == cut
    assert all(table["stays"] for table in after)
    assert not any(table["fades"] or table["hint"] for table in after)
    before, _ = probed(page, 1280)[0]["wide"]
    assert not any(table["room"] > 1 or table["fades"] or table["hint"] for table in before[:2])


@pytest.mark.parametrize("width", WIDTHS)
def test_the_papers_numbers_are_there_for_who_asks_on_a_phone(page: Path, width: int) -> None:
    before, after = probed(page, width)[0]["papers"]
    assert after > 50
    assert before == (0 if width == 390 else after)


def test_words_of_headings_are_in_no_button(page: Path) -> None:
    """They would be missing where a table goes on on another sheet of paper."""
    heads = probed(page, 1280)[0]["heads"]
    assert len(heads) > 40
    assert all(heads)


def test_contents_lead_everywhere(page: Path) -> None:
    seen, _ = probed(page, 1280)
    (section, *titles), targets = zip(*seen["contents"], strict=True)
    assert section == "cifar10, wrn28x1"
    assert sorted(titles) == sorted(seen["headings"])
    ids = set(re.findall(r'id="([^"]+)"', page.read_text()))
    assert all(target[1:] in ids for target in targets)
    assert titles[:4] == [
        "Results",
        "Accuracy and likelihood by inference cost",
        "Corruption by severity",
        "Learning curves",
    ]
    assert {"section-0-table-health", "section-0-table-ood-all"} < set(seen["folded"])
    assert all(seen["opened"])


def test_the_best_student_is_bold_and_what_onefold_does_is_tinted(page: Path, everything: Path) -> None:
    (section,) = sections(collect([everything])[0])
    students = section.of_kind("student")
    best = []
    for column in section.columns:
        values = [value for row in students if (value := row.mean(column.key)) is not None]
        value = max(values) if column.better == "higher" else min(values)
        shown = [f"{column.scale * each:.{column.digits}f}" for each in (value, *values)]
        best += [text for text in shown[1:] if text == shown[0]]
    assert sorted(probed(page, 1280)[0]["bold"]) == sorted(["LatentBE + TDiv-SDiv", *best])


def test_it_goes_dark(page: Path) -> None:
    light, _ = probed(page, 1280)
    assert light["dark"] is False
    assert light["paper"] == "rgb(255, 255, 255)"
    dom, logged = browse(page.parent / "probed.html", "--dump-dom", "--blink-settings=preferredColorScheme=0")
    after = dom.rpartition('<pre id="probe">')[2]
    dark = json.loads(html.unescape(after[: after.index("</pre>")]))
    assert dark["dark"] is True
    assert dark["paper"] == "rgb(20, 23, 27)"
    assert dark["ink"] == "rgb(232, 234, 237)"
    assert "CONSOLE" not in logged


def test_it_can_be_printed(page: Path, tmp_path: Path) -> None:
    paper = tmp_path / "report.pdf"
    browse(page, f"--print-to-pdf={paper}", "--no-pdf-header-footer")
    content = paper.read_bytes()
    assert content.startswith(b"%PDF")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 40


def test_a_mistake_on_a_page_would_be_seen(tmp_path: Path) -> None:
    """The checks above can fail."""
    bad = tmp_path / "bad.html"
    bad.write_text('<!doctype html><img src="http://127.0.0.1:9/x.png"><script>nothing.at.all</script>')
    _, logged = browse(bad, "--dump-dom")
    assert "CONSOLE" in logged
