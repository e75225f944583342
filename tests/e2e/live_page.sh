#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The live page of gpserverd in a real browser, with 64 sessions: on narrow and wide screens, light and dark, by keyboard
# (tests/tools/live_page.py). Status 77 without Chromium.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

browser=''
for name in chromium chromium-browser google-chrome; do
	[ -n "$browser" ] || browser=$(command -v $name)
done
[ -n "$browser" ] && command -v python3 >/dev/null || { echo "skipped: chromium is not installed" && exit 77; }

start_server --threads 1 --metrics 127.0.0.1:0 --state-dir "$work/state"
await grep -q 'http://' "$work/server.log" || fail "no figures"
url=$(grep -o 'http://127.0.0.1:[0-9]*' "$work/server.log" | head -1)
train "$work/run.json" --server "127.0.0.1:$server_port" --model cnn --data synthetic:shape=3x32x32,classes=10,samples=64 \
	--cut 1:2 --batch 8 --chunks 2 --threads 1 --steps 8 --no-eval || fail "no session"
python3 "$source_dir/tests/tools/live_page.py" "$url" "$browser" || fail "the live page"
stop_server
finish
