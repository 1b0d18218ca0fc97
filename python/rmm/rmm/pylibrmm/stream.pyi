# SPDX-License-Identifier: Apache-2.0

from typing import Protocol, overload

from typing_extensions import disjoint_base

from rmm.pylibrmm._stream_flags import CudaStreamFlags as CudaStreamFlags
from rmm.pylibrmm.cuda_stream import CudaStream

__all__ = ["DEFAULT_STREAM", "LEGACY_DEFAULT_STREAM", "PER_THREAD_DEFAULT_STREAM", "CudaStreamFlags", "Stream"]

_OwningStream = CudaStream

class _SupportsCudaStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, ...]: ...

class _StreamOfCupy(Protocol):
    @property
    def ptr(self) -> int: ...

class _StreamOfNumba(Protocol):
    @property
    def handle(self) -> object: ...

@disjoint_base
class Stream:
    @overload
    def __init__(self, obj: None = None, flags: CudaStreamFlags | None = None) -> None: ...
    @overload
    def __init__(self, obj: Stream, flags: None = None) -> None: ...
    @overload
    def __init__(self, obj: _SupportsCudaStream | _StreamOfCupy | _StreamOfNumba, flags: None = None) -> None: ...
    def synchronize(self) -> None: ...
    def is_default(self) -> bool: ...
    def __cuda_stream__(self) -> tuple[int, int]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

DEFAULT_STREAM: Stream
LEGACY_DEFAULT_STREAM: Stream
PER_THREAD_DEFAULT_STREAM: Stream
