// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/scope_guard.hpp>
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
#include <type_traits>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// Whether memory from `Upstream` can be used by the device. Resources for the host alone can be suballocated too.
template <class Upstream>
inline constexpr bool is_device_accessible = ::cuda::has_property<Upstream, ::cuda::mr::device_accessible>;

/// A reference to a resource that does not say who can use its memory: libcu++ has none for it.
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

/// What a suballocator knows of the resource that it takes its blocks from. Does not own it.
///
/// All blocks belong to one device, that which was current when this object was made unless another is given: it is current in
/// each call of the resource, whichever the calling thread has.
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

  /// The resource itself, where it was given as one; else null.
  [[nodiscard]] Upstream* pointer() const noexcept { return pointer_; }

  /// A block for use on `stream`. Upstream is called with a stream of this object's own, and the host waits for that, if `stream`
  /// captures, is blocked by a capture, or CUDA does not say: what upstream did on it would be part of the graph. So it is also
  /// for a default stream of another device: its handle names a stream of the current one.
  [[nodiscard]] void* allocate(std::size_t bytes, cuda_stream_view stream)
  {
    bool const is_another = names_another(stream);
    rmm::detail::device_scope const at_home{device_};
    rmm::detail::capture_exemption const exemption;
    auto const alignment = alignment_without_rounding(pointer_, bytes);
    std::optional<cuda_stream> own;
    if (is_another || !rmm::detail::is_known_to_run(stream.value())) { own.emplace(cuda_stream::flags::non_blocking); }
    cuda_stream_view const on = own ? own->view() : stream;
    void* const block         = ref_.allocate_async(bytes, alignment, on);
    if (block == nullptr) {
      throw out_of_memory{"The upstream resource returned a null pointer"};
    }  // a program may have written it
    rmm::detail::scope_guard give_back{[&]() noexcept { ref_.deallocate_async(block, bytes, alignment, on); }};
    if (own) { own->synchronize(); }
    give_back.dismiss();
    rmm::detail::mark_memory_begins(block, bytes);
    return block;
  }

  /// Gives a block back that no work uses any more.
  void deallocate(void* ptr, std::size_t bytes) noexcept
  {
    rmm::detail::device_scope const at_home{device_};
    rmm::detail::capture_exemption const exemption;
    rmm::detail::mark_memory_ends(ptr, bytes);
    ref_.deallocate(ptr, bytes, alignment_without_rounding(pointer_, bytes));
  }

  /// Gives a block back that allocate(bytes, stream) returned and nobody used.
  void undo_allocate(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept
  {
    bool const is_another = names_another(stream);
    rmm::detail::device_scope const at_home{device_};
    if (!is_another && rmm::detail::query_capture(stream.value()).is_none()) {
      return deallocate_async(ptr, bytes, stream);
    }
    deallocate(ptr, bytes);
  }

  /// Gives a block back in the order of `stream`, which does not capture and is no default stream of another device.
  void deallocate_async(void* ptr, std::size_t bytes, cuda_stream_view stream) noexcept
  {
    rmm::detail::device_scope const at_home{device_};
    rmm::detail::capture_exemption const exemption;
    rmm::detail::mark_memory_ends(ptr, bytes);
    ref_.deallocate_async(ptr, bytes, alignment_without_rounding(pointer_, bytes), stream);
  }

  /// Whether the handle would name another stream if this object's device were current.
  [[nodiscard]] bool names_another(cuda_stream_view stream) const noexcept
  {
    return rmm::detail::is_default_stream(stream.value()) && !rmm::detail::sees_one_device() &&
           rmm::detail::current_device() != device_;
  }

  /// The device that blocks belong to; -1 if the runtime did not say.
  [[nodiscard]] int device() const noexcept { return device_; }

 private:
  [[nodiscard]] static Upstream& checked(Upstream* upstream)
  {
    RMM_EXPECTS(upstream != nullptr, "Unexpected null upstream pointer.");
    return *upstream;
  }

  ref_type ref_;
  Upstream* pointer_{};
  int device_{rmm::detail::current_device_if_known()};
};

/// Base of resources that tell which upstream they take their memory from.
template <class Upstream>
class upstream_getters {
 public:
  /// The resource that memory is taken from.
  [[nodiscard]] auto get_upstream_resource() const noexcept { return upstream_.ref(); }

  /// Returns that resource as a pointer, or null if it was given by reference.
  [[nodiscard]] Upstream* get_upstream() const noexcept { return upstream_.pointer(); }

 protected:
  /// `upstream`: whatever a suballocator_upstream can be made from, or one.
  template <class From>
  explicit upstream_getters(From upstream) : upstream_{upstream}
  {}
  ~upstream_getters() = default;

  suballocator_upstream<Upstream> upstream_;
};

/// Gives `Derived`, a suballocator, the properties of its upstream and no others too. Its other base class says that its memory
/// can be used by the device; where upstream does not, this takes it back.
template <class Derived, class Upstream>
class upstream_properties : public upstream_getters<Upstream>, public ::cuda::forward_property<Derived, Upstream> {
 public:
  /// For libcu++, which asks it for the properties of the memory.
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
