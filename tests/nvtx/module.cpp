// SPDX-License-Identifier: Apache-2.0
#include "module.hpp"

#include <tools/recorded/trace_reader.hpp>

#include <rmm/cuda_stream_view.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/trace_resource_adaptor.hpp>
#include <rmm/tag_scope.hpp>

#include <nvtx3/nvToolsExt.h>

#include <optional>

namespace {

class module final : public nvtx_module {
 public:
  module() { pool_.track_tags(); }

  void* allocate(std::size_t bytes) override { return resource_->allocate(bytes, stream_); }
  void deallocate(void* ptr, std::size_t bytes) override { resource_->deallocate(ptr, bytes, stream_); }
  void push(char const* name) override { nvtxRangePushA(name); }
  void pop() override { nvtxRangePop(); }

  void with_tag(char const* name, std::function<void()> const& body) override
  {
    rmm::tag_scope const scope{name};
    body();
  }
  void begin_tag(char const* name) override { scope_.emplace(name); }
  void end_tag() override { scope_.reset(); }

  void trace_to(std::string const& file) override
  {
    rmm::mr::trace_options options;
    options.file = file;
    resource_    = &trace_.emplace(&pool_, options);
  }

  [[nodiscard]] std::string holders() const override
  {
    std::string text;
    for (auto const& each : pool_.live_by_tag_name()) {
      text += (text.empty() ? "" : ", ") + each.tag + " " + std::to_string(each.bytes);
    }
    return text;
  }

  [[nodiscard]] std::string report_of_failure() override
  {
    try {
      static_cast<void>(allocate(std::size_t{1} << 30U));
    } catch (rmm::out_of_memory const& error) {
      return error.what();
    }
    return "did not fail";
  }

  [[nodiscard]] std::string tag() const override { return rmm::tag::current().name(); }
  [[nodiscard]] std::uint32_t tag_number() const override { return rmm::tag::current().id(); }

  [[nodiscard]] std::vector<std::string> traced_tags() override
  {
    trace_->flush();
    auto const trace = rmm::recorded::trace_reader::read(trace_->get_file_name());
    std::vector<std::string> tags;
    for (auto const& event : trace.events) { tags.push_back(trace.tags.at(trace.places.at(event.place).tag)); }
    return tags;
  }

 private:
  using pool = rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>;

  static constexpr std::size_t pool_bytes = std::size_t{16} << 20U;

  rmm::cuda_stream_view stream_;
  rmm::mr::cuda_memory_resource cuda_;
  pool pool_{&cuda_, pool_bytes, pool_bytes};
  std::optional<rmm::mr::trace_resource_adaptor<pool>> trace_;
  rmm::mr::device_memory_resource* resource_{&pool_};
  std::optional<rmm::tag_scope> scope_;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) nvtx_module* make_nvtx_module();
extern "C" nvtx_module* make_nvtx_module() { return std::make_unique<module>().release(); }
