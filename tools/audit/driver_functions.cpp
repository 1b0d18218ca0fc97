// SPDX-License-Identifier: Apache-2.0
#include "driver_functions.hpp"

#include <dlfcn.h>

#include <array>
#include <atomic>

// Not every release of <cuda.h> declares these.
extern "C" {
#define RMM_AUDIT_DECLARE(symbol, ...) extern char rmm_audit_##symbol[] __asm__(#symbol);
RMM_AUDIT_FUNCTIONS(RMM_AUDIT_DECLARE)
#undef RMM_AUDIT_DECLARE
}

namespace RMM_NAMESPACE {
namespace tools {
namespace audit {
namespace {

constexpr auto count = static_cast<std::size_t>(function::count);

struct row {
  std::string_view symbol;
  std::string_view name;
  int since;
  bool own_stream;
  void* wrapper;
};

[[nodiscard]] row const& row_of(std::size_t place) noexcept
{
  static row const rows[]{
#define RMM_AUDIT_ROW(symbol, name, since, own_stream) {#symbol, name, since, own_stream, rmm_audit_##symbol},
    RMM_AUDIT_FUNCTIONS(RMM_AUDIT_ROW)
#undef RMM_AUDIT_ROW
  };
  return rows[place];
}

// Order: relaxed, as in rmm/detail/cuda/stream_calls.hpp: an address leads to code that was loaded before it could be found. The first
// address stays. A thread that reads null searches itself.
std::array<std::atomic<void*>, count> driver_functions{};

/// Runs before the program, so that the program does not see an error of this search in dlerror().
[[gnu::constructor]] void find_next_dlsym()
{
  static_cast<void>(next_dlsym());
  static_cast<void>(::dlerror());
}

}  // namespace

function find_symbol(std::string_view symbol) noexcept
{
  std::size_t place = 0;
  while (place < count && row_of(place).symbol != symbol) { ++place; }
  return static_cast<function>(place);
}

function find_name(std::string_view name, int version, bool own_stream) noexcept
{
  auto found = count;
  for (std::size_t place = 0; place < count; ++place) {
    auto const& entry = row_of(place);
    if (entry.name != name || entry.since > version || (entry.own_stream && !own_stream)) { continue; }
    bool const is_better = found == count || entry.since > row_of(found).since || entry.own_stream;
    if (is_better) { found = place; }
  }
  return static_cast<function>(found);
}

bool is_only_for_routes(function place) noexcept
{
  return place == function::cuIpcGetMemHandle || place == function::cuMemAddressFree ||
         place == function::cuMemGetAddressRange_v2 || place == function::cuPointerGetAttribute ||
         place == function::cuPointerGetAttributes;
}

void* wrapper_of(function place) noexcept { return row_of(static_cast<std::size_t>(place)).wrapper; }

void keep_driver_function(function place, void* found) noexcept
{
  void* none = nullptr;
  if (found != wrapper_of(place)) {
    driver_functions[static_cast<std::size_t>(place)].compare_exchange_strong(none, found, std::memory_order_relaxed);
  }
}

void* driver_function(function place) noexcept
{
  auto& kept        = driver_functions[static_cast<std::size_t>(place)];
  auto* const known = kept.load(std::memory_order_relaxed);
  if (known != nullptr) { return known; }
  auto* found = next_dlsym()(RTLD_NEXT, row_of(static_cast<std::size_t>(place)).symbol.data());
  if (found == nullptr) {  // the driver was opened with RTLD_LOCAL, and this function was never asked for
    if (void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD); driver != nullptr) {
      found = next_dlsym()(driver, row_of(static_cast<std::size_t>(place)).symbol.data());
      ::dlclose(driver);
    }
  }
  keep_driver_function(place, found);
  return found;
}

void* other_driver_function(char const* name, int version) noexcept
{
  void* found{};
  if (auto* const ask = driver_function(function::cuGetProcAddress_v2); ask != nullptr) {
    auto const call = reinterpret_cast<CUresult (*)(char const*, void**, int, cuuint64_t, int*)>(ask);
    return call(name, &found, version, 0, nullptr) == CUDA_SUCCESS ? found : nullptr;
  }
  if (auto* const ask = driver_function(function::cuGetProcAddress); ask != nullptr) {
    auto const call = reinterpret_cast<CUresult (*)(char const*, void**, int, cuuint64_t)>(ask);
    return call(name, &found, version, 0) == CUDA_SUCCESS ? found : nullptr;
  }
  return nullptr;
}

dlsym_function next_dlsym() noexcept
{
  static std::atomic<dlsym_function> kept{nullptr};  // Order: as driver_functions
  auto next = kept.load(std::memory_order_relaxed);
  if (next != nullptr) { return next; }
  // In glibc, dlsym has had its own version in libc.so.6 since 2.34; earlier, and for older programs, the processor's first version.
  for (char const* const version : {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"}) {
    if (next == nullptr) { next = reinterpret_cast<dlsym_function>(::dlvsym(RTLD_NEXT, "dlsym", version)); }
  }
  // Another preloaded library may replace dlsym, too.
  if (auto* const after = next(RTLD_NEXT, "dlsym"); after != nullptr) {
    next = reinterpret_cast<dlsym_function>(after);
  }
  kept.store(next, std::memory_order_relaxed);
  return next;
}

}  // namespace audit
}  // namespace tools
}  // namespace RMM_NAMESPACE
