// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/aligned.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/owned_ptr.hpp>
#include <rmm/detail/checked_size.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/mr/detail/suballocator_upstream.hpp>
#include <rmm/mr/detail/upstream_alignment.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace RMM_NAMESPACE {

struct memory_snapshot;

namespace mr {

/// A resource that sends each request to a bin by its size. Use it for programs with many blocks of a few small sizes.
///
/// A bin is a resource for blocks of one size. A request goes to the bin of the smallest size that fits, or to upstream if it fits in
/// no bin. The resource makes its own bins, or gets them from the caller.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::binning_memory_resource binning{&cuda};
/// binning.add_bin(4096);                                                    // requests of up to 4096 bytes
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, binning};  // a block of that bin
/// @endcode
/// Threads  add_bin() must not run at the same time as other calls.
template <class Upstream>
class binning_memory_resource final : public device_memory_resource, public detail::upstream_getters<Upstream> {
 public:
  /// A resource without bins. Throws logic_error if `upstream` is null.
  explicit binning_memory_resource(Upstream* upstream) : binning_memory_resource::upstream_getters{upstream} {}
  explicit binning_memory_resource(device_async_resource_ref upstream)
    : binning_memory_resource::upstream_getters{upstream}
  {}

  /// A resource with its own bins for 2^min_size_exponent, ... 2^max_size_exponent bytes; without bins if the first exponent is above the
  /// last. Throws logic_error if the first is below 0, or the last above 63.
  binning_memory_resource(Upstream* upstream, std::int8_t min_size_exponent, std::int8_t max_size_exponent)
    : binning_memory_resource{upstream}
  {
    add_bins(min_size_exponent, max_size_exponent);
  }
  binning_memory_resource(device_async_resource_ref upstream,
                          std::int8_t min_size_exponent,
                          std::int8_t max_size_exponent)
    : binning_memory_resource{upstream}
  {
    add_bins(min_size_exponent, max_size_exponent);
  }

  binning_memory_resource()                                          = delete;
  binning_memory_resource(binning_memory_resource const&)            = delete;
  binning_memory_resource(binning_memory_resource&&)                 = delete;
  binning_memory_resource& operator=(binning_memory_resource const&) = delete;
  binning_memory_resource& operator=(binning_memory_resource&&)      = delete;
  ~binning_memory_resource() override                                = default;

  /// Returns the sum of the figures of its own bins. Bins from the caller, and upstream, are not included.
  [[nodiscard]] heap_figures figures() const
  {
    heap_figures sum;
    for (auto const& each : own_bins_) { sum = sum + each->figures(); }
    return sum;
  }

  /// Returns all memory of its own bins, range by range. The ranges of one bin are from one moment. Needs rmm/memory_snapshot.hpp.
  template <class Snapshot = memory_snapshot>
  [[nodiscard]] Snapshot snapshot() const
  {
    auto sum = typename Snapshot::maker{}.finish();
    for (auto const& each : own_bins_) { sum += each->template snapshot<Snapshot>(); }
    return sum;
  }

  /// Adds a bin for requests of up to `allocation_size` bytes, rounded up to 256. Does nothing if a bin of that size exists.
  ///
  /// `bin_resource` serves the bin, and has to outlive this resource. If it is null, the bin is a fixed_size_memory_resource over upstream,
  /// which takes 128 blocks from upstream at once.
  void add_bin(std::size_t allocation_size, device_memory_resource* bin_resource = nullptr)
  {
    if (bin_resource == nullptr) { return add_bin(allocation_size, std::nullopt); }
    bins_.emplace(bin_size(allocation_size), bin_entry{*bin_resource, true});
  }

  void add_bin(std::size_t allocation_size, std::optional<device_async_resource_ref> bin_resource)
  {
    auto const size = bin_size(allocation_size);
    if (bins_.count(size) != 0) { return; }
    if (bin_resource) {
      bins_.emplace(size, bin_entry{*bin_resource, false});
    } else {
      own_bins_.push_back(rmm::detail::make_owned<own_bin>(this->upstream_.ref(), size));
      bins_.emplace(size, bin_entry{*own_bins_.back(), true});
    }
  }

 private:
  using own_bin = fixed_size_memory_resource<device_memory_resource>;

  struct bin_entry {
    device_async_resource_ref resource;
    bool is_base;  // whether it is a device_memory_resource, which receives sizes without rounding
  };

  [[nodiscard]] static std::size_t bin_size(std::size_t bytes)
  {
    return rmm::detail::checked_align_up(bytes, CUDA_ALLOCATION_ALIGNMENT);
  }

  void add_bins(int min_size_exponent, int max_size_exponent)
  {
    RMM_EXPECTS(min_size_exponent >= 0 && max_size_exponent < 64,
                "The exponents of bin sizes are " + std::to_string(min_size_exponent) + " to " +
                  std::to_string(max_size_exponent) + ", but have to be in 0 to 63");
    for (int exponent = min_size_exponent; exponent <= max_size_exponent; ++exponent) {
      add_bin(std::size_t{1} << static_cast<unsigned>(exponent));
    }
  }

  /// Calls `call(resource, alignment)` with the resource that serves `bytes`, and the alignment for the call.
  template <class Call>
  auto served(std::size_t bytes, Call call) const
  {
    auto const found = bins_.lower_bound(bytes);
    if (found == bins_.end()) {
      return call(this->upstream_.ref(), detail::upstream_alignment(this->upstream_.pointer(), bytes));
    }
    return call(found->second.resource,
                found->second.is_base ? detail::alignment_without_rounding(bytes) : RMM_DEFAULT_HOST_ALIGNMENT);
  }

  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    if (bytes == 0) { return nullptr; }
    return served(bytes, [&](device_async_resource_ref resource, std::size_t alignment) {
      return resource.allocate_async(bytes, alignment, stream);
    });
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept override
  {
    if (ptr == nullptr) { return; }
    served(bytes, [&](device_async_resource_ref resource, std::size_t alignment) {
      resource.deallocate_async(ptr, bytes, alignment, stream);
    });
  }

  std::vector<rmm::detail::owned_ptr<own_bin>> own_bins_;
  std::map<std::size_t, bin_entry> bins_;  // by size
};

binning_memory_resource(device_async_resource_ref)->binning_memory_resource<device_memory_resource>;
binning_memory_resource(device_async_resource_ref, std::int8_t, std::int8_t)
  ->binning_memory_resource<device_memory_resource>;

}  // namespace mr
}  // namespace RMM_NAMESPACE
