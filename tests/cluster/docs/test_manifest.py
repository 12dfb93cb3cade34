"""The manifest for Kubernetes fits the schema of Kubernetes, and confines its pods. It was not run on a cluster."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

MANIFEST = Path(__file__).parents[3] / "examples/kubernetes/cluster.yaml"
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all(MANIFEST.read_text()))


@pytest.mark.parametrize("object", OBJECTS, ids=[f"{each['kind']}-{each['metadata']['name']}" for each in OBJECTS])
def test_each_object_fits_the_schema(object: dict[str, Any]) -> None:
    kubernetes_validate.validate(object, "1.37", strict=True)


def test_a_wrong_field_does_not_fit() -> None:
    wrong = {**OBJECTS[0], "spec": {**OBJECTS[0]["spec"], "port": 6379}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.37", strict=True)


def test_every_pod_has_the_seccomp_profile_and_no_capability() -> None:
    pods = [each["spec"]["template"]["spec"] for each in OBJECTS if each["kind"] in ("Deployment", "DaemonSet")]
    assert len(pods) == 2
    for pod in pods:
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["seccompProfile"] == {"type": "Localhost", "localhostProfile": "toolcell.json"}
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["runAsNonRoot"]


def test_every_pod_of_ray_has_the_token() -> None:
    pods = [each["spec"]["template"]["spec"] for each in OBJECTS if each["kind"] in ("Deployment", "DaemonSet")]
    for container in (container for pod in pods for container in pod["containers"]):
        variables = {each["name"]: each for each in container["env"]}
        assert variables["RAY_AUTH_MODE"]["value"] == "token"
        assert variables["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]["name"] == "toolcell-ray-token"
