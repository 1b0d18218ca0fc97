# SPDX-License-Identifier: Apache-2.0

from typing import Self

from typing_extensions import disjoint_base

from rmm.pylibrmm._stream_flags import CudaStreamFlags
from rmm.pylibrmm.stream import Stream

__all__ = ["CudaStreamPool"]

@disjoint_base
class CudaStreamPool:
    def __new__(cls, pool_size: int = 16, flags: CudaStreamFlags = ...) -> Self: ...
    def get_stream(self, stream_id: int | None = None) -> Stream: ...
    def get_pool_size(self) -> int: ...
