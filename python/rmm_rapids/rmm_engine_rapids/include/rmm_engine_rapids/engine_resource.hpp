// SPDX-License-Identifier: Apache-2.0
#pragma once

// Compiled with the headers of RAPIDS' librmm, of the release that the program uses. RMM's own C++ headers must not be included,
// because they have the same names.
#include <rmm/error.hpp>

#include <rmm/c/rmm.h>

#include <cuda_runtime_api.h>

#include <cuda/memory_resource>
#include <cuda/stream_ref>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rmm_engine_rapids {

/// Throws the exception that RAPIDS' libraries expect for this thread's last failure.
[[noreturn]] inline void throw_last_failure()
{
  std::string text{rmm_c_last_failure_text()};
  for (std::string_view const prefix :
       {"std::bad_alloc: ", "out_of_memory: "}) {  // RAPIDS' exceptions add these prefixes themselves
    if (text.compare(0, prefix.size(), prefix) == 0) { text.erase(0, prefix.size()); }
  }
  switch (rmm_c_last_failure()) {
    case RMM_C_OUT_OF_MEMORY:
      throw rmm::out_of_memory{text};
    case RMM_C_HOST_OUT_OF_MEMORY:
    case RMM_C_ALLOCATION_FAILED:
      throw rmm::bad_alloc{text};
    case RMM_C_BAD_CONFIGURATION:
    case RMM_C_INVALID_ARGUMENT:
      throw rmm::invalid_argument{text};
    case RMM_C_MISUSE:
      throw rmm::logic_error{text};
    case RMM_C_CUDA_ERROR:
      throw rmm::cuda_error{text};
    default:
      throw std::runtime_error{text};
  }
}

/// The live allocations of one tag.
struct holder {
  std::string tag;  ///< empty for allocations without a tag
  std::uint64_t bytes{};
  std::uint64_t allocations{};
};

/// A memory resource of the engine for `cuda::mr::any_resource` and RAPIDS' registry.
///
/// @code{.cpp}
/// rmm::mr::set_current_device_resource(rmm_engine_rapids::engine_resource{"elastic,max=80%"});
/// @endcode
///
/// Copies share one pool. The pool ends when the last copy is gone and the last block is back.
/// All members are thread-safe, and any device may be current.
class engine_resource {
 public:
  /// Makes the resource that `configuration` describes, such as "elastic,max=80%". With null it is what the environment variable
  /// RMM_RESOURCE says, or "recommended".
  explicit engine_resource(char const* configuration = nullptr, int device = RMM_C_CURRENT_DEVICE)
    : pool_{std::make_shared<pool>(configuration, device)}
  {}

  [[nodiscard]] void* allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment)
  {
    return pool_->allocate(bytes, alignment, stream.get());
  }

  void deallocate(cuda::stream_ref stream,
                  void* block,
                  std::size_t bytes,
                  std::size_t alignment = default_alignment) noexcept
  {
    rmm_c_resource_deallocate(pool_->resource, block, bytes, alignment, stream.get());
  }

  /// Allocates memory that every stream may use immediately: waits on the host for the legacy default stream.
  [[nodiscard]] void* allocate_sync(std::size_t bytes, std::size_t alignment = default_alignment)
  {
    auto* const block = pool_->allocate(bytes, alignment, nullptr);
    if (auto const error = pool_->wait(); error != cudaSuccess) {
      rmm_c_resource_deallocate(pool_->resource, block, bytes, alignment, nullptr);
      throw rmm::cuda_error{std::string{"waiting for the default stream failed: "} + cudaGetErrorString(error)};
    }
    return block;
  }

  void deallocate_sync(void* block, std::size_t bytes, std::size_t alignment = default_alignment) noexcept
  {
    rmm_c_resource_deallocate(pool_->resource, block, bytes, alignment, nullptr);
  }

  [[nodiscard]] bool operator==(engine_resource const& other) const noexcept { return pool_ == other.pool_; }
  [[nodiscard]] bool operator!=(engine_resource const& other) const noexcept { return pool_ != other.pool_; }

  /// Whether other copies share the pool.
  [[nodiscard]] bool is_shared() const noexcept { return pool_.use_count() > 1; }

  friend void get_property(engine_resource const&, cuda::mr::device_accessible) noexcept {}

  /// Returns the device of the resource.
  [[nodiscard]] int device() const noexcept { return rmm_c_resource_device(pool_->resource); }

  /// Gives unused memory back to the device until at most `bytes` bytes stay. Returns the bytes given back. Throws
  /// std::runtime_error if the resource cannot do that.
  std::size_t trim_to(std::size_t bytes)
  {
    std::size_t released{0};
    pool_->expect(rmm_c_resource_trim(pool_->resource, bytes, &released));
    return released;
  }

  /// Returns the figures of the resource; nullopt if it has none.
  [[nodiscard]] std::optional<rmm_c_figures> figures() const
  {
    rmm_c_figures found{};
    found.size        = sizeof found;
    auto const status = rmm_c_resource_figures(pool_->resource, &found);
    if (status == RMM_C_NOT_SUPPORTED) { return std::nullopt; }
    pool_->expect(status);
    return found;
  }

  /// Returns the live bytes of each tag, in descending order. Throws std::runtime_error unless the outermost pool has the option `tags`.
  [[nodiscard]] std::vector<holder> live_by_tag() const
  {
    std::vector<holder> found;
    auto const add = [](void* to, char const* tag, std::uint64_t bytes, std::uint64_t allocations) {
      static_cast<std::vector<holder>*>(to)->push_back({tag, bytes, allocations});
    };
    pool_->expect(rmm_c_resource_visit_tags(pool_->resource, add, &found));
    return found;
  }

  /// Returns the report of the last failed allocation of any thread, with its text; nullopt if none failed, or the resource has no
  /// reports.
  [[nodiscard]] std::optional<std::pair<rmm_c_report, std::string>> report() const
  {
    std::lock_guard<std::mutex> const lock{pool_->mutex};
    return pool_->last_report;
  }

 private:
  static constexpr std::size_t default_alignment{256};

  struct pool {
    pool(char const* configuration, int device) { expect(rmm_c_resource_create(configuration, device, &resource)); }
    ~pool() { rmm_c_resource_destroy(resource); }
    pool(pool const&)            = delete;
    pool& operator=(pool const&) = delete;

    static void expect(rmm_c_status status)
    {
      if (status != RMM_C_OK) { throw_last_failure(); }
    }

    [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment, cudaStream_t stream)
    {
      void* block{nullptr};
      if (rmm_c_resource_allocate(resource, bytes, alignment, stream, &block) != RMM_C_OK) {
        keep_report();
        throw_last_failure();
      }
      return block;
    }

    void keep_report()
    {
      rmm_c_report found{};
      found.size = sizeof found;
      if (rmm_c_last_failure() != RMM_C_OUT_OF_MEMORY || rmm_c_last_failure_report(&found) != RMM_C_OK) { return; }
      std::string text{rmm_c_last_failure_text()};
      std::lock_guard<std::mutex> const lock{mutex};
      last_report.emplace(found, std::move(text));
    }

    /// Waits for the legacy default stream of the device.
    [[nodiscard]] cudaError_t wait() const noexcept
    {
      int current{};
      if (auto const error = cudaGetDevice(&current); error != cudaSuccess) { return error; }
      auto const device = rmm_c_resource_device(resource);
      if (device == current) { return cudaStreamSynchronize(cudaStreamLegacy); }
      if (auto const error = cudaSetDevice(device); error != cudaSuccess) { return error; }
      auto const waited   = cudaStreamSynchronize(cudaStreamLegacy);
      auto const restored = cudaSetDevice(current);
      return waited != cudaSuccess ? waited : restored;
    }

    rmm_c_resource* resource{nullptr};
    mutable std::mutex mutex;
    std::optional<std::pair<rmm_c_report, std::string>> last_report;
  };

  std::shared_ptr<pool> pool_;
};

static_assert(cuda::mr::resource_with<engine_resource, cuda::mr::device_accessible>);

}  // namespace rmm_engine_rapids
