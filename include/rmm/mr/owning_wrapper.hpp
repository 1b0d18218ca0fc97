// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda_mr.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// Makes a `Resource(upstream0.get(), upstream1.get(), ..., args...)`.
template <class Resource, class... Upstreams, class... Args>
std::unique_ptr<Resource> make_resource(std::tuple<std::shared_ptr<Upstreams>...> const& upstreams, Args&&... args)
{
  return std::apply(
    [&](auto const&... upstream) { return std::make_unique<Resource>(upstream.get()..., std::forward<Args>(args)...); },
    upstreams);
}

}  // namespace detail

/// A resource that also owns its upstreams. Use it to return a resource from a function together with its upstreams.
///
/// @code{.cpp}
/// auto const make_pool = [] {
///   return rmm::mr::make_owning_wrapper<rmm::mr::pool_memory_resource>(std::make_shared<rmm::mr::cuda_memory_resource>(),
///                                                                      std::size_t{1} << 20);
/// };
/// auto const pool = make_pool();  // also keeps the cuda_memory_resource
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, *pool};
/// @endcode
template <class Resource, class... Upstreams>
class owning_wrapper : public device_memory_resource {
 public:
  using upstream_tuple = std::tuple<std::shared_ptr<Upstreams>...>;

  /// Makes a `Resource(upstream0.get(), upstream1.get(), ..., args...)`.
  template <class... Args>
  owning_wrapper(upstream_tuple upstreams, Args&&... args)
    : upstreams_{std::move(upstreams)},
      wrapped_{detail::make_resource<Resource>(upstreams_, std::forward<Args>(args)...)}
  {}

  owning_wrapper(owning_wrapper&&) = default;
  owning_wrapper& operator=(owning_wrapper&& other) noexcept
  {
    wrapped_   = std::move(other.wrapped_);  // first: the resource that ends gives its memory to its upstreams
    upstreams_ = std::move(other.upstreams_);
    return *this;
  }
  ~owning_wrapper() override = default;

  /// Returns the resource that was made over the upstreams.
  [[nodiscard]] Resource const& wrapped() const noexcept { return *wrapped_; }
  [[nodiscard]] Resource& wrapped() noexcept { return *wrapped_; }

  /// The host can use the wrapper's memory if it can use memory of the wrapped resource. The device always can.
  template <class Memory                                                                     = Resource,
            std::enable_if_t<::cuda::has_property<Memory, ::cuda::mr::host_accessible>, int> = 0>
  friend void get_property(owning_wrapper const&, ::cuda::mr::host_accessible) noexcept
  {}

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override { return wrapped_->allocate(bytes, stream); }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    wrapped_->deallocate(ptr, bytes, stream);
  }

  [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override
  {
    if (this == &other) { return true; }
    auto const* const same_class = dynamic_cast<owning_wrapper const*>(&other);
    return wrapped_->is_equal(same_class != nullptr ? *same_class->wrapped_ : other);
  }

  upstream_tuple upstreams_;
  std::unique_ptr<Resource> wrapped_;  // declared after upstreams_, so that it is destroyed first
};

/// Makes a `Resource<Upstreams...>` over `upstreams` that keeps them alive.
template <template <class...> class Resource, class... Upstreams, class... Args>
auto make_owning_wrapper(std::tuple<std::shared_ptr<Upstreams>...> upstreams, Args&&... args)
{
  return std::make_shared<owning_wrapper<Resource<Upstreams...>, Upstreams...>>(std::move(upstreams),
                                                                                std::forward<Args>(args)...);
}

/// Makes a `Resource<Upstream>` over `upstream` that keeps it alive.
template <template <class> class Resource, class Upstream, class... Args>
auto make_owning_wrapper(std::shared_ptr<Upstream> upstream, Args&&... args)
{
  return make_owning_wrapper<Resource>(std::make_tuple(std::move(upstream)), std::forward<Args>(args)...);
}

}  // namespace mr
}  // namespace RMM_NAMESPACE
