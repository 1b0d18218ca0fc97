// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/stream/identified_stream.hpp>

#include <cstddef>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// A resource with calls that never wait: they serve a request from the calling thread's own cache, or fail.
///
/// Python uses them to allocate while it holds the GIL, the interpreter's lock. To release the GIL and take it back costs as much as
/// the allocation.
///
/// A call cannot take part in a deadlock, whatever lock the caller holds (but one that a replaced operator new takes):
///  - It takes no lock, unless the deallocation_reserve needs more host memory: then that lock, around the global operator new. If another
///    thread has locked this thread out of its cache (see biased_lock.hpp), the call fails at once. The other thread waits until a call
///    that has begun is over. This takes a few instructions and none of the caller's locks.
///  - It calls nothing that the program supplied (upstream, callbacks, error handlers) but the global operator new, and logs nothing.
///  - It asks CUDA at most two questions: whether the stream captures, and, unless the caller knows it, which stream the handle names. The
///    driver answers both at once, even while other threads wait in the driver, for example for room in the queue of that stream
///    (tests/cuda/stream_behaviour_tests.cpp).
///
/// Adaptors are not immediate resources, because they have to see each call. Adaptors for statistics and limits only count, and have
/// such calls with their upstream's immediate_resource as an argument.
class immediate_resource {
 public:
  /// Allocates as allocate() does. Returns null, and changes nothing, if the thread's cache cannot serve the request.
  [[nodiscard]] virtual void* try_allocate_nonblocking(std::size_t bytes,
                                                       rmm::detail::identified_stream stream) noexcept = 0;

  /// Frees as deallocate() does. Returns false, and changes nothing, if the thread's cache cannot take the block.
  [[nodiscard]] virtual bool try_deallocate_nonblocking(void* ptr,
                                                        std::size_t bytes,
                                                        rmm::detail::identified_stream stream) noexcept = 0;

 protected:
  ~immediate_resource() = default;
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
