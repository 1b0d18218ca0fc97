// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "librmm/_registered_owners.hpp"
#include "librmm/_torch_error.hpp"
#include "librmm/_torch_graphs.hpp"
#include "librmm/_torch_reserved.hpp"
#include "librmm/_torch_usage.hpp"

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/base/pointer_map.hpp>
#include <rmm/detail/base/scope_guard.hpp>
#include <rmm/detail/base/spinning_mutex.hpp>
#include <rmm/detail/cuda/capture.hpp>
#include <rmm/detail/cuda/capture_announcements.hpp>
#include <rmm/detail/cuda/device_scope.hpp>
#include <rmm/detail/cuda/event.hpp>
#include <rmm/detail/format.hpp>
#include <rmm/error.hpp>
#include <rmm/tag_scope.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rmm_python {

struct returned_block;

/// What PyTorch told of a block beyond its allocation. Most blocks have none of this.
struct torch_users {
  /// The streams that use the block, except the one that it was allocated for. Has capacity for that one too.
  std::vector<cudaStream_t> others{};
  /// One list node if other streams, or any stream, may use the block. It is allocated early, because freeing the block must not fail.
  std::list<returned_block> place{};
};

/// A block that PyTorch has allocated, and its resource.
struct torch_block {
  resource_ptr origin{};
  std::size_t bytes{};
  int device{};
  std::unique_ptr<torch_users> users{};  // null if only the stream that it was allocated for uses it

  /// Returns the users; makes them if there are none. Throws std::bad_alloc.
  [[nodiscard]] inline torch_users& make_users();
};

/// A block that PyTorch has freed.
struct returned_block {
  void* ptr{};
  torch_block block{};        ///< here the other users are all streams that used it
  bool by_any_stream{false};  ///< whether unknown streams may have used it
};

torch_users& torch_block::make_users()
{
  if (users == nullptr) { users = std::make_unique<torch_users>(); }
  if (users->place.empty()) { users->place.emplace_back(); }
  return *users;
}

/// The blocks that PyTorch has allocated, by address. Thread-safe.
class torch_blocks {
 public:
  /// Throws std::bad_alloc.
  void add(void* ptr, torch_block block)
  {
    auto& home = shard_of(ptr);
    rmm::detail::spinning_mutex_lock const lock{home.mutex};
    home.blocks.insert_or_assign(ptr, std::move(block));
  }

  /// Removes a block and moves it to `block`. Returns whether there was one at this address.
  bool remove(void* ptr, torch_block& block)
  {
    auto& home = shard_of(ptr);
    rmm::detail::spinning_mutex_lock const lock{home.mutex};
    return home.blocks.extract(ptr, block);
  }

  /// Adds `stream` to those that use a block. Does nothing if there is no block. Throws std::bad_alloc.
  void add_user(void* ptr, cudaStream_t stream)
  {
    auto& home = shard_of(ptr);
    rmm::detail::spinning_mutex_lock const lock{home.mutex};
    auto* const found = home.blocks.find(ptr);
    if (found == nullptr) { return; }
    auto& others = found->make_users().others;
    if (std::find(others.begin(), others.end(), stream) != others.end()) { return; }
    others.reserve(others.size() + 2);
    others.push_back(stream);
  }

  /// Returns the device of a block; nothing if there is no block at this address.
  [[nodiscard]] std::optional<int> device_of(void* ptr)
  {
    auto& home = shard_of(ptr);
    rmm::detail::spinning_mutex_lock const lock{home.mutex};
    auto const* const found = home.blocks.find(ptr);
    return found == nullptr ? std::nullopt : std::optional{found->device};
  }

  /// Returns the size of a block; 0 if there is no block at this address.
  [[nodiscard]] std::size_t bytes_of(void* ptr)
  {
    auto& home = shard_of(ptr);
    rmm::detail::spinning_mutex_lock const lock{home.mutex};
    auto const* const found = home.blocks.find(ptr);
    return found == nullptr ? 0 : found->bytes;
  }

 private:
  struct alignas(64) shard {
    rmm::detail::spinning_mutex mutex;  // not held while a resource is called
    rmm::detail::pointer_map<torch_block> blocks;
  };

  [[nodiscard]] shard& shard_of(void* ptr)
  {
    auto const address = reinterpret_cast<std::uintptr_t>(ptr);
    return shards_[(address >> 8U ^ address >> 20U) % shards_.size()];
  }

  std::array<shard, 16> shards_;
};

/// The counters and the stream of a device.
struct torch_device {
  torch_usage usage;

  /// Returns the stream on which blocks are freed that several streams used. The first call creates it, and may throw rmm::cuda_error.
  [[nodiscard]] rmm::cuda_stream_view gathering_stream()
  {
    std::call_once(made_, [this] {
      rmm::detail::capture_exemption const exemption;
      stream_.emplace(rmm::cuda_stream::flags::non_blocking);
    });
    return stream_->view();
  }

 private:
  std::once_flag made_;
  std::optional<rmm::cuda_stream> stream_;
};

/// Allocates for PyTorch from the resources that are registered for the devices.
///
/// A block is freed to the resource that it came from, even if another one is registered by then, and keeps that resource alive. It is
/// freed after the work of all streams that PyTorch named for it. Thread-safe.
class torch_memory {
 public:
  torch_memory() = default;
  ~torch_memory()
  {
    for (auto const& device : devices_) { delete device.load(); }
  }
  torch_memory(torch_memory const&)            = delete;
  torch_memory& operator=(torch_memory const&) = delete;

  /// Returns the object that PyTorch uses. It is never destroyed, because tensors are freed until the process ends.
  [[nodiscard]] static torch_memory& get()
  {
    static auto& memory = *new torch_memory;
    return memory;
  }

  /// Allocates. If memory runs out, throws the exception that PyTorch turns into torch.OutOfMemoryError; else throws as the resource does.
  [[nodiscard]] void* allocate(std::size_t bytes, int device, cudaStream_t stream)
  {
    if (bytes == 0) { return nullptr; }  // PyTorch never frees it, so the resource would count a block too many
    rmm::detail::device_scope const on_device{device};
    graphs.announce(device, stream);
    free_postponed();
    auto& usage = of(device).usage;
    if (usage.is_too_much(bytes)) { throw_above_limit(bytes, device); }
    auto origin = owners().resource_of(device);
    rmm::cuda_stream_view const view{stream};
    void* ptr{};
    try {
      ptr = origin->allocate(bytes, view);
    } catch (rmm::out_of_memory const& error) {
      usage.count_failure();
      torch_error::throw_out_of_memory(failure_text(bytes, device) + error.what());
    }
    if (ptr == nullptr) { return ptr; }
    rmm::detail::scope_guard give_back{[&]() noexcept { origin->deallocate(ptr, bytes, view); }};
    blocks_.add(ptr, {origin, bytes, device});
    if (!usage.try_take(bytes)) {
      torch_block block;
      blocks_.remove(ptr, block);
      throw_above_limit(bytes, device);
    }
    give_back.dismiss();
    return ptr;
  }

  /// Frees a block that allocate() returned for the same arguments.
  void deallocate(void* ptr, std::size_t bytes, int device, cudaStream_t stream)
  {
    if (ptr == nullptr) { return; }
    torch_block block;
    if (!blocks_.remove(ptr, block)) { return; }  // first: once the block is freed, another thread can get its address
    rmm::detail::device_scope const on_device{device};
    try {
      graphs.announce(device, stream);
      free_postponed();
    } catch (std::exception const& error) {
      rmm::detail::log(rmm::detail::log_level::error, error.what());
    }
    of(device).usage.give_back(bytes);
    if (block.users != nullptr) {
      auto& others = block.users->others;
      others.erase(std::remove(others.begin(), others.end(), stream), others.end());
      if (!others.empty()) {
        others.push_back(stream);
        return free_or_postpone(ptr, std::move(block), false);
      }
    }
    block.origin->deallocate(ptr, bytes, rmm::cuda_stream_view{stream});
  }

  /// Allocates a block that PyTorch's own allocator divides, from `origin` or else from the resource of the device. As with cudaMalloc, any
  /// stream may use it. Returns null if memory runs out, which PyTorch handles.
  [[nodiscard]] void* allocate_segment(std::size_t bytes,
                                       int device,
                                       resource_ptr origin = {},
                                       rmm::tag label      = rmm::tag::current()) noexcept
  {
    try {
      rmm::tag_scope const scope{label};
      rmm::cuda_set_device_raii const guard{rmm::cuda_device_id{device}};
      free_postponed();
      rmm::detail::capture_exemption const exemption;
      auto const stream = of(device).gathering_stream();
      if (!origin) { origin = owners().resource_of(device); }
      void* const ptr = origin->allocate(bytes, stream);
      rmm::detail::scope_guard give_back{[&]() noexcept { origin->deallocate(ptr, bytes, stream); }};
      stream.synchronize();
      torch_block block{origin, bytes, device};
      static_cast<void>(block.make_users());
      blocks_.add(ptr, std::move(block));
      give_back.dismiss();
      return ptr;
    } catch (std::exception const& error) {
      rmm::detail::log(rmm::detail::log_level::warn, error.what());
      return nullptr;
    }
  }

  /// Frees a block of allocate_segment(), as cudaFree does: after all work of the device.
  void deallocate_segment(void* ptr, int device)
  {
    if (ptr == nullptr) { return; }
    rmm::cuda_set_device_raii const guard{rmm::cuda_device_id{device}};
    torch_block block;
    if (blocks_.remove(ptr, block)) { free_or_postpone(ptr, std::move(block), true); }
  }

  /// Notes that `stream` uses a block: it will be freed after the work of that stream, too. Throws std::bad_alloc, rmm::cuda_error.
  void add_user(void* ptr, cudaStream_t stream)
  {
    auto const device = blocks_.device_of(ptr);
    if (!device) { return; }
    rmm::cuda_set_device_raii const guard{rmm::cuda_device_id{*device}};
    static_cast<void>(of(*device).gathering_stream());  // freeing the block needs it, and must not fail
    blocks_.add_user(ptr, stream);
  }

  [[nodiscard]] std::size_t bytes_of(void* ptr) { return blocks_.bytes_of(ptr); }
  [[nodiscard]] std::optional<int> device_of(void* ptr) { return blocks_.device_of(ptr); }

  /// Frees the blocks whose freeing a capture had delayed, if that capture is over. Throws rmm::cuda_error; the remaining blocks stay delayed.
  void free_postponed()
  {
    if (postponed_count_.load(std::memory_order_acquire) == 0) { return; }
    std::list<returned_block> waiting;
    {
      std::lock_guard<std::mutex> const lock{postponed_mutex_};
      waiting.swap(postponed_);
      postponed_count_.store(0, std::memory_order_release);
    }
    rmm::detail::scope_guard const keep{[&]() noexcept { postpone(waiting); }};
    for (auto each = waiting.begin(); each != waiting.end();) {
      auto const& block = each->block;
      rmm::cuda_set_device_raii const guard{rmm::cuda_device_id{block.device}};
      if (!try_free(*each)) {
        ++each;
        continue;
      }
      of(block.device).usage.postpone(-static_cast<std::int64_t>(block.bytes));
      each = waiting.erase(each);
    }
  }

  /// Makes the resources of all devices give unused memory back. Throws as they do.
  void release_unused_memory()
  {
    free_postponed();
    int const devices = rmm::get_num_cuda_devices();
    for (int device = 0; device < devices; ++device) {
      rmm::cuda_set_device_raii const guard{rmm::cuda_device_id{device}};
      see_reserved(device);
      release_unused(*owners().resource_of(device));
    }
  }

  /// Returns the figures of PyTorch's memory on a device.
  [[nodiscard]] torch_figures figures(int device)
  {
    rmm::cuda_set_device_raii const guard{rmm::cuda_device_id{device}};
    see_reserved(device);
    return of(device).usage.figures();
  }

  /// Limits the memory that PyTorch uses at a time to a fraction of the device's memory. Throws rmm::cuda_error.
  void set_fraction(double fraction, int device)
  {
    rmm::cuda_set_device_raii const guard{rmm::cuda_device_id{device}};
    auto const total = static_cast<double>(rmm::available_device_memory().second);
    of(device).usage.set_limit(fraction >= 1 ? std::numeric_limits<std::int64_t>::max()
                                             : static_cast<std::int64_t>(total * std::max(fraction, 0.0)));
  }

  /// Returns the counters and the stream of a device. Throws rmm::logic_error for an impossible number, std::bad_alloc.
  [[nodiscard]] torch_device& of(int device)
  {
    if (device < 0 || device >= static_cast<int>(devices_.size())) { throw_no_device(device); }
    auto& place = devices_[static_cast<std::size_t>(device)];
    auto* found = place.load(std::memory_order_acquire);
    if (found == nullptr) {
      auto* const made = new torch_device;
      if (place.compare_exchange_strong(found, made, std::memory_order_acq_rel)) { return *made; }
      delete made;
    }
    return *found;
  }

  torch_graphs graphs;

 private:
  /// Frees a block after the work of all streams that used it. If one of them captures, or CUDA fails, a later call frees it.
  void free_or_postpone(void* ptr, torch_block block, bool by_any_stream)
  {
    auto place    = std::move(block.make_users().place);
    place.front() = {ptr, std::move(block), by_any_stream};
    if (try_free(place.front())) { return; }
    auto const& kept = place.front().block;
    of(kept.device).usage.postpone(static_cast<std::int64_t>(kept.bytes));
    postpone(place);
  }

  void postpone(std::list<returned_block>& blocks) noexcept
  {
    if (blocks.empty()) { return; }
    std::lock_guard<std::mutex> const lock{postponed_mutex_};
    postponed_.splice(postponed_.end(), blocks);
    postponed_count_.store(postponed_.size(), std::memory_order_release);
  }

  [[nodiscard]] bool try_free(returned_block const& block)
  {
    auto const stream = of(block.block.device).gathering_stream();
    if (block.by_any_stream) {
      if (!rmm::detail::try_wait_for_device()) { return false; }
    } else {
      for (auto* const user : block.block.users->others) {
        if (!rmm::detail::query_capture(user).is_none()) { return false; }
      }
      try {
        for (auto* const user : block.block.users->others) {
          rmm::detail::owned_event event;
          if (!event.try_record(user) || !event.try_make_wait(stream.value())) { return false; }
        }
      } catch (rmm::cuda_error const&) {  // no event could be created
        return false;
      }
    }
    block.block.origin->deallocate(block.ptr, block.block.bytes, stream);
    return true;
  }

  void see_reserved(int device)
  {
    auto& usage = of(device).usage;
    usage.see_reserved(reserved_bytes(*owners().resource_of(device), usage.figures().bytes[0].current));
  }

  [[nodiscard]] static std::string failure_text(std::size_t bytes, int device)
  {
    return "CUDA out of memory. Tried to allocate " + rmm::detail::format_bytes(bytes) + " on GPU " +
           std::to_string(device) + ". ";
  }

  [[noreturn]] RMM_COLD static void throw_no_device(int device)
  {
    RMM_FAIL("There is no device " + std::to_string(device));
  }

  [[noreturn]] RMM_COLD void throw_above_limit(std::size_t bytes, int device)
  {
    auto& usage = of(device).usage;
    usage.count_failure();
    torch_error::throw_out_of_memory(
      failure_text(bytes, device) + "PyTorch may have " +
      rmm::detail::format_bytes(static_cast<std::size_t>(usage.limit())) +
      " of it at a time (torch.cuda.set_per_process_memory_fraction), and has " +
      rmm::detail::format_bytes(static_cast<std::size_t>(usage.figures().bytes[0].current)));
  }

  torch_blocks blocks_;
  // Each is made when it is first needed, and kept.
  // Order: the update that publishes an object releases it, and loads acquire it, also that of an update that fails.
  std::array<std::atomic<torch_device*>, 128> devices_{};

  std::mutex postponed_mutex_;  // guards postponed_
  std::list<returned_block> postponed_;
  // The size of postponed_. Order: it says only whether to take the mutex; a thread that reads an old number frees the blocks later.
  std::atomic<std::size_t> postponed_count_{0};
};

}  // namespace rmm_python
