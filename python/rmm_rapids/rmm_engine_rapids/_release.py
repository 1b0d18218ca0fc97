# SPDX-License-Identifier: Apache-2.0
"""Checks that the installed rmm is the release of RAPIDS that this package is compiled for, and that the engine is its own."""

from __future__ import annotations

import os
from importlib.util import find_spec

from rmm_engine_rapids import _build_facts

#: The release of RAPIDS that the package is compiled for, such as "26.10".
rapids_release = ".".join(str(int(part)) for part in _build_facts.rapids_version.split(".")[:2])


def check() -> None:
    """Imports rmm. Raises ImportError if it is not RAPIDS' rmm of the release that this package is compiled for."""
    spec = find_spec("rmm")
    if spec is None:
        raise ImportError(
            f"rmm_engine_rapids needs rmm of RAPIDS {rapids_release}, which is not installed: "
            f"pip install 'rmm-cu13=={rapids_release}.*'",
            name="rmm",
        )
    if find_spec("rmm._build_facts") is not None:
        raise ImportError(
            "rmm_engine_rapids is a bridge to rmm of RAPIDS, but the rmm of rmm-engine is installed, which has the same engine "
            "itself. Use that without the bridge, or replace it: pip uninstall rmm-engine; "
            f"pip install --force-reinstall 'rmm-cu13=={rapids_release}.*' 'librmm-cu13=={rapids_release}.*'",
            name="rmm",
            path=spec.origin,
        )
    import rmm

    found = str(getattr(rmm, "__version__", ""))
    if [part.lstrip("0") for part in found.split(".")[:2]] != rapids_release.split("."):
        raise ImportError(
            f"rmm_engine_rapids is compiled for rmm of RAPIDS {rapids_release}, but rmm {found or 'of an unknown release'} is "
            "installed. Build it again in this environment, in a clone of its repository: "
            f"pip install --force-reinstall ./python/rmm_rapids. Or: pip install 'rmm-cu13=={rapids_release}.*'",
            name="rmm",
            path=spec.origin,
        )


def check_engine(library: str) -> None:
    """Raises ImportError if NVTX loads the engine of another installation, which this one's modules would then use."""
    named = os.environ.get("NVTX_INJECTION64_PATH", "")
    if os.path.basename(named) != os.path.basename(library) or not os.path.exists(named):
        return
    if not os.path.samefile(named, library):
        raise ImportError(
            f"NVTX_INJECTION64_PATH names the engine of another installation, {named}. Set it to {library}, or unset it.",
            name="rmm_engine_rapids",
            path=library,
        )
