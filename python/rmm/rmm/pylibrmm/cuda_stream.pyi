# SPDX-License-Identifier: Apache-2.0

from typing import Self

from typing_extensions import disjoint_base

from rmm.pylibrmm._stream_flags import CudaStreamFlags as CudaStreamFlags

__all__ = ["CudaStream", "CudaStreamFlags"]

@disjoint_base
class CudaStream:
    def __new__(cls, flags: CudaStreamFlags = ...) -> Self: ...
