"""What a lowered model's plan says, the same at both parties."""

import json
from typing import Any

from tacit import _tacit


class Planned:
    """What `Lowered` and `Client` both know of their plan."""

    _native: "_tacit.Lowered | _tacit.Client"
    _plan: dict[str, Any]

    @property
    def backend(self) -> str:
        """Name of the back end."""
        return self._native.backend

    @property
    def spec(self) -> dict[str, Any]:
        """The model's inputs and outputs: shapes, normalisation, accepted range, what is revealed; as `Model.spec`."""
        spec: dict[str, Any] = self._plan["interface"]
        return spec

    @property
    def digest(self) -> str:
        """Digest of the plan in hexadecimal: public part, options and protocol. It is the same at the server and at its clients."""
        return self._native.digest

    @property
    def public_digest(self) -> str:
        """Digest of what the server sends its clients, in hexadecimal; the same at both."""
        return self._native.public_digest

    @property
    def output_unit(self) -> float | None:
        """The real number that one unit in the last place of an answer stands for; `None` where answers are no integers."""
        unit: float | None = self._plan["output_unit"]
        return unit

    def describe(self) -> dict[str, Any]:
        """The public part in the back end's own terms; for "cheetah" the typed nodes: operation, shape, ring width, fraction bits."""
        described: dict[str, Any] = json.loads(self._native.describe_json())
        return described
