"""Checks examples/kuberay/*.yaml against the schemas of their resources.

    pip install pyyaml jsonschema kubernetes-validate
    python scripts/check_manifest.py --crd ray.io_rayclusters.yaml          # KubeRay's, from its release (helm-chart/kuberay-operator/crds)

Resources of ray.io go by the schema in the CRD, with no field beside those it has; the others by that of Kubernetes itself
(`kubernetes-validate` brings it), strictly. Prints every offence and exits with 1 if there is any.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def closed(schema: Any) -> Any:
    """The schema without room for fields that it does not name."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if made.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


def schemas(crd: Path) -> dict[str, Any]:
    """By `apiVersion/kind`."""
    import yaml

    told = yaml.safe_load(crd.read_text())["spec"]
    found = {}
    for version in told["versions"]:
        schema = closed(version["schema"]["openAPIV3Schema"])
        # The CRD leaves this to Kubernetes.
        schema["properties"]["metadata"] = {"type": "object"}
        found[f"{told['group']}/{version['name']}/{told['names']['kind']}"] = schema
    return found


def main() -> int:
    import jsonschema
    import kubernetes_validate
    import yaml

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crd", type=Path, required=True)
    parser.add_argument("--kubernetes", default="1.30", help="version of Kubernetes' own schemas")
    args = parser.parse_args()
    known, wrong, checked = schemas(args.crd), 0, 0
    for path in sorted((ROOT / "examples/kuberay").glob("*.yaml")):
        for resource in yaml.safe_load_all(path.read_text()):
            name = f"{resource['apiVersion']}/{resource['kind']}"
            checked += 1
            if name in known:
                said = [f"{'.'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in jsonschema.Draft202012Validator(known[name]).iter_errors(resource)]
            else:
                try:
                    kubernetes_validate.validate(resource, args.kubernetes, strict=True)
                    said = []
                except kubernetes_validate.ValidationError as error:
                    said = [error.message[:200]]
            wrong += len(said)
            print(f"{path.name}: {name} {resource['metadata']['name']}: {'; '.join(said) or 'as its schema says'}")
    return 1 if wrong or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
