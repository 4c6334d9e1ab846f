"""Headers on every answer; changes refused unless one of our own pages asked."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from tests.web.client import FORM, ORIGIN, Client
from tests.web.content import lively
from tinymq.caller import Caller
from tinymq.errors import InternalError
from tinymq.operation import ROLES, Role
from tinymq.web.config import SiteConfig
from tinymq.web.routes import ROUTES
from tinymq.web.security import HEADERS

JSON = "application/json"


@pytest.fixture(name="client")
def make_client() -> Client:
    """Make a client of a lively broker."""
    return Client(lively())


def assert_headed(headers: object, *, kept: bool = False) -> None:
    """Check every header that must be on every answer."""
    assert isinstance(headers, dict)
    for name, value in HEADERS:
        if name != "Cache-Control":
            assert value == headers[name.lower()]
    assert kept or headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("GET", "/topics/orders.created/messages", 200),
        ("GET", "/find?q=orders", 303),
        ("GET", "/topics?page=x", 400),
        ("GET", "/clients", 200),
        ("GET", "/brokers/9", 404),
        ("GET", "/clients/9/9", 404),
        ("PUT", "/brokers/1/drain", 405),
        ("GET", "/topics/none", 404),
        ("GET", "/nothing", 404),
        ("GET", "/topics/%ff", 404),
        ("GET", "/static/none.css", 404),
        ("PUT", "/topics", 405),
        ("BREW", "/", 405),
        ("GET", "/api/v1/none", 404),
        ("PUT", "/api/v1/topics", 405),
        ("GET", "/-/ready", 200),
        ("POST", "/new-topic", 415),
    ],
)
def test_headers_are_on_every_answer(client: Client, method: str, path: str, status: int) -> None:
    """Good pages, redirects and errors alike forbid framing, sniffing and foreign scripts."""
    reply = client.call(method, path)

    assert status == reply.status
    assert_headed(reply.headers, kept=path in {"/", "/topics", "/clients"})


@pytest.mark.parametrize("path", ["/", "/topics/x", "/api/v1/pages/topics/x"])
def test_headers_are_on_internal_errors(
    client: Client, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A page that fails has the headers too, and tells nothing of the inside."""
    client.console.failure = ZeroDivisionError("secret detail")

    reply = client.get(path)

    assert reply.status == 500
    assert_headed(reply.headers)
    assert "secret" not in reply.text
    assert "Traceback" not in reply.text


def test_internal_wire_error_is_a_500(client: Client) -> None:
    """The broker's own internal error is told without its text."""
    client.console.failure = InternalError("secret")

    assert client.get("/topics/x").status == 500


def test_messages_are_never_kept_by_a_browser(client: Client) -> None:
    """Pages that show payloads are not stored in any cache."""
    for path in ("messages", "messages/3/20766200", "publish?from=3/20766200"):
        reply = client.get(f"/topics/orders.created/{path}")
        assert reply.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7801", "127.0.0.1.evil.example", ""]
)
def test_foreign_names_of_this_address_are_refused(client: Client, host: str) -> None:
    """A page whose name was bound to loopback cannot read or change anything."""
    reply = client.call("GET", "/api/v1/topics", headers={"Host": host})

    assert reply.status == 421
    assert "orders" not in reply.text


@pytest.mark.parametrize("host", ["localhost:7801", "127.0.0.1", "[::1]:7801", "LOCALHOST"])
def test_loopback_names_are_accepted(client: Client, host: str) -> None:
    """All ways to write loopback are ours."""
    assert client.call("GET", "/-/healthy", headers={"Host": host}).status == 200


def test_any_host_is_accepted_where_the_operator_said_so() -> None:
    """An empty list of hosts turns the check off."""
    client = Client(lively(), SiteConfig(hosts=frozenset()))

    assert client.call("GET", "/", headers={"Host": "mq.example"}).status == 200


# --- forms -------------------------------------------------------------------

FORMS = [
    ("/topics/orders.created/publish", {"value": "x"}),
    ("/topics/orders.created/purge", {"typed": "orders.created"}),
    ("/topics/orders.created/delete", {"typed": "orders.created"}),
    ("/topics/orders.created/settings", {"config.retention.time": "1 d", "confirm": "yes"}),
    ("/topics/orders.created/undo", {}),
    ("/new-topic", {"name": "made"}),
    ("/view", {"theme": "dark"}),
    ("/brokers/2/drain", {}),
    ("/brokers/2/undrain", {}),
    ("/clients/1/1000/kick", {"reason": "x"}),
]


@pytest.mark.parametrize(("path", "fields"), FORMS)
def test_form_without_token_is_refused(client: Client, path: str, fields: dict[str, str]) -> None:
    """A form that none of our pages made changes nothing."""
    reply = client.call("POST", path, urlencode(fields).encode(), {"Content-Type": FORM})

    assert reply.status == 403
    assert client.console.calls == []


@pytest.mark.parametrize(("path", "fields"), FORMS)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:7801"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_form_from_a_foreign_page_is_refused(
    client: Client, path: str, fields: dict[str, str], headers: dict[str, str]
) -> None:
    """Even with cookie and token, a foreign page changes nothing."""
    body = urlencode({"token": client.token(), **fields}).encode()

    reply = client.call("POST", path, body, {"Content-Type": FORM, **headers})

    assert reply.status == 403
    assert client.console.calls == []


def test_token_of_another_session_is_refused(client: Client) -> None:
    """A token belongs to the cookie it was made with."""
    other = Client(lively()).token()
    client.token()
    body = urlencode({"token": other, "value": "x"}).encode()

    reply = client.call("POST", FORMS[0][0], body, {"Content-Type": FORM})

    assert reply.status == 403


def test_session_cookie_is_out_of_reach(client: Client) -> None:
    """Scripts cannot read the cookie and other sites cannot make it be sent."""
    cookie = client.get("/").headers["set-cookie"].lower()

    assert "httponly" in cookie
    assert "samesite=strict" in cookie


#: The route that does the same as a form.
SAME = {
    "/topics/orders.created/publish": "messages.publish",
    "/topics/orders.created/purge": "topic.purge",
    "/topics/orders.created/delete": "topic.delete",
    "/topics/orders.created/settings": "topic.alter",
    "/topics/orders.created/undo": "topic.undo_purge",
    "/new-topic": "topic.create",
    "/brokers/2/drain": "broker.drain",
    "/brokers/2/undrain": "broker.drain",
    "/clients/1/1000/kick": "client.kick",
}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("path", SAME)
def test_forms_need_the_role_of_their_operation(path: str, role: Role) -> None:
    """A form is refused to whom the same route of the API is refused."""
    assert {*SAME, "/view"} == {form for form, _ in FORMS}
    client = Client(lively(), SiteConfig(caller=lambda request: Caller(role=role)))

    reply = client.post(path, **dict(FORMS)[path])

    refused = ROLES.index(role) < ROLES.index(ROUTES[SAME[path]].role)
    assert (reply.status == 403) == refused
    assert not (refused and client.console.calls)


@pytest.mark.parametrize("path", [path for path, _ in FORMS])
def test_looking_never_changes(client: Client, path: str) -> None:
    """The address of every change, got instead of posted, changes nothing."""
    reply = client.get(path + "?typed=orders.created&confirm=yes&value=x&name=made")

    assert reply.status in {200, 405}
    assert client.console.calls == []


# --- the JSON API ------------------------------------------------------------

CALLS = [
    ("POST", "/api/v1/topics/orders.created/messages", b'{"payload":"x"}'),
    ("PUT", "/api/v1/topics/made", b"{}"),
    ("PATCH", "/api/v1/topics/orders.created", b'{"config":{"retention.time":"1 d"}}'),
    ("DELETE", "/api/v1/topics/orders.created", b"{}"),
    ("POST", "/api/v1/topics/orders.created:purge", b"{}"),
    ("POST", "/api/v1/topics/orders.created:undo_purge", b"{}"),
    ("POST", "/api/v1/brokers/2:drain", b"{}"),
    ("POST", "/api/v1/clients/1/1000:kick", b'{"reason":"x"}'),
]


@pytest.mark.parametrize(("method", "path", "body"), CALLS)
@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}]
)
def test_call_from_a_foreign_page_is_refused(
    client: Client, method: str, path: str, body: bytes, headers: dict[str, str]
) -> None:
    """A foreign page cannot use the API, whatever it manages to send."""
    reply = client.call(method, path, body, {"Content-Type": JSON, **headers})

    assert reply.status == 403
    assert client.console.calls == []


@pytest.mark.parametrize(("method", "path", "body"), [c for c in CALLS if c[0] == "POST"])
@pytest.mark.parametrize("media", [FORM, "text/plain", "multipart/form-data; boundary=x", ""])
def test_json_must_say_that_it_is_json(
    client: Client, method: str, path: str, body: bytes, media: str
) -> None:
    """What a form of a foreign page can send is not taken for JSON."""
    reply = client.call(method, path, body, {"Content-Type": media} if media else {})

    assert reply.status == 415
    assert client.console.calls == []


@pytest.mark.parametrize(("method", "path", "body"), CALLS)
def test_our_own_pages_and_programs_may_call(
    client: Client, method: str, path: str, body: bytes
) -> None:
    """The same calls without a foreign origin are carried out."""
    client.console._topics["orders.created"].undo_until = 1

    reply = client.call(method, path, body, {"Content-Type": JSON, "Origin": ORIGIN})

    assert reply.status in {200, 201}
    assert len(client.console.calls) == 1


@pytest.mark.parametrize(
    "back", ["//evil.example/", "https://evil.example", "/\\evil", "/a\r\nX: y", "/\u202e"]
)
def test_settings_of_the_look_lead_back_only_to_us(client: Client, back: str) -> None:
    """The return address cannot leave this server or split the answer."""
    reply = client.post("/view", theme="dark", back=back)

    assert reply.status == 303
    assert reply.headers["location"] == "/"


def test_browser_vouches_for_our_page_behind_a_proxy(client: Client) -> None:
    """Where a proxy ends TLS, the origin differs from what we see, but the browser knows better."""
    body = urlencode({"token": client.token(), "theme": "dark"}).encode()
    headers = {"Origin": "https://mq.example", "Sec-Fetch-Site": "same-origin"}

    assert client.call("POST", "/view", body, {"Content-Type": FORM, **headers}).status == 303
