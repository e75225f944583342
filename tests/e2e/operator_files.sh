#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Files of deploy/ that nothing here can run: containers end as a user that is not root, with a program as their entry; the
# dashboard is JSON; promtool takes the alerts, where it is installed; scripts can be read.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"
cd "$source_dir/deploy" || exit 1
# shellcheck disable=SC1091
. ./deps.sh
for file in docker/Dockerfile docker/Dockerfile.cuda; do
	for package in "${build_packages[@]}"; do
		grep -qw -e "$package" "$file" || fail "$file: $package is not installed"
	done
	awk '/^FROM/ { if (stage && stage != "build" && (user == "" || user == "root" || !entry)) bad = 1
			stage = $4; user = ""; entry = 0 }
		/^USER/ { user = $2 }
		/^ENTRYPOINT \["\// { entry = 1 }
		/^[^ \t#]/ && $1 !~ /^(FROM|RUN|COPY|WORKDIR|USER|EXPOSE|VOLUME|STOPSIGNAL|ENTRYPOINT)$/ { bad = 1 }
		END { exit bad || user == "" || user == "root" || !entry }' "$file" || fail "$file: a stage runs as root, or has no entry"
done
json_get grafana/gpsplit.json uid >"$work/uid" || fail "the dashboard is no JSON"
equal "the dashboard" "$(cat "$work/uid")" gpsplit
if command -v promtool >/dev/null; then
	promtool check rules prometheus/gpsplit.rules.yml || fail "promtool refuses the alerts"
fi
sh -n debian/postinst && sh -n debian/prerm && sh -n debian/postrm && bash -n package.sh || fail "a script is broken"
finish
