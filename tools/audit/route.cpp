// SPDX-License-Identifier: Apache-2.0
#include "route.hpp"

#include "audit.hpp"
#include "callers.hpp"
#include "driver_functions.hpp"

#include <rmm/c/rmm.h>

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <string>

namespace RMM_NAMESPACE {
namespace tools {
namespace audit {
namespace {

/// The functions of librmm_c.so, and those of the driver that routing needs.
struct functions {
  decltype(&::rmm_c_resource_create) create{};
  decltype(&::rmm_c_resource_allocate) allocate{};
  decltype(&::rmm_c_resource_deallocate) deallocate{};
  decltype(&::rmm_c_last_failure_text) failure_text{};

  CUresult (*current_context)(CUcontext*){};
  CUresult (*current_device)(CUdevice*){};
  CUresult (*push_context)(CUcontext){};
  CUresult (*pop_context)(CUcontext*){};
  CUresult (*synchronize_context)(){};
  CUresult (*primary_state)(CUdevice, unsigned*, int*){};
  CUresult (*retain_primary)(CUcontext*, CUdevice){};
  CUresult (*stream_context)(CUstream, CUcontext*){};
  CUresult (*create_stream)(CUstream*, unsigned){};
  CUresult (*synchronize_stream)(CUstream){};
  CUresult (*is_capturing)(CUstream, CUstreamCaptureStatus*){};
  CUresult (*exchange_capture_mode)(CUstreamCaptureMode*){};
};

/// Something that one thread makes, while others do without: to wait could be a deadlock with the lock of the dynamic linker.
class made_once {
 public:
  /// Returns whether it is there. The first call makes it, and says whether that has worked.
  template <class Make>
  [[nodiscard]] bool is_there(Make&& make) noexcept
  {
    auto state = state_.load(std::memory_order_acquire);
    if (state == untouched && state_.compare_exchange_strong(state, busy, std::memory_order_acquire)) {
      state = make();
      state_.store(state, std::memory_order_release);
    }
    return state == there;
  }

  enum stage : int { untouched, busy, there, failed };

 private:
  std::atomic<int> state_{untouched};
};

/// The pool of a device.
struct device_pool {
  made_once made;
  CUcontext context{};
  rmm_c_resource* resource{};
  CUstream stream{};  // of memory that belongs to no stream
};

constexpr int most_devices = 64;

struct routes {
  made_once found;
  functions call;
  std::array<device_pool, most_devices> pools;

  std::mutex mutex;  // of `blocks`; nothing of CUDA is called under it
  std::map<std::uintptr_t, routed_block> blocks;
};

[[nodiscard]] routes& the_routes()
{
  static auto& made = *new routes;
  return made;
}

template <class Function>
[[nodiscard]] bool find_in(void* library, char const* name, Function& out) noexcept
{
  out = reinterpret_cast<Function>(next_dlsym()(library, name));
  return out != nullptr;
}

template <class Function>
[[nodiscard]] bool find_in_driver(char const* name, int version, Function& out) noexcept
{
  out = reinterpret_cast<Function>(other_driver_function(name, version));
  return out != nullptr;
}

/// Opens librmm_c.so, which lies next to this library or where the dynamic linker looks.
[[nodiscard]] void* open_pools()
{
  auto const own = path_of_this_library();
  void* library  = ::dlopen((own.substr(0, own.rfind('/') + 1) + "librmm_c.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
  return library != nullptr ? library : ::dlopen("librmm_c.so.1", RTLD_NOW | RTLD_LOCAL);
}

[[nodiscard]] int find_functions(functions& call) noexcept
{
  try {
    pool_call const inside;  // the library may have constructors
    void* const library = open_pools();
    if (library == nullptr) {
      say("cannot route, as librmm_c.so.1 cannot be loaded: %s", ::dlerror());
      return made_once::failed;
    }
    if (!find_in(library, "rmm_c_resource_create", call.create) ||
        !find_in(library, "rmm_c_resource_allocate", call.allocate) ||
        !find_in(library, "rmm_c_resource_deallocate", call.deallocate) ||
        !find_in(library, "rmm_c_last_failure_text", call.failure_text)) {
      say("cannot route: librmm_c.so.1 lacks a function");
      return made_once::failed;
    }
  } catch (std::exception const&) {
    return made_once::failed;
  }
  bool const all_found = find_in_driver("cuCtxGetCurrent", 4000, call.current_context) &&
                         find_in_driver("cuCtxGetDevice", 2000, call.current_device) &&
                         find_in_driver("cuCtxPushCurrent", 4000, call.push_context) &&
                         find_in_driver("cuCtxPopCurrent", 4000, call.pop_context) &&
                         find_in_driver("cuCtxSynchronize", 2000, call.synchronize_context) &&
                         find_in_driver("cuDevicePrimaryCtxGetState", 7000, call.primary_state) &&
                         find_in_driver("cuDevicePrimaryCtxRetain", 7000, call.retain_primary) &&
                         find_in_driver("cuStreamGetCtx", 9020, call.stream_context) &&
                         find_in_driver("cuStreamCreate", 2000, call.create_stream) &&
                         find_in_driver("cuStreamSynchronize", 2000, call.synchronize_stream) &&
                         find_in_driver("cuStreamIsCapturing", 10000, call.is_capturing) &&
                         find_in_driver("cuThreadExchangeStreamCaptureMode", 10010, call.exchange_capture_mode);
  if (!all_found) { say("cannot route: the driver lacks a function"); }
  return all_found ? made_once::there : made_once::failed;
}

/// The pool may call the driver, whatever captures meanwhile.
class relaxed_capture_mode {
 public:
  explicit relaxed_capture_mode(functions const& call) noexcept : call_{call} { call_.exchange_capture_mode(&mode_); }
  ~relaxed_capture_mode() { call_.exchange_capture_mode(&mode_); }
  relaxed_capture_mode(relaxed_capture_mode const&)            = delete;
  relaxed_capture_mode& operator=(relaxed_capture_mode const&) = delete;

 private:
  functions const& call_;
  CUstreamCaptureMode mode_{CU_STREAM_CAPTURE_MODE_RELAXED};
};

[[nodiscard]] int make_pool(functions const& call, device_pool& pool, CUdevice device, CUcontext current) noexcept
{
  pool_call const inside;
  relaxed_capture_mode const relaxed{call};
  if (pool.context == nullptr && call.retain_primary(&pool.context, device) != CUDA_SUCCESS) {
    return made_once::failed;
  }
  if (pool.context != current) { return made_once::untouched; }  // later, in the primary context
  auto const& configuration = process::get().chosen.configuration;
  if (call.create(configuration.empty() ? nullptr : configuration.c_str(), device, &pool.resource) != RMM_C_OK) {
    say("cannot route on device %d: %s", device, call.failure_text());
    return made_once::failed;
  }
  return call.create_stream(&pool.stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS ? made_once::there
                                                                                  : made_once::failed;
}

/// The pool that serves the current context; null if none does.
[[nodiscard]] device_pool* current_pool(routes& all, CUdevice& device, CUcontext& context) noexcept
{
  auto& call = all.call;
  if (!all.found.is_there([&] { return find_functions(call); })) { return nullptr; }
  if (call.current_context(&context) != CUDA_SUCCESS || context == nullptr) { return nullptr; }
  if (call.current_device(&device) != CUDA_SUCCESS || device < 0 || device >= most_devices) { return nullptr; }
  unsigned flags{};
  int is_active{};
  auto& pool       = all.pools[static_cast<std::size_t>(device)];
  bool const there = pool.made.is_there([&]() -> int {
    // A program without a primary context does not get one.
    if (call.primary_state(device, &flags, &is_active) != CUDA_SUCCESS || is_active == 0) {
      return made_once::untouched;
    }
    return make_pool(call, pool, device, context);
  });
  return there && pool.context == context ? &pool : nullptr;
}

/// A stream as the pool names it.
[[nodiscard]] void* to_pool_stream(use_order order) noexcept
{
  return order.own_stream && order.stream == nullptr ? CU_STREAM_PER_THREAD : order.stream;
}

/// Whether the pool can allocate in the order of a stream. A stream that captures is asked nothing else: that could end the capture.
[[nodiscard]] bool can_order(functions const& call, use_order order, CUcontext current) noexcept
{
  auto* const stream = static_cast<CUstream>(to_pool_stream(order));
  CUstreamCaptureStatus status{};
  CUcontext context{};
  return call.is_capturing(stream, &status) == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE &&
         call.stream_context(stream, &context) == CUDA_SUCCESS && context == current;
}

/// Allocates from a pool. Returns nothing if the driver has to.
[[nodiscard]] std::optional<CUresult> allocate_from(
  functions const& call, device_pool const& pool, std::size_t bytes, use_order order, void*& block) noexcept
{
  pool_call const inside;
  relaxed_capture_mode const relaxed{call};
  auto* const stream = order.is_ordered ? to_pool_stream(order) : pool.stream;
  auto const status  = call.allocate(pool.resource, bytes, 0, stream, &block);
  if (status == RMM_C_OUT_OF_MEMORY) { return CUDA_ERROR_OUT_OF_MEMORY; }
  if (status != RMM_C_OK) { return std::nullopt; }
  if (order.is_ordered) { return CUDA_SUCCESS; }
  auto const result = call.synchronize_stream(pool.stream);
  if (result != CUDA_SUCCESS) { call.deallocate(pool.resource, block, bytes, 0, stream); }
  return result;
}

/// Waits for the work of a device, as cuMemFree() does.
[[nodiscard]] CUresult synchronize(functions const& call, CUcontext context) noexcept
{
  if (auto const error = call.push_context(context); error != CUDA_SUCCESS) { return error; }
  auto const result = call.synchronize_context();
  CUcontext popped{};
  call.pop_context(&popped);
  return result;
}

}  // namespace

std::optional<CUresult> allocate_routed(CUdeviceptr* out, std::size_t bytes, use_order order) noexcept
{
  if (out == nullptr || bytes == 0) { return std::nullopt; }
  auto& all = the_routes();
  CUdevice device{};
  CUcontext context{};
  auto* const pool = current_pool(all, device, context);
  if (pool == nullptr || (order.is_ordered && !can_order(all.call, order, context))) { return std::nullopt; }
  void* block{};
  auto const result = allocate_from(all.call, *pool, bytes, order, block);
  if (!result || *result != CUDA_SUCCESS) { return result; }
  try {
    auto const address = reinterpret_cast<std::uintptr_t>(block);
    std::lock_guard<std::mutex> const lock{all.mutex};
    all.blocks[address] = {address, bytes, device};
    *out                = static_cast<CUdeviceptr>(address);
    return CUDA_SUCCESS;
  } catch (std::exception const&) {
    pool_call const inside;
    all.call.deallocate(pool->resource, block, bytes, 0, order.is_ordered ? to_pool_stream(order) : pool->stream);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

std::optional<routed_block> find_routed(CUdeviceptr address) noexcept
{
  auto& all = the_routes();
  std::lock_guard<std::mutex> const lock{all.mutex};
  auto const after = all.blocks.upper_bound(static_cast<std::uintptr_t>(address));
  if (after == all.blocks.begin()) { return std::nullopt; }
  auto const& block = std::prev(after)->second;
  if (address - block.address >= block.bytes) { return std::nullopt; }
  return block;
}

CUresult free_routed(routed_block const& block, use_order order, void (*before_reuse)(std::uint64_t)) noexcept
{
  auto& all  = the_routes();
  auto& call = all.call;
  auto& pool = all.pools[static_cast<std::size_t>(block.device)];
  if (!order.is_ordered) {
    if (auto const error = synchronize(call, pool.context); error != CUDA_SUCCESS) { return error; }
  } else {
    CUstreamCaptureStatus status{};
    auto const error = call.is_capturing(static_cast<CUstream>(to_pool_stream(order)), &status);
    if (error != CUDA_SUCCESS) { return error; }
    if (status != CU_STREAM_CAPTURE_STATUS_NONE) { return CUDA_ERROR_INVALID_VALUE; }  // not memory of the graph
  }
  {
    std::lock_guard<std::mutex> const lock{all.mutex};
    if (all.blocks.erase(block.address) == 0) { return CUDA_ERROR_INVALID_VALUE; }  // another thread has freed it
  }
  before_reuse(block.address);
  pool_call const inside;
  relaxed_capture_mode const relaxed{call};
  auto* const memory = reinterpret_cast<void*>(block.address);
  call.deallocate(pool.resource, memory, block.bytes, 0, order.is_ordered ? to_pool_stream(order) : pool.stream);
  return CUDA_SUCCESS;
}

void lock_routes() noexcept { the_routes().mutex.lock(); }
void unlock_routes() noexcept { the_routes().mutex.unlock(); }

}  // namespace audit
}  // namespace tools
}  // namespace RMM_NAMESPACE
