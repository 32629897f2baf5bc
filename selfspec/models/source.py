"""Which model it is: what provenance writes beside every result.

Says what was loaded, never from which path, index or host.

    source = loaded.source
    source.slug                                    # "smollm2-135m"
    ModelSource.from_json(source.to_json()) == source
"""

import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path

KINDS = ("embedded", "hub", "folder", "file")


@dataclass(frozen=True)
class ModelSource:
    """Identity of loaded weights.

    `name` is an alias, a hub name or a folder's last part. `sha256` is that of the
    weight file, or for a hub name or folder of the list of its files' checksums.
    `quantisation` tells how the weights are stored and what they became in memory;
    `num_parameters` counts weights, `num_bytes` is what they take in memory.
    """

    name: str
    kind: str
    revision: str
    sha256: str
    architecture: str
    quantisation: str
    num_layers: int
    num_parameters: int
    num_bytes: int

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {KINDS}, got {self.kind!r}")
        if self.name.startswith(("/", "~")) or "\\" in self.name:
            raise ValueError(f"name must not be a path, got {self.name!r}")

    @property
    def slug(self) -> str:
        """The name for files and folders, lower case; another model has another one.

        A local folder's name says little (`model`, `checkpoint-500`, the name of an
        alias, a word in another script), so what it holds is in the name too. Of hub
        owners only the usual one of MLX models is left out.
        """
        name = self.name.removeprefix("mlx-community/").lower()
        if self.kind in ("folder", "file"):
            name += f"-{self.sha256[:6]}"
        return re.sub(r"[^a-z0-9.]+", "-", name).strip("-.") or "model"

    def to_json(self) -> dict:
        """Every field by its name, as JSON holds it."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict) -> "ModelSource":
        """The source of these values; a key too many or too few is refused."""
        known = {field.name for field in fields(cls)}
        if set(values) != known:
            wrong = sorted(set(values) ^ known)
            raise ValueError(f"ModelSource: unknown or missing keys {wrong}")
        return cls(**values)


def unknown(name: str) -> ModelSource:
    """The source of a model that could not be loaded: its name, and nothing else."""
    path = Path(name).expanduser()
    local = path.exists()
    return ModelSource(
        name=path.absolute().name if local else name,
        kind=("folder" if path.is_dir() else "file") if local else "hub",
        revision="",
        sha256="",
        architecture="unknown",
        quantisation="unknown",
        num_layers=0,
        num_parameters=0,
        num_bytes=0,
    )
