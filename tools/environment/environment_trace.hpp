// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/trace/format.hpp>
#include <rmm/detail/trace/trace_options.hpp>
#include <rmm/detail/trace/trace_writer.hpp>
#include <rmm/mr/device_memory_resource.hpp>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <string>

namespace RMM_NAMESPACE {
namespace tools {

/// A resource that writes its calls to the trace that the environment requests (RMM_TRACE_FILE, ...), and forwards them. All objects of
/// a device share one trace. Without a trace it only forwards.
///
/// Thread-safe. Does not own the upstream.
class environment_trace final : public mr::device_memory_resource {
 public:
  /// Does not throw if the trace cannot be written: logs the failure and prints it to standard error, once for each device.
  environment_trace(mr::device_memory_resource* upstream, int device) : upstream_{upstream}, writer_{writer_of(device)}
  {}

  [[nodiscard]] device_memory_resource* get_upstream() const noexcept { return upstream_; }

  /// Returns the name of the first file; empty without a trace.
  [[nodiscard]] std::string file_name() const { return writer_ != nullptr ? writer_->file() : std::string{}; }

  void flush() noexcept
  {
    if (writer_ != nullptr) { writer_->flush(); }
  }

  /// Returns `pattern` for a device. Without `%d` in it, adds `.dev` and the device number before the extension, except for device 0.
  [[nodiscard]] RMM_COLD static std::string file_for(std::string pattern, int device)
  {
    for (auto at = pattern.find('%'); at != std::string::npos; at = pattern.find('%', at + 2)) {
      if (pattern.compare(at, 2, "%d") == 0) { return pattern; }
    }
    if (device == 0) { return pattern; }
    auto const folder = pattern.rfind('/') == std::string::npos ? 0 : pattern.rfind('/') + 1;
    auto const ending = pattern.rfind('.');
    bool const ends   = ending != std::string::npos && ending > folder;
    return pattern.insert(ends ? ending : pattern.size(), ".dev" + std::to_string(device));
  }

 private:
  using kind   = rmm::detail::trace::kind;
  using writer = rmm::detail::trace::trace_writer;

  /// Returns the trace of a device. It is flushed at exit and never destroyed, because memory may be freed until the process ends.
  [[nodiscard]] RMM_COLD static writer* writer_of(int device)
  {
    static auto& mutex   = *new rmm::detail::mutex;
    static auto& writers = *new std::map<int, std::unique_ptr<writer>>;
    rmm::detail::mutex_lock const lock{mutex};
    auto const [at, is_new] = writers.try_emplace(device);
    if (!is_new) { return at->second.get(); }
    try {
      auto options = mr::trace_options::from_environment();
      if (options.file.empty()) { return nullptr; }
      options.file = file_for(options.file, device);
      cuda_set_device_raii const on_device{cuda_device_id{device}};
      at->second = std::make_unique<writer>(options);
    } catch (std::exception const& error) {
      auto const text = std::string{"RMM_TRACE_FILE: nothing is traced: "} + error.what();
      rmm::detail::log(rmm::detail::log_level::error, text.c_str());
      std::fprintf(stderr, "%s\n", text.c_str());  // the user who set the variable may not see the log
    }
    return at->second.get();
  }

  void* do_allocate(std::size_t bytes, cuda_stream_view stream) override
  {
    if (writer_ == nullptr) { return upstream_->allocate(bytes, stream); }
    return writer_->allocate_and_add(bytes, stream.value(), [&] { return upstream_->allocate(bytes, stream); });
  }

  void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override
  {
    if (writer_ != nullptr) { writer_->add(kind::free, ptr, bytes, stream.value()); }
    upstream_->deallocate(ptr, bytes, stream);
  }

  [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override
  {
    auto const* const trace = dynamic_cast<environment_trace const*>(&other);
    return trace != nullptr && upstream_->is_equal(*trace->upstream_);
  }

  device_memory_resource* upstream_;
  writer* writer_;
};

}  // namespace tools
}  // namespace RMM_NAMESPACE
