// SPDX-License-Identifier: Apache-2.0

// A C++ library of RAPIDS from the bridge's view: compiled with the headers of librmm, linked with librmm.so, and loaded by another
// part of the process. test_cpp.py compiles and loads it.

#include <rmm_engine_rapids/engine_resource.hpp>

#include <rmm/cuda_device.hpp>
#include <rmm/error.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>
#include <rmm/resource_ref.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <optional>

namespace {

using any_resource = cuda::mr::any_resource<cuda::mr::device_accessible>;

constexpr std::size_t mib{std::size_t{1} << 20U};
constexpr std::size_t alignment{256};

cuda::stream_ref default_stream() { return cuda::stream_ref{cudaStream_t{nullptr}}; }

std::size_t free_bytes()
{
  std::size_t free{};
  std::size_t total{};
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? free : 0;
}

struct failed_check {
  int line;
};

#define CHECK(condition)                                \
  do {                                                  \
    if (!(condition)) { throw failed_check{__LINE__}; } \
  } while (false)

void check_lifetime()
{
  auto const before = free_bytes();
  void* block{nullptr};
  {
    std::optional<rmm_engine_rapids::engine_resource> made{"pool,initial=64MiB"};
    any_resource owner{*made};
    any_resource const copy{owner};
    CHECK(owner == copy);
    made.reset();
    block = owner.allocate(default_stream(), mib, alignment);
    CHECK(block != nullptr);
    CHECK(before - free_bytes() >= 64 * mib);
    owner.deallocate(default_stream(), block, mib, alignment);
  }
  CHECK(free_bytes() + 16 * mib >= before);  // a real device's runtime takes some memory itself
}

void check_adaptors()
{
  rmm_engine_rapids::engine_resource resource{"elastic,max=64MiB"};
  rmm::mr::statistics_resource_adaptor counted{resource};
  rmm::mr::limiting_resource_adaptor limited{counted, 4 * mib};
  auto* const block = limited.allocate(default_stream(), mib, alignment);
  CHECK(counted.get_bytes_counter().value == static_cast<std::int64_t>(mib));
  CHECK(resource.figures()->live_blocks == 1);
  limited.deallocate(default_stream(), block, mib, alignment);
  CHECK(resource.figures()->live_blocks == 0);
}

void check_tags()
{
  rmm_engine_rapids::engine_resource resource{"elastic,max=64MiB,tags"};
  auto* const block = resource.allocate(default_stream(), mib);
  auto const found  = resource.live_by_tag();
  CHECK(found.size() == 1 && found[0].tag.empty() && found[0].bytes == mib && found[0].allocations == 1);
  resource.deallocate(default_stream(), block, mib);
  CHECK(resource.live_by_tag().empty());
}

void check_failures()
{
  rmm_engine_rapids::engine_resource resource{"pool,initial=1MiB,max=4MiB"};
  any_resource erased{resource};
  bool is_caught{false};
  try {
    static_cast<void>(erased.allocate(default_stream(), 8 * mib, alignment));
  } catch (rmm::out_of_memory const&) {
    is_caught = true;
  }
  CHECK(is_caught);
  CHECK(resource.report()->first.asked_bytes == 8 * mib);
  is_caught = false;
  try {
    rmm_engine_rapids::engine_resource const mistaken{"elastik"};
  } catch (rmm::invalid_argument const&) {
    is_caught = true;
  }
  CHECK(is_caught);
}

void check_synchronous()
{
  rmm_engine_rapids::engine_resource resource{"pool,initial=1MiB"};
  auto* const block = resource.allocate_sync(1000);
  CHECK(cudaMemset(block, 0, 1000) == cudaSuccess);
  resource.deallocate_sync(block, 1000);
  CHECK(resource.figures()->live_blocks == 0);
}

}  // namespace

/// Returns 0, or the line of the check that failed.
extern "C" int check_resource()
{
  try {
    check_lifetime();
    check_adaptors();
    check_tags();
    check_failures();
    check_synchronous();
  } catch (failed_check const& failure) {
    return failure.line;
  } catch (std::exception const& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return -1;
  }
  return 0;
}

/// Allocates from RAPIDS' registry, as C++ libraries do. Returns null on failure.
extern "C" void* allocate_from_registry(int device, std::size_t bytes)
{
  try {
    return rmm::mr::get_per_device_resource_ref(rmm::cuda_device_id{device})
      .allocate(default_stream(), bytes, alignment);
  } catch (std::exception const& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return nullptr;
  }
}

extern "C" void deallocate_to_registry(int device, void* block, std::size_t bytes)
{
  rmm::mr::get_per_device_resource_ref(rmm::cuda_device_id{device})
    .deallocate(default_stream(), block, bytes, alignment);
}

/// Makes the engine the resource of a device, without Python. Returns whether that worked.
extern "C" bool enable_in_registry(int device, char const* configuration)
{
  try {
    rmm::mr::set_per_device_resource(rmm::cuda_device_id{device}, rmm_engine_rapids::engine_resource{configuration});
    return true;
  } catch (std::exception const& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return false;
  }
}
