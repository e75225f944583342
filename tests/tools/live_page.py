#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens the live page of a gpserverd in a browser, with 64 sessions, and uses it as somebody would who has only a keyboard.

    live_page.py URL BROWSER

URL is that of --metrics of a server that has, or had, a session: page and policy are the server's own; what /sessions says is
passed on with that session 64 times. BROWSER is Chromium, which is driven over its pipe for debuggers. Looked at: that the
page draws all of them without an error and without anything that its policy forbids; that nothing is cut off on narrow
screens; that every text stands out from what lies behind it (4.5 to 1, as WCAG 2.1 AA asks) in light and in dark; where the
keys lead to. Prints a line for each fault; exit status 1 where there is one.
"""

import copy
import http.server
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

SESSIONS = 64
PATIENCE_S = 60
NARROW, TABLET, WIDE = 320, 700, 1400
SCRIPT_NAME = "<b>edge</b>-00"  # texts of clients are texts

faults = []


def fault(text):
    faults.append(text)
    print(f"FAILED: {text}")


def equal(what, got, want):
    if got != want:
        fault(f"{what}: {got!r}, not {want!r}")


class Passed(http.server.BaseHTTPRequestHandler):
    """The server's answers, with more sessions."""

    url, asked = "", 0

    def do_GET(self):
        with urllib.request.urlopen(self.url + self.path) as answer:
            body, headers = answer.read(), answer.headers
        if self.path == "/sessions":
            type(self).asked += 1
            body = json.dumps(self.multiplied(json.loads(body))).encode()
        self.send_response(200)
        for name in ("Content-Type", "Content-Security-Policy"):
            if headers[name]:
                self.send_header(name, headers[name])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def multiplied(self, told):
        seat = told["sessions"][0]
        told["sessions"] = []
        for i in range(SESSIONS):
            s = copy.deepcopy(seat)
            s.update(name=SCRIPT_NAME if i == 0 else f"token:edge-with-a-long-name-{i:02}", seat=0, session=i + 1)
            s.update(state="PARKED" if i % 9 == 8 else "RUN", address="[2001:db8:1234:5678:9abc:def0:1234:5678]:54321")
            s.update(loss=0.5 + i / 10 if i % 4 == 0 else None, steps_per_s=(i * 7 % SESSIONS) / 10)
            s["steps"] += type(self).asked * (i + 1)
            told["sessions"].append(s)
        return told

    def log_message(self, *args):
        pass


class Browser:
    """One page, over the protocol for debuggers."""

    def __init__(self, program, folder):
        to_read, self.write_fd = os.pipe()
        self.read_fd, to_write = os.pipe()
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        command += ["--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'] + command,
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self.number, self.session, self.rest, self.errors = 0, None, b"", []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def read(self):
        while b"\0" not in self.rest:
            if not select.select([self.read_fd], [], [], PATIENCE_S)[0]:
                raise TimeoutError("the browser does not answer")
            more = os.read(self.read_fd, 1 << 16)
            if not more:
                raise EOFError("the browser has ended")
            self.rest += more
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def note(self, message):
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(message["params"]["exceptionDetails"].get("exception", {}).get("description", "exception"))
        if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.errors.append(message["params"]["entry"]["text"])

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_fd, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, what, expression):
        begin = time.monotonic()
        while not self.value(expression):
            if time.monotonic() - begin > PATIENCE_S:
                return fault(f"{what}: it never comes to that")
            time.sleep(0.05)
        return None

    def press(self, key, code, text=""):
        common = {"key": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def end(self):
        self.process.kill()
        self.process.wait()


CARDS = "[...document.querySelectorAll('#sessions > .card')]"
FOCUSED = CARDS + ".indexOf(document.activeElement)"

# Texts that do not stand out: the colours of each and of the nearest thing behind it that has one.
FAINT = """
(() => {
	const bright = c => {
		const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => x / 255).map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
		return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2];
	};
	const behind = e => {
		for (; e; e = e.parentElement) {
			const c = getComputedStyle(e).backgroundColor;
			if (!/rgba\\(.*, 0\\)|transparent/.test(c)) return c;
		}
		return 'rgb(255, 255, 255)';
	};
	const faint = new Set();
	for (const e of document.querySelectorAll('body *')) {
		if (!e.offsetParent || ![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
		const [a, b] = [bright(getComputedStyle(e).color), bright(behind(e))].sort((x, y) => y - x);
		const ratio = (a + 0.05) / (b + 0.05);
		if (ratio < 4.5) faint.add(e.tagName + '.' + e.className + ' ' + ratio.toFixed(2));
	}
	return [...faint].join(', ');
})()
"""

# What reaches beyond the right edge, but for what scrolls by itself.
WIDER = """
[...document.querySelectorAll('body *')].filter(e => e.offsetParent && e.getBoundingClientRect().right > innerWidth + 1)
	.map(e => e.tagName + '.' + e.className).slice(0, 5).join(', ')
"""


def look(browser):
    """Every width and both schemes, with everything unfolded."""
    browser.value("document.getElementById('login').classList.add('asked')")
    browser.value(CARDS + "[1].querySelector('button').click()")
    browser.until("a session unfolds", "document.querySelector('.card.open .more').offsetHeight > 0")
    backs = set()
    for width in (NARROW, TABLET, WIDE):
        for scheme in ("light", "dark"):
            browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
            browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            equal(f"{width} pixels, {scheme}: wider than the screen", browser.value(WIDER), "")
            equal(f"{width} pixels, {scheme}: faint texts", browser.value(FAINT), "")
            backs.add(browser.value("getComputedStyle(document.body).backgroundColor"))
    equal("colours behind everything, light and dark", len(backs), 2)
    browser.value("document.getElementById('login').classList.remove('asked')")
    browser.value(CARDS + "[1].querySelector('button').click()")


def use_keys(browser):
    equal("cards that Tab stops at", browser.value(CARDS + ".filter(c => c.tabIndex === 0).length"), 1)
    browser.value("document.getElementById('pause').focus()")
    browser.press("Tab", 9)
    equal("Tab leads to the first session", browser.value(FOCUSED), 0)
    browser.press("ArrowRight", 39)
    equal("arrow right", browser.value(FOCUSED), 1)
    browser.press("ArrowDown", 40)
    below = browser.value(CARDS + "[1].offsetTop < document.activeElement.offsetTop && " + FOCUSED + " > 1")
    equal("arrow down leads below", below, True)
    browser.press("End", 35)
    equal("End", browser.value(FOCUSED), SESSIONS - 1)
    browser.press("Home", 36)
    equal("Home", browser.value(FOCUSED), 0)
    browser.press("Enter", 13, "\r")
    equal("Enter unfolds", browser.value(CARDS + "[0].querySelector('button').getAttribute('aria-expanded')"), "true")
    browser.press("Enter", 13, "\r")
    equal("Enter folds", browser.value(CARDS + "[0].classList.contains('open')"), False)
    browser.press("Tab", 9)
    equal("Tab leads behind the sessions", browser.value(FOCUSED), -1)
    equal("to the events", browser.value("document.activeElement.className"), "events")
    browser.press("/", 191, "/")
    equal("/", browser.value("document.activeElement.id"), "filter")
    browser.call("Input.insertText", text="NAME-07")
    browser.until("the name that was typed", CARDS + ".length === 1")
    equal("one card, where Tab stops", browser.value(CARDS + ".filter(c => c.tabIndex === 0).length"), 1)
    browser.value("(f => { f.value = ''; f.dispatchEvent(new Event('input')); })(document.getElementById('filter'))")
    browser.press("Escape", 27)
    equal("Escape leaves the name", browser.value("document.activeElement === document.body"), True)
    browser.press("p", 80, "p")
    equal("p pauses", browser.value("document.getElementById('pause').textContent"), "Go on")
    browser.press("p", 80, "p")
    equal("p goes on", browser.value("document.getElementById('pause').textContent"), "Pause")


def keep_focus(browser):
    """Sessions change their places all the time where they stand by steps per second."""
    browser.value("(o => { o.value = 'rate'; o.dispatchEvent(new Event('input')); })(document.getElementById('order'))")
    browser.value(CARDS + "[5].focus()")
    name = browser.value("document.activeElement.querySelector('h3').textContent")
    asked = Passed.asked
    begin = time.monotonic()
    while Passed.asked < asked + 3 and time.monotonic() - begin < PATIENCE_S:
        time.sleep(0.05)
    later = browser.value("document.activeElement.querySelector('h3').textContent")
    equal("who has the focus, three answers later", later, name)


def main(url, program):
    Passed.url = url.rstrip("/")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Passed)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(program, folder)
        try:
            browser.call("Emulation.setDeviceMetricsOverride", width=WIDE, height=900, deviceScaleFactor=1, mobile=False)
            browser.call("Page.navigate", url=f"http://127.0.0.1:{server.server_port}/")
            browser.until("all sessions are there", CARDS + f".length === {SESSIONS}")
            browser.until("charts are drawn", "(document.querySelector('#sessions polyline').getAttribute('points') || '').includes(' ')")
            equal("a name is a text", browser.value("document.querySelector('#sessions h3').textContent"), SCRIPT_NAME)
            look(browser)
            browser.call("Emulation.setDeviceMetricsOverride", width=WIDE, height=900, deviceScaleFactor=1, mobile=False)
            use_keys(browser)
            keep_focus(browser)
            equal("errors in the browser", browser.errors, [])
        finally:
            browser.end()
    if not faults:
        print(f"ok: the page with {SESSIONS} sessions: widths, light and dark, keys")
    return 1 if faults else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} URL BROWSER")
    sys.exit(main(sys.argv[1], sys.argv[2]))
