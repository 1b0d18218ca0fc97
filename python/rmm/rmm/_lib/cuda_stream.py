# SPDX-License-Identifier: Apache-2.0
"""rmm.pylibrmm.cuda_stream, under the name that it had up to 24.10."""

from __future__ import annotations

from rmm.pylibrmm.cuda_stream import (
    CudaStream,
)

__all__ = [
    "CudaStream",
]
