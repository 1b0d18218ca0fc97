# SPDX-License-Identifier: Apache-2.0
"""Drives a headless Chromium through its DevTools pipe, with nothing but the standard library."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_browser() -> str | None:
    """The browser that RMM_TEST_BROWSER names, or one that is on PATH."""
    named = os.environ.get("RMM_TEST_BROWSER")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One browser with one page. Errors of the page gather in `errors`, what it tries to load in `requests`."""

    def __init__(self, program: str) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.number = 0
        self.waiting = b""
        self.loads = 0
        self.profile = tempfile.TemporaryDirectory(prefix="rmm-browser-")
        to_browser, self.output = os.pipe()
        self.input, from_browser = os.pipe()

        def connect() -> None:  # the browser reads descriptor 3 and writes descriptor 4
            first, second = os.dup(to_browser), os.dup(from_browser)
            os.dup2(first, 3)
            os.dup2(second, 4)

        arguments = [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            f"--user-data-dir={self.profile.name}",
            "--remote-debugging-pipe",
            "about:blank",
        ]
        self.process = subprocess.Popen(
            arguments,
            preexec_fn=connect,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.session: str | None = None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        os.close(self.output)  # the browser ends with its pipe
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.input)
        for _ in range(50):  # its children may still write to the profile
            try:
                self.profile.cleanup()
                return
            except OSError:
                time.sleep(0.02)

    # --- the protocol ------------------------------------------------------------------------------------------------

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        rest = json.dumps(message).encode() + b"\0"
        while rest:
            rest = rest[os.write(self.output, rest) :]
        until = time.monotonic() + 60
        while True:
            answer = self.receive(until)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def receive(self, until: float) -> dict[str, Any]:
        while b"\0" not in self.waiting:
            if not select.select([self.input], [], [], max(until - time.monotonic(), 0))[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self.input, 1 << 20)
            if not data:
                raise RuntimeError(f"the browser ended with status {self.process.wait()}")
            self.waiting += data
        text, _, self.waiting = self.waiting.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self.note(message)
        return message

    def note(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(one.get("value", one.get("description"))) for one in parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(parameters["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.errors.append(f"a dialog: {parameters['message']}")
        elif method == "Network.requestWillBeSent" and not parameters["request"]["url"].startswith("data:"):
            self.requests.append(parameters["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loads += 1

    # --- what tests do -----------------------------------------------------------------------------------------------

    def open(self, path: Path, timeout: float = 60) -> None:
        """Loads a file and waits until all of it is there."""
        self.errors.clear()
        self.requests.clear()
        loads = self.loads
        self.call("Page.navigate", url=path.resolve().as_uri())
        until = time.monotonic() + timeout
        while self.loads == loads:
            self.receive(until)

    def run(self, script: str) -> Any:
        """The value of an expression in the page, once it has drawn what was asked for before."""
        expression = f"new Promise(requestAnimationFrame).then(() => ({script}))"
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def resize(
        self, width: int, height: int = 900, *, dark: bool = False, touch: bool = False, scale: float = 1
    ) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=touch
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=touch)
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )

    def place(self, selector: str, x: float = 0.5, y: float = 0.5) -> tuple[float, float]:
        """The point at these shares of an element's width and height, which it brings into sight."""
        box = self.run(
            "(e => { e.scrollIntoView({block: 'center', behavior: 'instant'}); const b = e.getBoundingClientRect(); "
            "return [b.left, b.top, b.width, b.height]; })"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        return box[0] + x * box[2], box[1] + y * box[3]

    def mouse(
        self, kind: str, point: tuple[float, float], *, held: bool = False, clicks: int = 0, shift: bool = False
    ) -> None:
        pressed = kind != "mouseMoved" or held
        self.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=point[0],
            y=point[1],
            button="left" if pressed else "none",
            buttons=1 if held else 0,
            clickCount=clicks,
            modifiers=8 if shift else 0,
        )

    def click(self, point: tuple[float, float], clicks: int = 1) -> None:
        self.mouse("mouseMoved", point)
        for count in range(1, clicks + 1):
            self.mouse("mousePressed", point, held=True, clicks=count)
            self.mouse("mouseReleased", point, clicks=count)

    def drag(self, begin: tuple[float, float], end: tuple[float, float], *, shift: bool = False) -> None:
        self.mouse("mouseMoved", begin)
        self.mouse("mousePressed", begin, held=True, clicks=1, shift=shift)
        for part in (0.3, 0.7, 1):
            self.mouse(
                "mouseMoved",
                (begin[0] + part * (end[0] - begin[0]), begin[1] + part * (end[1] - begin[1])),
                held=True,
                shift=shift,
            )
        self.mouse("mouseReleased", end, clicks=1, shift=shift)

    def key(self, name: str, *, shift: bool = False) -> None:
        text = name if len(name) == 1 else ""
        codes = {
            "Tab": 9,
            "Enter": 13,
            "Escape": 27,
            "End": 35,
            "Home": 36,
            "ArrowLeft": 37,
            "ArrowUp": 38,
            "ArrowRight": 39,
            "ArrowDown": 40,
        }
        code = codes.get(name, ord(name.upper()) if text else 0)
        common = {"key": name, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        self.call(
            "Input.dispatchTouchEvent",
            type=kind,
            touchPoints=[{"x": x, "y": y, "id": k} for k, (x, y) in enumerate(points)],
        )

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        path.write_bytes(
            base64.b64decode(
                self.call(
                    "Page.captureScreenshot",
                    format="png",
                    captureBeyondViewport=whole,
                    **({"clip": self.whole_page()} if whole else {}),
                )["data"]
            )
        )

    def whole_page(self) -> dict[str, float]:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
