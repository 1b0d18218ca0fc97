// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/capture_announcements.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/cuda/fill.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/detail/resource_adaptor.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <atomic>
#include <cstddef>
#include <new>
#include <optional>
#include <vector>

namespace RMM_NAMESPACE {
namespace mr {

/// An adaptor that writes zeros to freed memory before upstream gets it back. Use it so that the next owner of the memory cannot read
/// secret data.
///
/// It zeroes as many bytes as the deallocation names. Memory that cannot be zeroed is not given back: it is lost until the process ends,
/// and the adaptor logs that. While a capture blocks the legacy default stream, memory freed there is kept, and zeroed in the next call
/// after the capture.
///
/// Not zeroed in time: memory that a stream frees while it captures. The zeros become a node of the graph.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::scrub_resource_adaptor scrubbed{&cuda};
/// rmm::device_buffer const secret{1000, rmm::cuda_stream_default, scrubbed};
/// @endcode
/// Threads  thread-safe if upstream is.
/// Stream   the zeros are written in the order of the deallocation's stream. The host waits for the device only if that stream was
///          destroyed.
template <class Upstream>
class scrub_resource_adaptor final : public detail::resource_adaptor<scrub_resource_adaptor<Upstream>, Upstream> {
 public:
  using scrub_resource_adaptor::resource_adaptor::resource_adaptor;

  scrub_resource_adaptor(scrub_resource_adaptor&&)            = delete;
  scrub_resource_adaptor& operator=(scrub_resource_adaptor&&) = delete;
  ~scrub_resource_adaptor() override
  {
    if (!this->is_of_this_process()) {
      static_cast<void>(kept_.release());
      return;
    }
    give_back_kept();
    if (!kept_->empty()) { log_lost(); }
  }

 private:
  /// A block that was freed on the legacy default stream of a device while a capture blocked that stream.
  struct kept_block {
    void* ptr;
    std::size_t bytes;
    cuda_stream_view stream;
    int device;
  };

  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    if (has_kept_.load(std::memory_order_relaxed)) { give_back_kept(); }
    return this->upstream().allocate(bytes, stream);
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    if (!this->is_of_this_process()) { return; }
    if (has_kept_.load(std::memory_order_relaxed)) { give_back_kept(); }
    if (ptr == nullptr || bytes == 0) { return this->upstream().deallocate(ptr, bytes, stream); }
    if (is_blocked(stream)) { return keep({ptr, bytes, stream, rmm::detail::current_device_if_known()}); }
    zero_and_give_back(ptr, bytes, stream);
  }

  void zero_and_give_back(void* ptr, std::size_t bytes, cuda_stream_view stream)
  {
    if (!try_zero(ptr, bytes, stream)) { return log_lost(); }
    this->upstream().deallocate(ptr, bytes, stream);
  }

  static void log_lost() noexcept
  {
    rmm::detail::log(rmm::detail::log_level::error,
                     "scrub_resource_adaptor: freed memory could not be zeroed, so it is lost until the process ends");
  }

  /// Whether any use of the stream would invalidate a capture.
  [[nodiscard]] static bool is_blocked(cuda_stream_view stream) noexcept
  {
    return rmm::detail::is_legacy_stream(stream.value()) && !rmm::detail::query_capture(stream.value()).is_none();
  }

  void keep(kept_block block) noexcept
  {
    try {
      rmm::detail::mutex_lock const lock{mutex_};
      kept_->push_back(block);
      has_kept_.store(true, std::memory_order_relaxed);
    } catch (std::bad_alloc const&) {
      log_lost();
    }
  }

  /// Zeroes and gives back what was kept, the last first, until a capture still blocks the stream.
  RMM_COLD void give_back_kept()
  {
    for (auto block = take_kept(); block; block = take_kept()) {
      rmm::detail::device_scope const on_device{block->device};
      zero_and_give_back(block->ptr, block->bytes, block->stream);
    }
  }

  [[nodiscard]] std::optional<kept_block> take_kept() noexcept
  {
    rmm::detail::mutex_lock const lock{mutex_};
    if (kept_->empty()) { return std::nullopt; }
    auto const last = kept_->back();
    rmm::detail::device_scope const on_device{last.device};
    if (is_blocked(last.stream)) { return std::nullopt; }
    kept_->pop_back();
    has_kept_.store(!kept_->empty(), std::memory_order_relaxed);
    return last;
  }

  /// Writes the zeros on the stream. If the stream was destroyed, waits for all work of the device, and writes them then.
  [[nodiscard]] static bool try_zero(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept
  {
    using namespace rmm::detail;
    if (try_fill_async(ptr, 0, bytes, stream.value())) { return true; }
    return try_wait_for_device() && try_fill_async(ptr, 0, bytes, cudaStreamLegacy) && try_wait_for_device();
  }

  // Order: relaxed, because it says only whether to take the mutex. A thread that reads an old value leaves the blocks to a later call.
  std::atomic<bool> has_kept_{false};
  rmm::detail::mutex mutex_;  // guards kept_; not held while upstream is called
  rmm::detail::owned_ptr<std::vector<kept_block>> kept_{
    new std::vector<kept_block>};  // not destroyed in a forked child
};

template <class Upstream>
scrub_resource_adaptor(Upstream*) -> scrub_resource_adaptor<Upstream>;
scrub_resource_adaptor(device_async_resource_ref)->scrub_resource_adaptor<device_memory_resource>;

}  // namespace mr
}  // namespace RMM_NAMESPACE
