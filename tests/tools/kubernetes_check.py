#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks deploy/kubernetes strictly, where no cluster and no published schema is at hand.

    kubernetes_check.py FOLDER METRICS HELP

Every document has a kind that is known here, and only fields of that kind, of the right type (a table of the fields that are
used, from the reference of Kubernetes 1.30). Beyond single files: what refers to something finds it (selectors, ports,
volumes, claims, Secrets, targets, files of kustomizations), overlays patch what the base has, the grace period is longer than
what happens in it, figures are ones that the server has (METRICS: server/metrics_text.c), and so are its options (HELP: what
gpserverd --help prints). Prints one line for each fault; exit status 1 where there is one, 77 without PyYAML.
"""

import os
import re
import sys

try:
    import yaml
except ImportError:
    print("skipped: python3-yaml is not installed")
    sys.exit(77)

# A type is a Python type, a set of words, a list of one type (items), a dict of fields ("name!": required), or a map (str: type).
PORT = {"port": (int, str), "protocol": {"TCP"}}
LABELS = {str: str}
SELECTOR = {"matchLabels!": LABELS}
META = {"name!": str, "namespace": str, "labels": LABELS, "annotations": LABELS}
QUANTITIES = {str: str}
PROBE = {
    "httpGet!": {"path!": str, "port!": (int, str), "scheme": {"HTTP", "HTTPS"}},
    "periodSeconds": int,
    "timeoutSeconds": int,
    "failureThreshold": int,
}
CONTAINER = {
    "name!": str,
    "image": str,
    "args": [str],
    "env": [{"name!": str, "value!": str}],
    "ports": [{"name!": str, "containerPort!": int, "protocol": {"TCP"}}],
    "resources": {"requests": QUANTITIES, "limits": QUANTITIES},
    "startupProbe": PROBE,
    "readinessProbe": PROBE,
    "livenessProbe": PROBE,
    "lifecycle": {"preStop!": {"exec!": {"command!": [str]}}},
    "securityContext": {
        "allowPrivilegeEscalation": bool,
        "readOnlyRootFilesystem": bool,
        "capabilities": {"drop!": [str]},
    },
    "volumeMounts": [{"name!": str, "mountPath!": str, "readOnly": bool}],
}
POD = {
    "automountServiceAccountToken": bool,
    "terminationGracePeriodSeconds": int,
    "securityContext": {
        "runAsNonRoot": bool,
        "runAsUser": int,
        "runAsGroup": int,
        "fsGroup": int,
        "fsGroupChangePolicy": {"OnRootMismatch", "Always"},
        "seccompProfile": {"type!": {"RuntimeDefault"}},
    },
    "topologySpreadConstraints": [
        {
            "maxSkew!": int,
            "topologyKey!": str,
            "whenUnsatisfiable!": {"ScheduleAnyway", "DoNotSchedule"},
            "labelSelector": SELECTOR,
        }
    ],
    "tolerations": [{"key": str, "operator": {"Exists", "Equal"}, "value": str, "effect": {"NoSchedule", "NoExecute"}}],
    "nodeSelector": LABELS,
    "containers!": [CONTAINER],
    "volumes": [
        {
            "name!": str,
            "persistentVolumeClaim": {"claimName!": str},
            "secret": {"secretName!": str, "defaultMode": int},
            "emptyDir": {"sizeLimit": str},
        }
    ],
}
SCALE = {
    "stabilizationWindowSeconds": int,
    "policies": [{"type!": {"Pods", "Percent"}, "value!": int, "periodSeconds!": int}],
}
KINDS = {
    ("v1", "Namespace"): {"metadata!": META},
    ("apps/v1", "Deployment"): {
        "metadata!": META,
        "spec!": {
            "replicas": int,
            "revisionHistoryLimit": int,
            "strategy": {
                "type!": {"RollingUpdate", "Recreate"},
                "rollingUpdate": {"maxUnavailable": (int, str), "maxSurge": (int, str)},
            },
            "selector": SELECTOR,
            "template!": {"metadata": {"labels": LABELS, "annotations": LABELS}, "spec!": POD},
        },
    },
    ("v1", "Service"): {
        "metadata!": META,
        "spec!": {
            "type": {"ClusterIP", "LoadBalancer", "NodePort"},
            "clusterIP": str,
            "externalTrafficPolicy": {"Local", "Cluster"},
            "selector!": LABELS,
            "ports!": [{"name!": str, "port!": int, "targetPort": (int, str), "protocol": {"TCP"}}],
        },
    },
    ("v1", "PersistentVolumeClaim"): {
        "metadata!": META,
        "spec!": {
            "accessModes!": [{"ReadWriteMany", "ReadWriteOnce"}],
            "storageClassName": str,
            "resources!": {"requests!": {"storage!": str}},
        },
    },
    ("autoscaling/v2", "HorizontalPodAutoscaler"): {
        "metadata!": META,
        "spec!": {
            "scaleTargetRef!": {"apiVersion!": str, "kind!": str, "name!": str},
            "minReplicas": int,
            "maxReplicas!": int,
            "metrics!": [
                {
                    "type!": {"Pods"},
                    "pods!": {
                        "metric!": {"name!": str, "selector": SELECTOR},
                        "target!": {"type!": {"AverageValue"}, "averageValue!": str},
                    },
                }
            ],
            "behavior": {"scaleUp": SCALE, "scaleDown": SCALE},
        },
    },
    ("policy/v1", "PodDisruptionBudget"): {
        "metadata!": META,
        "spec!": {"maxUnavailable": (int, str), "minAvailable": (int, str), "selector!": SELECTOR},
    },
    ("networking.k8s.io/v1", "NetworkPolicy"): {
        "metadata!": META,
        "spec!": {
            "podSelector!": SELECTOR,
            "policyTypes!": [{"Ingress", "Egress"}],
            "ingress": [{"from": [{"namespaceSelector": SELECTOR, "podSelector": SELECTOR}], "ports": [PORT]}],
            "egress": [{"to": [{"namespaceSelector": SELECTOR, "podSelector": SELECTOR}], "ports": [PORT]}],
        },
    },
    ("kustomize.config.k8s.io/v1beta1", "Kustomization"): {
        "namespace": str,
        "labels": [{"pairs!": LABELS, "includeSelectors": bool}],
        "resources!": [str],
        "patches": [{"path!": str}],
        "images": [{"name!": str, "newName": str, "newTag": str}],
        "secretGenerator": [{"name!": str, "files!": [str]}],
    },
}

faults = []


def fault(where, text):
    faults.append(f"{where}: {text}")


class Strict(yaml.SafeLoader):
    """A key that stands twice is a slip that YAML itself lets pass."""


def mapping_without_twins(loader, node):
    seen = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            raise yaml.YAMLError(f"key {key} stands twice, line {key_node.start_mark.line + 1}")
        seen[key] = loader.construct_object(value_node, deep=True)
    return seen


Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping_without_twins)


def check_fields(where, value, fields):
    known = {k.rstrip("!"): v for k, v in fields.items()}
    for key in value:
        if key not in known:
            fault(where, f"there is no field {key}")
        else:
            check(f"{where}.{key}", value[key], known[key])
    for key in fields:
        if key.endswith("!") and key[:-1] not in value:
            fault(where, f"the field {key[:-1]} is missing")


def check(where, value, kind):
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            fault(where, "is no map")
        elif str in kind:
            for key, item in value.items():
                check(f"{where}.{key}", key, str)
                check(f"{where}.{key}", item, kind[str])
        else:
            check_fields(where, value, kind)
    elif isinstance(kind, list):
        if not isinstance(value, list):
            fault(where, "is no list")
        else:
            for i, item in enumerate(value):
                check(f"{where}[{i}]", item, kind[0])
    elif isinstance(kind, set):
        if value not in kind:
            fault(where, f"is {value}, not one of {', '.join(sorted(kind))}")
    elif kind is int and isinstance(value, bool) or not isinstance(value, kind):
        fault(where, f"{value!r} has the wrong type")


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return [d for d in yaml.load_all(file, Loader=Strict) if d is not None]
    except (OSError, yaml.YAMLError) as e:
        fault(path, str(e).replace("\n", " "))
        return []


def documents(path):
    for d in read(path):
        kind = (d.get("apiVersion"), d.get("kind")) if isinstance(d, dict) else None
        if kind not in KINDS:
            fault(path, f"{kind} is no kind that is known here")
            continue
        where = f"{path} {d['kind']}"
        check_fields(where, {k: v for k, v in d.items() if k not in ("apiVersion", "kind")}, KINDS[kind])
        yield d


def kustomization(folder):
    path = os.path.join(folder, "kustomization.yaml")
    docs = [d for d in documents(path) if d["kind"] == "Kustomization"]
    if len(docs) != 1:
        fault(path, "has to be one Kustomization")
        return {}
    return docs[0]


def covers(labels, selector):
    return all(labels.get(k) == v for k, v in selector.items())


def named(docs, kind):
    return {d["metadata"]["name"]: d for d in docs if d["kind"] == kind}


def check_pod(where, deployment, claims, secrets):
    spec = deployment["spec"]["template"]["spec"]
    volumes = {v["name"]: v for v in spec.get("volumes", [])}
    for v in volumes.values():
        claim = v.get("persistentVolumeClaim", {}).get("claimName")
        secret = v.get("secret", {}).get("secretName")
        if claim and claim not in claims:
            fault(where, f"volume {v['name']}: there is no claim {claim}")
        if secret and secret not in secrets:
            fault(where, f"volume {v['name']}: no Secret {secret} is made")
    for c in spec["containers"]:
        for m in c.get("volumeMounts", []):
            if m["name"] not in volumes:
                fault(where, f"{c['name']} mounts {m['name']}, which is no volume")
        ports = {p["name"] for p in c.get("ports", [])}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if c.get(probe, {}).get("httpGet", {}).get("port") not in ports:
                fault(where, f"{c['name']}: {probe} asks at a port that there is not")
        check_security(where, spec, c)
        check_mounted_files(where, c, volumes, secrets)


def check_security(where, spec, c):
    pod, own = spec.get("securityContext", {}), c.get("securityContext", {})
    safe = (
        pod.get("runAsNonRoot") is True
        and pod.get("seccompProfile", {}).get("type") == "RuntimeDefault"
        and own.get("allowPrivilegeEscalation") is False
        and own.get("capabilities", {}).get("drop") == ["ALL"]
    )
    if not safe:
        fault(where, f"{c['name']} is not what a namespace of the level 'restricted' lets in")


def check_mounted_files(where, c, volumes, secrets):
    """Every file that an option names lies in a folder that is mounted, and is in the Secret there."""
    for arg in c.get("args", []):
        option, _, path = arg.partition("=")
        if not path.startswith("/"):
            continue
        mounts = [m for m in c["volumeMounts"] if path == m["mountPath"] or path.startswith(m["mountPath"] + "/")]
        if not mounts:
            fault(where, f"{option}: nothing is mounted at {path}")
            continue
        secret = volumes.get(mounts[0]["name"], {}).get("secret", {}).get("secretName")
        if secret and os.path.basename(path) not in secrets.get(secret, []):
            fault(where, f"{option}: the Secret {secret} has no {os.path.basename(path)}")


def seconds(text):
    m = re.fullmatch(r"(\d+)(s|m|h)?", text)
    return int(m[1]) * {None: 1, "s": 1, "m": 60, "h": 3600}[m[2]] if m else None


def check_end(where, deployment):
    """What happens when a pod ends has to fit into its grace period."""
    spec = deployment["spec"]["template"]["spec"]
    for c in spec["containers"]:
        drain = [seconds(a.split("=", 1)[1]) for a in c.get("args", []) if a.startswith("--drain-for=")]
        command = c.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [])
        if command[:1] != ["sleep"] or len(command) != 2 or seconds(command[1]) is None:
            fault(where, "preStop does not just sleep: a second signal would end the server at once")
        elif not drain or drain[0] is None:
            fault(where, "the server has no --drain-for")
        elif drain[0] + seconds(command[1]) >= spec.get("terminationGracePeriodSeconds", 30):
            fault(where, "preStop and --drain-for together are longer than terminationGracePeriodSeconds")


def check_options(where, deployment, help_text):
    known = set(re.findall(r"--([a-z][a-z-]+)", help_text))
    for c in deployment["spec"]["template"]["spec"]["containers"]:
        env = {e["name"] for e in c.get("env", [])}
        for arg in c.get("args", []):
            name = arg.partition("=")[0].lstrip("-")
            if name not in known:
                fault(where, f"gpserverd has no option --{name}")
            for variable in re.findall(r"\$\((\w+)\)", arg):
                if variable not in env:
                    fault(where, f"{arg}: there is no variable {variable}")


def check_base(folder, metrics, help_text):
    k = kustomization(folder)
    docs = []
    for name in k.get("resources", []):
        path = os.path.join(folder, name)
        docs += list(documents(path)) if os.path.isfile(path) else fault(folder, f"there is no {name}") or []
    if faults:
        return {}
    secrets = {s["name"]: [os.path.basename(f) for f in s["files"]] for s in k.get("secretGenerator", [])}
    deployments, claims = named(docs, "Deployment"), named(docs, "PersistentVolumeClaim")
    for name, d in deployments.items():
        labels = d["spec"]["template"]["metadata"]["labels"]
        ports = {p["name"] for c in d["spec"]["template"]["spec"]["containers"] for p in c.get("ports", [])}
        where = f"{folder} Deployment {name}"
        if not covers(labels, d["spec"]["selector"]["matchLabels"]):
            fault(where, "its selector does not find its own pods")
        check_pod(where, d, claims, secrets)
        check_end(where, d)
        check_options(where, d, help_text)
        for other in docs:
            check_selector(folder, other, labels, ports)
    if any("ReadWriteMany" not in c["spec"]["accessModes"] for c in claims.values()):
        fault(folder, "the state folder cannot be shared: ReadWriteMany")
    for other in docs:
        if other["kind"] == "HorizontalPodAutoscaler":
            check_scaler(folder, other, deployments, metrics)
    for kind in ("Service", "HorizontalPodAutoscaler", "PodDisruptionBudget", "NetworkPolicy", "PersistentVolumeClaim"):
        if not named(docs, kind):
            fault(folder, f"there is no {kind}")
    return deployments


def check_selector(folder, d, labels, ports):
    where = f"{folder} {d['kind']} {d['metadata']['name']}"
    if d["kind"] == "Service":
        if not covers(labels, d["spec"]["selector"]):
            fault(where, "selects no pods")
        for p in d["spec"]["ports"]:
            if p.get("targetPort") not in ports:
                fault(where, f"no container has the port {p.get('targetPort')}")
    elif d["kind"] == "PodDisruptionBudget" and not covers(labels, d["spec"]["selector"]["matchLabels"]):
        fault(where, "selects no pods")
    elif d["kind"] == "NetworkPolicy":
        if not covers(labels, d["spec"]["podSelector"]["matchLabels"]):
            fault(where, "selects no pods")
        for rule in d["spec"].get("ingress", []):
            for p in rule.get("ports", []):
                if p["port"] not in ports:
                    fault(where, f"no container has the port {p['port']}")


def check_scaler(folder, d, deployments, metrics):
    where = f"{folder} HorizontalPodAutoscaler {d['metadata']['name']}"
    if d["spec"]["scaleTargetRef"]["name"] not in deployments:
        fault(where, "scales nothing")
    if d["spec"].get("minReplicas", 1) > d["spec"]["maxReplicas"]:
        fault(where, "minReplicas is over maxReplicas")
    for m in d["spec"]["metrics"]:
        if f'"{m["pods"]["metric"]["name"]}"' not in metrics:
            fault(where, f"the server has no figure {m['pods']['metric']['name']}")


def check_overlay(folder, base, deployments):
    k = kustomization(folder)
    if base not in [os.path.normpath(os.path.join(folder, r)) for r in k.get("resources", [])]:
        fault(folder, f"is no overlay of {base}")
    images = {c["image"].split(":")[0] for d in deployments.values() for c in d["spec"]["template"]["spec"]["containers"]}
    for image in k.get("images", []):
        if image["name"] not in images:
            fault(folder, f"the base has no image {image['name']}")
    for patch in k.get("patches", []):
        for d in documents(os.path.join(folder, patch["path"])):
            target = deployments.get(d["metadata"]["name"]) if d["kind"] == "Deployment" else None
            if not target:
                fault(folder, f"{patch['path']} patches what the base has not")
                continue
            own = {c["name"]: c for c in target["spec"]["template"]["spec"]["containers"]}
            for c in d["spec"]["template"]["spec"]["containers"]:
                if c["name"] not in own:
                    fault(folder, f"{patch['path']}: the base has no container {c['name']}")
                    continue
                env = {e["name"] for e in own[c["name"]].get("env", [])}
                for e in c.get("env", []):
                    if e["name"] not in env:
                        fault(folder, f"{patch['path']}: the base uses no variable {e['name']}")


def main():
    folder, metrics, help_text = sys.argv[1], open(sys.argv[2]).read(), open(sys.argv[3]).read()
    base = os.path.normpath(os.path.join(folder, "base"))
    deployments = check_base(base, metrics, help_text)
    overlays = [o for o in sorted(os.listdir(folder)) if o != "base"]
    for name in overlays:
        check_overlay(os.path.join(folder, name), base, deployments)
    used = {os.path.join(base, r) for r in kustomization(base).get("resources", [])} | {os.path.join(base, "kustomization.yaml")}
    for name in sorted(os.listdir(base)):
        if name.endswith(".yaml") and os.path.join(base, name) not in used:
            fault(base, f"{name} is of no kustomization")
    for line in dict.fromkeys(faults):
        print(line)
    if not faults:
        print(f"{folder}: base and {len(overlays)} overlays are well")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
