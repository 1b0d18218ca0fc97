# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from rmm._cuda import gpu, stream

__all__ = ["gpu", "stream"]
