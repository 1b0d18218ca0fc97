# SPDX-License-Identifier: Apache-2.0
"""The C++ library RMM: headers, and a CMake package that builds with scikit-build find without further options."""

from __future__ import annotations

from librmm._build_facts import git_commit as __git_commit__
from librmm._build_facts import version as __version__
from librmm.load import library_path, load_library

__all__ = ["__git_commit__", "__version__", "library_path", "load_library"]
