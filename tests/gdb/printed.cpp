// SPDX-License-Identifier: Apache-2.0

// What gdb_printers_tests.py looks at, stopped in look_at_the_caller(). The program prints what the printers have to say.

#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/heap_figures.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/tag_scope.hpp>

#include <cstddef>
#include <cstdio>
#include <optional>
#include <thread>
#include <utility>

extern "C" __attribute__((noinline)) void look_at_the_caller() { asm volatile(""); }

namespace {

void say(char const* name, rmm::heap_figures const& figures)
{
  std::printf(
    "%s %zu %zu %zu %zu\n", name, figures.live_bytes, figures.free_bytes, figures.cached_bytes, figures.reserved_bytes);
}

/// Leaves memory of all kinds in a resource: live and free, small and large, in caches of two threads and of two streams, and in
/// stores of streams.
class users {
 public:
  explicit users(rmm::device_async_resource_ref mr) : kept_{100'000, first_, mr}
  {
    std::thread{[&] { rmm::device_buffer const freed{3'000, second_, mr}; }}.join();
    {
      rmm::device_buffer const small{700, first_, mr};
      rmm::device_buffer const large{300'000, first_, mr};
      rmm::device_buffer const other{40'000, second_, mr};
    }
  }

 private:
  rmm::cuda_stream first_;
  rmm::cuda_stream second_;
  rmm::device_buffer kept_;
};

}  // namespace

int main()
{
  rmm::cuda_stream const stream;
  [[maybe_unused]] rmm::cuda_stream_view const view{stream};
  [[maybe_unused]] rmm::cuda_stream_view const default_stream{};
  [[maybe_unused]] rmm::cuda_device_id const device{3};

  rmm::device_buffer buffer{1000, stream};
  rmm::device_buffer roomy{1000, stream};
  roomy.resize(10, stream);
  rmm::device_buffer moved{10, stream};
  rmm::device_buffer const taken{std::move(moved)};
  rmm::device_uvector<double> const vector{20, stream};
  int const seven = 7;
  rmm::device_scalar<int> const scalar{seven, stream};
  std::printf("stream %p\nbuffer %p\nvector %p\nscalar %p\n",
              static_cast<void*>(stream.value()),
              buffer.data(),
              static_cast<void const*>(vector.data()),
              static_cast<void const*>(scalar.data()));

  rmm::mr::cuda_memory_resource cuda;
  rmm::mr::pool_memory_resource pool{&cuda, 8 << 20};
  rmm::mr::arena_memory_resource<rmm::mr::cuda_memory_resource> arena{&cuda, 8 << 20};
  rmm::mr::elastic_pool_memory_resource elastic{8 << 20};
  rmm::tag const pausable{"pausable"};
  elastic.set_pausable(pausable);
  {
    users const of_pool{pool};
    users const of_arena{arena};
    users const of_elastic{elastic};
    std::optional<rmm::device_buffer> tagged;
    {
      rmm::tag_scope const scope{pausable};
      tagged.emplace(5'000, stream, elastic);
    }
    say("pool", pool.figures());
    say("arena", arena.figures());
    say("elastic", elastic.figures());
    std::fflush(stdout);
    look_at_the_caller();
  }
  return 0;
}
