// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/owning_process.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/trace/format.hpp>
#include <rmm/detail/trace/trace_options.hpp>
#include <rmm/detail/trace/trace_writer.hpp>
#include <rmm/mr/detail/resource_adaptor.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/resource_ref.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace RMM_NAMESPACE {
namespace mr {

/// An adaptor that writes each allocation, failed allocation and deallocation to a binary trace. Use it to see a program's memory over
/// time with `rmm-trace`, and to replay it. See docs/traces.md.
///
/// An event has its time, thread, device, stream (handle and id), size, address and tag. The event of a failure has the text of its
/// exception. Each thread collects events and writes them in blocks, so a trace can be read after the program has crashed.
///
/// @code{.cpp}
/// rmm::mr::cuda_memory_resource cuda;
/// rmm::mr::trace_options options;
/// options.file = "example_trace.bin";
/// rmm::mr::trace_resource_adaptor traced{&cuda, options};
/// rmm::device_buffer const buffer{1000, rmm::cuda_stream_default, traced};
/// @endcode
/// Threads  thread-safe if upstream is.
template <class Upstream>
class trace_resource_adaptor final : public detail::resource_adaptor<trace_resource_adaptor<Upstream>, Upstream> {
 public:
  /// Throws logic_error if `upstream` is null, or if the options have no file and RMM_TRACE_FILE is not set. Throws std::runtime_error
  /// if the file cannot be written, for example because it is a symbolic link, belongs to another user, or is in use by a trace.
  trace_resource_adaptor(Upstream* upstream, trace_options const& options = trace_options::from_environment())
    : trace_resource_adaptor::resource_adaptor{upstream}, writer_{new rmm::detail::trace::trace_writer{options}}
  {}

  trace_resource_adaptor(device_async_resource_ref upstream,
                         trace_options const& options = trace_options::from_environment())
    : trace_resource_adaptor::resource_adaptor{upstream}, writer_{new rmm::detail::trace::trace_writer{options}}
  {}

  /// Writes all events from before the call to the file. Stops threads that trace for some microseconds.
  void flush() { writer_->flush(); }

  /// Returns the name of the first file of the trace.
  [[nodiscard]] std::string const& get_file_name() const noexcept { return writer_->file(); }

  /// Returns the number of events that could not be written, for example because the disk is full.
  [[nodiscard]] std::uint64_t get_lost_events() const noexcept { return writer_->lost(); }

 private:
  using kind = rmm::detail::trace::kind;

  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    return writer_->allocate_and_add(bytes, stream.value(), [&] { return this->upstream().allocate(bytes, stream); });
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    if (!this->is_of_this_process()) { return; }
    writer_->add(kind::free, ptr, bytes, stream.value());  // first: upstream may give the memory to another thread
    this->upstream().deallocate(ptr, bytes, stream);
  }

  std::unique_ptr<rmm::detail::trace::trace_writer, rmm::detail::delete_in_own_process> writer_;
};

template <class Upstream>
trace_resource_adaptor(Upstream*) -> trace_resource_adaptor<Upstream>;
template <class Upstream>
trace_resource_adaptor(Upstream*, trace_options const&) -> trace_resource_adaptor<Upstream>;
trace_resource_adaptor(device_async_resource_ref)->trace_resource_adaptor<device_memory_resource>;
trace_resource_adaptor(device_async_resource_ref, trace_options const&)->trace_resource_adaptor<device_memory_resource>;

}  // namespace mr
}  // namespace RMM_NAMESPACE
