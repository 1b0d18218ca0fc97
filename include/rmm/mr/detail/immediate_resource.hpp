// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// A resource that can serve some calls with what the calling thread has at hand, so that a caller need not release a lock for
/// them that others want meanwhile. That is how Python allocates: to release its interpreter's lock, the GIL, and take it again
/// costs as much as the allocation.
///
/// Neither function can be part of a deadlock, whatever lock the caller holds. For that the calling thread would have to wait
/// for what another thread has, and it waits for nothing: it takes no lock, calls nothing that the program gave (upstream, callbacks,
/// handlers of errors), and logs nothing. It asks CUDA two questions at most: whether the stream captures, and which stream the handle
/// names. The driver answers both at once while other threads wait in it, also for room in the queue of that stream
/// (tests/cuda/stream_behaviour_tests.cpp). Who wants what lies in the thread's own cache
/// (biased_lock.hpp) keeps the owner out, for whom the call then fails at once; and who waits until the owner has left waits
/// for the few instructions of a call that has begun, and does not need the caller's lock for that. Host memory may come from
/// the global operator new, which calls nobody either.
///
/// Adaptors do not offer this themselves, so they see each call. Those that only count, statistics and limits, have such calls too,
/// with a face of their upstream as an argument, and count the same.
class immediate_resource {
 public:
  /// What allocate() would return; null, and nothing has changed, if this way does not serve.
  [[nodiscard]] virtual void* try_allocate_nonblocking(std::size_t bytes, cuda_stream_view stream) noexcept = 0;

  /// Does what deallocate() does; or false, and nothing has changed.
  [[nodiscard]] virtual bool try_deallocate_nonblocking(void* ptr,
                                                        std::size_t bytes,
                                                        cuda_stream_view stream) noexcept = 0;

 protected:
  ~immediate_resource() = default;
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
