// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "librmm/_registered_owners.hpp"
#include "librmm/_torch_memory.hpp"

#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/tag_scope.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <utility>

namespace rmm_python {

/// Sources of segments for PyTorch: each is a resource, and a tag for what is allocated from it.
///
/// PyTorch passes no data to the functions of an allocator. So each source has an allocation function of its own, which knows its number.
/// Thread-safe.
class torch_segment_sources {
 public:
  using allocate_function = void* (*)(std::size_t, int, cudaStream_t);

  static constexpr std::size_t capacity = 256;

  /// Returns the object of this process. It is never destroyed, because PyTorch frees segments until the process ends.
  [[nodiscard]] static torch_segment_sources& get()
  {
    static auto& sources = *new torch_segment_sources;
    return sources;
  }

  /// Adds a source and returns its number. Throws logic_error if there are `capacity` sources.
  [[nodiscard]] std::size_t add(resource_ptr resource, rmm::tag label)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    auto* const place = std::find_if(sources_.begin(), sources_.end(), [](auto const& each) { return !each.resource; });
    RMM_EXPECTS(place != sources_.end(),
                "There are too many memory pools for PyTorch: destroy one that you do not need");
    *place = {std::move(resource), label};
    return static_cast<std::size_t>(place - sources_.begin());
  }

  /// Removes a source. Its segments stay valid.
  void remove(std::size_t number) noexcept
  {
    source removed;  // outlives the lock
    std::lock_guard<std::mutex> const lock{mutex_};
    std::swap(removed, sources_[number]);
  }

  /// Returns the function that allocates from a source. It returns null if memory runs out, or if the source was removed.
  [[nodiscard]] static allocate_function function_of(std::size_t number) noexcept { return functions[number]; }

 private:
  struct source {
    resource_ptr resource{};
    rmm::tag label{};
  };

  [[nodiscard]] source find(std::size_t number)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    return sources_[number];
  }

  template <std::size_t Number>
  static void* allocate_from(std::size_t bytes, int device, cudaStream_t /*stream*/) noexcept
  {
    auto [resource, label] = get().find(Number);
    return resource ? torch_memory::get().allocate_segment(bytes, device, std::move(resource), label) : nullptr;
  }

  template <std::size_t... Numbers>
  [[nodiscard]] static constexpr std::array<allocate_function, capacity> make_functions(
    std::index_sequence<Numbers...>) noexcept
  {
    return {&allocate_from<Numbers>...};
  }

  static std::array<allocate_function, capacity> const functions;

  std::mutex mutex_;  // guards sources_
  std::array<source, capacity> sources_{};
};

inline constexpr std::array<torch_segment_sources::allocate_function, torch_segment_sources::capacity>
  torch_segment_sources::functions = make_functions(std::make_index_sequence<capacity>{});

/// Adds a source, and returns its number.
[[nodiscard]] inline std::size_t add_segment_source(resource_ptr const& resource, rmm::tag label)
{
  return torch_segment_sources::get().add(resource, label);
}

inline void remove_segment_source(std::size_t number) noexcept { torch_segment_sources::get().remove(number); }

/// Gives a segment back.
inline void deallocate_segment(void* ptr, std::size_t /*bytes*/, int device, cudaStream_t /*stream*/) noexcept
{
  try {
    torch_memory::get().deallocate_segment(ptr, device);
  } catch (std::exception const& error) {
    rmm::detail::log(rmm::detail::log_level::error, error.what());
  }
}

/// Return the addresses of the functions for PyTorch.
[[nodiscard]] inline std::uintptr_t segment_allocation_function(std::size_t number) noexcept
{
  return reinterpret_cast<std::uintptr_t>(torch_segment_sources::function_of(number));
}

[[nodiscard]] inline std::uintptr_t segment_deallocation_function() noexcept
{
  return reinterpret_cast<std::uintptr_t>(&deallocate_segment);
}

}  // namespace rmm_python
