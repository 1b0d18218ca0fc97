// SPDX-License-Identifier: Apache-2.0
//
// Every resource, adaptor and container is made, used and destroyed many times; each time another call of CUDA or
// another allocation of host memory fails. Nothing may leak or be handed out twice, no exception may leave a destructor
// or a deallocation, and the operation that failed has to work when it is repeated.
//
// The library's assertions are on, and check its invariants after every eighth change. Only failing calls that give
// something back do not end the program, as in a user's program.

#undef RMM_ENABLE_ASSERTIONS
#undef RMM_ENABLE_EXPENSIVE_ASSERTIONS
#define RMM_ENABLE_EXPENSIVE_ASSERTIONS

#include "every_fault.hpp"

#include <rmm/detail/error.hpp>

#undef RMM_DETAIL_ASSERT_CUDA
#define RMM_DETAIL_ASSERT_CUDA(call, text, may_be_gone) static_cast<void>(call)
// Expensive checks take time and may take host memory, so only some are made.
#undef RMM_ASSERT_EXPENSIVE
#define RMM_ASSERT_EXPENSIVE(...)                                                                 \
  (::rmm::test::host_memory_faults::is_to_be_checked()                                            \
     ? (static_cast<void>(::rmm::test::host_memory_faults::exemption{}), RMM_ASSERT(__VA_ARGS__)) \
     : static_cast<void>(0))

#include "../support/nearly_full_pool.hpp"
#include "../support/pool_contents.hpp"
#include "../support/sanitizers.hpp"
#include "../support/seeds.hpp"
#include "../support/simulated.hpp"
#include "../support/temporary_folder.hpp"

#include "librmm/_torch_memory.hpp"

#include <rmm/capture_scope.hpp>
#include <rmm/cuda_device.hpp>
#include <rmm/cuda_stream.hpp>
#include <rmm/cuda_stream_pool.hpp>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/detail/cuda/driver.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#include <rmm/memory_snapshot.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/configured_resource.hpp>
#include <rmm/mr/detail/suballocator.hpp>
#include <rmm/mr/failure_callback_resource_adaptor.hpp>
#include <rmm/mr/memory_reservation.hpp>
#include <rmm/mr/owning_wrapper.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/shared_memory.hpp>
#include <rmm/mr/tracking_resource_adaptor.hpp>
#include <rmm/mr/trimmable_resource.hpp>
#include <rmm/prefetch.hpp>
#include <rmm/tag_scope.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// --- host allocations that fail. Linked with --wrap=calloc; operator new is replaced.

namespace {

/// The first address of the object that contains the code; null if none does.
[[nodiscard]] void const* object_of(void const* code) noexcept
{
  Dl_info info{};
  return dladdr(code, &info) != 0 ? info.dli_fbase : nullptr;
}

/// Whether the simulated runtime is among the callers. Templates that it instantiates may lie in this program.
[[nodiscard]] bool is_called_by_the_runtime() noexcept
{
  static void const* const runtime = object_of(reinterpret_cast<void const*>(&cudasim::leak_report));
  static void const* const program = object_of(reinterpret_cast<void const*>(&is_called_by_the_runtime));
  void* callers[64];
  auto const count = backtrace(callers, 64);
  return std::any_of(callers, callers + count, [](void const* code) {
    auto const* const object = object_of(code);
    return object == runtime && object != program;
  });
}

}  // namespace

bool rmm::test::host_memory_faults::must_fail() noexcept
{
  if (!counts || is_exempt) { return false; }
  auto const n = ++seen;
  if (fails != 0 && n != fails) { return false; }
  exemption const exempt;
  bool const is_runtime = is_called_by_the_runtime();
  if (fails == 0) {
    std::lock_guard<std::mutex> const lock{mutex};
    if (is_runtime) { of_the_runtime.push_back(n); }
    return false;
  }
  if (is_runtime) { return false; }
  fired = true;
  return true;
}

using rmm::test::host_memory_faults;

// Not inlined, because compilers warn about pairs of new and free that they see.
[[gnu::noinline]] void* operator new(std::size_t bytes)
{
  bool const fails = host_memory_faults::must_fail();
  void* const ptr  = fails ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (ptr == nullptr) { throw std::bad_alloc{}; }
  return ptr;
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment)
{
  bool const fails = host_memory_faults::must_fail();
  auto const unit  = static_cast<std::size_t>(alignment);
  void* const ptr  = fails ? nullptr : std::aligned_alloc(unit, (bytes / unit + 1) * unit);
  if (ptr == nullptr) { throw std::bad_alloc{}; }
  return ptr;
}
// Calls the one above, as the C++ library's does. That of AddressSanitizer does not, and operator delete must not free its memory.
[[gnu::noinline]] void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept
{
  try {
    return ::operator new(bytes);
  } catch (std::bad_alloc const&) {
    return nullptr;
  }
}
[[gnu::noinline]] void operator delete(void* ptr) noexcept { std::free(ptr); }
[[gnu::noinline]] void operator delete(void* ptr, std::size_t) noexcept { std::free(ptr); }
[[gnu::noinline]] void operator delete(void* ptr, std::align_val_t) noexcept { std::free(ptr); }
[[gnu::noinline]] void operator delete(void* ptr, std::size_t, std::align_val_t) noexcept { std::free(ptr); }

extern "C" void* __real_calloc(std::size_t count, std::size_t bytes);
extern "C" void* __wrap_calloc(std::size_t count, std::size_t bytes)
{
  return host_memory_faults::must_fail() ? nullptr : __real_calloc(count, bytes);
}

namespace {

using rmm::cuda_stream;
using rmm::cuda_stream_view;
using rmm::mr::configured_resource;
using rmm::mr::device_memory_resource;
using rmm::test::every_fault;
using rmm::test::fault_scenario;
using rmm::test::nearly_full_pool;
using rmm::test::subject;

constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;

/// Blocks of this size bypass the caches.
constexpr std::size_t large = MiB + 256 * KiB;

void check_cuda(cudaError_t status)
{
  if (status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw rmm::cuda_error{cudaGetErrorName(status)};
  }
}

// --- resources under test, and ways to use them

/// Blocks that are freed in any case. A deallocation that throws ends the program.
class blocks {
 public:
  explicit blocks(device_memory_resource& mr) : mr_{mr}
  {
    host_memory_faults::exemption const exempt;
    all_.reserve(32);
  }
  blocks(blocks const&)            = delete;
  blocks& operator=(blocks const&) = delete;
  ~blocks() { free_all(); }

  void* allocate(std::size_t bytes, cuda_stream_view stream)
  {
    void* const ptr = mr_.allocate(bytes, stream);
    all_.push_back({ptr, bytes, stream});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ptr) % 256, 0U);
    write(all_.back());
    return ptr;
  }
  void free(std::size_t which) noexcept
  {
    auto const gone = all_[which];
    all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(which));
    write(gone);
    mr_.deallocate(gone.ptr, gone.bytes, gone.stream);
  }
  void free_all() noexcept
  {
    while (!all_.empty()) { free(all_.size() / 2); }
  }
  /// Lets `stream` free the block later. It waits for work that used the block.
  void hand_over(std::size_t which, cuda_stream_view stream)
  {
    all_[which].stream.synchronize();
    all_[which].stream = stream;
  }
  [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }

 private:
  struct block {
    void* ptr;
    std::size_t bytes;
    cuda_stream_view stream;
  };

  /// Writes the block like a kernel of its owner, for the ordering checker.
  void write(block const& b) const noexcept
  {
    host_memory_faults::exemption const exempt;
    static_cast<void>(cudasim::launch(b.stream.value(), {}, {{b.ptr, b.bytes}}, {}, {"owner"}));
  }

  device_memory_resource& mr_;
  std::vector<block> all_;
};

struct resource_under_test {
  std::string name;
  std::function<std::shared_ptr<device_memory_resource>()> make;
  std::size_t largest;  ///< most bytes of an allocation
  bool is_pool{false};  ///< serves captures, and serves small blocks without device calls
};

struct way_to_use {
  char const* name;
  std::function<void(device_memory_resource&, std::size_t largest)> run;
  std::function<bool(resource_under_test const&)> fits{[](auto const&) { return true; }};
};

class used_resource final : public subject {
 public:
  used_resource(resource_under_test const& what, way_to_use const& how) : what_{what}, how_{how}, mr_{what.make()} {}

  void use() override { how_.run(*mr_, what_.largest); }

  void check() override
  {
    auto const now = rmm::test::figures_of(*mr_);
    if (!now) { return; }
    EXPECT_EQ(now->live_bytes, 0U);
    EXPECT_LE(now->free_bytes, now->reserved_bytes);
    EXPECT_LE(now->reserved_bytes - now->free_bytes, 255 * now->upstream_blocks + now->graph_bytes)
      << "of " << now->reserved_bytes << " bytes some are neither live nor free";
  }

 private:
  resource_under_test const& what_;
  way_to_use const& how_;
  std::shared_ptr<device_memory_resource> mr_;
};

// --- the resources

std::vector<resource_under_test> const& resources()
{
  static auto const configured = [](std::string text, std::size_t largest, bool is_pool) {
    return resource_under_test{text, [text] { return configured_resource{text}.share(); }, largest, is_pool};
  };
  static auto const with_file = [](std::string text, char const* file, bool is_pool) {
    static rmm::test::temporary_folder const folder;
    return resource_under_test{text + ",log=" + file,
                               [whole = text + ",log=" + folder / file] { return configured_resource{whole}.share(); },
                               large,
                               is_pool};
  };
  using rmm::mr::cuda_memory_resource;
  static std::vector<resource_under_test> const all{
    configured("cuda", large, false),
    configured("managed", large, false),
    configured("managed,prefetch", large, false),
    configured("pinned_host", large, false),
    configured("registered_host", large, false),
    configured("cuda_async", large, false),
    configured("cuda_async,initial=1MiB,threshold=8MiB", large, false),
    configured("cuda_async_view", large, false),
    configured("cuda_async_managed", large, false),
    configured("cuda_async_managed,threshold=8MiB", large, false),
    configured("pool", large, true),
    configured("pool,initial=64KiB,max=8MiB", large, true),
    configured("pool,initial=1MiB,upstream=cuda_async", large, true),
    configured("pool,upstream=pinned_host", large, true),
    configured("pool,upstream=(pool,initial=4MiB)", large, true),
    configured("pinned_pool,initial=2MiB", large, true),
    configured("elastic", large, true),
    configured("elastic,initial=4MiB,max=16MiB,share=fd,peer_access", large, true),
    configured("elastic,chunk=4MiB", large, true),
    configured("cached", large, true),
    configured("cached,block=64KiB,max=8MiB", large, true),
    configured("arena,size=8MiB", large, true),
    configured("fixed_size,block=64KiB,preallocate=2", 64 * KiB, true),
    configured("binning,smallest=1KiB,largest=32KiB", large, true),
    configured("binning,smallest=1KiB,largest=32KiB,upstream=cuda", large, true),
    configured("recommended", large, true),
    configured("pool,guard", 4 * KiB, true),
    configured("cuda,alignment=4KiB", large, false),
    configured("pool,limit=16MiB,statistics,thread_safe", large, true),
    configured("cuda,scrub", large, false),
    configured("pool,scrub", large, true),
    configured("system", large, false),
    configured("sam_headroom,headroom=1MiB", large, false),
    configured("pool,upstream=(sam_headroom,headroom=1MiB)", large, true),
    with_file("cuda", "log.csv", false),
    with_file("pool", "log.csv", true),
    with_file("cuda", "trace.bin", false),
    with_file("pool", "trace.bin", true),
    {"tracking",
     [] {
       return rmm::mr::make_owning_wrapper<rmm::mr::tracking_resource_adaptor>(
         std::make_shared<rmm::mr::cuda_memory_resource>(), true);
     },
     large},
    {"failure_callback",
     []() -> std::shared_ptr<device_memory_resource> {
       using adaptor = rmm::mr::failure_callback_resource_adaptor<cuda_memory_resource>;
       static cuda_memory_resource cuda;
       return std::make_shared<adaptor>(
         &cuda,
         [](std::size_t, void* retries) { return ++*static_cast<int*>(retries) % 2 == 0; },
         [] {
           static int retries;
           return static_cast<void*>(&retries);
         }());
     },
     large},
    {"callback",
     []() -> std::shared_ptr<device_memory_resource> {
       static cuda_memory_resource cuda;
       return std::make_shared<rmm::mr::callback_memory_resource>(
         [](std::size_t bytes, cuda_stream_view stream, void*) { return cuda.allocate(bytes, stream); },
         [](void* ptr, std::size_t bytes, cuda_stream_view stream, void*) { cuda.deallocate(ptr, bytes, stream); });
     },
     large},
  };
  return all;
}

// --- the ways to use them

bool is_pool(resource_under_test const& what) { return what.is_pool; }

constexpr std::size_t more_than_there_is = std::size_t{1} << 45U;

/// Whether the host gives addresses without memory, as some do (vm.overcommit_memory).
bool host_gives(std::size_t bytes)
{
  host_memory_faults::exemption const exempt;
  void* volatile given = std::malloc(bytes);  // volatile: compilers may leave out a pair of calls
  std::free(given);
  return given != nullptr;
}

/// Whether the runtime that the tests are compiled for supports the resource.
bool is_there(resource_under_test const& what)
{
  return CUDART_VERSION >= 13000 || what.name.rfind("cuda_async_managed", 0) != 0;
}

/// Runs the task on a thread that then ends. Rethrows its exception here.
template <class Task>
void on_another_thread(Task task)
{
  std::exception_ptr thrown;
  std::optional<std::thread> other;
  {
    host_memory_faults::exemption const exempt;
    other.emplace([&] {
      try {
        task();
      } catch (...) {
        thrown = std::current_exception();
      }
    });
  }
  other->join();
  if (thrown) { std::rethrow_exception(thrown); }
}

class raw_stream {
 public:
  raw_stream() { check_cuda(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking)); }
  raw_stream(raw_stream const&)            = delete;
  raw_stream& operator=(raw_stream const&) = delete;
  ~raw_stream() { static_cast<void>(cudaStreamDestroy(handle_)); }
  [[nodiscard]] cuda_stream_view view() const noexcept { return handle_; }

 private:
  cudaStream_t handle_{};
};

std::vector<way_to_use> const& uses()
{
  static std::vector<way_to_use> const all{
    {"one block",
     [](device_memory_resource& mr, std::size_t) {
       cuda_stream const stream;
       blocks{mr}.allocate(1000, stream);
     }},
    {"blocks of many sizes on two streams",
     [](device_memory_resource& mr, std::size_t largest) {
       cuda_stream const first;
       cuda_stream const second{cuda_stream::flags::non_blocking};
       blocks live{mr};
       std::size_t const sizes[]{256, 1000, 40 * KiB, 256, 20 * KiB, largest, 256, largest / 2};
       for (auto const bytes : sizes) {
         live.allocate(bytes, first);
         live.allocate(bytes / 2 + 1, second);
         if (live.size() > 6) { live.free(live.size() / 3); }
       }
       live.hand_over(0, second);
     }},
    {"a block that goes from stream to stream",
     [](device_memory_resource& mr, std::size_t largest) {
       cuda_stream const streams[3];
       for (std::size_t i = 0; i < 6; ++i) {
         blocks live{mr};
         live.allocate(largest, streams[i % 3]);
         live.allocate(300, streams[i % 3]);
       }
     }},
    {"streams that end",
     [](device_memory_resource& mr, std::size_t largest) {
       for (int i = 0; i < 3; ++i) {
         raw_stream const stream;
         {
           blocks live{mr};
           live.allocate(2000, stream.view());
           live.allocate(largest, stream.view());
         }
         stream.view().synchronize();
       }
     }},
    {"default streams",
     [](device_memory_resource& mr, std::size_t largest) {
       blocks live{mr};
       for (auto const stream : {rmm::cuda_stream_legacy, rmm::cuda_stream_per_thread, cuda_stream_view{}}) {
         live.allocate(5000, stream);
         live.allocate(largest / 4, stream);
       }
     }},
    {"a thread that ends",
     [](device_memory_resource& mr, std::size_t) {
       cuda_stream const stream;
       blocks live{mr};
       on_another_thread([&] {
         live.allocate(3000, stream);
         blocks own{mr};
         own.allocate(3000, stream);
       });
       on_another_thread([&] { live.free_all(); });
       live.allocate(3000, stream);
     }},
    {"memory that is given back",
     [](device_memory_resource& mr, std::size_t largest) {
       auto* const trimmable = dynamic_cast<rmm::mr::trimmable_resource*>(&mr);
       cuda_stream const stream;
       for (int i = 0; i < 2; ++i) {
         {
           blocks live{mr};
           live.allocate(largest, stream);
           live.allocate(1000, stream);
         }
         if (trimmable != nullptr) { trimmable->release_unused(); }
       }
     },
     [](resource_under_test const& what) {
       return dynamic_cast<rmm::mr::trimmable_resource*>(what.make().get()) != nullptr;
     }},
    {"more than there is",
     [](device_memory_resource& mr, std::size_t largest) {
       cuda_stream const stream;
       blocks live{mr};
       live.allocate(1000, stream);
       bool refused = false;
       try {
         live.allocate(more_than_there_is, stream);
       } catch (std::bad_alloc const&) {
         refused = true;
       } catch (rmm::logic_error const&) {
         refused = true;
       }
       EXPECT_TRUE(refused);
       live.allocate(largest, stream);
     },
     [](resource_under_test const& what) {
       auto const has      = [&](char const* part) { return what.name.find(part) != std::string::npos; };
       bool const of_host  = has("host") || has("pinned");
       bool const of_pages = has("system") || has("sam_headroom");
       return !of_host && !(of_pages && host_gives(more_than_there_is));
     }},
    {"a capture",
     [](device_memory_resource& mr, std::size_t) {
       cuda_stream const stream{cuda_stream::flags::non_blocking};
       rmm::graph_memory memory;
       check_cuda(cudaStreamBeginCapture(stream.value(), cudaStreamCaptureModeThreadLocal));
       rmm::detail::scope_guard const end_capture{[&]() noexcept {
         cudaGraph_t graph{};
         static_cast<void>(cudaStreamEndCapture(stream.value(), &graph));
         static_cast<void>(cudaGetLastError());
         if (graph != nullptr) { static_cast<void>(cudaGraphDestroy(graph)); }
       }};
       rmm::capture_scope const scope{stream, memory};
       blocks live{mr};
       live.allocate(2000, stream);
       live.allocate(30 * KiB, stream);
       live.free(0);
       live.allocate(2000, stream);
     },
     is_pool},
    {"snapshots and tags",
     [](device_memory_resource& mr, std::size_t) {
       auto& pool = dynamic_cast<rmm::mr::detail::growing_pool&>(mr);
       cuda_stream const stream;
       pool.track_tags();
       rmm::detail::scope_guard const stop{[&]() noexcept { pool.track_tags(false); }};
       rmm::tag_scope const tagged{"training"};
       blocks live{mr};
       live.allocate(1000, stream);
       live.allocate(3000, stream);
       EXPECT_EQ(pool.live_by_tag_name().size(), 1U);
       auto const seen = pool.snapshot();
       EXPECT_FALSE(seen.blocks.empty());
     },
     [](resource_under_test const& what) {
       return dynamic_cast<rmm::mr::detail::growing_pool*>(what.make().get()) != nullptr;
     }},
    {"a reservation",
     [](device_memory_resource& mr, std::size_t) {
       auto& pool = dynamic_cast<rmm::mr::detail::growing_pool&>(mr);
       cuda_stream const stream;
       auto reserved = pool.reserve(64 * KiB, stream);
       {
         blocks live{reserved.resource()};
         live.allocate(20 * KiB, stream);
         live.allocate(256, stream);
         reserved.shrink_to(40 * KiB);
       }
       if (auto const second = pool.try_reserve(8 * KiB, stream)) { EXPECT_EQ(second->bytes(), 8 * KiB); }
     },
     [](resource_under_test const& what) {
       return dynamic_cast<rmm::mr::detail::growing_pool*>(what.make().get()) != nullptr;
     }},
    {"the current resource of the device",
     [](device_memory_resource& mr, std::size_t) {
       rmm::mr::set_current_device_resource(&mr);
       rmm::detail::scope_guard const restore{[]() noexcept { rmm::mr::reset_current_device_resource(); }};
       cuda_stream const stream;
       rmm::device_buffer const buffer{1000, stream};
       rmm::device_buffer const copy{buffer, stream};
     }},
  };
  return all;
}

// --- containers

/// Static, because a stream may still read it later.
int const numbers[1000]{1, 2, 3};

std::vector<way_to_use> const& container_uses()
{
  using rmm::device_buffer;
  using rmm::device_scalar;
  using rmm::device_uvector;
  // The simulator does not know the system's memory, and refuses to fill it.
  static auto const is_cuda = [](resource_under_test const& what) {
    return what.name != "system" && what.name.find("sam_headroom") == std::string::npos;
  };
  static std::vector<way_to_use> const all{
    {"buffers",
     [](device_memory_resource& mr, std::size_t) {
       cuda_stream const stream;
       cuda_stream const other;
       device_buffer buffer{numbers, sizeof numbers, stream, &mr};
       buffer.resize(12'000, stream);
       buffer.reserve(20'000, stream);
       buffer.shrink_to_fit(stream);
       device_buffer copy{buffer, stream, &mr};
       device_buffer moved{std::move(buffer)};
       moved.set_stream(stream);
       moved = device_buffer{100, 1024, stream, &mr};
       copy.resize(0, stream);
       copy.shrink_to_fit(stream);
       stream.synchronize();
     }},
    {"vectors",
     [](device_memory_resource& mr, std::size_t) {
       cuda_stream const stream;
       device_uvector<int> vector(1000, stream, &mr);
       vector.resize(3000, stream);
       vector.set_element_async(5, numbers[0], stream);
       vector.set_element_to_zero_async(6, stream);
       device_uvector<int> const copy{vector, stream, &mr};
       EXPECT_EQ(copy.element(5, stream), numbers[0]);
       EXPECT_EQ(copy.element(6, stream), 0);
       vector.shrink_to_fit(stream);
       auto const storage = vector.release();
     },
     is_cuda},
    {"scalars",
     [](device_memory_resource& mr, std::size_t) {
       cuda_stream const stream;
       device_scalar<int> scalar{numbers[1], stream, &mr};
       device_scalar<int> const copy{scalar, stream, &mr};
       scalar.set_value_async(numbers[2], stream);
       EXPECT_EQ(copy.value(stream), numbers[1]);
       EXPECT_EQ(scalar.value(stream), numbers[2]);
       scalar.set_value_to_zero_async(stream);
     },
     is_cuda},
    {"containers that are prefetched",
     [](device_memory_resource& mr, std::size_t) {
       cuda_stream const stream;
       device_buffer const buffer{8000, stream, &mr};
       rmm::prefetch(buffer.data(), buffer.size(), rmm::get_current_cuda_device(), stream);
     }},
  };
  return all;
}

// --- objects that other code does not use as resources

template <class Run>
class plain final : public subject {
 public:
  explicit plain(Run run) : run_{std::move(run)} {}
  void use() override { run_(); }

 private:
  Run run_;
};

template <class Run>
fault_scenario scenario_of(char const* name, Run run)
{
  return {name, [run] { return std::make_unique<plain<Run>>(run); }};
}

/// If the driver does not answer, the pool works without virtual memory, and logs that.
bool can_pause(rmm::mr::elastic_pool_memory_resource const& pool) { return pool.has_virtual_memory(); }

class elastic_pool final : public subject {
 public:
  elastic_pool()
    : pool_{[] {
        rmm::mr::elastic_pool_options options;
        options.initial_bytes = 2 * MiB;
        options.maximum_bytes = 6 * MiB;
        return options;
      }()}
  {}

  void use() override
  {
    if (!can_pause(pool_)) { return; }
    if (pool_.is_paused()) { pool_.resume(); }
    cuda_stream const stream;
    blocks live{pool_};
    for (int i = 0; i < 3; ++i) { live.allocate(2 * MiB, stream); }
    live.free(2);
    live.free(0);
    live.allocate(3 * MiB, stream);  // was in pieces until now
    live.free_all();
    live.allocate(1000, stream);
    pool_.pause();
    resume();
    pool_.pause(rmm::mr::paused_contents::kept_pinned);
    resume();
    live.free_all();
    pool_.trim_to(2 * MiB);
    pool_.tick();
  }

  void check() override
  {
    EXPECT_EQ(pool_.figures().live_bytes, 0U);
    auto const physical = cudasim::usage(0).physical;  // includes chunks that could not be mapped and are kept
    EXPECT_LE(physical, 6 * MiB);
    if (can_pause(pool_) && !pool_.is_paused()) { EXPECT_GE(physical, pool_.pool_size()); }
  }

 private:
  /// Blocks are freed in any case, and their memory has to be mapped for that.
  void resume()
  {
    try {
      pool_.resume();
    } catch (std::exception const&) {
      pool_.resume();
      throw;
    }
  }

  rmm::mr::elastic_pool_memory_resource pool_;
};

class shared_pool final : public subject {
 public:
  shared_pool()
    : pool_{[] {
        rmm::mr::elastic_pool_options options;
        options.share_descriptors = true;
        return options;
      }()}
  {}

  void use() override
  {
    cuda_stream const stream;
    blocks live{pool_};
    void* const shared = live.allocate(2 * MiB, stream);
    auto const sent    = pool_.export_descriptors(shared, 2 * MiB);
    std::vector<int> descriptors;
    for (auto const& each : sent.chunks) { descriptors.push_back(each.get()); }
    rmm::mr::imported_memory const received{rmm::get_current_cuda_device(), sent.block, descriptors};
    EXPECT_EQ(received.size(), 2 * MiB);
  }
  void check() override { EXPECT_EQ(pool_.figures().live_bytes, 0U); }

 private:
  rmm::mr::elastic_pool_memory_resource pool_;
};

class elastic_parts final : public subject {
 public:
  elastic_parts()
  {
    if (can_pause(pool_)) { pool_.set_pausable(weights_); }
  }

  void use() override
  {
    if (!can_pause(pool_)) { return; }
    cuda_stream const stream;
    blocks live{pool_};
    live.allocate(1000, stream);
    {
      rmm::tag_scope const tagged{weights_};
      live.allocate(1000, stream);
    }
    pool_.pause(weights_);
    try {
      pool_.resume(weights_);
    } catch (std::exception const&) {
      pool_.resume(weights_);
      throw;
    }
    live.free_all();
    pool_.release_unused();
  }
  void check() override { EXPECT_EQ(pool_.figures().live_bytes, 0U); }

 private:
  rmm::tag weights_{"weights"};
  rmm::mr::elastic_pool_memory_resource pool_;
};

// --- pools with little free memory, and calls that meet

constexpr std::size_t memory_of_a_large_pool = 2048 * MiB;

/// Two streams whose caches gather blocks, lose them to each other, and end.
class gathered_blocks final : public subject {
 public:
  explicit gathered_blocks(std::shared_ptr<device_memory_resource> pool) : pool_{std::move(pool)} {}

  void use() override
  {
    cuda_stream const first;
    cuda_stream const second;
    blocks live{*pool_};
    for (int i = 0; i < 3; ++i) {
      for (auto const bytes : {100 * KiB, 130 * KiB, 200 * KiB, 100 * KiB}) {
        live.allocate(bytes, first);
        live.allocate(bytes, second);
      }
      while (live.size() > 2) { live.free(0); }
      live.allocate(130 * KiB, first);  // gathered before
      live.allocate(large, first);      // freed below, and takes along what is gathered
      live.free_all();
    }
    live.allocate(100 * KiB, first);
    on_another_thread([&] {
      blocks own{*pool_};
      own.allocate(100 * KiB, second);
      own.allocate(200 * KiB, second);
    });
    live.free_all();
    for (auto const& stream : {first.view(), second.view()}) {
      live.allocate(200 * KiB, stream);
      live.allocate(130 * KiB, stream);
      live.free_all();
      live.allocate(70 * MiB, stream);  // nearly all that is left, so also what both have gathered
      live.free_all();
    }
  }

  void check() override
  {
    auto const now = rmm::test::figures_of(*pool_);
    EXPECT_EQ(now->live_bytes, rmm::test::live_in_nearly_full_pool);
    EXPECT_EQ(now->live_bytes + now->free_bytes, now->reserved_bytes);
  }

 private:
  std::shared_ptr<device_memory_resource> pool_;
};

/// Two threads make the same calls at the same time. So one waits for the heap's lock, or leaves its section to the other.
class calls_that_meet final : public subject {
 public:
  explicit calls_that_meet(std::shared_ptr<device_memory_resource> mr) : mr_{std::move(mr)}
  {
    live_before_ = rmm::test::figures_of(*mr_)->live_bytes;
  }

  void use() override
  {
    cuda_stream const streams[2];
    std::array<std::exception_ptr, 2> thrown;
    meeting point;
    auto const run = [&](std::size_t who) {
      try {
        allocate_and_free(streams[who], point);
      } catch (...) {
        thrown[who] = std::current_exception();
      }
      point.leave();
      last_errors_[who] = cudaGetLastError();
    };
    {
      host_memory_faults::exemption const exempt;
      std::thread first{run, 0};
      std::thread second{run, 1};
      first.join();
      second.join();
    }
    EXPECT_FALSE(thrown[0] && thrown[1]) << "one fault makes both threads fail";
    for (auto const& each : thrown) {
      if (each) { std::rethrow_exception(each); }
    }
  }

  void check() override
  {
    EXPECT_EQ(rmm::test::figures_of(*mr_)->live_bytes, live_before_);
    for (auto const error : last_errors_) { EXPECT_EQ(error, cudaSuccess) << "a thread's last error is not cleared"; }
  }

 private:
  /// Lets two threads go on together, until one of them leaves.
  class meeting {
   public:
    void meet() noexcept
    {
      auto const all = arrived_.fetch_add(1) / 2 * 2 + 2;
      for (int turn = 0; arrived_ < all && !is_over_; ++turn) {
        if (turn > 1000) { std::this_thread::yield(); }
      }
    }
    void leave() noexcept { is_over_ = true; }

   private:
    std::atomic<int> arrived_{0};
    std::atomic<bool> is_over_{false};
  };

  void allocate_and_free(cuda_stream_view stream, meeting& point)
  {
    blocks live{*mr_};
    for (int i = 0; i < 2; ++i) {
      for (auto const bytes : {large, 100 * KiB, large / 2}) {
        point.meet();
        live.allocate(bytes, stream);
      }
      while (live.size() != 0) {
        point.meet();
        live.free(0);
      }
    }
  }

  std::shared_ptr<device_memory_resource> mr_;
  std::size_t live_before_{};
  std::array<cudaError_t, 2> last_errors_{};
};

void add_scenarios_of_large_pools(std::vector<fault_scenario>& all)
{
  all.push_back({"blocks that are gathered",
                 [] { return std::make_unique<gathered_blocks>(nearly_full_pool()); },
                 memory_of_a_large_pool});
  all.push_back({"a pool that is nearly full: calls that meet",
                 [] { return std::make_unique<calls_that_meet>(nearly_full_pool()); },
                 memory_of_a_large_pool});
  for (std::string const text : {"pool,initial=8MiB,max=8MiB", "elastic,max=16MiB", "cached,block=8MiB,max=16MiB"}) {
    all.push_back({text + ": calls that meet",
                   [text] { return std::make_unique<calls_that_meet>(configured_resource{text}.share()); }});
  }
}

std::vector<fault_scenario> other_scenarios()
{
  std::vector<fault_scenario> all{
    scenario_of("streams",
                [] {
                  cuda_stream first;
                  cuda_stream const second{cuda_stream::flags::non_blocking};
                  cuda_stream const moved{std::move(first)};
                  moved.synchronize();
                  EXPECT_TRUE(moved.view().is_default() || moved.is_valid());
                }),
    scenario_of("a pool of streams",
                [] {
                  rmm::cuda_stream_pool pool{5};
                  pool.get_stream().synchronize();
                  pool.get_stream(3).synchronize();
                }),
    scenario_of("a resource of another device",
                [] {
                  rmm::cuda_set_device_raii const second{rmm::cuda_device_id{1}};
                  auto const resource = configured_resource{"pool,initial=1MiB"};
                  cuda_stream const stream;
                  blocks{*resource}.allocate(1000, stream);
                }),
    scenario_of("questions about the device",
                [] {
                  EXPECT_GT(rmm::available_device_memory().second, 0U);
                  static_cast<void>(rmm::get_current_cuda_device());
                  EXPECT_GT(rmm::percent_of_free_device_memory(50), 0U);
                }),
    scenario_of("PyTorch's blocks and segments",
                [] {
                  configured_resource const made{"pool,initial=1MiB"};
                  auto const* const heap = made.find<rmm::mr::detail::suballocator>();
                  rmm_python::owners().set(0, made.share());
                  rmm::detail::scope_guard const unset{[]() noexcept { rmm_python::owners().set(0, nullptr); }};
                  rmm_python::torch_memory torch;
                  cuda_stream const stream{cuda_stream::flags::non_blocking};
                  cuda_stream const other{cuda_stream::flags::non_blocking};
                  for (int i = 0; i < 2; ++i) {
                    void* const ptr = torch.allocate(1000, 0, stream.value());
                    rmm::detail::scope_guard const give_back{
                      [&]() noexcept { torch.deallocate(ptr, 1000, 0, stream.value()); }};
                    torch.add_user(ptr, other.value());
                  }
                  auto const live     = heap->figures().live_bytes;
                  void* const segment = torch.allocate_segment(5000, 0);
                  if (segment != nullptr) { torch.deallocate_segment(segment, 0); }
                  EXPECT_TRUE(segment != nullptr || heap->figures().live_bytes <= live);
                  torch.free_postponed();
                  EXPECT_EQ(torch.figures(0).bytes[0].current, 0U);
                }),
  };
  all.push_back({"an elastic pool", [] { return std::make_unique<elastic_pool>(); }});
  all.push_back({"an elastic pool that is shared", [] { return std::make_unique<shared_pool>(); }});
  all.push_back({"parts of an elastic pool", [] { return std::make_unique<elastic_parts>(); }});
  add_scenarios_of_large_pools(all);
  return all;
}

std::vector<fault_scenario> every_scenario()
{
  auto all = other_scenarios();
  for (auto const* const list : {&uses(), &container_uses()}) {
    for (auto const& how : *list) {
      for (auto const& what : resources()) {
        if (!is_there(what) || !how.fits(what)) { continue; }
        all.push_back(
          {what.name + ": " + how.name, [&what, &how] { return std::make_unique<used_resource>(what, how); }});
      }
    }
  }
  return all;
}

/// Prints the fault during which the program ended.
void report_and_end(int signal)
{
  every_fault::describe_to(STDERR_FILENO);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

std::size_t number_from(char const* name, std::size_t otherwise)
{
  auto const* const given = std::getenv(name);
  return given != nullptr ? std::strtoull(given, nullptr, 10) : otherwise;
}

/// Every scenario, in two halves that can run concurrently: each has every second one.
class EveryFault : public ::testing::TestWithParam<std::size_t> {
 protected:
  EveryFault()
  {
    for (auto const signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) { std::signal(signal, report_and_end); }
    faults.start_machine = [](std::size_t memory_bytes) {
      cudasim::options machine;
      machine.devices        = 2;
      machine.memory_bytes   = memory_bytes;
      machine.mode           = cudasim::execution::stepped;
      machine.check_ordering = true;
      Simulated::start(machine);
      for (int device = 0; device < machine.devices; ++device) {
        cudasim::set_device_attribute(device, cudaDevAttrPageableMemoryAccess, 1);
      }
    };
    faults.name_for_driver = [](cudaError_t error) {
      char const* name{};
      static_cast<void>(rmm::detail::driver().error_name(static_cast<CUresult>(error), &name));
      return std::string{name != nullptr ? name : "unknown to the driver"};
    };
    faults.start_machine(64 * MiB);
    auto const all   = every_scenario();
    auto const parts = std::max(number_from("RMM_TEST_PARTS", 1), std::size_t{1});
    auto const part  = number_from("RMM_TEST_PART", 0);
    for (auto i = GetParam() + 2 * part; i < all.size(); i += 2 * parts) {
      if (only == nullptr || all[i].name.find(only) != std::string::npos) { scenarios.push_back(all[i]); }
    }
  }

  /// Tries one in `one_of` faults, drawn by a seed: of all scenarios, or of some until `most` were tried.
  void run_some(std::uint64_t one_of, std::size_t most)
  {
    auto const seed = rmm::test::drawn_seed();
    std::printf("RMM_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
    std::fflush(stdout);  // printed even if the program ends in a fault
    SCOPED_TRACE("RMM_TEST_SEED=" + std::to_string(seed));
    std::mt19937_64 random{seed};
    std::shuffle(scenarios.begin(), scenarios.end(), random);
    faults.is_drawn = [&] { return random() % one_of == 0; };
    while (faults.triples() < most && count < scenarios.size()) { faults.run(scenarios[count++]); }
  }

  void run_all()
  {
    for (; count < scenarios.size(); ++count) { faults.run(scenarios[count]); }
  }

  void print() const
  {
    std::printf(
      "%zu scenarios, %llu runs with a fault, %zu distinct (scenario, call, error), %llu of them of host memory, %llu "
      "of "
      "calls that end something, %llu exceptions, %llu with the error's name\n",
      count,
      static_cast<unsigned long long>(faults.runs()),
      faults.triples(),
      static_cast<unsigned long long>(faults.of_host_memory()),
      static_cast<unsigned long long>(faults.of_ends()),
      static_cast<unsigned long long>(faults.thrown()),
      static_cast<unsigned long long>(faults.named()));
  }

  every_fault faults;
  char const* const only{std::getenv("RMM_TEST_SCENARIO")};
  std::vector<fault_scenario> scenarios;
  std::size_t count{0};
};

TEST_P(EveryFault, LosesNothingAndIsReported)
{
  bool const is_given = std::getenv("RMM_TEST_FAULTS") != nullptr;
  auto enough         = std::size_t{10'000};
  if (only != nullptr || std::getenv("RMM_TEST_EVERY_FAULT") != nullptr) {
    run_all();
  } else if (is_given || RMM_TEST_UNDER_SANITIZER) {
    enough = number_from("RMM_TEST_FAULTS", 1'000);
    run_some(8, enough);
  } else {
    run_some(4, std::numeric_limits<std::size_t>::max());
  }
  print();
  if (only == nullptr && std::getenv("RMM_TEST_PARTS") == nullptr) { EXPECT_GE(faults.triples(), enough); }
}

INSTANTIATE_TEST_SUITE_P(Halves, EveryFault, ::testing::Values(std::size_t{0}, std::size_t{1}));

}  // namespace
