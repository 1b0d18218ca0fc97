// SPDX-License-Identifier: Apache-2.0
//
// The queries of `spill` over a table in managed memory, for comparison. The whole table fits on the device, because a program that
// takes more managed memory than the device has free can stop the device. So the program itself keeps the device's part within
// bounds: it sends the least recently used partitions to the host, as the driver does on a full device.
//
// spill_managed [partitions] [MiB of a partition] [MiB on the device] [ignored] [queries]

#include "reader.hpp"
#include "workload.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/managed_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/prefetch.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t most_managed_bytes = 1024 * mib;

/// How partitions come to the device, and whether the program keeps the device's part within its bounds.
enum class policy { unbounded_faults, bounded_faults, bounded_prefetches };

class managed_table {
 public:
  managed_table(settings const& s, policy how)
    : partition_bytes_{s.partition_bytes}, how_{how}, scratch_bytes_{2 * s.partition_bytes}, partitions_(s.partitions)
  {
    auto const [free, total] = rmm::available_device_memory();
    if (free / 2 < s.partitions * s.partition_bytes) {
      throw std::runtime_error{"the table has more managed memory than half of what the device has free"};
    }
    if (s.device_bytes < scratch_bytes_ + 4 * partition_bytes_) {
      throw std::runtime_error{"the device's part has no room for the four partitions of a query"};
    }
    most_on_device_ = s.device_bytes - scratch_bytes_;
    for (std::size_t i = 0; i < s.partitions; ++i) {
      partitions_[i].memory = rmm::device_buffer{partition_bytes_, stream_, managed_};
      fill(static_cast<char*>(partitions_[i].memory.data()), i, partition_bytes_);
    }
    free_before_ = rmm::available_device_memory().first;
  }

  bool query(std::vector<std::size_t> const& wanted)
  {
    for (auto const i : wanted) { bring(i); }
    auto const half = partition_bytes_ / 2;
    rmm::device_buffer scratch{half * wanted.size(), stream_, device_pool_};
    std::vector<char> sample(sample_bytes * wanted.size());
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      auto* const part = static_cast<char*>(scratch.data()) + k * half;
      read_on_device(part, static_cast<char const*>(partitions_[wanted[k]].memory.data()) + half, half, stream_);
      RMM_CUDA_TRY(
        cudaMemcpyAsync(sample.data() + k * sample_bytes, part, sample_bytes, cudaMemcpyDefault, stream_.value()));
    }
    stream_.synchronize();
    bool is_right = true;
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      is_right = is_right && is_content(sample.data() + k * sample_bytes, wanted[k], half, sample_bytes);
      partitions_[wanted[k]].is_in_use = false;
    }
    return is_right;
  }

  /// Prints the figures, and what the device has less than before the queries.
  void print() const
  {
    auto const free = rmm::available_device_memory().first;
    std::printf(
      "  partitions sent to the host: %zu, brought to the device: %zu, there already: %zu; the device has %zu MiB less "
      "free\n",
      sent_,
      brought_,
      hits_,
      (free_before_ > free ? free_before_ - free : 0) / mib);
  }

  /// Returns whether all partitions have their content. Brings them to the host.
  [[nodiscard]] bool is_intact() const
  {
    for (std::size_t i = 0; i < partitions_.size(); ++i) {
      if (!is_content(static_cast<char const*>(partitions_[i].memory.data()), i, 0, partition_bytes_)) { return false; }
    }
    return true;
  }

 private:
  struct partition {
    rmm::device_buffer memory;
    std::uint64_t last_use{};
    bool is_on_device{};
    bool is_in_use{};
  };

  static constexpr std::size_t sample_bytes = 4096;

  void bring(std::size_t i)
  {
    auto& each     = partitions_[i];
    each.last_use  = ++uses_;
    each.is_in_use = true;
    if (each.is_on_device) {
      ++hits_;
      return;
    }
    while (how_ != policy::unbounded_faults && on_device_ + partition_bytes_ > most_on_device_) { send_oldest(); }
    if (how_ == policy::bounded_prefetches) { migrate(each, rmm::get_current_cuda_device()); }
    each.is_on_device = true;
    on_device_ += partition_bytes_;
    ++brought_;
  }

  void send_oldest()
  {
    partition* oldest = nullptr;
    for (auto& each : partitions_) {
      bool const may_move = each.is_on_device && !each.is_in_use;
      if (may_move && (oldest == nullptr || each.last_use < oldest->last_use)) { oldest = &each; }
    }
    if (oldest == nullptr) { throw std::logic_error{"all partitions on the device are in use"}; }
    migrate(*oldest, rmm::cuda_device_id{cudaCpuDeviceId});
    oldest->is_on_device = false;
    on_device_ -= partition_bytes_;
    ++sent_;
  }

  void migrate(partition const& each, rmm::cuda_device_id where)
  {
    rmm::prefetch(each.memory.data(), partition_bytes_, where, stream_);
  }

  std::size_t partition_bytes_;
  policy how_;
  std::size_t scratch_bytes_;
  std::size_t most_on_device_{};
  std::size_t on_device_{};
  std::size_t free_before_{};
  std::size_t sent_{};
  std::size_t brought_{};
  std::size_t hits_{};
  std::uint64_t uses_{};
  rmm::cuda_stream stream_{rmm::cuda_stream::flags::non_blocking};
  rmm::mr::cuda_memory_resource cuda_;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> device_pool_{&cuda_, scratch_bytes_, scratch_bytes_};
  rmm::mr::managed_memory_resource all_managed_;
  rmm::mr::limiting_resource_adaptor<rmm::mr::managed_memory_resource> managed_{&all_managed_, most_managed_bytes};
  std::vector<partition> partitions_;
};

bool run(settings const& s, char const* title, policy how)
{
  managed_table data{s, how};
  bool const answers_are_right = run_queries(s, title, data);
  data.print();
  bool const is_right = data.is_intact() && answers_are_right;
  std::printf("  %s\n", is_right ? "all contents are right" : "contents are WRONG");
  return is_right;
}

}  // namespace

int main(int argc, char** argv)
{
  auto const s = settings_of(argc, argv);
  try {
    std::printf("a table of %zu MiB of managed memory in partitions of %zu MiB; %zu MiB on the device\n",
                s.partitions * s.partition_bytes / mib,
                s.partition_bytes / mib,
                s.device_bytes / mib);
    bool const faults     = run(s, "managed memory, brought by faults", policy::bounded_faults);
    bool const prefetches = run(s, "managed memory, brought by prefetches", policy::bounded_prefetches);
    bool const unbounded  = run(s, "managed memory without bounds, brought by faults", policy::unbounded_faults);
    return faults && prefetches && unbounded ? 0 : 1;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
