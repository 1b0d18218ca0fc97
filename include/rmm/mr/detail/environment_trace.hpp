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
namespace mr {
namespace detail {

/// Writes what goes through it to the trace that the environment names (RMM_TRACE_FILE, ...): one trace for each device, whatever
/// resources there are of this class. Without a trace it passes calls on.
///
/// Thread-safe. Does not own the upstream.
class environment_trace final : public device_memory_resource {
 public:
  /// Throws nothing if the trace cannot be written: that is logged, and said on standard error, once for each device.
  environment_trace(device_memory_resource* upstream, int device) : upstream_{upstream}, writer_{writer_of(device)} {}

  [[nodiscard]] device_memory_resource* get_upstream() const noexcept { return upstream_; }

  /// The first file; empty if there is none.
  [[nodiscard]] std::string file_name() const { return writer_ != nullptr ? writer_->file() : std::string{}; }

  void flush() noexcept
  {
    if (writer_ != nullptr) { writer_->flush(); }
  }

  /// `pattern` for one of several devices: if it does not name the device, and that is not the first, `.dev` and the number
  /// come before the ending.
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

  /// Never destroyed: what was allocated may be freed until the process ends, which flushes it.
  [[nodiscard]] RMM_COLD static writer* writer_of(int device)
  {
    static auto& mutex   = *new rmm::detail::mutex;
    static auto& writers = *new std::map<int, std::unique_ptr<writer>>;
    rmm::detail::mutex_lock const lock{mutex};
    auto const [at, is_new] = writers.try_emplace(device);
    if (!is_new) { return at->second.get(); }
    try {
      auto options = trace_options::from_environment();
      if (options.file.empty()) { return nullptr; }
      options.file = file_for(options.file, device);
      cuda_set_device_raii const on_device{cuda_device_id{device}};
      at->second = std::make_unique<writer>(options);
    } catch (std::exception const& error) {
      auto const text = std::string{"RMM_TRACE_FILE: nothing is traced: "} + error.what();
      rmm::detail::log(rmm::detail::log_level::error, text.c_str());
      std::fprintf(stderr, "%s\n", text.c_str());  // who set the variable looks there, and not for a log
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

}  // namespace detail
}  // namespace mr
}  // namespace RMM_NAMESPACE
