// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/detail/resource_adaptor.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/failure_callback_t.hpp>
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <utility>

namespace RMM_NAMESPACE {
namespace mr {

/// Calls a function when upstream throws `ExceptionType`, and tries again as long as the function says so.
///
/// The last exception of upstream reaches the caller when the function returns false; others are not intercepted. As
/// thread-safe as upstream and the function are.
template <class Upstream, class ExceptionType = out_of_memory>
class failure_callback_resource_adaptor final
  : public detail::resource_adaptor<failure_callback_resource_adaptor<Upstream, ExceptionType>, Upstream> {
 public:
  using exception_type = ExceptionType;

  /// `callback_arg` is handed to each call of `callback`. Throws logic_error if `upstream` is null.
  failure_callback_resource_adaptor(Upstream* upstream, failure_callback_t callback, void* callback_arg)
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

failure_callback_resource_adaptor(device_async_resource_ref, failure_callback_t, void*)
  ->failure_callback_resource_adaptor<device_memory_resource>;

}  // namespace mr
}  // namespace RMM_NAMESPACE
