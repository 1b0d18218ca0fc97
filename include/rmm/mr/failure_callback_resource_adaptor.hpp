// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/detail/resource_adaptor.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/failure_callback_t.hpp>
#include <rmm/mr/per_device_resource.hpp>  // IWYU pragma: export
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <exception>
#include <type_traits>
#include <utility>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// The meaning of the template arguments of a failure_callback_resource_adaptor.
template <class UpstreamOrException, class Exception>
struct failure_callback_arguments {
  static constexpr bool names_only_exception = std::is_base_of_v<std::exception, UpstreamOrException>;

  using upstream  = std::conditional_t<names_only_exception, device_memory_resource, UpstreamOrException>;
  using exception = std::conditional_t<names_only_exception, UpstreamOrException, Exception>;
};

}  // namespace detail

/// An adaptor that calls a function when upstream throws `ExceptionType`. Use it to free memory and try again.
///
/// While the function returns true, the adaptor repeats the allocation. When it returns false, the caller gets the last exception of
/// upstream. Exceptions of other types pass through. If the only template argument is an exception, or there is none, upstream is a
/// device_memory_resource.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// auto const spill = [](std::size_t, void*) { return false; };  // true: memory was freed, try again
/// rmm::mr::failure_callback_resource_adaptor spilling{&cuda, spill, nullptr};
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, spilling};
/// @endcode
/// Threads  thread-safe if upstream and the function are.
template <class Upstream = out_of_memory, class ExceptionType = out_of_memory>
class failure_callback_resource_adaptor final
  : public detail::resource_adaptor<failure_callback_resource_adaptor<Upstream, ExceptionType>,
                                    typename detail::failure_callback_arguments<Upstream, ExceptionType>::upstream> {
  using arguments = detail::failure_callback_arguments<Upstream, ExceptionType>;

 public:
  using exception_type = typename arguments::exception;

  /// Each call of `callback` gets the requested bytes and `callback_arg`. Throws logic_error if `upstream` is null.
  failure_callback_resource_adaptor(typename arguments::upstream* upstream,
                                    failure_callback_t callback,
                                    void* callback_arg)
    : failure_callback_resource_adaptor::resource_adaptor{upstream},
      callback_{std::move(callback)},
      callback_arg_{callback_arg}
  {}

  failure_callback_resource_adaptor(device_async_resource_ref upstream, failure_callback_t callback, void* callback_arg)
    : failure_callback_resource_adaptor::resource_adaptor{upstream},
      callback_{std::move(callback)},
      callback_arg_{callback_arg}
  {}

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    for (;;) {
      try {
        return this->upstream().allocate(bytes, stream);
      } catch (exception_type const&) {
        if (!callback_ || !callback_(bytes, callback_arg_)) { throw; }
      }
    }
  }

  failure_callback_t callback_;
  void* callback_arg_;
};

template <class Upstream>
failure_callback_resource_adaptor(Upstream*, failure_callback_t, void*) -> failure_callback_resource_adaptor<Upstream>;
failure_callback_resource_adaptor(device_async_resource_ref, failure_callback_t, void*)
  ->failure_callback_resource_adaptor<device_memory_resource>;

}  // namespace mr
}  // namespace RMM_NAMESPACE
