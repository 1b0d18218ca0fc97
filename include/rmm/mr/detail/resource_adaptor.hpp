// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/owning_process.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/detail/adaptor_upstream.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <type_traits>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// The base class of adaptors. It holds the upstream, has the getters for it, and forwards every call to it.
///
/// `Derived` overrides do_allocate() and do_deallocate() to do more. It shadows same_policy() if two adaptors of its class over equal
/// upstreams may differ. The upstream has to outlive the adaptor. Not copyable.
///
/// If `Derived` has locks, its do_deallocate() and its destructor do nothing unless is_of_this_process(), so that a forked child can end by
/// exit().
template <class Derived, class Upstream>
class resource_adaptor : public device_memory_resource {
 public:
  /// Adapts `*upstream`. Throws logic_error if it is null.
  resource_adaptor(Upstream* upstream) : upstream_{upstream} {}

  /// Adapts the resource that `upstream` refers to. It must have all properties of Upstream. `is_base`: see adaptor_upstream.
  resource_adaptor(device_async_resource_ref upstream, bool is_base = false) noexcept : upstream_{upstream, is_base} {}

  resource_adaptor(resource_adaptor const&)            = delete;
  resource_adaptor& operator=(resource_adaptor const&) = delete;

  /// Returns a reference to the upstream.
  [[nodiscard]] device_async_resource_ref get_upstream_resource() const noexcept { return upstream_.ref(); }

  /// Returns a pointer to the upstream; null if the adaptor was made from a reference.
  [[nodiscard]] Upstream* get_upstream() const noexcept { return upstream_.pointer(); }

  /// The host can use the adaptor's memory if it can use memory of the upstream. The device always can.
  template <class Memory                                                                     = Upstream,
            std::enable_if_t<::cuda::has_property<Memory, ::cuda::mr::host_accessible>, int> = 0>
  friend void get_property(Derived const&, ::cuda::mr::host_accessible) noexcept
  {}

 protected:
  resource_adaptor(resource_adaptor&&) noexcept            = default;
  resource_adaptor& operator=(resource_adaptor&&) noexcept = default;
  ~resource_adaptor() override                             = default;

  [[nodiscard]] adaptor_upstream<Upstream>& upstream() noexcept { return upstream_; }

  [[nodiscard]] bool same_policy(Derived const&) const noexcept { return true; }

  /// Whether this process made the adaptor; false in a forked child.
  [[nodiscard]] bool is_of_this_process() const noexcept { return process_.is_current(); }

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override { return upstream_.allocate(bytes, stream); }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    upstream_.deallocate(ptr, bytes, stream);
  }

  /// Adaptors are equal if they are of one class, their upstreams are equal, and same_policy() is true.
  [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept final
  {
    if (this == &other) { return true; }
    auto const* const same_class = dynamic_cast<Derived const*>(&other);
    return same_class != nullptr && upstream_ == same_class->upstream_ &&
           static_cast<Derived const&>(*this).same_policy(*same_class);
  }

  adaptor_upstream<Upstream> upstream_;
  rmm::detail::owning_process process_;
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
