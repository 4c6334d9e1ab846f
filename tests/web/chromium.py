"""
A small client of headless Chromium: DevTools messages over a pipe.

Blocking, for tests only. No port is opened and nothing but the browser itself
is needed: messages are JSON ended by a NUL, on file descriptors 3 and 4.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from attrs import define, field

BINARIES: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)
#: Keys with a name: the text they make, and their code.
NAMED_KEYS: Final = {"Enter": ("\r", 13), "Tab": ("", 9)}
_PATIENCE: Final = 30.0


def find_chromium() -> str | None:
    """Find the browser; None when there is none."""
    return next((path for name in BINARIES if (path := shutil.which(name))), None)


class BrowserError(Exception):
    """The browser said no, or nothing at all."""


class Chromium:
    """One browser process. Use it as a context manager."""

    def __init__(self) -> None:
        path = find_chromium()
        if path is None:
            raise BrowserError("no Chromium is installed")
        self._profile = tempfile.mkdtemp(prefix="tinymq-chromium-")
        self._out, self._in, self._process = self._spawn(path)
        self._buffer = b""
        self._next = 0
        self.on_event: Callable[[dict[str, Any]], None] = lambda event: None

    def _spawn(self, path: str) -> tuple[int, int, int]:
        """Start the browser with its pipe where it wants it: on descriptors 3 and 4."""
        ends = os.pipe() + os.pipe()
        # Out of the way of 3 and 4 first, or one would close the other.
        their_in, out, into, their_out = (fcntl.fcntl(e, fcntl.F_DUPFD_CLOEXEC, 10) for e in ends)
        for end in ends:
            os.close(end)
        process = os.posix_spawn(
            path,
            [path, *FLAGS, f"--user-data-dir={self._profile}", "about:blank"],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, their_in, 3),
                (os.POSIX_SPAWN_DUP2, their_out, 4),
            ],
            setpgroup=0,
        )
        os.close(their_in)
        os.close(their_out)
        return out, into, process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and remove its profile."""
        os.close(self._out)
        os.close(self._in)
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        shutil.rmtree(self._profile, ignore_errors=True)

    def _read(self, deadline: float) -> dict[str, Any] | None:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                return None
            data = os.read(self._in, 1 << 20)
            if not data:
                raise BrowserError("the browser has gone")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def call(self, method: str, session: str | None = None, /, **params: Any) -> dict[str, Any]:
        """Send one command and wait for its result; events meanwhile go to `on_event`."""
        self._next += 1
        message: dict[str, Any] = {"id": self._next, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        rest = memoryview(json.dumps(message).encode() + b"\0")
        while rest:
            rest = rest[os.write(self._out, rest) :]
        deadline = time.monotonic() + _PATIENCE
        while (answer := self._read(deadline)) is not None:
            if answer.get("id") == self._next:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            if "method" in answer:
                self.on_event(answer)
        raise BrowserError(f"no answer to {method}")

    def pump(self, until: Callable[[], bool], seconds: float = _PATIENCE) -> None:
        """Take in events until something is so."""
        deadline = time.monotonic() + seconds
        while not until():
            event = self._read(deadline)
            if event is None:
                raise BrowserError("waited in vain")
            if "method" in event:
                self.on_event(event)

    def tab(self) -> Tab:
        """Open a tab in a profile of its own: no cookies, no cache."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        tab = Tab(self, attached["sessionId"], context)
        self.on_event = tab.take
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        return tab


@define
class Tab:
    """One tab: what it shows, what it asked for, and what it complained about."""

    _browser: Chromium
    _session: str
    _context: str
    complaints: list[str] = field(factory=list)
    requests: list[str] = field(factory=list)
    dialogs: list[str] = field(factory=list)
    _loaded: int = 0

    def call(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Send a command to this tab."""
        return self._browser.call(method, self._session, **params)

    def take(self, event: dict[str, Any]) -> None:
        """Note one event."""
        name, params = event["method"], event.get("params", {})
        if name == "Page.loadEventFired":
            self._loaded += 1
        elif name == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif name == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif name == "Runtime.consoleAPICalled" and params["type"] in {"error", "warning"}:
            self.complaints.append(str(params["args"]))
        elif name == "Log.entryAdded" and params["entry"]["level"] in {"error", "warning"}:
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif name == "Page.javascriptDialogOpening":
            self.dialogs.append(params["message"])

    def look(self, width: int, height: int, theme: str, *, scripts: bool = True) -> None:
        """Choose the size of the window, the system's theme, and whether scripts run."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)

    def open(self, url: str) -> None:
        """Go to an address and wait until it is loaded."""
        self.loading(lambda: self.call("Page.navigate", url=url))

    def loading(self, act: Callable[[], object]) -> None:
        """Do something that loads a page, and wait until it is loaded."""
        before = self._loaded
        act()
        self._browser.pump(lambda: self._loaded > before)

    def run(self, script: str) -> Any:
        """Evaluate an expression in the page, waiting for its promise."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def wait(self, script: str, seconds: float = 10.0) -> None:
        """Wait until an expression is true in the page."""
        turn = "new Promise(done => setTimeout(done, 20))"
        deadline = time.monotonic() + seconds
        while not self.run(f"Boolean({script})"):
            if time.monotonic() > deadline:
                raise BrowserError(f"never true: {script}")
            self.run(turn)

    def click(self, selector: str) -> None:
        """Click the middle of an element, as a person would."""
        find = f"document.querySelector({json.dumps(selector)})"
        place = self.run(
            f"(() => {{ const e = {find}; e.scrollIntoView({{block: 'center'}});"
            " const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2] })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=place[0],
                y=place[1],
                button="left",
                clickCount=1,
            )

    def type(self, selector: str, text: str) -> None:
        """Put text into a field."""
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)

    def key(self, key: str) -> None:
        """Press one key: a letter, or one that has a name."""
        text, code = NAMED_KEYS.get(key, (key, 0))
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                text=text if kind == "keyDown" else "",
                windowsVirtualKeyCode=code,
            )

    def screenshot(self, path: Path) -> None:
        """Write a picture of the whole page."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        window = {"width": round(size["width"]), "height": round(size["height"])}
        self.call("Emulation.setDeviceMetricsOverride", deviceScaleFactor=1, mobile=False, **window)
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call(
            "Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip
        )
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """Close the tab and forget its profile."""
        self._browser.call("Target.disposeBrowserContext", browserContextId=self._context)
