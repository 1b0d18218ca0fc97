// SPDX-License-Identifier: Apache-2.0
//
// INSTRUCTION_BUDGET <what> <times>: repeats one operation for a tool that counts instructions. The difference between two
// runs, divided by the difference of their times, is the cost of one operation.

#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/device_memory_resource.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pinned_pool_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <vector>

namespace {

/// Makes the compiler assume that a value is used and that any memory may have changed.
void use(void const* value) { asm volatile("" : : "g"(value) : "memory"); }

/// Returns the pointer in a way that the compiler cannot see through.
rmm::mr::device_memory_resource* hidden(rmm::mr::device_memory_resource* resource)
{
  asm volatile("" : "+r"(resource));
  return resource;
}

/// Frees one of 100 live blocks of 64 KiB to 1 MiB, and allocates another, of some other size.
void replace_middle_sizes(rmm::mr::device_memory_resource& resource, rmm::cuda_stream_view stream, long times)
{
  struct block {
    void* ptr;
    std::size_t bytes;
  };
  std::uint64_t state = 1;
  auto const draw     = [&](std::uint64_t below) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (state >> 33U) % below;
  };
  auto const allocate = [&] {
    auto const bytes = (std::size_t{64} << 10U) + 256 * static_cast<std::size_t>(draw(3841));
    return block{resource.allocate(bytes, stream), bytes};
  };
  std::array<block, 100> live{};
  for (auto& each : live) { each = allocate(); }
  for (long i = 0; i < times; ++i) {
    auto& each = live[draw(live.size())];
    resource.deallocate(each.ptr, each.bytes, stream);
    each = allocate();
  }
  for (auto const& each : live) { resource.deallocate(each.ptr, each.bytes, stream); }
}

/// Allocates and frees 72 KiB in a pinned pool with `holes` free ranges of 1 KiB.
void use_pinned_pool(std::size_t holes, long times)
{
  constexpr std::size_t hole = std::size_t{1} << 10U;
  constexpr std::size_t next = std::size_t{72} << 10U;
  constexpr std::size_t size = std::size_t{192} << 20U;

  rmm::mr::pinned_pool_memory_resource pool{size, size};
  auto* const resource = hidden(&pool);
  rmm::cuda_stream const stream{rmm::cuda_stream::flags::non_blocking};
  std::vector<void*> blocks(2 * holes);
  for (auto& each : blocks) { each = resource->allocate(hole, stream); }
  for (std::size_t i = 0; i < blocks.size(); i += 2) { resource->deallocate(blocks[i], hole, stream); }
  for (long i = 0; i < times; ++i) {
    void* const ptr = resource->allocate(next, stream);
    use(ptr);
    resource->deallocate(ptr, next, stream);
  }
  for (std::size_t i = 1; i < blocks.size(); i += 2) { resource->deallocate(blocks[i], hole, stream); }
}

void run(char const* what, long times)
{
  if (std::strcmp(what, "pinned-1") == 0) { return use_pinned_pool(1, times); }
  if (std::strcmp(what, "pinned-65536") == 0) { return use_pinned_pool(65536, times); }
  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool{
    &cuda, std::size_t{1} << 30U, std::size_t{1} << 30U};
  rmm::mr::set_current_device_resource(&pool);
  auto* const resource = hidden(&pool);
  {
    rmm::cuda_stream const stream{rmm::cuda_stream::flags::non_blocking};
    auto const repeat = [&](auto&& body) {
      for (long i = 0; i < times; ++i) { body(); }
    };
    if (std::strcmp(what, "pair") == 0) {
      repeat([&] {
        void* const ptr = resource->allocate(256, stream);
        use(ptr);
        resource->deallocate(ptr, 256, stream);
      });
    } else if (std::strcmp(what, "foreign") == 0) {
      cudaStream_t foreign{};
      RMM_CUDA_TRY(cudaStreamCreateWithFlags(&foreign, cudaStreamNonBlocking));
      rmm::cuda_stream_view const view{foreign};
      repeat([&] {
        void* const ptr = resource->allocate(256, view);
        use(ptr);
        resource->deallocate(ptr, 256, view);
      });
      RMM_CUDA_TRY(cudaStreamDestroy(foreign));
    } else if (std::strcmp(what, "arena") == 0) {
      rmm::mr::arena_memory_resource<rmm::mr::cuda_memory_resource> arena{&cuda, std::size_t{1} << 30U};
      auto* const resource_of_arena = hidden(&arena);
      repeat([&] {
        void* const ptr = resource_of_arena->allocate(std::size_t{1} << 20U, stream);
        use(ptr);
        resource_of_arena->deallocate(ptr, std::size_t{1} << 20U, stream);
      });
    } else if (std::strcmp(what, "middle") == 0) {
      replace_middle_sizes(*resource, stream, times);
    } else if (std::strcmp(what, "uvector") == 0) {
      repeat([&] {
        rmm::device_uvector<int> const vector{1000, stream};
        use(vector.data());
      });
    } else if (std::strcmp(what, "getter") == 0) {
      repeat([] { use(rmm::mr::get_current_device_resource()); });
    } else {
      std::fprintf(
        stderr,
        "INSTRUCTION_BUDGET: %s is none of pair, foreign, arena, middle, uvector, getter, pinned-1, pinned-65536\n",
        what);
      std::exit(2);
    }
  }
  rmm::mr::set_current_device_resource(nullptr);
}

}  // namespace

int main(int argc, char** argv)
{
  if (argc != 3) {
    std::fputs("INSTRUCTION_BUDGET <pair|foreign|arena|middle|uvector|getter|pinned-1|pinned-65536> <times>\n", stderr);
    return 2;
  }
  try {
    run(argv[1], std::atol(argv[2]));
  } catch (std::exception const& e) {
    std::fprintf(stderr, "INSTRUCTION_BUDGET: %s\n", e.what());
    return 1;
  }
}
