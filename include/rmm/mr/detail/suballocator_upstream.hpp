// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/audit_library.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/device.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/cuda_stream.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/nvtx/memory_marks.hpp>
#include <rmm/detail/resource_facade.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/detail/upstream_alignment.hpp>
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// Whether the device can use memory of `Upstream`. Pools over resources for the host alone are possible, too.
template <class Upstream>
inline constexpr bool is_device_accessible = ::cuda::has_property<Upstream, ::cuda::mr::device_accessible>;

/// Whether `Upstream` can allocate pageable memory, as registered_host_memory_resource can.
template <class Upstream, class = void>
struct has_pageable_memory : std::false_type {};
template <class Upstream>
struct has_pageable_memory<Upstream, std::void_t<decltype(&Upstream::allocate_pageable)>> : std::true_type {};

/// A reference to a resource without properties of access, for which libcu++ has no class.
template <class Upstream>
class unspecific_resource_ref {
 public:
  explicit unspecific_resource_ref(Upstream& upstream) noexcept : calls_{facade::of(&upstream)} {}

  void* allocate_async(std::size_t bytes, std::size_t alignment, cuda_stream_view stream) const
  {
    return calls_->allocate(stream, bytes, alignment);
  }

  void deallocate_async(void* ptr, std::size_t bytes, std::size_t alignment, cuda_stream_view stream) const noexcept
  {
    calls_->deallocate(stream, ptr, bytes, alignment);
  }

  void deallocate(void* ptr, std::size_t bytes, std::size_t alignment) const noexcept
  {
    calls_->deallocate_sync(ptr, bytes, alignment);
  }

 private:
  using facade = rmm::detail::resource_facade<Upstream>;
  facade* calls_;
};

/// A non-owning handle to the upstream of a suballocator.
///
/// All blocks belong to one device: the given one, or the one that was current in the constructor. That device is current in all
/// calls of upstream but allocate_pageable().
template <class Upstream>
class suballocator_upstream {
 public:
  using ref_type = std::conditional_t<is_device_accessible<Upstream>,
                                      device_async_resource_ref,
                                      std::conditional_t<::cuda::has_property<Upstream, ::cuda::mr::host_accessible>,
                                                         host_async_resource_ref,
                                                         unspecific_resource_ref<Upstream>>>;

  /// Throws logic_error if `upstream` is null.
  explicit suballocator_upstream(Upstream* upstream) : ref_{checked(upstream)}, pointer_{upstream} {}
  suballocator_upstream(Upstream* upstream, int device) : ref_{checked(upstream)}, pointer_{upstream}, device_{device}
  {}
  explicit suballocator_upstream(ref_type upstream) noexcept : ref_{upstream} {}

  [[nodiscard]] ref_type ref() const noexcept { return ref_; }

  /// Returns the upstream if it was passed as a pointer; else null.
  [[nodiscard]] Upstream* pointer() const noexcept { return pointer_; }

  /// Returns a block that `stream` may use. Calls upstream with a new stream, and waits for it on the host, if `stream` cannot be used:
  ///  - It captures, is blocked by a capture, or CUDA does not say whether. Upstream's work on it would become part of the graph.
  ///  - It is a default stream of another device. Here its handle names a stream of the device of the blocks.
  [[nodiscard]] void* allocate(std::size_t bytes, cuda_stream_view stream)
  {
    bool const is_another = names_another(stream);
    rmm::detail::device_scope const at_home{device_};
    rmm::detail::capture_exemption const exemption;
    rmm::detail::unrouted_scope const unrouted;
    auto const alignment = upstream_alignment(pointer_, bytes);
    std::optional<cuda_stream> own;
    if (is_another || !rmm::detail::is_known_to_run(stream.value())) { own.emplace(cuda_stream::flags::non_blocking); }
    cuda_stream_view const on = own ? own->view() : stream;
    void* const block         = ref_.allocate_async(bytes, alignment, on);
    if (block == nullptr) {
      throw out_of_memory{"The upstream resource returned a null pointer for " + std::to_string(bytes) + " bytes"};
    }  // a program's own resource may do so
    rmm::detail::scope_guard give_back{[&]() noexcept { ref_.deallocate_async(block, bytes, alignment, on); }};
    if (own) { own->synchronize(); }
    give_back.dismiss();
    rmm::detail::mark_memory_begins(block, bytes);
    return block;
  }

  /// Whether allocate_second_choice() may be called.
  [[nodiscard]] bool has_second_choice() const noexcept
  {
    if constexpr (has_pageable_memory<Upstream>::value) {
      return pointer_ != nullptr && pointer_->allows_pageable();
    } else {
      return false;
    }
  }

  /// Returns a block of pageable memory, the substitute for upstream's own kind of memory. Any stream may use it. Throws
  /// out_of_memory if upstream does not have it.
  [[nodiscard]] RMM_COLD void* allocate_second_choice([[maybe_unused]] std::size_t bytes)
  {
    if constexpr (has_pageable_memory<Upstream>::value) {
      void* const block = pointer_->allocate_pageable(bytes);
      rmm::detail::mark_memory_begins(block, bytes);
      return block;
    } else {
      return nullptr;
    }
  }

  /// Gives back a block that no work uses. While a capture blocks the legacy default stream, gives it back on a new stream, because any use
  /// of the legacy stream would invalidate the capture.
  void deallocate(void* ptr, std::size_t bytes) noexcept
  {
    rmm::detail::device_scope const at_home{device_};
    rmm::detail::capture_exemption const exemption;
    rmm::detail::unrouted_scope const unrouted;
    rmm::detail::mark_memory_ends(ptr, bytes);
    auto const alignment = upstream_alignment(pointer_, bytes);
    if (rmm::detail::query_capture(cudaStreamLegacy).is_none()) { return ref_.deallocate(ptr, bytes, alignment); }
    try {
      cuda_stream const own{cuda_stream::flags::non_blocking};
      deallocate_and_wait(ptr, bytes, alignment, own);
    } catch (cuda_error const&) {  // there is no new stream; upstream may invalidate the capture, which CUDA reports
      ref_.deallocate(ptr, bytes, alignment);
    }
  }

  /// Gives back a block that allocate(bytes, stream) returned and that was not used.
  void undo_allocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept
  {
    bool const is_another = names_another(stream);
    rmm::detail::device_scope const at_home{device_};
    if (!is_another && rmm::detail::query_capture(stream.value()).is_none()) {
      return deallocate_async(ptr, bytes, stream);
    }
    deallocate(ptr, bytes);
  }

  /// Gives back a block in the order of `stream`. The stream must not capture, nor be a default stream of another device.
  void deallocate_async(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept
  {
    rmm::detail::device_scope const at_home{device_};
    rmm::detail::capture_exemption const exemption;
    rmm::detail::unrouted_scope const unrouted;
    rmm::detail::mark_memory_ends(ptr, bytes);
    ref_.deallocate_async(ptr, bytes, upstream_alignment(pointer_, bytes), stream);
  }

  /// Whether the handle names another stream when the device of the blocks is current.
  [[nodiscard]] bool names_another(cuda_stream_view stream) const noexcept
  {
    return rmm::detail::is_default_stream(stream.value()) && !rmm::detail::sees_one_device() &&
           rmm::detail::current_device() != device_;
  }

  /// Returns the device of the blocks; -1 if the runtime failed.
  [[nodiscard]] int device() const noexcept { return device_; }

 private:
  [[nodiscard]] static Upstream& checked(Upstream* upstream)
  {
    RMM_EXPECTS(upstream != nullptr, "Unexpected null upstream pointer.");
    return *upstream;
  }

  void deallocate_and_wait(void* ptr, std::size_t bytes, std::size_t alignment, cuda_stream const& on) noexcept
  {
    ref_.deallocate_async(ptr, bytes, alignment, on.view());
    on.synchronize_no_throw();
  }

  ref_type ref_;
  Upstream* pointer_{};
  int device_{rmm::detail::current_device_if_known()};
};

/// The base class of resources with getters for their upstream.
template <class Upstream>
class upstream_getters {
 public:
  /// Returns a reference to the upstream.
  [[nodiscard]] auto get_upstream_resource() const noexcept { return upstream_.ref(); }

  /// Returns a pointer to the upstream; null if it was passed as a reference.
  [[nodiscard]] Upstream* get_upstream() const noexcept { return upstream_.pointer(); }

 protected:
  /// `upstream` is a suballocator_upstream, or an argument of its constructor.
  template <class From>
  explicit upstream_getters(From upstream) : upstream_{upstream}
  {}
  ~upstream_getters() = default;

  suballocator_upstream<Upstream> upstream_;
};

/// The base class of suballocators with exactly the properties of their upstream. Their other base class, device_memory_resource, makes
/// memory accessible to the device; this one removes that property if upstream does not have it.
template <class Derived, class Upstream>
class upstream_properties : public upstream_getters<Upstream>, public ::cuda::forward_property<Derived, Upstream> {
 public:
  /// Returns the upstream, which libcu++ asks for its properties.
  [[nodiscard]] Upstream const& upstream_resource() const noexcept { return *this->upstream_.pointer(); }

  template <class Property>
  friend std::enable_if_t<!::cuda::has_property<Upstream, Property>> get_property(Derived const&, Property) = delete;

 protected:
  using upstream_getters<Upstream>::upstream_getters;
  ~upstream_properties() = default;
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
