// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/owning_process.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/detail/allocation_log.hpp>
#include <rmm/mr/detail/resource_adaptor.hpp>
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <memory>
#include <string>

namespace RMM_NAMESPACE {
namespace mr {
namespace detail {

/// The base class of adaptors that write a line of CSV for each allocation, failed allocation and deallocation. Thread-safe.
template <class Derived, class Upstream>
class logging_adaptor : public resource_adaptor<Derived, Upstream> {
 public:
  /// Writes buffered lines to the destinations.
  void flush() { log_->flush(); }

  /// Returns the first line of the log.
  [[nodiscard]] std::string header() const { return allocation_log::header; }

 protected:
  /// `open()` returns the log as a unique_ptr. It is not called if `upstream` is null.
  template <class Open>
  logging_adaptor(Upstream* upstream, Open&& open) : logging_adaptor::resource_adaptor{upstream}, log_{open().release()}
  {}

  template <class Open>
  logging_adaptor(device_async_resource_ref upstream, Open&& open)
    : logging_adaptor::resource_adaptor{upstream}, log_{open().release()}
  {}

 private:
  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    rmm::detail::scope_guard log_failure{[&]() noexcept { log_->add("allocate failure", nullptr, bytes, stream); }};
    void* const ptr = this->upstream().allocate(bytes, stream);
    log_failure.dismiss();
    log_->add("allocate", ptr, bytes, stream);
    return ptr;
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    if (!this->is_of_this_process()) { return; }
    log_->add("free", ptr, bytes, stream);  // before upstream can give the memory to another thread
    this->upstream().deallocate(ptr, bytes, stream);
  }

  std::unique_ptr<allocation_log, rmm::detail::delete_in_own_process> log_;
};

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
