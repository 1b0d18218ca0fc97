// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_stream_view.hpp>
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

/// Writes each allocation, failed allocation and deallocation to a binary trace, for replay and reports. Thread-safe.
///
/// An event has its time, thread, device, stream (by handle and by the runtime's number), size, address and tag; a failure the
/// text of its exception. Threads gather events on their own, and write them a block at a time: what a crash of the
/// program leaves in the file can be read. docs/traces.md tells more.
template <class Upstream>
class trace_resource_adaptor final : public detail::resource_adaptor<trace_resource_adaptor<Upstream>, Upstream> {
 public:
  /// Throws logic_error if `upstream` is null or no file is given and RMM_TRACE_FILE is not set, std::runtime_error if the
  /// file cannot be written: because it is a symbolic link, someone else's, or being written, for instance.
  trace_resource_adaptor(Upstream* upstream, trace_options const& options = trace_options::from_environment())
    : trace_resource_adaptor::resource_adaptor{upstream},
      writer_{std::make_unique<rmm::detail::trace::trace_writer>(options)}
  {}

  trace_resource_adaptor(device_async_resource_ref upstream,
                         trace_options const& options = trace_options::from_environment())
    : trace_resource_adaptor::resource_adaptor{upstream},
      writer_{std::make_unique<rmm::detail::trace::trace_writer>(options)}
  {}

  /// Hands what was traced before the call to the system. Threads that trace wait for some microseconds.
  void flush() { writer_->flush(); }

  /// The first file of the trace.
  [[nodiscard]] std::string const& get_file_name() const noexcept { return writer_->file(); }

  /// How many events could not be written, because the disk is full for instance. 0 is good.
  [[nodiscard]] std::uint64_t get_lost_events() const noexcept { return writer_->lost(); }

 private:
  using kind = rmm::detail::trace::kind;

  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    return writer_->allocate_and_add(bytes, stream.value(), [&] { return this->upstream().allocate(bytes, stream); });
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    writer_->add(kind::free, ptr, bytes, stream.value());  // before upstream can give the memory to another thread
    this->upstream().deallocate(ptr, bytes, stream);
  }

  std::unique_ptr<rmm::detail::trace::trace_writer> writer_;
};

template <class Upstream>
trace_resource_adaptor(Upstream*) -> trace_resource_adaptor<Upstream>;
template <class Upstream>
trace_resource_adaptor(Upstream*, trace_options const&) -> trace_resource_adaptor<Upstream>;
trace_resource_adaptor(device_async_resource_ref)->trace_resource_adaptor<device_memory_resource>;
trace_resource_adaptor(device_async_resource_ref, trace_options const&)->trace_resource_adaptor<device_memory_resource>;

}  // namespace mr
}  // namespace RMM_NAMESPACE
