// SPDX-License-Identifier: Apache-2.0
//
// A program with pools, whose libraries allocate from the driver, in the way that its first argument says. librmm_audit.so is preloaded
// with RMM_AUDIT=route:current, so the pools serve the libraries.

#include "caller.hpp"
#include "require.hpp"

#include <rmm/c/rmm.h>
#include <rmm/cuda_device.hpp>
#include <rmm/detail/base/audit_library.hpp>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/audit_route.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include <cudasim/cudasim.h>

#include <cuda_runtime_api.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

// Two libraries without RMM: one that allocates, and one that resources of this program take their memory by.
extern "C" caller const user __asm__("first");
extern "C" caller const source __asm__("next");

namespace {

using memory_resource = rmm::mr::device_memory_resource;
using pool            = rmm::mr::pool_memory_resource<memory_resource>;
using statistics      = rmm::mr::statistics_resource_adaptor<memory_resource>;

constexpr std::size_t mib = std::size_t{1} << 20U;

[[nodiscard]] memory allocated(char const* kind, std::size_t bytes, CUstream stream = nullptr)
{
  return allocated(user, way::by_name, kind, bytes, stream);
}

void release(char const* kind, memory const& given, CUstream stream = nullptr)
{
  release(user, way::by_name, kind, given, stream);
}

[[nodiscard]] CUresult result_of_allocation(std::size_t bytes)
{
  memory got{};
  return user.allocate(way::by_name, "device", bytes, nullptr, got);
}

/// Takes memory from the driver by a library that has no RMM inside. It holds a lock meanwhile, as real ones do.
class library_resource final : public memory_resource {
 public:
  [[nodiscard]] int calls() const { return calls_; }
  [[nodiscard]] std::size_t live() const { return live_; }
  [[nodiscard]] bool has(memory const& given) const
  {
    for (auto const& [begin, bytes] : blocks_) {
      if (given.number - begin < bytes) { return true; }
    }
    return false;
  }

 private:
  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view) override
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    ++calls_;
    memory got{};
    if (source.allocate(way::by_name, "device", bytes, nullptr, got) != CUDA_SUCCESS) {
      throw rmm::out_of_memory{"none"};
    }
    live_ += bytes;
    blocks_[got.number] = bytes;
    return pointer_to(got);
  }

  void do_deallocate(void* ptr, std::size_t bytes, rmm::cuda_stream_view) noexcept override
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    auto const number = reinterpret_cast<std::uintptr_t>(ptr);
    blocks_.erase(number);
    live_ -= bytes;
    REQUIRE(source.release(way::by_name, "device", {number, 0}, nullptr) == CUDA_SUCCESS);
  }

  std::mutex mutex_;
  int calls_{0};
  std::size_t live_{0};
  std::map<std::uint64_t, std::size_t> blocks_;
};

/// A pool that is the current resource of a device, and where its memory comes from.
struct current_pool {
  explicit current_pool(std::size_t initial = mib, std::optional<std::size_t> maximum = std::nullopt, int device = 0)
    : resource{std::make_unique<pool>(&upstream, initial, maximum)}
  {
    rmm::mr::set_per_device_resource(rmm::cuda_device_id{device}, resource.get());
  }
  [[nodiscard]] std::size_t live() const { return resource->figures().live_bytes; }

  library_resource upstream;
  std::unique_ptr<pool> resource;
};

void serves()
{
  current_pool made;
  rmm::mr::audit_route const route;
  REQUIRE(route.is_active());
  streams const s;
  auto const one = allocated("device", 5000);
  auto const two = allocated("async", 7000, s.one);
  REQUIRE(made.upstream.has(one) && made.upstream.has(two));
  REQUIRE(route.live_bytes() == 12000 && made.live() >= 12000);
  use(s.two, one, 5000);
  use(s.one, two, 7000);
  release("device", one);
  release("async", two, s.one);
  REQUIRE(route.live_bytes() == 0 && made.live() == 0);
  REQUIRE(user.release(way::by_name, "device", one, nullptr) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(::cudaDeviceSynchronize() == 0);
  REQUIRE(cudasim::violation_count() == 0);
}

/// The pool grows by a library whose allocations would be routed. It must get memory of the driver, in each case.
void grows()
{
  current_pool made;
  rmm::mr::audit_route const route;
  auto const one = allocated("device", 8 * mib);  // while it serves a library
  REQUIRE(made.upstream.calls() == 2 && made.upstream.has(one));
  rmm::device_buffer const mine{32 * mib, rmm::cuda_stream_legacy};  // while it serves the program
  REQUIRE(made.upstream.calls() == 3);
  REQUIRE(route.live_bytes() == 8 * mib);
  release("device", one);
}

/// The current resource is no pool, and calls a library.
void callback_calls_a_library()
{
  library_resource under;
  int calls = 0;
  rmm::mr::callback_memory_resource calling{
    [&](std::size_t bytes, rmm::cuda_stream_view stream, void*) {
      ++calls;
      memory got{};
      REQUIRE(source.allocate(way::by_name, "device", bytes, stream.value(), got) == CUDA_SUCCESS);
      return pointer_to(got);
    },
    [&](void* ptr, std::size_t, rmm::cuda_stream_view stream, void*) {
      --calls;
      REQUIRE(source.release(way::by_name, "device", {reinterpret_cast<std::uintptr_t>(ptr), 0}, stream.value()) ==
              CUDA_SUCCESS);
    }};
  rmm::mr::set_current_device_resource(&calling);
  rmm::mr::audit_route const route;
  {
    rmm::device_buffer const mine{1000, rmm::cuda_stream_legacy};
    REQUIRE(calls == 1 && route.live_bytes() == 0);
    auto const one = allocated("device", 1000);
    REQUIRE(calls == 2 && route.live_bytes() == 1000);
    release("device", one);
  }
  REQUIRE(calls == 0);
}

/// A library that serves a resource keeps memory, and gives it back when it likes.
void library_keeps_memory()
{
  std::vector<memory> kept;
  rmm::mr::callback_memory_resource calling{[&](std::size_t bytes, rmm::cuda_stream_view, void*) {
                                              kept.push_back(allocated(source, way::by_name, "device", bytes));
                                              return pointer_to(kept.back());
                                            },
                                            [](void*, std::size_t, rmm::cuda_stream_view, void*) {}};
  rmm::mr::set_current_device_resource(&calling);
  rmm::mr::audit_route const route;
  release("device", allocated("device", 1000));
  static_cast<void>(rmm::device_buffer{1000, rmm::cuda_stream_legacy});
  REQUIRE(kept.size() == 2);
  REQUIRE(user.release(way::by_name, "device", kept[0], nullptr) == CUDA_ERROR_INVALID_VALUE);  // a second time
  for (auto const& each : kept) { release(source, way::by_name, "device", each); }
}

/// The program has RMM inside, so what it takes from the driver itself is its resource's.
void program_itself_is_not_routed()
{
  current_pool made;
  rmm::mr::audit_route const route;
  auto const function =
    reinterpret_cast<decltype(&cuMemAlloc_v2)>(user.find(way::by_symbol, "cuMemAlloc_v2", "", 12000));
  CUdeviceptr address{};
  REQUIRE(function(&address, 1000) == CUDA_SUCCESS);
  REQUIRE(route.live_bytes() == 0 && !made.upstream.has({address, 0}));
  release("device", {address, 0});
}

/// Each block goes back to where it came from.
void changes()
{
  current_pool before;
  rmm::mr::audit_route const route;
  auto const one = allocated("device", 1000);
  current_pool after;
  auto const two = allocated("device", 2000);
  REQUIRE(before.upstream.has(one) && after.upstream.has(two));
  REQUIRE(before.live() >= 1000 && after.live() >= 2000);
  release("device", one);
  REQUIRE(before.live() == 0 && after.live() >= 2000);
  rmm::mr::set_current_device_resource(nullptr);
  auto const three = allocated("device", 3000);  // of the driver, which needs no resource for that
  REQUIRE(!after.upstream.has(three) && route.live_bytes() == 2000);
  release("device", two);
  release("device", three);
  REQUIRE(after.live() == 0);
  statistics counted{after.resource.get()};
  rmm::mr::set_current_device_resource_ref(counted);  // what containers allocate from
  auto const four = allocated("device", 4000);
  REQUIRE(counted.get_bytes_counter().value == 4000);
  release("device", four);
  REQUIRE(counted.get_bytes_counter().value == 0);
}

/// The pool ends before blocks that it has served, although it should not.
void pool_ends_first()
{
  rmm::mr::audit_route const route;
  std::optional<current_pool> made{std::in_place, 4 * mib};
  auto const one = allocated("device", 1000);
  auto const two = allocated("device", 2000);
  rmm::mr::set_current_device_resource(nullptr);
  made->resource.reset();
  REQUIRE(made->upstream.live() == 0);  // at the begin of which the first block was
  REQUIRE(route.live_bytes() == 0);
  release("device", one);
  REQUIRE(user.release(way::by_name, "device", one, nullptr) != CUDA_SUCCESS);
  // Another allocation gets the address of the second block.
  bool is_there = false;
  for (int i = 0; i < 1000 && !is_there; ++i) {
    auto const other = allocated("device", 4 * mib);
    is_there         = two.number - other.number < 4 * mib;
    if (is_there) { REQUIRE(user.release(way::by_name, "device", two, nullptr) != CUDA_SUCCESS); }
    release("device", other);
  }
  REQUIRE(is_there);
}

/// A resource of the program that takes one block, which goes back when the resource ends.
class resource_of_one_block : public memory_resource {
 protected:
  CUdeviceptr begin_{};

 private:
  void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) noexcept override { REQUIRE(false); }
};

/// Has a library allocate from a resource of the program, ends the resource, and returns what the library got.
template <class Resource>
[[nodiscard]] memory allocated_before_the_end_of(rmm::mr::audit_route const& route)
{
  memory one{};
  {
    Resource resource;
    rmm::mr::set_current_device_resource(&resource);
    one = allocated("device", 1000);
    rmm::mr::set_current_device_resource(nullptr);
  }
  REQUIRE(route.live_bytes() == 0);
  return one;
}

/// Memory at addresses that are reserved for it, as that of an elastic pool.
class reserving_resource final : public resource_of_one_block {
 public:
  ~reserving_resource() override
  {
    auto const unreserve = function<decltype(cuMemAddressFree)>("cuMemAddressFree");
    REQUIRE(function<decltype(cuMemUnmap)>("cuMemUnmap")(begin_, 2 * mib) == CUDA_SUCCESS);
    REQUIRE(unreserve(begin_, 2 * mib) == CUDA_SUCCESS);
  }

 private:
  template <class Function>
  [[nodiscard]] static Function* function(char const* name)
  {
    return reinterpret_cast<Function*>(source.find(way::by_name, "", name, 12000));
  }

  void* do_allocate(std::size_t, rmm::cuda_stream_view) override
  {
    memory got{};
    REQUIRE(source.allocate(way::by_name, "virtual", 2 * mib, nullptr, got) == CUDA_SUCCESS);
    begin_ = got.number;
    return pointer_to(got);
  }
};

void reserved_addresses_end_first()
{
  rmm::mr::audit_route const route;
  release("device", allocated_before_the_end_of<reserving_resource>(route));
}

/// A resource of the program that calls the driver itself, and gives out the begin of what it has.
class own_resource final : public resource_of_one_block {
 public:
  ~own_resource() override
  {
    auto const free = reinterpret_cast<decltype(&cuMemFree_v2)>(user.find(way::by_symbol, "cuMemFree_v2", "", 12000));
    REQUIRE(free(begin_) == CUDA_SUCCESS);
  }

 private:
  void* do_allocate(std::size_t, rmm::cuda_stream_view) override
  {
    auto const allocate =
      reinterpret_cast<decltype(&cuMemAlloc_v2)>(user.find(way::by_symbol, "cuMemAlloc_v2", "", 12000));
    REQUIRE(allocate(&begin_, mib) == CUDA_SUCCESS);
    return reinterpret_cast<void*>(begin_);
  }
};

void own_resource_ends_first()
{
  rmm::mr::audit_route const route;
  auto const one = allocated_before_the_end_of<own_resource>(route);
  release("device", one);
  REQUIRE(user.release(way::by_name, "device", one, nullptr) != CUDA_SUCCESS);
}

void route_ends()
{
  current_pool made;
  memory one{};
  memory two{};
  {
    rmm::mr::audit_route const route;
    one = allocated("device", 1000);
    two = allocated("async", 2000);
  }
  auto const three = allocated("device", 3000);
  REQUIRE(!made.upstream.has(three));
  release("device", three);
  release("device", one);
  REQUIRE(made.live() >= 3000);  // nobody's
  rmm::mr::set_current_device_resource(nullptr);
  made.resource.reset();
  release("async", two);
  rmm::mr::set_current_device_resource(&made.upstream);
  rmm::mr::audit_route const again;
  auto const four = allocated("device", 4000);
  REQUIRE(again.live_bytes() == 4000);
  release("device", four);
}

/// A resource that wants its device to be current, as all may.
class home_resource final : public memory_resource {
 public:
  explicit home_resource(int device) : device_{device} {}

 private:
  [[nodiscard]] bool is_at_home() const
  {
    int current{-1};
    return ::cudaGetDevice(&current) == 0 && current == device_;
  }
  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view) override
  {
    void* block{};
    REQUIRE(is_at_home() && ::cudaMalloc(&block, bytes) == 0);
    return block;
  }
  void do_deallocate(void* block, std::size_t, rmm::cuda_stream_view) noexcept override
  {
    REQUIRE(is_at_home() && ::cudaFree(block) == 0);
  }

  int device_;
};

void resource_is_at_home()
{
  home_resource one{1};
  rmm::mr::set_per_device_resource(rmm::cuda_device_id{1}, &one);
  rmm::mr::audit_route const route;
  REQUIRE(::cudaSetDevice(1) == 0 && ::cudaFree(nullptr) == 0);
  auto const given = allocated("device", 1000);
  REQUIRE(::cudaSetDevice(0) == 0);
  release("device", given);
  int device{-1};
  REQUIRE(::cudaGetDevice(&device) == 0 && device == 0);
}

/// Blocks are freed with another device current, without a context, and in the order of a stream of another device.
void other_devices_and_threads()
{
  current_pool zero{mib, mib};
  REQUIRE(::cudaSetDevice(1) == 0 && ::cudaFree(nullptr) == 0);
  current_pool one{mib, std::nullopt, 1};
  rmm::mr::audit_route const route;
  streams const of_one;
  auto const b = allocated("device", 2000);
  REQUIRE(one.upstream.has(b));
  REQUIRE(::cudaSetDevice(0) == 0);
  streams const of_zero;
  auto const a = allocated("device", 1000);
  auto const c = allocated("async", mib / 2, of_zero.one);
  REQUIRE(zero.upstream.has(a) && zero.upstream.has(c));
  release("device", b);
  REQUIRE(one.live() == 0);
  use(of_zero.one, c, mib / 2);
  REQUIRE(::cudaSetDevice(1) == 0);
  std::thread{[&] { release("device", a); }}.join();
  REQUIRE(::cudaStreamSynchronize(of_zero.one) == 0);
  REQUIRE(::cudaDeviceEnablePeerAccess(0, 0) == 0);
  use(of_one.one, c, mib / 2);
  release("async", c, of_one.one);  // and the work of that stream is done before others get the block
  int device{-1};
  REQUIRE(::cudaGetDevice(&device) == 0 && device == 1);
  REQUIRE(zero.live() == 0);
  REQUIRE(::cudaSetDevice(0) == 0);
  auto const again = allocated("async", mib, of_zero.two);  // all there is
  REQUIRE(again.number == c.number || again.number == a.number);
  use(of_zero.two, again, mib);
  release("async", again, of_zero.two);
  REQUIRE(cudasim::violation_count() == 0);
}

struct unusual {};

void fails()
{
  current_pool made;
  rmm::mr::limiting_resource_adaptor<memory_resource> limited{made.resource.get(), mib / 2};
  rmm::mr::set_current_device_resource(&limited);
  rmm::mr::audit_route const route;
  REQUIRE(result_of_allocation(mib) == CUDA_ERROR_OUT_OF_MEMORY);
  release("device", allocated("device", 1000));
  REQUIRE(result_of_allocation(std::size_t{1} << 60U) == CUDA_ERROR_OUT_OF_MEMORY);
  int kind = 0;
  rmm::mr::callback_memory_resource throwing{[&](std::size_t, rmm::cuda_stream_view, void*) -> void* {
                                               if (kind == 0) { throw std::runtime_error{"not today"}; }
                                               if (kind == 1) { throw unusual{}; }
                                               return nullptr;
                                             },
                                             [](void*, std::size_t, rmm::cuda_stream_view, void*) {}};
  rmm::mr::set_current_device_resource(&throwing);
  for (; kind < 3; ++kind) { REQUIRE(result_of_allocation(1000) == CUDA_ERROR_OUT_OF_MEMORY); }
  REQUIRE(route.live_bytes() == 0);
}

/// A callback of the pool frees memory of a library when there is none left, as those that spill do.
void callback_frees()
{
  current_pool made{2 * mib, 2 * mib};
  rmm::mr::audit_route const route;
  std::optional<memory> held{allocated("device", mib + mib / 2)};
  REQUIRE(made.upstream.has(*held) && made.upstream.live() == 2 * mib);
  made.resource->set_failure_callback([&](std::size_t, void*) {
    if (!held) { return false; }
    release("device", *held);
    held.reset();
    return true;
  });
  auto const mine = std::make_unique<rmm::device_buffer>(mib, rmm::cuda_stream_legacy);
  REQUIRE(!held && made.live() == mib);
  held           = allocated("device", mib);
  auto const got = allocated("device", mib);  // and while the pool serves a library
  REQUIRE(!held && route.live_bytes() == mib);
  release("device", got);
}

void fork_child()
{
  current_pool made;
  rmm::mr::audit_route const route;
  auto const given  = allocated("device", 1000);
  auto const before = made.resource->figures().live_bytes;
  auto const child  = ::fork();
  if (child == 0) {
    static_cast<void>(result_of_allocation(5000));
    static_cast<void>(user.release(way::by_name, "device", given, nullptr));
    REQUIRE(made.resource->figures().live_bytes == before);
    std::_Exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  release("device", given);
  REQUIRE(made.live() == 0);
}

/// A child whose parent had routed nothing yet.
void fork_before_use()
{
  current_pool made;
  rmm::mr::audit_route const route;
  auto const child = ::fork();
  if (child == 0) { std::_Exit(0); }
  int status = -1;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  release("device", allocated("device", 1000));
}

memory left{};

/// Static objects end in whatever order; libraries free later still.
void until_exit()
{
  std::atexit([] {
    release("device", left);
    REQUIRE(user.release(way::by_name, "device", {12345, 0}, nullptr) != CUDA_SUCCESS);
    static_cast<void>(result_of_allocation(1000));
  });
  static current_pool made;
  static rmm::mr::audit_route const route;
  left = allocated("device", 1000);
  static_cast<void>(allocated("device", 2000));
}

/// Must not be called after its end.
class mortal_resource final : public memory_resource {
 public:
  void end() { has_ended_ = true; }

 private:
  void* do_allocate(std::size_t bytes, rmm::cuda_stream_view) override
  {
    void* block{};
    REQUIRE(::cudaMalloc(&block, bytes) == 0);
    return block;
  }
  void do_deallocate(void*, std::size_t, rmm::cuda_stream_view) noexcept override { REQUIRE(!has_ended_); }

  bool has_ended_{false};
};

/// The route lives until the process ends, and the resource does not. CUDA still works when a library frees its block.
void until_exit_without_end()
{
  static auto& made = *new mortal_resource;
  std::atexit([] { release("device", left); });
  std::atexit([] { made.end(); });
  rmm::mr::set_current_device_resource(&made);
  static_cast<void>(*new rmm::mr::audit_route);
  left = allocated("device", 1000);
}

/// A source whose calls are counted.
struct counted_source {
  static int allocate(void* context, int, std::size_t bytes, void*, void** block, void** owner)
  {
    auto& self = *static_cast<counted_source*>(context);
    if (self.is_empty) { return rmm::detail::audit_source::not_served; }
    REQUIRE(::cudaMalloc(block, bytes) == 0);
    *owner = &self.last_owner;
    return rmm::detail::audit_source::served;
  }
  static void deallocate(void* context, void* owner, int, void* block, std::size_t, void*)
  {
    auto& self = *static_cast<counted_source*>(context);
    REQUIRE(owner == &self.last_owner);
    ++(block == nullptr ? self.gone : self.freed);
    if (block != nullptr) { REQUIRE(::cudaFree(block) == 0); }
  }

  [[nodiscard]] int add()
  {
    rmm::detail::audit_source const functions{allocate, deallocate, this};
    return rmm::detail::find_audit_library()->add_source(&functions);
  }

  bool is_empty{false};
  int last_owner{0};
  int freed{0};
  int gone{0};
};

/// What librmm_audit.so promises to sources.
void sources()
{
  auto const& library = *rmm::detail::find_audit_library();
  counted_source older;
  counted_source newer;
  int const number_of_older = older.add();
  int const number_of_newer = newer.add();
  REQUIRE(number_of_older != 0 && number_of_newer != 0 && number_of_older != number_of_newer);
  auto const one   = allocated("device", 1000);
  newer.is_empty   = true;
  auto const two   = allocated("device", 2000);
  auto const three = allocated("device", 3000);
  REQUIRE(library.bytes_of_source(number_of_newer) == 1000 && library.bytes_of_source(number_of_older) == 5000);
  release("device", two);
  REQUIRE(older.freed == 1 && newer.freed == 0);
  library.withdraw_source(number_of_newer);
  library.withdraw_source(number_of_newer);
  library.withdraw_source(-1);
  REQUIRE(newer.gone == 1 && newer.freed == 0 && library.bytes_of_source(number_of_newer) == 0);
  release("device", one);
  REQUIRE(newer.gone == 1 && newer.freed == 0);
  release("device", three);
  REQUIRE(older.freed == 2 && older.gone == 0);
}

/// A source may end as soon as it is withdrawn. So that waits for a call in progress.
void withdrawal_waits()
{
  static std::promise<void> is_called;
  static std::promise<void> may_return;
  static std::atomic<int> calls{0};
  static std::atomic<bool> has_returned{false};
  rmm::detail::audit_source const functions{[](void*, int, std::size_t, void*, void**, void**) -> int {
                                              if (calls.fetch_add(1) == 0) {
                                                is_called.set_value();
                                                may_return.get_future().wait();
                                                has_returned = true;
                                              }
                                              return rmm::detail::audit_source::not_served;
                                            },
                                            [](void*, void*, int, void*, std::size_t, void*) {},
                                            nullptr};
  auto const& library = *rmm::detail::find_audit_library();
  int const number    = library.add_source(&functions);
  std::thread calling{[] {
    REQUIRE(::cudaSetDevice(0) == 0);
    release("device", allocated("device", 1000));
  }};
  is_called.get_future().wait();
  std::atomic<bool> is_withdrawn{false};
  std::thread withdrawing{[&] {
    library.withdraw_source(number);
    REQUIRE(has_returned);
    is_withdrawn = true;
  }};
  int before{0};
  do {  // until the source is not asked any more
    before = calls;
    release("device", allocated("device", 1000));
  } while (calls != before);
  REQUIRE(!is_withdrawn);
  may_return.set_value();
  calling.join();
  withdrawing.join();
}

/// A child has none of the threads that were calling, and does not wait for them.
void fork_during_a_call()
{
  static std::promise<void> is_called;
  static std::promise<void> may_return;
  rmm::detail::audit_source const functions{[](void*, int, std::size_t, void*, void**, void**) -> int {
                                              is_called.set_value();
                                              may_return.get_future().wait();
                                              return rmm::detail::audit_source::not_served;
                                            },
                                            [](void*, void*, int, void*, std::size_t, void*) {},
                                            nullptr};
  auto const& library = *rmm::detail::find_audit_library();
  int const number    = library.add_source(&functions);
  std::thread calling{[] {
    REQUIRE(::cudaSetDevice(0) == 0);
    release("device", allocated("device", 1000));
  }};
  is_called.get_future().wait();
  auto const child = ::fork();
  if (child == 0) {
    ::alarm(100);  // a child has no alarm of its parent's
    library.withdraw_source(number);
    std::_Exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  may_return.set_value();
  calling.join();
}

void two_routes()
{
  current_pool made;
  rmm::mr::audit_route const one;
  auto const a = allocated("device", 1000);
  {
    rmm::mr::audit_route const two;
    auto const b = allocated("device", 2000);
    REQUIRE(one.live_bytes() == 1000 && two.live_bytes() == 2000);
    release("device", b);
    REQUIRE(two.live_bytes() == 0);
  }
  auto const c = allocated("device", 3000);
  REQUIRE(one.live_bytes() == 4000);
  release("device", c);
  release("device", a);
  REQUIRE(made.live() == 0);
}

/// Without RMM_AUDIT=route:current.
void inactive()
{
  current_pool made;
  rmm::mr::audit_route const route;
  REQUIRE(!route.is_active() && route.live_bytes() == 0);
  auto const one = allocated("device", 1000);
  REQUIRE(!made.upstream.has(one));
  release("device", one);
}

/// A program that does nothing for it: librmm_environment.so has made the resource and the route.
void environment()
{
  release("device", allocated("device", 1000));
  auto const given = allocated("async", 2000);
  {
    rmm::device_buffer const mine{1000, rmm::cuda_stream_legacy};
    auto const address = reinterpret_cast<std::uintptr_t>(mine.data());
    REQUIRE(address - given.number < mib || given.number - address < mib);  // the same pool
  }
  release("async", given);
}

/// Threads allocate, while another one changes the resource and ends routes.
void threads()
{
  current_pool one;
  current_pool two;
  std::atomic<bool> is_over{false};
  std::atomic<int> allocations{0};
  std::vector<std::thread> running;
  for (int i = 0; i < 6; ++i) {
    running.emplace_back([&] {
      REQUIRE(::cudaSetDevice(0) == 0);
      while (!is_over) {
        auto const got = allocated("device", 512);
        allocations.fetch_add(1);
        release("device", got);
      }
    });
  }
  auto const wait_for_allocations = [&] {
    auto const before = allocations.load();
    while (allocations < before + 5) { std::this_thread::yield(); }
  };
  std::size_t most = 0;
  for (int i = 0; i < 200; ++i) {
    rmm::mr::audit_route const route;
    rmm::mr::set_current_device_resource(one.resource.get());
    wait_for_allocations();
    rmm::mr::set_current_device_resource(two.resource.get());
    wait_for_allocations();
    most = std::max(most, route.live_bytes());
  }
  is_over = true;
  for (auto& thread : running) { thread.join(); }
  REQUIRE(most > 0);
  REQUIRE(cudasim::violation_count() == 0);
}

void c_interface()
{
  rmm_c_resource* resource{};
  REQUIRE(rmm_c_resource_create("pool,initial=1MiB", 0, &resource) == RMM_C_OK);
  REQUIRE(rmm_c_serve_libraries(0, resource) == RMM_C_OK);
  auto const one = allocated("device", 1000);
  auto const two = allocated("async", 2000);
  rmm_c_figures figures{};
  figures.size = sizeof figures;
  REQUIRE(rmm_c_resource_figures(resource, &figures) == RMM_C_OK && figures.live_blocks == 2);
  release("device", one);
  REQUIRE(rmm_c_resource_figures(resource, &figures) == RMM_C_OK && figures.live_blocks == 1);
  REQUIRE(rmm_c_serve_libraries(0, nullptr) == RMM_C_OK);
  auto const three = allocated("device", 3000);
  REQUIRE(rmm_c_resource_figures(resource, &figures) == RMM_C_OK && figures.live_blocks == 1);
  release("device", three);
  REQUIRE(rmm_c_serve_libraries(0, resource) == RMM_C_OK);
  REQUIRE(rmm_c_resource_destroy(resource) == RMM_C_OK);  // which waits for the second block
  release("device", allocated("device", 1000));           // of the driver
  release("async", two);
}

[[nodiscard]] rmm_c_resource* made_by_c(int device = 0)
{
  rmm_c_resource* resource{};
  REQUIRE(rmm_c_resource_create("pool,initial=1MiB", device, &resource) == RMM_C_OK);
  return resource;
}

[[nodiscard]] rmm_c_figures figures_by_c(rmm_c_resource* resource)
{
  rmm_c_figures figures{};
  figures.size = sizeof figures;
  REQUIRE(rmm_c_resource_figures(resource, &figures) == RMM_C_OK);
  return figures;
}

/// A destroyed resource serves no more, and a later resource does not take its place.
void c_interface_destroyed()
{
  auto* const resource = made_by_c();
  REQUIRE(rmm_c_serve_libraries(0, resource) == RMM_C_OK);
  auto const left_behind = allocated("device", 1000);
  REQUIRE(rmm_c_resource_destroy(resource) == RMM_C_OK);
  REQUIRE(rmm_c_serve_libraries(0, resource) == RMM_C_MISUSE);  // it waits for the block
  release("device", allocated("device", 1000));                 // of the driver
  release("device", left_behind);
  REQUIRE(rmm_c_serve_libraries(0, resource) == RMM_C_MISUSE);  // it is gone
  auto* const other = made_by_c();
  REQUIRE(other == resource);  // the library reuses the object
  auto const by_driver = allocated("device", 1000);
  REQUIRE(figures_by_c(other).live_blocks == 0);
  release("device", by_driver);
  REQUIRE(rmm_c_resource_destroy(other) == RMM_C_OK);
}

/// The end of a resource leaves alone the one that serves in its place, and those of other devices.
void c_interface_replaced()
{
  auto* const resource = made_by_c();
  auto* const next     = made_by_c();
  auto* const distant  = made_by_c(1);
  REQUIRE(rmm_c_serve_libraries(0, resource) == RMM_C_OK);
  REQUIRE(rmm_c_serve_libraries(1, distant) == RMM_C_OK);
  REQUIRE(rmm_c_serve_libraries(0, next) == RMM_C_OK);
  REQUIRE(rmm_c_resource_destroy(resource) == RMM_C_OK);
  REQUIRE(rmm_c_resource_destroy(distant) == RMM_C_OK);
  auto const one = allocated("device", 1000);
  REQUIRE(figures_by_c(next).live_blocks == 1);
  release("device", one);
  REQUIRE(rmm_c_resource_destroy(next) == RMM_C_OK);
}

/// Calls that fail change nothing.
void c_interface_refuses()
{
  auto* const resource = made_by_c();
  REQUIRE(rmm_c_serve_libraries(0, resource) == RMM_C_OK);
  for (int const unknown : {-2, 2, 500, 5000}) {  // there are two devices
    REQUIRE(rmm_c_serve_libraries(unknown, nullptr) == RMM_C_INVALID_ARGUMENT);
    REQUIRE(rmm_c_serve_libraries(unknown, resource) == RMM_C_INVALID_ARGUMENT);
  }
  REQUIRE(rmm_c_serve_libraries(1, resource) == RMM_C_INVALID_ARGUMENT);
  auto const one = allocated("device", 1000);
  REQUIRE(figures_by_c(resource).live_blocks == 1);
  release("device", one);
  REQUIRE(rmm_c_resource_destroy(resource) == RMM_C_OK);
  REQUIRE(rmm_c_serve_libraries(1, nullptr) == RMM_C_OK);
}

/// Resources that serve end while threads of libraries allocate. Others, which reuse their objects, get nothing of that.
void c_interface_threads()
{
  std::atomic<bool> is_over{false};
  std::atomic<int> allocations{0};
  std::vector<std::thread> running;
  for (int i = 0; i < 4; ++i) {
    running.emplace_back([&] {
      REQUIRE(::cudaSetDevice(0) == 0);
      while (!is_over) {
        release("device", allocated("device", 512));
        allocations.fetch_add(1);
      }
    });
  }
  std::uint64_t most = 0;
  auto const watch   = [&](rmm_c_resource* resource) {
    std::uint64_t seen = 0;
    for (auto const before = allocations.load(); allocations < before + 8;) {
      seen = std::max(seen, figures_by_c(resource).live_bytes);
    }
    return seen;
  };
  for (int i = 0; i < 100; ++i) {
    auto* const serving = made_by_c();
    REQUIRE(rmm_c_serve_libraries(0, serving) == RMM_C_OK);
    most = std::max(most, watch(serving));
    REQUIRE(rmm_c_resource_destroy(serving) == RMM_C_OK);
    auto* const idle = made_by_c();
    REQUIRE(watch(idle) == 0);
    REQUIRE(rmm_c_resource_destroy(idle) == RMM_C_OK);
  }
  is_over = true;
  for (auto& thread : running) { thread.join(); }
  REQUIRE(most > 0);
}

void c_interface_inactive()
{
  rmm_c_resource* resource{};
  REQUIRE(rmm_c_resource_create("pool,initial=1MiB", 0, &resource) == RMM_C_OK);
  REQUIRE(rmm_c_serve_libraries(0, resource) == RMM_C_NOT_SUPPORTED);
  REQUIRE(rmm_c_resource_destroy(resource) == RMM_C_OK);
}

std::map<std::string, void (*)()> const scenarios{
  {"serves", serves},
  {"grows", grows},
  {"callback_calls_a_library", callback_calls_a_library},
  {"library_keeps_memory", library_keeps_memory},
  {"program_itself", program_itself_is_not_routed},
  {"changes", changes},
  {"pool_ends_first", pool_ends_first},
  {"reserved_addresses_end_first", reserved_addresses_end_first},
  {"own_resource_ends_first", own_resource_ends_first},
  {"route_ends", route_ends},
  {"resource_is_at_home", resource_is_at_home},
  {"other_devices_and_threads", other_devices_and_threads},
  {"fails", fails},
  {"callback_frees", callback_frees},
  {"fork", fork_child},
  {"fork_before_use", fork_before_use},
  {"fork_during_a_call", fork_during_a_call},
  {"until_exit", until_exit},
  {"until_exit_without_end", until_exit_without_end},
  {"sources", sources},
  {"withdrawal_waits", withdrawal_waits},
  {"two_routes", two_routes},
  {"inactive", inactive},
  {"environment", environment},
  {"threads", threads},
  {"c_interface", c_interface},
  {"c_interface_destroyed", c_interface_destroyed},
  {"c_interface_replaced", c_interface_replaced},
  {"c_interface_refuses", c_interface_refuses},
  {"c_interface_threads", c_interface_threads},
  {"c_interface_inactive", c_interface_inactive},
};

}  // namespace

int main(int count, char** arguments)
{
  REQUIRE(count == 2 && scenarios.count(arguments[1]) == 1);
  ::alarm(600);  // ends a program that waits for ever
  REQUIRE(::cudaFree(nullptr) == 0);
  scenarios.at(arguments[1])();
  std::printf("done\n");
  return 0;
}
