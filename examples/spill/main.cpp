// SPDX-License-Identifier: Apache-2.0
//
// Queries over a table that is larger than the memory of the device. Its partitions lie in device memory, in pinned memory of the host,
// or in pageable memory. Two adaptors decide when they move: when the pool of the device has too little memory, the first one asks to
// spill partitions to pinned memory. When the pinned pool has too little for that, the second one asks to spill to pageable memory.
//
// spill [partitions] [MiB of a partition] [MiB of the device pool] [MiB of the pinned pool] [queries]

#include "reader.hpp"
#include "workload.hpp"

#include <rmm/cuda_stream.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pinned_pool_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/spill_resource_adaptor.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace {

/// How often partitions moved from one kind of memory to another, and how long that took.
struct moves {
  std::size_t count{};
  double seconds{};

  void note(stopwatch const& since)
  {
    ++count;
    seconds += since.seconds();
  }

  void print(char const* what, std::size_t partition_bytes) const
  {
    auto const gib = static_cast<double>(count * partition_bytes) / static_cast<double>(1024 * mib);
    std::printf("  %-19s %6zu moves, %8.3f GiB, %7.2f GiB/s\n", what, count, gib, seconds > 0 ? gib / seconds : 0);
  }
};

/// A table whose partitions are in whichever memory has room for them.
class table {
 public:
  explicit table(settings const& s)
    : partition_bytes_{s.partition_bytes},
      device_pool_{&cuda_, s.device_bytes, s.device_bytes},
      pinned_pool_{s.pinned_bytes, s.pinned_bytes},
      device_{&device_pool_, [this](std::size_t bytes) { return spill(bytes, place::device); }, device_options(s)},
      pinned_{&pinned_pool_, [this](std::size_t bytes) { return spill(bytes, place::pinned); }, pinned_options(s)},
      partitions_(s.partitions)
  {
    for (std::size_t i = 0; i < s.partitions; ++i) {
      partitions_[i].pageable.reset(new char[partition_bytes_]);
      fill(partitions_[i].pageable.get(), i, partition_bytes_);
    }
  }
  ~table()
  {
    for (auto& each : partitions_) {
      if (each.where == place::pinned) { pinned_.deallocate(each.pinned, partition_bytes_); }
    }
  }
  table(table const&)            = delete;
  table& operator=(table const&) = delete;

  /// Reads partitions: brings each to the device, copies half of it to scratch memory, and checks a sample of that. Returns whether
  /// all samples were right.
  bool query(std::vector<std::size_t> const& wanted)
  {
    for (auto const i : wanted) { bring(i); }
    auto const half = partition_bytes_ / 2;
    rmm::device_buffer scratch{half * wanted.size(), stream_, device_};
    std::vector<char> sample(sample_bytes * wanted.size());
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      auto* const part = static_cast<char*>(scratch.data()) + k * half;
      auto& source     = partitions_[wanted[k]];
      read_on_device(part, static_cast<char const*>(source.device.data()) + half, half, stream_);
      copy(sample.data() + k * sample_bytes, part, sample_bytes);
    }
    stream_.synchronize();
    bool is_right = true;
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      is_right = is_right && is_content(sample.data() + k * sample_bytes, wanted[k], half, sample_bytes);
      partitions_[wanted[k]].is_in_use = false;
    }
    return is_right;
  }

  /// Returns whether all partitions have their content, wherever they are.
  bool is_intact()
  {
    std::vector<char> copied(partition_bytes_);
    for (std::size_t i = 0; i < partitions_.size(); ++i) {
      auto const& each = partitions_[i];
      auto const* from = each.where == place::pinned ? each.pinned : each.pageable.get();
      if (each.where == place::device) {
        copy(copied.data(), each.device.data(), partition_bytes_);
        stream_.synchronize();
        from = copied.data();
      }
      if (!is_content(from, i, 0, partition_bytes_)) { return false; }
    }
    return true;
  }

  /// Prints the figures. Returns whether partitions moved through all kinds of memory.
  bool print() const
  {
    to_pinned_.print("device to pinned", partition_bytes_);
    to_pageable_.print("pinned to pageable", partition_bytes_);
    from_pinned_.print("pinned to device", partition_bytes_);
    from_pageable_.print("pageable to device", partition_bytes_);
    std::printf(
      "  partitions were on the device %zu times, the hook of the device was asked %llu times, %zu times above 90 %%\n",
      hits_,
      static_cast<unsigned long long>(device_.figures().calls),
      times_nearly_full_);
    return to_pinned_.count != 0 && to_pageable_.count != 0 && from_pinned_.count != 0 && from_pageable_.count != 0;
  }

 private:
  enum class place { device, pinned, pageable };

  struct partition {
    place where{place::pageable};
    rmm::device_buffer device;
    char* pinned{};
    std::unique_ptr<char[]> pageable;
    std::uint64_t last_use{};
    bool is_in_use{};
  };

  static constexpr std::size_t sample_bytes = 4096;

  rmm::mr::spill_options device_options(settings const& s)
  {
    rmm::mr::spill_options options;
    options.maximum_bytes = s.device_bytes;
    options.watermarks.push_back({0.9, 0.7, [this](std::size_t) { ++times_nearly_full_; }});
    return options;
  }

  static rmm::mr::spill_options pinned_options(settings const& s)
  {
    rmm::mr::spill_options options;
    options.maximum_bytes = s.pinned_bytes;
    return options;
  }

  /// Spills the least recently used partitions of one kind of memory. Returns the freed bytes.
  std::size_t spill(std::size_t bytes, place from)
  {
    std::size_t freed{};
    for (; freed < bytes; freed += partition_bytes_) {
      partition* oldest = nullptr;
      for (auto& each : partitions_) {
        bool const may_move = each.where == from && !each.is_in_use;
        if (may_move && (oldest == nullptr || each.last_use < oldest->last_use)) { oldest = &each; }
      }
      if (oldest == nullptr) { break; }
      from == place::device ? move_to_pinned(*oldest) : move_to_pageable(*oldest);
    }
    return freed;
  }

  void move_to_pinned(partition& each)
  {
    auto* const pinned = static_cast<char*>(pinned_.allocate(partition_bytes_, stream_));  // may call spill()
    stopwatch const time;
    copy(pinned, each.device.data(), partition_bytes_);
    stream_.synchronize();
    each.device = rmm::device_buffer{};
    each.pinned = pinned;
    each.where  = place::pinned;
    to_pinned_.note(time);
  }

  void move_to_pageable(partition& each)
  {
    stopwatch const time;
    each.pageable.reset(new char[partition_bytes_]);
    std::memcpy(each.pageable.get(), each.pinned, partition_bytes_);
    free_pinned(each);
    each.where = place::pageable;
    to_pageable_.note(time);
  }

  /// Brings a partition to the device. It stays there until the query ends.
  void bring(std::size_t i)
  {
    auto& each     = partitions_[i];
    each.last_use  = ++uses_;
    each.is_in_use = true;
    if (each.where == place::device) {
      ++hits_;
      return;
    }
    rmm::device_buffer device{
      partition_bytes_, stream_, device_};  // may call spill() to free memory of other partitions
    stopwatch const time;
    bool const is_pinned = each.where == place::pinned;
    copy(device.data(), is_pinned ? each.pinned : each.pageable.get(), partition_bytes_);
    stream_.synchronize();
    is_pinned ? free_pinned(each) : each.pageable.reset();
    each.device = std::move(device);
    each.where  = place::device;
    (is_pinned ? from_pinned_ : from_pageable_).note(time);
  }

  void free_pinned(partition& each)
  {
    pinned_.deallocate(each.pinned, partition_bytes_, stream_);
    each.pinned = nullptr;
  }

  void copy(void* to, void const* from, std::size_t bytes)
  {
    RMM_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.value()));
  }

  std::size_t partition_bytes_;
  std::size_t times_nearly_full_{};
  std::size_t hits_{};
  std::uint64_t uses_{};
  moves to_pinned_;
  moves to_pageable_;
  moves from_pinned_;
  moves from_pageable_;
  rmm::cuda_stream stream_{rmm::cuda_stream::flags::non_blocking};
  rmm::mr::cuda_memory_resource cuda_;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> device_pool_;
  rmm::mr::pinned_pool_memory_resource pinned_pool_;
  rmm::mr::spill_resource_adaptor<rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>> device_;
  rmm::mr::spill_resource_adaptor<rmm::mr::pinned_pool_memory_resource> pinned_;
  std::vector<partition> partitions_;
};

/// Runs the queries. Returns whether all contents were right, and partitions moved if they had to.
bool run(settings const& s, char const* title, bool has_to_spill)
{
  table data{s};
  bool is_right          = run_queries(s, title, data);
  bool const has_spilled = data.print();
  is_right               = data.is_intact() && is_right;
  std::printf("  %s\n", is_right ? "all contents are right" : "contents are WRONG");
  return is_right && (has_spilled || !has_to_spill);
}

}  // namespace

int main(int argc, char** argv)
{
  auto const s = settings_of(argc, argv);
  try {
    auto fits         = s;
    fits.device_bytes = s.partitions * s.partition_bytes + 4 * s.partition_bytes;
    std::printf(
      "a table of %zu MiB in partitions of %zu MiB; a pool of %zu MiB on the device, and one of %zu MiB of pinned "
      "memory\n",
      s.partitions * s.partition_bytes / mib,
      s.partition_bytes / mib,
      s.device_bytes / mib,
      s.pinned_bytes / mib);
    bool const spilled = run(s, "spilling", argc == 1);
    return run(fits, "the same with a pool for the whole table", false) && spilled ? 0 : 1;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
