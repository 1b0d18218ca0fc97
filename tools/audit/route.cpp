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
#include <utility>
#include <vector>

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

/// An object that one thread makes while others do without it. Waiting could deadlock with the lock of the dynamic linker.
///
/// Order: the store after make() releases the object. All loads acquire it, also that of an update that fails. So does the update that
/// begins another try: its thread sees what an earlier try has left.
class made_once {
 public:
  /// Returns whether the object exists. The first call makes it, and returns whether that succeeded.
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

/// The state that routing needs on a device.
struct device_place {
  made_once made;
  CUcontext context{};
  CUstream stream{};           // for memory that belongs to no stream
  rmm_c_resource* resource{};  // made from the text; null if the program has the sources
};

constexpr int most_devices = 64;

struct routes {
  made_once found;
  functions call;
  std::array<device_place, most_devices> places;

  // Order: a source is released with its address, which readers acquire. `older` and `number` never change after that. The mutex makes
  // additions follow each other.
  std::atomic<source*> newest{nullptr};

  std::mutex mutex;  // for `blocks`, and for additions to the list of sources; never held during a call of CUDA
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
[[nodiscard]] void* open_engine()
{
  auto const own = path_of_this_library();
  void* library  = ::dlopen((own.substr(0, own.rfind('/') + 1) + "librmm_c.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
  return library != nullptr ? library : ::dlopen("librmm_c.so.1", RTLD_NOW | RTLD_LOCAL);
}

[[nodiscard]] bool find_engine(functions& call)
{
  pool_call const inside;  // constructors of the library may allocate
  void* const library = open_engine();
  if (library == nullptr) {
    say("cannot route, as librmm_c.so.1 cannot be loaded: %s", ::dlerror());
    return false;
  }
  if (!find_in(library, "rmm_c_resource_create", call.create) ||
      !find_in(library, "rmm_c_resource_allocate", call.allocate) ||
      !find_in(library, "rmm_c_resource_deallocate", call.deallocate) ||
      !find_in(library, "rmm_c_last_failure_text", call.failure_text)) {
    say("cannot route: librmm_c.so.1 lacks a function");
    return false;
  }
  return true;
}

[[nodiscard]] int allocate_configured(
  void* /*context*/, int device, std::size_t bytes, void* stream, void** block, void** owner)
{
  auto& all            = the_routes();
  auto* const resource = all.places[static_cast<std::size_t>(device)].resource;
  *owner               = resource;
  switch (all.call.allocate(resource, bytes, 0, stream, block)) {
    case RMM_C_OK:
      return rmm::detail::audit_source::served;
    case RMM_C_OUT_OF_MEMORY:
      return rmm::detail::audit_source::out_of_memory;
    default:
      return rmm::detail::audit_source::not_served;
  }
}

void deallocate_configured(void* /*context*/, void* owner, int /*device*/, void* block, std::size_t bytes, void* stream)
{
  the_routes().call.deallocate(static_cast<rmm_c_resource*>(owner), block, bytes, 0, stream);
}

/// Adds a source to the list.
[[nodiscard]] int append(routes& all, rmm::detail::audit_source const& functions)
{
  auto* const added = new source{functions};
  std::lock_guard<std::mutex> const lock{all.mutex};
  added->older  = all.newest.load(std::memory_order_relaxed);
  added->number = added->older != nullptr ? added->older->number + 1 : 1;
  all.newest.store(added, std::memory_order_release);
  return added->number;
}

[[nodiscard]] int find_functions(routes& all) noexcept
{
  auto& call = all.call;
  try {
    if (!process::get().chosen.routes_to_current()) {
      if (!find_engine(call)) { return made_once::failed; }
      static_cast<void>(append(all, {allocate_configured, deallocate_configured, nullptr}));
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

/// Lets the pool call the driver even if the thread or another one captures.
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

[[nodiscard]] int make_place(functions const& call, device_place& place, CUdevice device, CUcontext current) noexcept
{
  pool_call const inside;
  relaxed_capture_mode const relaxed{call};
  if (place.context == nullptr && call.retain_primary(&place.context, device) != CUDA_SUCCESS) {
    return made_once::failed;
  }
  if (place.context != current) { return made_once::untouched; }  // try again in the primary context
  auto const& chosen = process::get().chosen;
  auto const* text   = chosen.configuration.empty() ? nullptr : chosen.configuration.c_str();
  if (!chosen.routes_to_current() && call.create(text, device, &place.resource) != RMM_C_OK) {
    say("cannot route on device %d: %s", device, call.failure_text());
    return made_once::failed;
  }
  return call.create_stream(&place.stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS ? made_once::there
                                                                                   : made_once::failed;
}

/// The state of the current context's device; null if routing is not possible there.
[[nodiscard]] device_place* current_place(routes& all, CUdevice& device, CUcontext& context) noexcept
{
  auto& call = all.call;
  if (!all.found.is_there([&] { return find_functions(all); })) { return nullptr; }
  if (all.newest.load(std::memory_order_acquire) == nullptr) { return nullptr; }
  if (call.current_context(&context) != CUDA_SUCCESS || context == nullptr) { return nullptr; }
  if (call.current_device(&device) != CUDA_SUCCESS || device < 0 || device >= most_devices) { return nullptr; }
  unsigned flags{};
  int is_active{};
  auto& place      = all.places[static_cast<std::size_t>(device)];
  bool const there = place.made.is_there([&]() -> int {
    // Does not create a primary context in a program that has none.
    if (call.primary_state(device, &flags, &is_active) != CUDA_SUCCESS || is_active == 0) {
      return made_once::untouched;
    }
    return make_place(call, place, device, context);
  });
  return there && place.context == context ? &place : nullptr;
}

/// The stream in the form that sources take.
[[nodiscard]] void* to_named_stream(use_order order) noexcept
{
  return order.own_stream && order.stream == nullptr ? CU_STREAM_PER_THREAD : order.stream;
}

[[nodiscard]] bool is_of_context(functions const& call, void* stream, CUcontext wanted) noexcept
{
  CUcontext context{};
  return call.stream_context(static_cast<CUstream>(stream), &context) == CUDA_SUCCESS && context == wanted;
}

/// Whether a source can allocate in the order of a stream. Asks a capturing stream nothing else, because that could end the capture.
[[nodiscard]] bool can_order(functions const& call, use_order order, CUcontext current) noexcept
{
  auto* const stream = to_named_stream(order);
  CUstreamCaptureStatus status{};
  return call.is_capturing(static_cast<CUstream>(stream), &status) == CUDA_SUCCESS &&
         status == CU_STREAM_CAPTURE_STATUS_NONE && is_of_context(call, stream, current);
}

[[nodiscard]] void* pointer_to(std::uintptr_t address) noexcept { return reinterpret_cast<void*>(address); }

/// Blocks whose memory is gone. The destructor ends their owners, because the lock must not be held for that.
class gone_blocks {
 public:
  gone_blocks() = default;
  ~gone_blocks()
  {
    pool_call const inside;
    for (auto const& block : blocks_) {
      block.origin->call.deallocate(block.origin->call.context, block.owner, block.device, nullptr, 0, nullptr);
      block.origin->end_call();
    }
  }
  gone_blocks(gone_blocks const&)            = delete;
  gone_blocks& operator=(gone_blocks const&) = delete;

  /// Notes that the memory of a block is gone. If there is no host memory for the note, the block's owner is kept.
  void add(routed_block& block) noexcept
  {
    auto* const origin = std::exchange(block.origin, nullptr);
    if (origin == nullptr || !origin->try_begin_call()) { return; }
    try {
      blocks_.push_back(block);
      blocks_.back().origin = origin;
    } catch (std::exception const&) {
      origin->end_call();
    }
  }

 private:
  std::vector<routed_block> blocks_;
};

/// Ends the blocks that begin in a range of addresses. If the range is handed out anew, forgets the blocks, too. Requires the lock.
void end_blocks(routes& all, std::uintptr_t begin, std::size_t bytes, bool is_new, gone_blocks& gone) noexcept
{
  auto const first = all.blocks.lower_bound(begin);
  auto last        = first;
  for (; last != all.blocks.end() && last->first - begin < bytes; ++last) { gone.add(last->second); }
  if (is_new) { all.blocks.erase(first, last); }
}

/// Keeps a new block. Returns nothing if its source was withdrawn meanwhile.
[[nodiscard]] std::optional<CUresult> keep(routes& all, routed_block const& block) noexcept
{
  gone_blocks gone;
  try {
    std::lock_guard<std::mutex> const lock{all.mutex};
    if (block.origin->is_withdrawn()) { return std::nullopt; }
    end_blocks(all, block.address, block.bytes, true, gone);
    all.blocks[block.address] = block;
    return CUDA_SUCCESS;
  } catch (std::exception const&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

/// Allocates from one source. Returns nothing if the source does not serve the request.
[[nodiscard]] std::optional<CUresult> allocate_from(source& asked,
                                                    device_place const& place,
                                                    routed_block& block,
                                                    use_order order) noexcept
{
  source_call const in_progress{asked};
  if (!in_progress.has_begun()) { return std::nullopt; }
  auto& all                                   = the_routes();
  auto const& [allocate, deallocate, context] = asked.call;
  auto* const stream                          = order.is_ordered ? to_named_stream(order) : place.stream;
  void* memory{};
  asked.has_served.store(true, std::memory_order_relaxed);
  auto const answer = allocate(context, block.device, block.bytes, stream, &memory, &block.owner);
  if (answer == rmm::detail::audit_source::not_served) { return std::nullopt; }
  if (answer != rmm::detail::audit_source::served || memory == nullptr) { return CUDA_ERROR_OUT_OF_MEMORY; }
  block.address = reinterpret_cast<std::uintptr_t>(memory);
  block.origin  = &asked;
  auto const result =
    order.is_ordered ? CUDA_SUCCESS : all.call.synchronize_stream(place.stream);  // all streams may use it afterwards
  auto const kept = result == CUDA_SUCCESS ? keep(all, block) : std::optional{result};
  if (kept != CUDA_SUCCESS) { deallocate(context, block.owner, block.device, memory, block.bytes, stream); }
  return kept;
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

/// Finds the stream to free a block on. Waits on the host for work that this stream is not ordered after.
[[nodiscard]] CUresult make_freeable(functions const& call,
                                     device_place const& place,
                                     use_order order,
                                     void*& stream) noexcept
{
  stream = place.stream;
  if (!order.is_ordered) { return synchronize(call, place.context); }
  auto* const named = to_named_stream(order);
  CUstreamCaptureStatus status{};
  if (auto const error = call.is_capturing(static_cast<CUstream>(named), &status); error != CUDA_SUCCESS) {
    return error;
  }
  if (status != CU_STREAM_CAPTURE_STATUS_NONE) { return CUDA_ERROR_INVALID_VALUE; }  // a graph cannot free it
  if (!is_of_context(call, named, place.context)) { return call.synchronize_stream(static_cast<CUstream>(named)); }
  stream = named;
  return CUDA_SUCCESS;
}

}  // namespace

std::optional<CUresult> allocate_routed(CUdeviceptr* out, std::size_t bytes, use_order order) noexcept
{
  if (out == nullptr || bytes == 0) { return std::nullopt; }
  auto& all = the_routes();
  CUdevice device{};
  CUcontext context{};
  auto* const place = current_place(all, device, context);
  if (place == nullptr || (order.is_ordered && !can_order(all.call, order, context))) { return std::nullopt; }
  pool_call const inside;
  relaxed_capture_mode const relaxed{all.call};
  for (auto* each = all.newest.load(std::memory_order_acquire); each != nullptr; each = each->older) {
    routed_block block{0, bytes, device, nullptr, nullptr};
    auto const result = allocate_from(*each, *place, block, order);
    if (!result) { continue; }
    if (*result == CUDA_SUCCESS) { *out = static_cast<CUdeviceptr>(block.address); }
    return result;
  }
  return std::nullopt;
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
  void* stream{};
  if (block.origin != nullptr) {
    auto const& place = all.places[static_cast<std::size_t>(block.device)];
    if (auto const error = make_freeable(call, place, order, stream); error != CUDA_SUCCESS) { return error; }
  }
  routed_block freed{};
  {
    std::lock_guard<std::mutex> const lock{all.mutex};
    auto const found = all.blocks.find(block.address);
    if (found == all.blocks.end()) { return CUDA_ERROR_INVALID_VALUE; }  // another thread has freed it
    freed = found->second;
    all.blocks.erase(found);
    if (freed.origin != nullptr && !freed.origin->try_begin_call()) { freed.origin = nullptr; }
  }
  before_reuse(freed.address);
  if (freed.origin == nullptr) { return CUDA_SUCCESS; }
  pool_call const inside;
  relaxed_capture_mode const relaxed{call};
  auto const& origin = freed.origin->call;
  origin.deallocate(origin.context, freed.owner, freed.device, pointer_to(freed.address), freed.bytes, stream);
  freed.origin->end_call();
  return CUDA_SUCCESS;
}

void note_end_of_memory(CUdeviceptr begin, std::size_t bytes) noexcept
{
  auto& all = the_routes();
  gone_blocks gone;
  std::lock_guard<std::mutex> const lock{all.mutex};
  end_blocks(all, static_cast<std::uintptr_t>(begin), bytes, false, gone);
}

void note_new_memory(CUdeviceptr begin, std::size_t bytes) noexcept
{
  auto& all = the_routes();
  gone_blocks gone;
  std::lock_guard<std::mutex> const lock{all.mutex};
  end_blocks(all, static_cast<std::uintptr_t>(begin), bytes, true, gone);
}

namespace {

[[nodiscard]] source* find_source(routes& all, int number) noexcept
{
  auto* found = all.newest.load(std::memory_order_acquire);
  while (found != nullptr && found->number != number) { found = found->older; }
  return found;
}

}  // namespace

int add_source(rmm::detail::audit_source const* functions) noexcept
{
  if (!process::get().chosen.routes_to_current()) { return 0; }
  try {
    return append(the_routes(), *functions);
  } catch (std::exception const&) {
    return 0;
  }
}

void withdraw_source(int number) noexcept
{
  auto& all         = the_routes();
  auto* const ended = find_source(all, number);
  if (ended == nullptr || ended->is_withdrawn()) { return; }
  {
    gone_blocks gone;
    std::lock_guard<std::mutex> const lock{all.mutex};
    for (auto& [address, block] : all.blocks) {
      if (block.origin == ended) { gone.add(block); }
    }
    ended->withdraw();
  }
  ended->wait_for_calls();
}

std::size_t bytes_of_source(int number) noexcept
{
  auto& all = the_routes();
  std::size_t bytes{0};
  std::lock_guard<std::mutex> const lock{all.mutex};
  for (auto const& [address, block] : all.blocks) {
    if (block.origin != nullptr && block.origin->number == number) { bytes += block.bytes; }
  }
  return bytes;
}

void lock_routes() noexcept { the_routes().mutex.lock(); }
void unlock_routes() noexcept { the_routes().mutex.unlock(); }

void continue_routes_in_child() noexcept
{
  auto& all = the_routes();
  for (auto* each = all.newest.load(std::memory_order_relaxed); each != nullptr; each = each->older) {
    each->continue_in_child();
  }
}

}  // namespace audit
}  // namespace tools
}  // namespace RMM_NAMESPACE
