// SPDX-License-Identifier: Apache-2.0
//
// Calls that fail on purpose, and how often each function was called.
//
// A call looks here only while `attention` is set: a fault is armed, a device is broken, there is no device, the
// runtime unloads, or after a fork. `attention` is set when the process starts, so that the first call reads the environment.

#include "driver.hpp"
#include "reports.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace cudasim {

std::atomic<bool> attention{true};

namespace {

struct armed_fault {
  fault what;
  std::uint64_t seen{0};  ///< calls that the fault covers, since it was armed
};

/// Guarded by the world's lock.
struct fault_state {
  std::vector<armed_fault> armed;
  std::uint64_t fired{0};
  bool unloading{false};
};

[[nodiscard]] fault_state& faults()
{
  static auto& state = *new fault_state;  // leaked on purpose, like the world
  return state;
}

/// All entry points that were called at least once. They have their own lock, because a call constructs its entry point
/// before it takes the world's lock.
struct entry_points {
  std::mutex mutex;
  std::vector<entry_point*> all;
};

[[nodiscard]] entry_points& registry()
{
  static auto& state = *new entry_points;  // leaked on purpose, like the world
  return state;
}

template <std::size_t n>
[[nodiscard]] bool contains(std::array<std::string_view, n> const& names, std::string_view name)
{
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Functions that work on a broken device because they need no context (observed on driver 580).
constexpr std::array<std::string_view, 15> need_no_context{"cudaChooseDevice",
                                                           "cudaDeviceCanAccessPeer",
                                                           "cudaDeviceGetAttribute",
                                                           "cudaDeviceGetDefaultMemPool",
                                                           "cudaDeviceGetPCIBusId",
                                                           "cudaDeviceReset",
                                                           "cudaGetDevice",
                                                           "cudaGetDeviceCount",
                                                           "cudaGetDeviceFlags",
                                                           "cudaGetDeviceProperties",
                                                           "cudaGetDriverEntryPoint",
                                                           "cudaGetDriverEntryPointByVersion",
                                                           "cudaInitDevice",
                                                           "cudaPointerGetAttributes",
                                                           "cudaSetDevice"};

/// Functions that work without any device.
constexpr std::array<std::string_view, 3> need_no_device{
  "cudaDriverGetVersion", "cudaGetDeviceCount", "cudaRuntimeGetVersion"};

/// Functions that only concern the thread and make no context current.
constexpr std::array<std::string_view, 1> about_the_thread{"cudaThreadExchangeStreamCaptureMode"};

/// Functions that host functions may call (observed on driver 580).
constexpr std::array<std::string_view, 13> may_be_called_inside_work{"cudaDriverGetVersion",
                                                                     "cudaEventElapsedTime",
                                                                     "cudaEventQuery",
                                                                     "cudaEventSynchronize",
                                                                     "cudaGetDeviceCount",
                                                                     "cudaGetDeviceProperties",
                                                                     "cudaRuntimeGetVersion",
                                                                     "cuDriverGetVersion",
                                                                     "cuEventQuery",
                                                                     "cuGetErrorName",
                                                                     "cuGetErrorString",
                                                                     "cuInit",
                                                                     "cuStreamGetId"};

/// These report errors, and return none of their own.
constexpr std::array<std::string_view, 4> never_fail{
  "cudaGetErrorName", "cudaGetErrorString", "cudaGetLastError", "cudaPeekAtLastError"};

/// Driver functions that do exactly what a runtime function does. Its counters and faults include them.
constexpr std::pair<std::string_view, std::string_view> twins_of_driver[]{
  {"cuEventQuery", "cudaEventQuery"},
  {"cuEventRecord", "cudaEventRecord"},
  {"cuStreamGetDevice", "cudaStreamGetDevice"},
  {"cuStreamGetId", "cudaStreamGetId"},
  {"cuStreamIsCapturing", "cudaStreamIsCapturing"},
  {"cuStreamWaitEvent", "cudaStreamWaitEvent"},
  {"cuThreadExchangeStreamCaptureMode", "cudaThreadExchangeStreamCaptureMode"},
};

/// Whether a counter or fault for `named` includes calls of `called`.
[[nodiscard]] bool means(std::string_view named, std::string_view called)
{
  if (named == "*" || named == called) { return true; }
  return std::any_of(std::begin(twins_of_driver), std::end(twins_of_driver), [&](auto const& twin) {
    return twin.first == called && twin.second == named;
  });
}

/// The function that a symbol stands for. Per-thread twins and all versions of a runtime function stand for the
/// function itself. Versions of a driver function are different functions. A driver function that passes its calls on
/// stands for the runtime function.
[[nodiscard]] std::string function_of(std::string symbol)
{
  bool const of_runtime = symbol.compare(0, 4, "cuda") == 0;
  for (std::string_view const suffix : {"_ptsz", "_ptds", "_v2", "_v3"}) {
    bool const is_version = suffix[1] == 'v';
    if (symbol.size() > suffix.size() && (of_runtime || !is_version) &&
        symbol.compare(symbol.size() - suffix.size(), suffix.size(), suffix) == 0) {
      symbol.resize(symbol.size() - suffix.size());
    }
  }
  auto const twin = of_runtime ? std::string_view{} : runtime_twin(symbol);
  return twin.empty() ? symbol : std::string{twin};
}

/// The error that the state of the machine forces on the call, or cudaSuccess.
[[nodiscard]] cudaError_t standing_error(std::string_view function)
{
  auto const& w = the_world();
  if (faults().unloading) { return cudaErrorCudartUnloading; }
  if (contains(need_no_device, function)) { return cudaSuccess; }
  if (w.devices.empty()) { return cudaErrorNoDevice; }
  bool const asks_device = !contains(need_no_context, function) && !contains(about_the_thread, function);
  return asks_device ? current_device().broken : cudaSuccess;
}

/// Counts the call for every fault that covers it. Returns the error of the first that fires, or cudaSuccess.
[[nodiscard]] cudaError_t injected_error(std::string_view function)
{
  auto& state = faults();
  auto error  = cudaSuccess;
  for (auto& f : state.armed) {
    if (!means(f.what.function, function)) { continue; }
    ++f.seen;
    if (error == cudaSuccess && f.seen >= f.what.nth) { error = f.what.error; }
  }
  if (error != cudaSuccess) { ++state.fired; }
  auto const spent = [](armed_fault const& f) {
    return f.seen >= f.what.nth && f.seen - f.what.nth >= f.what.count - 1;
  };
  state.armed.erase(std::remove_if(state.armed.begin(), state.armed.end(), spent), state.armed.end());
  return error;
}

}  // namespace

entry_point::entry_point(char const* entry_name)
  : name{entry_name},
    makes_context{std::string_view{entry_name}.substr(0, 4) == "cuda" && !contains(need_no_context, entry_name) &&
                  !contains(need_no_device, entry_name) && !contains(about_the_thread, entry_name) &&
                  !contains(never_fail, entry_name)}
{
  auto& known = registry();
  std::lock_guard<std::mutex> const lock{known.mutex};
  known.all.push_back(this);
}

cudaError_t attend(entry_point& entry)
{
  if (is_forked()) { return report_fork(entry.name); }  // must not take the lock
  std::lock_guard<std::mutex> const lock{the_world().mutex};
  apply_environment();
  auto error = standing_error(entry.name);
  if (error == cudaSuccess) { error = injected_error(entry.name); }
  update_attention();
  return error;
}

__thread bool runs_work = false;

cudaError_t refuse_inside_work(entry_point const& entry, void const* site) noexcept
{
  if (contains(may_be_called_inside_work, entry.name)) { return cudaSuccess; }
  try {
    std::unique_lock<std::mutex> lock{the_world().mutex};
    call{entry, lock, site}.misuse(cudaErrorNotPermitted, "host functions and kernels must not call CUDA");
  } catch (std::exception const&) {  // no memory for the report
  }
  return cudaErrorNotPermitted;
}

void update_attention()
{
  auto const& w     = the_world();
  auto const broken = [](device const& d) { return d.broken != cudaSuccess; };
  attention.store(faults().unloading || !faults().armed.empty() || w.devices.empty() ||
                    std::any_of(w.devices.begin(), w.devices.end(), broken),
                  std::memory_order_relaxed);
}

void reset_faults()
{
  apply_environment();  // before the faults are cleared: only the first machine may have the environment's
  auto& w           = the_world();
  faults()          = {};
  w.driver_version  = 0;
  w.runtime_version = 0;
  update_attention();
  auto& known = registry();
  std::lock_guard<std::mutex> const lock{known.mutex};
  for (auto* const entry : known.all) { entry->calls.store(0, std::memory_order_relaxed); }
}

bool is_runtime_function(std::string const& name)
{
#define CUDART_SYMBOL(symbol) std::string_view{#symbol},
  static constexpr std::string_view symbols[]{
#include "../symbols/cudart_12_only.inc"
#include "../symbols/cudart_13_0.inc"
  };
#undef CUDART_SYMBOL
  return name.compare(0, 4, "cuda") == 0 && function_of(name) == name &&
         std::find(std::begin(symbols), std::end(symbols), name) != std::end(symbols);
}

std::string check_fault(fault const& what)
{
  if (what.nth == 0) { return "calls are counted from 1"; }
  if (what.count == 0) { return "a count of 0 fails no call"; }
  if (what.error == cudaSuccess) { return "cudaSuccess is not an error"; }
  if (what.function == "*" || what.function == "cudasim::launch") { return {}; }
  auto const name = function_of(what.function);
  if (contains(never_fail, name)) { return name + " cannot fail"; }
  if (!is_runtime_function(name) && driver_function(name.c_str()) == nullptr) {
    return "there is no CUDA function '" + what.function + "'";
  }
  return {};
}

void arm(fault const& what)
{
  faults().armed.push_back({what, 0});
  faults().armed.back().what.function = function_of(what.function);
  update_attention();
}

void inject(fault const& what)
{
  auto const problem = check_fault(what);
  if (!problem.empty()) { throw std::invalid_argument{"cudasim::inject: " + problem}; }
  std::lock_guard<std::mutex> const lock{the_world().mutex};
  apply_environment();
  arm(what);
}

void clear_faults()
{
  std::lock_guard<std::mutex> const lock{the_world().mutex};
  apply_environment();
  faults().armed.clear();
  update_attention();
}

std::uint64_t faults_fired()
{
  std::lock_guard<std::mutex> const lock{the_world().mutex};
  return faults().fired;
}

void begin_unloading()
{
  std::lock_guard<std::mutex> const lock{the_world().mutex};
  faults().unloading = true;
  update_attention();
}

void fail_device(int device, cudaError_t error)
{
  std::lock_guard<std::mutex> const lock{the_world().mutex};
  device_of_test("cudasim::fail_device", device).broken = error;
  update_attention();
}

void set_versions(int driver, int runtime)
{
  auto& w = the_world();
  std::lock_guard<std::mutex> const lock{w.mutex};
  if (driver != 0) { w.driver_version = driver; }
  if (runtime != 0) { w.runtime_version = runtime; }
}

std::vector<std::pair<std::string, std::uint64_t>> calls_by_function()
{
  std::map<std::string, std::uint64_t> sums;
  auto& known = registry();
  std::lock_guard<std::mutex> const lock{known.mutex};
  for (auto const* const entry : known.all) {
    auto const count = entry->calls.load(std::memory_order_relaxed);
    if (count != 0) { sums[entry->name] += count; }
  }
  return {sums.begin(), sums.end()};
}

std::uint64_t calls(std::string const& function)
{
  auto const wanted = function_of(function);
  std::uint64_t sum = 0;
  for (auto const& [name, count] : calls_by_function()) {
    if (means(wanted, name)) { sum += count; }
  }
  return sum;
}

}  // namespace cudasim
