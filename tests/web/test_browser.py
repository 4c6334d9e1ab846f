"""The dashboard in real Chromium: both themes, wide and narrow, with and without scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.web.chromium import Chromium, Tab, find_chromium
from tests.web.content import HOSTILE
from tests.web.screens import LOOKS, PAGES, QUEUE, serving

AXE: Final = Path(__file__).parent / "vendor" / "axe-4.14.1.min.js"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium is installed"),
]


@pytest.fixture(name="browser", scope="module")
def start_browser() -> Iterator[Chromium]:
    """Start the browser once."""
    with Chromium() as browser:
        yield browser


@pytest.fixture(name="address", scope="module")
def serve_lively() -> Iterator[str]:
    """Serve a lively broker once; tests that change it make topics of their own."""
    with serving("lively") as address:
        yield address


@pytest.fixture(name="troubled", scope="module")
def serve_troubled() -> Iterator[str]:
    """Serve a broker with troubles once; nobody changes it."""
    with serving("troubled") as address:
        yield address


@pytest.fixture(name="tab")
def open_tab(browser: Chromium) -> Iterator[Tab]:
    """Open a fresh tab: no cookies, no cache."""
    tab = browser.tab()
    tab.look(1440, 900, "light")
    yield tab
    tab.close()


def assert_quiet(tab: Tab, address: str, *, errors: bool = False) -> None:
    """Fail when a page complained, asked another host, or opened a dialog."""
    assert errors or tab.complaints == []
    assert tab.dialogs == []
    assert [url for url in tab.requests if not url.startswith((address, "data:", "about:"))] == []


def pages(tab: Tab) -> int:
    """Count the requests for pages; an icon may be asked for at any time."""
    return sum("/static/" not in url for url in tab.requests)


def looks(name: str) -> list[tuple[str, int]]:
    """Every look of a page; half of them for those of the work queue."""
    some = {("dark", 1440), ("light", 390)}
    return [look for look in LOOKS if name not in QUEUE or look in some]


@pytest.mark.parametrize("name", PAGES)
def test_page_fits_and_is_quiet(tab: Tab, address: str, name: str) -> None:
    """No sideways overflow, no error, no foreign request, right theme, no accessibility fault."""
    for theme, width in looks(name):
        seen = f"{theme}, {width} px"
        tab.look(width, 900, theme)
        tab.open(address + PAGES[name])

        assert tab.run("document.documentElement.scrollWidth <= innerWidth"), seen
        assert ("rgb(16, 18, 22)" if theme == "dark" else "rgb(255, 255, 255)") == tab.run(
            "getComputedStyle(document.documentElement).backgroundColor"
        ), seen
        if width == 1440 or name in {"overview", "messages"}:
            assert faults(tab) == [], seen
        assert_quiet(tab, address, errors=name == "error")


def faults(tab: Tab) -> list[str]:
    """Run axe over the page."""
    tab.run(AXE.read_text())
    found = tab.run(
        "axe.run({resultTypes: ['violations']}).then(r => r.violations.map("
        "v => v.id + ' ' + v.nodes.slice(0, 2).map(n => n.html.slice(0, 160)).join(' | ')))"
    )
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(
    "name",
    [
        "overview",
        "topic",
        "messages",
        "publish",
        "partitions",
        "brokers",
        "broker",
        "clients",
        "client",
        "delayed",
        "exchange",
    ],
)
def test_troubled_pages_are_accessible(tab: Tab, troubled: str, name: str) -> None:
    """Warnings, errors and pills have enough contrast in both themes."""
    for theme in ("light", "dark"):
        tab.look(1440, 900, theme)
        tab.open(troubled + PAGES[name].replace("orders.created", "payments.capture"))
        assert faults(tab) == []


def test_hostile_content_runs_nowhere(browser: Chromium) -> None:
    """Names, keys, headers, bodies and reasons that are attacks stay text in a real browser."""
    with serving("hostile") as address:
        tab = browser.tab()
        tab.look(1440, 900, "light")
        paths = ["/", "/topics", "/topics?name=%22%3E%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"]
        tab.open(address + "/api/v1/pages/topics?page_size=50")
        names = json.loads(tab.run("document.body.innerText"))["items"]
        assert len(HOSTILE) == len(names)
        for item in names:
            for look in ("", "/messages", "/messages/0/0", "/messages/0/1", "/publish?from=0/0"):
                path = f"/topics/{item['name']}{look}"
                encoded = tab.run(f"encodeURIComponent({json.dumps(item['name'])})")
                paths.append(path.replace(item["name"], encoded, 1))
        for item in names[:4]:
            name = tab.run(f"encodeURIComponent({json.dumps(item['name'])})")
            base = f"/topics/{name}/channels/{name}"
            paths += [base, f"{base}/messages", f"{base}/seek?to=latest", f"/dead-letters/{name}"]
        for item in names[:2]:
            name = tab.run(f"encodeURIComponent({json.dumps(item['name'])})")
            index = list(HOSTILE).index(item["name"])
            paths += [f"/delayed/{name}/0~{index}", f"/delayed?topic={name}&channel={name}"]
            paths += [f"/schedules/{name}", f"/exchanges/{name}", f"/exchanges/{name}?ask=yes"]
            paths += [f"/topics/{name}/channels/{name}/push", f"/schedules/{name}/pause"]
            paths += [f"/groups/{name}", f"/groups/{name}/assignment", f"/groups/{name}/danger"]
            paths += [f"/groups/{name}/evict?member={name}", f"/transactions/abort?id={name}"]
        paths += ["/delayed", "/schedules", "/exchanges", "/push", "/groups", "/transactions"]
        paths += ["/channels", "/inflight", "/dead-letters"]
        paths += ["/brokers", "/clients", "/brokers/77", "/brokers/3/drain"]
        paths += [f"/brokers/{i + 1}" for i, _ in enumerate(HOSTILE)]
        paths += [f"/clients/1/{1000 + i}{k}" for i, _ in enumerate(HOSTILE) for k in ("", "/kick")]
        for path in paths:
            tab.open(address + path)
            assert tab.run(
                "document.querySelectorAll('img, iframe, script:not([src])').length === 0"
            )
            assert tab.run("document.documentElement.scrollWidth <= innerWidth + 1")
        assert tab.dialogs == []
        assert [url for url in tab.requests if not url.startswith((address, "data:"))] == []
        tab.close()


def test_publish_then_browse(tab: Tab, address: str) -> None:
    """A person makes a topic, publishes, follows the link, and finds the message."""
    tab.open(address + "/new-topic")
    tab.type("#f-name", "made.by.hand")
    tab.loading(lambda: tab.click("main .btn.pri"))
    assert "The topic was made" in tab.run("document.body.innerText")

    tab.loading(lambda: tab.click(".head .btn.pri"))
    tab.type("#f-value", '{"n":1.00}')
    tab.type("#f-key", "k-1")
    tab.type("#f-headers", "a: b")
    tab.loading(lambda: tab.click("form.form .btn.pri"))
    tab.loading(lambda: tab.click(".flash a"))

    shown = tab.run("document.querySelector('main').innerText")
    assert '"n": 1.00' in shown
    assert "k-1" in shown
    assert_quiet(tab, address)


def test_everything_works_without_scripts(tab: Tab, address: str) -> None:
    """Search, filter, publish, theme, zone and refresh are links and forms."""
    tab.look(1440, 900, "light", scripts=False)
    tab.open(address + "/new-topic")
    tab.type("#f-name", "made.without.scripts")
    tab.loading(lambda: tab.click("main .btn.pri"))
    tab.loading(lambda: tab.click(".head .btn.pri"))
    tab.type("#f-value", "plain")
    tab.loading(lambda: tab.click("form.form .btn.pri"))
    tab.loading(lambda: tab.click(".flash a"))
    assert "plain" in tab.run("document.querySelector('.code').innerText")

    tab.loading(lambda: tab.click("[data-theme-switch]"))
    assert tab.run("document.documentElement.dataset.theme") == "dark"
    tab.loading(lambda: tab.click("[data-local]"))
    assert tab.run("document.querySelector('.seg [aria-current]').innerText") == "Local"
    tab.loading(lambda: tab.click(".nojs"))
    assert tab.run("location.pathname.endsWith('/messages/0/0')")
    assert tab.run(
        "[...document.querySelectorAll('.js')].every(e => getComputedStyle(e).display === 'none')"
    )

    tab.open(address + "/topics/made.without.scripts/delete")
    tab.type("#f-typed", "made.without.scripts")
    tab.loading(lambda: tab.click("main .btn.dan"))
    assert "The topic was deleted" in tab.run("document.body.innerText")


def test_group_is_moved_and_moved_back_without_scripts(tab: Tab, address: str) -> None:
    """From the list to the plan, past the tick and the name, and back: links and forms alone."""
    tab.look(1440, 900, "light", scripts=False)
    tab.open(address + "/groups?name=archive")
    tab.loading(lambda: tab.click("main tbody th a"))
    assert "Nothing waits" in tab.run("document.querySelector('.why').innerText")
    tab.loading(lambda: tab.click(".head .row > a.btn"))
    tab.loading(lambda: tab.click("#seek .btn"))
    tab.type("#f-typed", "archive")
    tab.loading(lambda: tab.click("main .btn.dan"))
    assert "1 members" in tab.run("document.querySelector('.flash.bad').innerText")
    tab.click("[name=force]")
    tab.type("#f-typed", "archive")
    tab.loading(lambda: tab.click("main .btn.dan"))
    assert "goes on at the place" in tab.run("document.body.innerText")
    tab.loading(lambda: tab.click(".flash a.btn"))
    tab.click("[name=force]")
    tab.look(1440, 900, "dark")
    assert faults(tab) == []
    tab.loading(lambda: tab.click("main .btn.pri"))
    assert "was taken back" in tab.run("document.body.innerText")


def test_rebalances_are_marks_on_the_live_chart(tab: Tab, address: str) -> None:
    """The canvas takes the place of the picture; the marks and their texts stay."""
    tab.open(address + "/groups/invoices")
    tab.wait("document.querySelector('.plot canvas')")
    assert "billing-4 joined" in tab.run("document.querySelector('.evs').innerText")
    height = "document.querySelector('.plot').getBoundingClientRect().height"
    assert tab.run(f"{height} > 200")
    assert_quiet(tab, address)


def test_kick_and_drain_without_scripts(tab: Tab, address: str) -> None:
    """From the lists to the plan to the change: links and forms alone."""
    tab.look(1440, 900, "light", scripts=False)
    tab.open(address + "/clients?name=thumbs-9")
    tab.loading(lambda: tab.click("main tbody th a"))
    tab.loading(lambda: tab.click(".head .btn.dan"))
    tab.type("#f-reason", "too many connections")
    tab.loading(lambda: tab.click("form.form .btn.dan"))
    assert "The client was kicked" in tab.run("document.body.innerText")

    tab.open(address + "/brokers?sort=name&reverse=true")
    tab.loading(lambda: tab.click("main tbody th a"))
    tab.loading(lambda: tab.click(".head > .row > a.btn"))
    tab.loading(lambda: tab.click("form.form .btn.pri"))
    assert "gets no new partitions" in tab.run("document.querySelector('.flash').innerText")
    tab.loading(lambda: tab.click(".flash a.btn"))
    tab.loading(lambda: tab.click("form.form .btn.pri"))
    assert "gets new partitions again" in tab.run("document.querySelector('.flash').innerText")
    assert tab.run("location.pathname") == "/brokers/3"


def test_keyboard_alone_kicks_a_client(tab: Tab, address: str) -> None:
    """Search, choose the row, plan and confirm without a pointer."""
    tab.open(address + "/clients?name=thumbs-8")
    tab.key("j")
    tab.loading(lambda: tab.key("Enter"))
    tab.run("document.querySelector('.crumb a').focus()")
    for _ in range(3):
        tab.key("Tab")
    assert tab.run("document.activeElement.innerText") == "Kick…"
    assert tab.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.loading(lambda: tab.key("Enter"))
    tab.run("document.querySelector('#f-reason').focus()")
    tab.key("x")
    tab.loading(lambda: tab.key("Enter"))
    assert "The client was kicked" in tab.run("document.body.innerText")


def test_partial_figures_colour_the_age(tab: Tab, troubled: str) -> None:
    """While a broker is silent the age is amber and names it, also after a refresh."""
    tab.look(1440, 900, "light")
    tab.open(troubled + "/brokers")
    tab.wait("document.querySelector('#age').innerText.startsWith('Updated')")
    assert tab.run("document.querySelector('#age').innerText").endswith("ago, mq-2 silent")
    assert tab.run("document.querySelector('#age').className") == "q sm warn"
    tab.run(
        "window.settled = 0; document.addEventListener('htmx:afterSettle', () => settled++);"
        "htmx.ajax('GET', '/brokers', {source: '#live', target: '#main',"
        " swap: 'morph:innerHTML'})"
    )
    tab.wait("window.settled > 0")
    assert tab.run("document.querySelectorAll('#partial').length") == 1
    assert tab.complaints == []


def test_full_bars_are_seen_on_a_phone(tab: Tab, troubled: str) -> None:
    """What leaves on a phone is columns; the amber of a bar stays."""
    tab.look(390, 900, "light")
    tab.open(troubled + "/brokers")
    assert tab.run("document.querySelector('.fl.w').getBoundingClientRect().width > 40")


@pytest.mark.parametrize("width", [1440, 1366, 1280, 1200, 1100, 1024])
def test_tables_fit_and_keep_their_state(tab: Tab, troubled: str, width: int) -> None:
    """On a usual screen no table scrolls sideways: columns leave, never the name or the state."""
    lists = ("delayed", "schedules", "exchanges", "endpoints")
    for name in ("overview", "topics", "partitions", "brokers", "broker", "clients", *lists):
        tab.look(width, 900, "light")
        tab.open(troubled + PAGES[name])
        wide = tab.run(
            "[...document.querySelectorAll('.wrap')].filter(w => w.clientWidth"
            " && w.scrollWidth > w.clientWidth).map(w => w.ariaLabel)"
        )
        assert (name, wide) == (name, [])
        assert tab.run(
            "[...document.querySelectorAll('tbody tr')].every(row => {"
            "const ends = [row.querySelector('th'), ...row.querySelectorAll('.z')];"
            "return !row.clientWidth || ends.every(cell => cell.clientWidth > 50) })"
        )
    tab.open(troubled + "/")
    lag = "[...document.querySelectorAll('#brokers th')].find(h => /lag/.test(h.innerText))"
    assert tab.run(f"{lag}.clientWidth > 0") == (width > 1200)


def test_state_stays_when_a_window_is_too_narrow(tab: Tab, troubled: str) -> None:
    """Where a table has to scroll after all, how a row stands is still seen."""
    tab.look(800, 900, "light")
    tab.open(troubled + "/brokers")
    assert tab.run("(w => w.scrollWidth > w.clientWidth)(document.querySelector('.wrap'))")
    assert tab.run(
        "[...document.querySelectorAll('.z')].every("
        "cell => cell.getBoundingClientRect().right <= innerWidth)"
    )


def test_theme_switches_at_once_and_stays(tab: Tab, address: str) -> None:
    """The switch needs no round trip and is remembered on every page."""
    tab.open(address + "/")
    seen = pages(tab)

    tab.click("[data-theme-switch]")

    assert tab.run("document.documentElement.dataset.theme") == "dark"
    assert seen == pages(tab)
    tab.open(address + "/topics")
    assert tab.run("document.documentElement.dataset.theme") == "dark"


def test_local_zone_is_the_browsers(tab: Tab, address: str) -> None:
    """With scripts, local is where the browser is, and the zone is named."""
    tab.call("Emulation.setTimezoneOverride", timezoneId="Asia/Tokyo")
    tab.open(address + "/topics/orders.created/messages")

    tab.loading(lambda: tab.click("[data-local]"))

    assert "Time JST" in tab.run("document.querySelector('main').innerText")
    assert "23:32:" in tab.run("document.querySelector('main time').innerText")


def test_refresh_keeps_focus_and_what_is_open(tab: Tab, address: str) -> None:
    """A refresh moves neither focus nor opened rows, and pausing stops it."""
    tab.open(address + "/")
    tab.run("document.querySelector('details.data summary').click()")
    tab.run("document.querySelector('main tbody th a').focus()")
    tab.run(
        "window.swaps = 0; document.addEventListener('htmx:afterSwap', () => window.swaps++);"
        " htmx.trigger('#live', 'poke')"
    )
    tab.run("htmx.ajax('GET', '/', {source: '#live', target: '#main', swap: 'morph:innerHTML'})")
    tab.wait("window.swaps > 0")

    assert tab.run("document.activeElement.innerText") == "mq-1"
    assert tab.run("document.querySelector('details.data').open")
    assert_quiet(tab, address)


def test_refresh_brings_the_counts_of_the_menu(tab: Tab, address: str) -> None:
    """What the menu counts grows old no sooner than the page, and stays in the menu."""
    tab.open(address + "/topics")
    tab.run("document.querySelector('#n-topics').textContent = 'old'")
    tab.run(
        "window.settled = 0; document.addEventListener('htmx:afterSettle', () => settled++);"
        "htmx.ajax('GET', '/topics', {source: '#live', target: '#main', swap: 'morph:innerHTML'})"
    )
    tab.wait("window.settled > 0")

    assert tab.run("/^[0-9]+$/.test(document.querySelector('.nav #n-topics').textContent)")
    assert tab.run("document.querySelectorAll('[id^=n-]').length") == 5
    assert_quiet(tab, address)


def test_pause_stops_refreshing(tab: Tab, address: str) -> None:
    """While paused nothing is asked, the age says so, and the next page is paused too."""
    tab.open(address + "/")
    tab.run("document.cookie = 'tinymq-every=1; path=/'")
    tab.open(address + "/")
    tab.wait("document.querySelector('#age').innerText.startsWith('Updated')")
    tab.click("#pause")
    seen = pages(tab)

    tab.run("new Promise(done => setTimeout(done, 1500))")

    assert seen == pages(tab)
    assert tab.run("document.querySelector('#age').innerText").startswith("Paused")
    tab.open(address + "/topics")
    assert tab.run("document.querySelector('#pause').getAttribute('aria-pressed')") == "true"


def test_polling_asks_again(tab: Tab, address: str) -> None:
    """Without a pause, the page asks by itself and stays quiet."""
    tab.open(address + "/")
    tab.run("document.cookie = 'tinymq-every=1; path=/'")
    tab.open(address + "/")
    seen = pages(tab)

    tab.run("new Promise(done => setTimeout(done, 1500))")

    assert pages(tab) > seen
    assert_quiet(tab, address)


def test_keys(tab: Tab, address: str) -> None:
    """Slash searches, g t goes to the topics, j walks the rows."""
    tab.open(address + "/")
    tab.key("/")
    assert tab.run("document.activeElement.id") == "q"
    tab.run("document.activeElement.blur()")
    tab.key("g")
    tab.loading(lambda: tab.key("t"))
    assert tab.run("location.pathname") == "/topics"
    tab.key("j")
    assert tab.run("document.activeElement.innerText") == "audit.raw"
    for letter, path in (("b", "/brokers"), ("l", "/delayed"), ("e", "/exchanges"), ("o", "/")):
        tab.key("g")
        tab.loading(lambda letter=letter: tab.key(letter))  # type: ignore[misc]
        assert path == tab.run("location.pathname")


def test_charts_come_alive_and_survive_a_refresh(tab: Tab, address: str) -> None:
    """The script draws in the same box, reads values under the cursor, and keeps its canvas."""
    tab.open(address + "/")
    tab.wait("document.querySelectorAll('.plot canvas').length === 3")
    assert tab.run("[...document.querySelectorAll('.chart')].every(s => !s.clientWidth)")

    tab.run("document.querySelector('.plot').scrollIntoView({block: 'center'})")
    place = tab.run(
        "(r => [r.x + r.width / 2, r.y + 40])"
        "(document.querySelector('.plot').getBoundingClientRect())"
    )
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
    tab.wait("/delivered .s [0-9.]+ k/.test(document.querySelector('.key').textContent)")

    tab.run("document.querySelector('.plot canvas').dataset.mark = 'same'")
    tab.run(
        "window.settled = 0; document.addEventListener('htmx:afterSettle', () => window.settled++);"
        "htmx.ajax('GET', '/', {source: '#live', target: '#main', swap: 'morph:innerHTML'})"
    )
    tab.wait("window.settled > 0")
    assert tab.run("document.querySelector('.plot canvas').dataset.mark") == "same"
    assert_quiet(tab, address)


def test_messages_in_flight_are_chosen_and_decided(tab: Tab, address: str) -> None:
    """Rows are chosen by keyboard and by the box in the head; refresh waits; the plan decides."""
    tab.open(address + "/inflight?client=billing-7")
    assert tab.run("document.querySelector('.bulk button').disabled")
    tab.click("th.pick input")
    assert tab.run("document.querySelector('[data-count]').innerText") == "11 chosen"
    assert not tab.run("document.querySelector('.bulk button').disabled")
    before = pages(tab)
    tab.run("htmx.trigger('#live', 'every')")
    tab.run("document.querySelectorAll('tbody tr a')[4].focus()")
    tab.key("x")
    assert tab.run("document.querySelector('[data-count]').innerText") == "10 chosen"
    assert pages(tab) == before
    tab.loading(lambda: tab.click("button[value=requeue]"))
    assert "Requeue 10 messages" in tab.run("document.querySelector('h1').innerText")
    tab.loading(lambda: tab.click("form.form .btn.pri"))
    assert "10 messages requeued" in tab.run("document.querySelector('.flash').innerText")
    assert_quiet(tab, address)


def test_dead_letters_go_step_by_step(tab: Tab, address: str) -> None:
    """With scripts the steps follow by themselves to the end."""
    tab.open(address + "/dead-letters/orders.created.billing.dead?reason=lost")
    tab.run("document.querySelector('[name=all]').click()")
    tab.loading(lambda: tab.click("button[value=redrive]"))
    tab.type("#f-rate", "30")
    tab.loading(lambda: tab.click("form.form .btn.pri"))
    assert "30" in tab.run("document.querySelector('.figs').innerText")
    tab.wait("document.querySelector('main').innerText.includes('Finished')")
    assert "68" in tab.run("document.querySelector('.figs').innerText")
    assert_quiet(tab, address)


def test_dead_letters_without_scripts(tab: Tab, address: str) -> None:
    """Each step is a button, and stopping is a link."""
    tab.look(1440, 900, "light", scripts=False)
    tab.open(address + "/dead-letters/orders.created.billing.dead?reason=rejected")
    tab.click("[name=all]")
    tab.loading(lambda: tab.click("button[value=redrive]"))
    tab.type("#f-rate", "20")
    tab.loading(lambda: tab.click("form.form .btn.pri"))
    tab.loading(lambda: tab.click("#next .btn.pri"))
    assert "40" in tab.run("document.querySelector('.figs').innerText")
    tab.loading(lambda: tab.click("#next a.btn"))
    assert tab.run("location.pathname.startsWith('/dead-letters/')")


def test_delayed_messages_are_chosen_and_moved(tab: Tab, address: str) -> None:
    """Rows are chosen by keyboard; a plan asks when; the figures follow."""
    tab.open(address + "/delayed?topic=mail.outbound&since=1d")
    tab.key("j")
    tab.key("x")
    assert tab.run("document.querySelector('[data-count]').innerText") == "1 chosen"
    tab.loading(lambda: tab.click("button[value=move]"))
    tab.type("#f-when", "5s")
    tab.loading(lambda: tab.click("form.form .btn.pri"))
    assert "1 message rescheduled" in tab.run("document.querySelector('.flash').innerText")
    assert_quiet(tab, address)


def test_all_that_match_come_step_by_step(tab: Tab, address: str) -> None:
    """With scripts the steps follow by themselves to the end."""
    tab.open(address + "/delayed?topic=orders.created&since=1d")
    count = tab.run("+document.querySelector('.sub').innerText.match(/[0-9,]+/)[0]")
    tab.run("document.querySelector('[name=all]').click()")
    tab.loading(lambda: tab.click("button[value=now]"))
    tab.type("#f-rate", str(count - 3))
    tab.loading(lambda: tab.click("form.form .btn.pri"))
    assert "Going on" in tab.run("document.querySelector('main').innerText")
    tab.wait("document.querySelector('main').innerText.includes('Finished')")
    assert str(count) in tab.run("document.querySelector('.figs').innerText")
    assert_quiet(tab, address)


def test_delays_schedules_and_routes_without_scripts(tab: Tab, address: str) -> None:
    """Cancelling one, making a schedule, and asking where a message goes: forms alone."""
    tab.look(1440, 900, "light", scripts=False)
    tab.open(address + "/delayed?schedule=daily-report")
    tab.loading(lambda: tab.click("form tbody th a"))
    tab.loading(lambda: tab.click("button[value=cancel]"))
    tab.loading(lambda: tab.click("form.form .btn.dan"))
    assert "1 message cancelled" in tab.run("document.querySelector('.flash').innerText")

    tab.open(address + "/new-schedule?topic=audit.raw")
    tab.type("#f-name", "by.hand")
    tab.type("#f-cron", "0 3 * * *")
    tab.loading(lambda: tab.click("form.form .btn.pri"))
    tab.loading(lambda: tab.click("form.form .btn.pri"))
    assert "The schedule was made" in tab.run("document.querySelector('.flash').innerText")

    tab.open(address + "/exchanges/orders.in")
    tab.type("#ask #f-key", "order.failed.*")
    tab.loading(lambda: tab.click("#ask .btn.pri"))
    assert "3 topics" in tab.run("document.querySelector('#ask .big').innerText")
    assert tab.run("document.querySelectorAll('.wire.hot').length") == 4
    tab.loading(lambda: tab.click(".node[href='/topics/webhooks.out']"))
    assert tab.run("location.pathname") == "/topics/webhooks.out"


def test_drawing_scrolls_in_its_box_on_a_phone(tab: Tab, address: str) -> None:
    """The page does not; a link in the drawing can be reached by the keyboard, and is seen."""
    tab.look(390, 900, "light")
    tab.open(address + "/exchanges")
    box = "document.querySelector('.flowbox')"
    assert tab.run(f"{box}.scrollWidth > {box}.clientWidth")
    assert tab.run("document.documentElement.scrollWidth <= innerWidth")
    tab.run("document.querySelector('.node[href=\\'/topics/shipping.us\\']').focus()")
    assert tab.run(f"{box}.scrollLeft > 0")


def test_channel_is_paused_and_moved_without_scripts(tab: Tab, address: str) -> None:
    """From the list to the plan to the change and back: links and forms alone."""
    tab.look(1440, 900, "light", scripts=False)
    tab.open(address + "/channels?name=smtp")
    tab.loading(lambda: tab.click("main tbody th a"))
    tab.loading(lambda: tab.click(".head .row > a.btn:nth-of-type(3)"))
    tab.type("#f-reason", "maintenance")
    tab.loading(lambda: tab.click("form.form .btn.pri"))
    assert "maintenance" in tab.run("document.querySelector('.flash.warn').innerText")
    tab.open(address + "/topics/mail.outbound/channels/smtp/seek?to=earliest")
    tab.type("#f-typed", "smtp")
    tab.loading(lambda: tab.click("form.form .btn.dan"))
    tab.loading(lambda: tab.click("form.flash .btn"))
    assert "taken back" in tab.run("document.querySelector('.flash').innerText")
