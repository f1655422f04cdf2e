"""A browser for tests: Chromium without a window, driven over a pipe by its DevTools protocol."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-device-scale-factor=1",
    "--window-size=1400,900",
)
# Chromium reads commands from descriptor 3 and answers on descriptor 4.
LAUNCH = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
TIMEOUT = 90  # seconds; machines that test are often busy


def find_browser() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


def _pipe() -> tuple[int, int]:
    """Both ends, at descriptors that cannot be 3 or 4."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return high


class Browser:
    def __init__(self, program: str, folder: str) -> None:
        their_in, self._out = _pipe()
        self._in, their_out = _pipe()
        arguments = [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        self._log = open(os.path.join(folder, "browser.log"), "wb")  # noqa: SIM115 - closed with the browser
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(their_in), str(their_out), *arguments],
            pass_fds=(their_in, their_out),
            # A sanitizer's runtime is for the interpreter that the tests run in.
            env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        os.close(their_in)
        os.close(their_out)
        self._rest = b""
        self._last = 0
        self.events: list[dict[str, Any]] = []

    def close(self) -> None:
        os.close(self._out)
        os.close(self._in)
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser does not answer")
            got = os.read(self._in, 1 << 20)
            if not got:
                raise ConnectionError("the browser ended")
            self._rest += got
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def send(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        deadline = time.monotonic() + TIMEOUT
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, url: str, *, theme: str = "light", width: int = 1400, height: int = 900) -> Page:
        return Page(self, url, theme, width, height)


KEYS = {
    "Enter": 13, "Escape": 27, "Tab": 9, "ArrowUp": 38, "ArrowDown": 40, "ArrowLeft": 37, "ArrowRight": 39,
    "Home": 36, "End": 35, "PageDown": 34, "PageUp": 33,
}  # fmt: skip


class Page:
    """One page. Everything it complained about is in ``complaints()``."""

    def __init__(self, browser: Browser, url: str, theme: str, width: int, height: int) -> None:
        self._browser = browser
        target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True)
        self.send("Page.bringToFront")
        self.send("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.send(method, self._session, **parameters)

    def frame(self) -> Page:
        """The page in the only frame of this one, which has a process of its own."""
        deadline = time.monotonic() + TIMEOUT
        while not (attached := self._own_events("Target.attachedToTarget")):
            if time.monotonic() > deadline:
                raise TimeoutError("there is no frame")
            self.settle()
        frame = Page.__new__(Page)
        frame._browser, frame._session = self._browser, attached[0]["sessionId"]
        for domain in ("Runtime", "Log"):
            frame.send(f"{domain}.enable")
        return frame

    def js(self, expression: str) -> Any:
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not self.js(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(condition)
            time.sleep(0.02)

    def settle(self) -> None:
        """Until two frames are drawn."""
        self.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def _middle(self, element: str) -> dict[str, float]:
        return self.js(
            f"(() => {{ ({element}).scrollIntoView({{block: 'nearest'}});"
            f" const box = ({element}).getBoundingClientRect();"
            " return {x: box.x + Math.min(box.width / 2, 60), y: box.y + box.height / 2}; })()"
        )

    def hover(self, element: str) -> None:
        self.send("Input.dispatchMouseEvent", type="mouseMoved", **self._middle(element))
        self.settle()

    def click(self, element: str) -> None:
        at = self._middle(element)
        self.send("Input.dispatchMouseEvent", type="mouseMoved", **at)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)
        self.settle()

    def key(self, *keys: str) -> None:
        for key in keys:
            named = {"key": key, "windowsVirtualKeyCode": KEYS[key]} if key in KEYS else {"key": key, "text": key}
            if key == "Enter":
                named["text"] = "\r"
            self.send("Input.dispatchKeyEvent", type="keyDown", **named)
            self.send("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def type(self, text: str) -> None:
        self.key(*text)

    def screenshot(self, path: str) -> None:
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    def _own_events(self, method: str) -> list[dict[str, Any]]:
        return [
            event["params"]
            for event in self._browser.events
            if event.get("sessionId") == self._session and event.get("method") == method
        ]

    def complaints(self) -> list[str]:
        """Exceptions, errors and warnings on the console."""
        exceptions = [str(event) for event in self._own_events("Runtime.exceptionThrown")]
        calls = [event for event in self._own_events("Runtime.consoleAPICalled") if event["type"] != "log"]
        entries = [event["entry"] for event in self._own_events("Log.entryAdded")]
        return exceptions + [str(call) for call in calls] + [str(entry) for entry in entries]

    def requests(self) -> list[str]:
        return [event["request"]["url"] for event in self._own_events("Network.requestWillBeSent")]
