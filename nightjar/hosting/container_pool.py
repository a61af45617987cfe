"""The template of a work pool whose runs are containers of Nightjar's image, for Prefect's worker of type docker.

A container sees the folder of its deployment under the same path, runs as the user who registered the pool, and is
removed when it ends. All containers of a machine share a home, with caches and installed environments, and the result
storage of this user, through which ``--hosted`` sends environments.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect.settings import get_current_settings

_IMAGE = "nightjar"
"""What ``make image`` builds."""
_HOME = "/var/lib/nightjar"
"""The home in the image, which every user may write (deployments/Dockerfile)."""
_TEXT: dict[str, Any] = {"type": "string"}
_TEXTS: dict[str, Any] = {"type": "array", "items": _TEXT, "default": []}
_NAMED_TEXTS: dict[str, Any] = {"type": "object", "additionalProperties": _TEXT}
_PULL = ["IfNotPresent", "Always", "IfPossible", "Never"]
_OF_ENGINE = ("working_dir", "user")
"""Variables that Prefect's worker does not know; it passes them to the engine as they are."""
_VARIABLES: dict[str, dict[str, Any]] = {
    "image": {**_TEXT, "description": "Nightjar, and the packages that environments need."},
    "image_pull_policy": {"enum": _PULL, "default": "IfNotPresent"},
    "volumes": {**_TEXTS, "description": "Folders of the worker's machine and volumes, as SOURCE:PATH."},
    "working_dir": {**_TEXT, "description": "Folder in the container in which the run starts."},
    "user": {**_TEXT, "description": "User and group of the run, as UID:GID."},
    "env": {**_NAMED_TEXTS, "description": "Environment variables. Keys belong in blocks, which runs name."},
    "networks": _TEXTS,
    "network_mode": {**_TEXT, "description": "If empty: host if the server's address is 127.0.0.1, else bridge."},
    "mem_limit": {**_TEXT, "description": "Memory of the container, such as 4g."},
    "auto_remove": {"type": "boolean", "default": True, "description": "Remove the container when it ends."},
    "stream_output": {"type": "boolean", "default": True, "description": "Copy its output to that of the worker."},
    "command": {**_TEXT, "default": "python -P -m nightjar.hosting.container_run"},
    "name": _TEXT,
    "labels": _NAMED_TEXTS,
}


def is_container_template(template: dict[str, Any]) -> bool:
    """Returns whether runs start in the folder of their deployment, which Prefect's own template does not do."""
    return "working_dir" in template.get("variables", {}).get("properties", {})


def container_template(defaults: dict[str, Any]) -> dict[str, Any]:
    given = {name: {"default": value} for name, value in defaults.items() if name in _VARIABLES}
    properties = {name: schema | given.get(name, {}) for name, schema in _VARIABLES.items()}
    used = {name: f"{{{{ {name} }}}}" for name in _VARIABLES}
    of_engine = {"init": True, **{name: used.pop(name) for name in _OF_ENGINE}}  # init passes signals to the command
    return {
        "variables": {"type": "object", "properties": properties},
        "job_configuration": {**used, "container_create_kwargs": of_engine},
    }


def container_defaults(folder: Path, image: str | None) -> dict[str, Any]:
    # A worker passes its own settings of Prefect to containers, in which its folders do not exist
    folders = {"PREFECT_HOME": f"{_HOME}/.prefect", "PREFECT_LOCAL_STORAGE_PATH": f"{_HOME}/.prefect/storage"}
    return {"image": image or _IMAGE, **defaults_of_folder(folder), "env": folders}


def defaults_of_folder(folder: Path) -> dict[str, Any]:
    storage = _storage()
    owner = storage.stat()  # the user of this command
    volumes = [f"{folder}:{folder}", f"nightjar-home:{_HOME}", f"{storage}:{_HOME}/.prefect/storage"]
    return {"volumes": volumes, "user": f"{owner.st_uid}:{owner.st_gid}"}


def _storage() -> Path:
    """Returns the folder of the result storage. If it is missing, an engine creates it as root, or does not start."""
    folder = get_current_settings().results.local_storage_path
    folder.mkdir(parents=True, exist_ok=True)
    return folder
