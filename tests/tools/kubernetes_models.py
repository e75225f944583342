#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds deploy/kubernetes against the schema that Kubernetes publishes, as its Python client has it.

    kubernetes_models.py FOLDER

The client's models (Debian's python3-kubernetes, or "kubernetes" of PyPI) are generated from the OpenAPI schema of the
Kubernetes version that they name. Each document has only fields of its model, of its types, and no required one is missing;
overlays' patches may leave fields out. Kustomizations are kubectl's own and not in that schema: kubernetes_check.py has a
table of their fields. Prints the client's version and one line for each fault; exit status 1 where there is one, 77 without
the client or PyYAML.
"""

import os
import re
import sys

try:
    import yaml
    from kubernetes import __version__, client
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

SCALARS = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}
faults = []


def fault(where, text):
    faults.append(f"{where}: {text}")


def check_model(where, value, model, whole):
    """Returns an object of the model, whose constructor finds what is missing; None where there is none."""
    if not isinstance(value, dict):
        return fault(where, f"{value!r} is no map")
    attribute_of = {json: attribute for attribute, json in model.attribute_map.items()}
    parts = {}
    for key, item in value.items():
        if key not in attribute_of:
            fault(where, f"{model.__name__} has no field {key}")
        else:
            parts[attribute_of[key]] = check(f"{where}.{key}", item, model.openapi_types[attribute_of[key]], whole)
    if not whole:
        return value
    try:
        return model(**parts)
    except ValueError as e:
        return fault(where, str(e))


def check(where, value, kind, whole):
    """`kind` as the client writes it: 'str', 'list[V1Container]', 'dict(str, str)', 'V1PodSpec', 'object' for anything."""
    several = re.fullmatch(r"list\[(.+)\]", kind)
    mapped = re.fullmatch(r"dict[\[(]str, (.+)[\])]", kind)
    if several or mapped:
        if not isinstance(value, list if several else dict):
            return fault(where, f"{value!r} is no {'list' if several else 'map'}")
        items = enumerate(value) if several else value.items()
        for key, item in items:
            check(f"{where}[{key}]", item, (several or mapped)[1], whole)
        return value
    if kind in SCALARS:
        if not isinstance(value, SCALARS[kind]) or (kind != "bool" and isinstance(value, bool)):
            fault(where, f"{value!r} is no {kind}")
        return value
    if kind == "object":
        return value
    return check_model(where, value, getattr(client, kind), whole)


def model_of(document):
    """apps/v1, Deployment: V1Deployment."""
    version = str(document.get("apiVersion")).rpartition("/")[2]
    return getattr(client, version.capitalize() + str(document.get("kind")), None)


def patches_of(folder):
    with open(os.path.join(folder, "kustomization.yaml"), encoding="utf-8") as file:
        return {p["path"] for p in yaml.safe_load(file).get("patches", [])}


def main(top):
    checked = 0
    for folder, _, names in sorted(os.walk(top)):
        for name in sorted(n for n in names if n.endswith(".yaml") and n != "kustomization.yaml"):
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as file:
                documents = [d for d in yaml.safe_load_all(file) if d is not None]
            for d in documents:
                model = model_of(d)
                where = f"{os.path.relpath(path, top)} {d.get('kind')}"
                if model is None:
                    print(f"not looked at: {where}: client {__version__} has no {d.get('apiVersion')} of it")
                    continue
                check_model(where, d, model, name not in patches_of(folder))
                checked += 1
    for text in faults:
        print(text)
    print(f"{checked} documents against the models of client {__version__}: {len(faults)} faults")
    return 1 if faults or checked == 0 else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FOLDER")
    sys.exit(main(sys.argv[1]))
