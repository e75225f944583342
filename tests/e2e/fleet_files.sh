#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Files for many servers as one: haproxy takes deploy/haproxy.cfg, deploy/kubernetes has only kinds and fields that there are
# and fits together (tests/tools/kubernetes_check.py), also by the schema that Kubernetes publishes
# (tests/tools/kubernetes_models.py), kubectl builds both overlays. What is not installed is left out, and that is said. The
# checks find the slips that they are there for.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"
deploy=$source_dir/deploy
checked=0

if command -v haproxy >/dev/null && command -v openssl >/dev/null; then
	openssl req -x509 -newkey rsa:2048 -nodes -keyout /dev/null -out "$work/ca.pem" -days 1 -subj /CN=ca 2>/dev/null
	sed "s|/etc/haproxy/gpsplit-ca.pem|$work/ca.pem|" "$deploy/haproxy.cfg" >"$work/haproxy.cfg"
	if haproxy -c -f "$work/haproxy.cfg" >"$work/haproxy.log" 2>&1; then
		echo "ok: haproxy takes haproxy.cfg"
	else
		fail "haproxy refuses haproxy.cfg: $(cat "$work/haproxy.log")"
	fi
	# Names of servers are examples, which nobody resolves; anything else that it warns of is a slip.
	grep WARNING "$work/haproxy.log" | grep -v 'could not resolve address' >"$work/warnings"
	equal "what haproxy warns of" "$(cat "$work/warnings")" ""
	checked=1
fi

"$build/gpserverd" --help >"$work/help"
check() { # FOLDER
	python3 "$source_dir/tests/tools/kubernetes_check.py" "$1" "$source_dir/server/metrics_text.c" "$work/help"
}

# A copy of the files with one slip: the check has to find it.
slip() { # FILE SED-EXPRESSION PATTERN
	rm -rf "$work/slip"
	cp -r "$deploy/kubernetes" "$work/slip"
	sed -i "$2" "$work/slip/$1"
	cmp -s "$work/slip/$1" "$deploy/kubernetes/$1" && fail "$1: $2 changes nothing"
	check "$work/slip" >"$work/found" && fail "$1: $2 is not found"
	grep -F -e "$3" "$work/found" >/dev/null || fail "$1: $2: it says: $(cat "$work/found")"
}

if python3 -c 'import yaml' 2>/dev/null; then
	check "$deploy/kubernetes" || fail "deploy/kubernetes"
	slip base/deployment.yaml 's/readinessProbe:/readyProbe:/' 'there is no field readyProbe'
	slip base/deployment.yaml 's/replicas: 2/replicas: "2"/' 'has the wrong type'
	slip base/deployment.yaml 's/--drain-for=90s/--drain-for=115s/' 'longer than terminationGracePeriodSeconds'
	slip base/deployment.yaml 's/--state-dir=/--states=/' 'no option --states'
	slip base/deployment.yaml 's/claimName: gpserverd-state/claimName: other/' 'there is no claim other'
	slip base/deployment.yaml 's|tokens=/etc/gpsplit/tokens|tokens=/etc/gpsplit/names|' 'has no names'
	slip base/deployment.yaml 's/"sleep", "10"/"kill", "1"/' 'a second signal would end the server'
	slip base/deployment.yaml 's/runAsNonRoot: true/runAsNonRoot: false/' "the level 'restricted'"
	slip base/services.yaml 's/targetPort: gpsplit/targetPort: gp/' 'no container has the port gp'
	slip base/services.yaml 's|component: server|component: sever|' 'selects no pods'
	slip base/state.yaml 's/ReadWriteMany"/ReadWriteOnce"/' 'cannot be shared'
	slip base/autoscaler.yaml 's/name: gpserverd_sessions/name: gpserverd_load/' 'has no figure gpserverd_load'
	slip base/disruption.yaml 's/maxUnavailable: 1/maxUnavailable: 1\n  maxUnavailable: 2/' 'stands twice'
	slip base/kustomization.yaml '/network.yaml/d' 'network.yaml is of no kustomization'
	slip gpu/device.yaml 's/name: THREADS/name: TREADS/' 'uses no variable TREADS'
	echo "ok: the check finds slips"
	checked=1
fi

# The same with the schema that Kubernetes publishes.
models() { # FOLDER
	python3 "$source_dir/tests/tools/kubernetes_models.py" "$1"
}

models_slip() { # FILE SED-EXPRESSION PATTERN
	rm -rf "$work/slip"
	cp -r "$deploy/kubernetes" "$work/slip"
	sed -i "$2" "$work/slip/$1"
	models "$work/slip" >"$work/found" && fail "published schema: $1: $2 is not found"
	grep -F -e "$3" "$work/found" >/dev/null || fail "published schema: $1: $2: it says: $(cat "$work/found")"
}

if python3 -c 'import yaml, kubernetes' 2>/dev/null; then
	models "$deploy/kubernetes" || fail "deploy/kubernetes against the published schema"
	models_slip base/deployment.yaml 's/readinessProbe:/readyProbe:/' 'V1Container has no field readyProbe'
	models_slip base/deployment.yaml 's/replicas: 2/replicas: "2"/' 'is no int'
	models_slip base/disruption.yaml 's/maxUnavailable: 1/maxUnavailabel: 1/' 'has no field maxUnavailabel'
	models_slip base/disruption.yaml 's/maxUnavailable: 1/maxUnavailable: 1\n  selectors: {}/' 'has no field selectors'
	models_slip gpu/device.yaml 's/operator: Exists/operators: Exists/' 'V1Toleration has no field operators'
	echo "ok: the published schema finds slips"
	checked=1
else
	echo "not looked at: the schema that Kubernetes publishes (python3-kubernetes is not installed)"
fi

if kubectl kustomize --help >/dev/null 2>&1; then
	cp -r "$deploy/kubernetes" "$work/built"
	mkdir -p "$work/built/base/secrets"
	touch "$work/built/base/secrets"/{server.pem,server.key,tokens}
	for overlay in cpu gpu; do
		kubectl kustomize "$work/built/$overlay" >"$work/$overlay.yaml" 2>"$work/err" || fail "kustomize $overlay: $(cat "$work/err")"
		equal "$overlay: parts" "$(grep -c '^kind:' "$work/$overlay.yaml")" 9
	done
	grep -F 'nvidia.com/gpu: "1"' "$work/gpu.yaml" >/dev/null || fail "the overlay for GPUs asks for none"
	checked=1
else
	echo "not looked at: whether the overlays build (kubectl is not installed)"
fi
[ $checked -eq 1 ] || { echo "skipped: neither haproxy nor python3-yaml nor kubectl is installed" && exit 77; }
finish
