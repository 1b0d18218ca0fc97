// SPDX-License-Identifier: Apache-2.0
//
// How to write a resource and an adaptor. Both derive from device_memory_resource and override two functions. All containers,
// libraries and other adaptors can then use them.

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <exception>

namespace {

/// A resource for the intermediate results of one stream. An allocation moves a pointer. A free does nothing until all memory is
/// freed; then the next allocation starts at the beginning again.
///
/// It may reuse memory immediately because it serves only one stream: earlier work on the stream is done before later work begins.
/// A resource that serves several streams has to make the new stream wait for the old one, as the pools do.
class scratch_resource final : public rmm::mr::device_memory_resource {
 public:
  scratch_resource(std::size_t capacity, rmm::cuda_stream_view stream, rmm::device_async_resource_ref upstream)
    : stream_{stream}, memory_{capacity, stream, upstream}
  {}

 private:
  // A failed allocation throws std::bad_alloc, or a type derived from it, such as rmm::out_of_memory.
  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    RMM_EXPECTS(stream == stream_, "scratch memory was requested for another stream than its own");
    auto const size = rmm::align_up(bytes, rmm::CUDA_ALLOCATION_ALIGNMENT);
    if (size < bytes || size > memory_.size() - used_) { throw rmm::out_of_memory{"no scratch memory left"}; }
    void* const ptr = static_cast<std::byte*>(memory_.data()) + used_;
    used_ += size;
    ++allocations_;
    return ptr;
  }

  // Must not throw.
  void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) override
  {
    if (--allocations_ == 0) { used_ = 0; }
  }

  rmm::cuda_stream_view stream_;
  rmm::device_buffer memory_;
  std::size_t used_{0};
  std::size_t allocations_{0};
};

/// An adaptor that counts requests by size, and forwards them to its upstream. Thread-safe if the upstream is.
class size_histogram_adaptor final : public rmm::mr::device_memory_resource {
 public:
  explicit size_histogram_adaptor(rmm::device_async_resource_ref upstream) : upstream_{upstream} {}

  void print() const
  {
    for (std::size_t power = 0; power < counts_.size(); ++power) {
      if (auto const count = counts_[power].load(); count > 0) {
        std::printf("  at most 2^%-2zu bytes: %zu requests\n", power, count);
      }
    }
  }

  [[nodiscard]] std::size_t total() const
  {
    std::size_t sum{0};
    for (auto const& count : counts_) { sum += count.load(); }
    return sum;
  }

 private:
  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    void* const ptr = upstream_.allocate_async(bytes, stream);  // an exception propagates, and nothing is counted
    counts_[power_of(bytes)].fetch_add(1, std::memory_order_relaxed);
    return ptr;
  }

  void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view stream) override
  {
    upstream_.deallocate_async(ptr, bytes, stream);
  }

  /// Returns the exponent of the smallest power of two that is not less than `bytes`.
  [[nodiscard]] static std::size_t power_of(std::size_t bytes) noexcept
  {
    std::size_t power{0};
    while (power < 63 && (std::size_t{1} << power) < bytes) { ++power; }
    return power;
  }

  rmm::device_async_resource_ref upstream_;
  std::array<std::atomic<std::size_t>, 64> counts_{};
};

}  // namespace

int main()
{
  try {
    rmm::mr::cuda_memory_resource cuda;
    rmm::cuda_stream stream;
    scratch_resource scratch{1 << 20, stream, cuda};
    size_histogram_adaptor counted{scratch};

    void const* first = nullptr;
    bool same         = true;
    for (int round = 0; round < 10; ++round) {
      rmm::device_uvector<float> const squares(10'000, stream, counted);
      rmm::device_uvector<int> const bins(64, stream, counted);
      if (round == 0) { first = squares.data(); }
      same = same && squares.data() == first;
    }

    bool refused = false;
    try {
      rmm::device_buffer const too_large(2 << 20, stream, counted);
    } catch (rmm::out_of_memory const& e) {
      std::printf("a request that is too large fails, as expected: %s\n", e.what());
      refused = true;
    }

    std::printf(
      "%zu requests, %s\n", counted.total(), same ? "each round in the same memory" : "NOT in the same memory");
    counted.print();
    return same && refused && counted.total() == 20 ? 0 : 1;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
