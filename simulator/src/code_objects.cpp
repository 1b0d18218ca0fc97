// SPDX-License-Identifier: Apache-2.0
#include "code_objects.hpp"

#include "callers.hpp"
#include "standard_names.hpp"

#include <link.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace cudasim {
namespace {

// --- The dynamic linker

/// A fork waits for searches, and searches for a fork: a child could not load objects if a thread of its parent held the
/// dynamic linker's lock. They do not wait for ever, as a callback of dl_iterate_phdr(), which has that lock, may fork.
/// A handler of the program may call CUDA during a fork of its thread; it does not wait for that fork.
std::atomic<int> searches{0};
std::atomic<int> forks{0};
thread_local bool this_thread_forks{false};

constexpr int most_waits = 10'000;  // of 100 µs

void search(int (*look)(dl_phdr_info*, std::size_t, void*), void* out) noexcept
{
  searches.fetch_add(1);
  for (int i = 0; !this_thread_forks && forks != 0 && i < most_waits; ++i) {
    searches.fetch_sub(1);
    ::usleep(100);
    searches.fetch_add(1);
  }
  ::dl_iterate_phdr(look, out);
  searches.fetch_sub(1);
}

/// How often objects were loaded and unloaded.
int count_loads(dl_phdr_info* info, std::size_t /*bytes*/, void* out)
{
  *static_cast<std::uint64_t*>(out) = (static_cast<std::uint64_t>(info->dlpi_adds) << 32U) + info->dlpi_subs;
  return 1;
}

struct object_search {
  loaded_object object;
  bool is_first{true};
  bool can_be_unloaded{false};
};

/// Takes what is needed of the object that holds the code.
int look_at_object(dl_phdr_info* info, std::size_t /*bytes*/, void* out)
{
  auto& [object, is_first, can_be_unloaded] = *static_cast<object_search*>(out);
  bool const is_program                     = info->dlpi_name == nullptr || *info->dlpi_name == '\0';
  can_be_unloaded                           = can_be_unloaded || (is_first && !is_program);
  object.stays                              = !can_be_unloaded;
  // Objects that are loaded later come after the dynamic linker, where it is one.
  auto const linker = ::getauxval(AT_BASE);
  can_be_unloaded   = can_be_unloaded || linker == 0 || info->dlpi_addr == linker;
  is_first          = false;

  auto const own_code = reinterpret_cast<std::uintptr_t>(&count_loads);
  bool is_here        = false;
  object.begin        = ~std::uintptr_t{0};
  object.end          = 0;
  object.is_simulator = false;
  ElfW(Phdr) const* headers{nullptr};
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    auto const& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) { continue; }
    auto const begin    = static_cast<std::uintptr_t>(info->dlpi_addr + segment.p_vaddr);
    is_here             = is_here || object.code - begin < segment.p_memsz;
    object.is_simulator = object.is_simulator || own_code - begin < segment.p_memsz;
    object.begin        = std::min(object.begin, begin);
    object.end          = std::max<std::uintptr_t>(object.end, begin + segment.p_memsz);
    if (segment.p_offset == 0 && (segment.p_flags & PF_R) != 0) { headers = &segment; }
  }
  if (!is_here) { return 0; }
  object.bias = info->dlpi_addr;
  if (headers != nullptr) {
    object.version =
      version_of(reinterpret_cast<unsigned char const*>(info->dlpi_addr + headers->p_vaddr), headers->p_filesz);
  }
  std::snprintf(object.path, sizeof object.path, "%s", is_program ? "/proc/self/exe" : info->dlpi_name);
  return 1;
}

/// The object that holds the code now. Its path is empty if there is none.
[[nodiscard]] loaded_object look_up(std::uintptr_t code) noexcept
{
  object_search result{loaded_object{code}};
  search(look_at_object, &result);
  return result.object.path[0] != '\0' ? result.object : loaded_object{code};
}

// --- The list of objects

/// By their numbers less one; those that are known come first. Never destroyed: reports are written until the process
/// ends. Without a lock, which a thread of the parent could hold during a fork.
std::array<std::atomic<code_object*>, (std::size_t{1} << number_bits) - 1> known_objects;

/// Returns the object with the number; null if there is none.
[[nodiscard]] code_object* object_number(std::size_t number) noexcept
{
  return number <= known_objects.size() ? known_objects[number - 1].load(std::memory_order_acquire) : nullptr;
}

[[nodiscard]] bool is_same(code_object const& known, loaded_object const& found)
{
  return known.path == found.path && known.bias == found.bias && known.version == found.version;
}

/// Returns the number of the object, which is added if it is new; 0 if there are too many.
[[nodiscard]] unsigned remember(loaded_object const& found, code_object const*& object)
{
  std::shared_ptr<symbol_file const> symbols;
  std::unique_ptr<code_object> made;
  for (std::size_t i = 0; i != known_objects.size(); ++i) {
    auto* known = known_objects[i].load(std::memory_order_acquire);
    if (known == nullptr) {
      if (made == nullptr) { made = std::make_unique<code_object>(found, symbols); }
      if (known_objects[i].compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) {
        known = made.release();
      }
    }
    if (is_same(*known, found)) {
      known->is_loaded.store(true, std::memory_order_relaxed);
      object = known;
      return static_cast<unsigned>(i) + 1;
    }
    if (known->path == found.path && known->version == found.version) { symbols = known->symbols; }
  }
  return 0;
}

void before_fork()
{
  this_thread_forks = true;
  forks.fetch_add(1);
  for (int i = 0; searches != 0 && i < most_waits; ++i) { ::usleep(100); }
}

void after_fork()
{
  forks.fetch_sub(1);
  this_thread_forks = false;
}

void after_fork_in_child()
{
  searches          = 0;
  forks             = 0;
  this_thread_forks = false;
}

[[gnu::constructor]] void guard_forks() { ::pthread_atfork(before_fork, after_fork, after_fork_in_child); }

// --- Names

[[nodiscard]] bool ends_with(std::string_view text, std::string_view end) noexcept
{
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

/// Without an architecture or a version, as in "libc-2.31".
[[nodiscard]] std::string_view without_suffix(std::string_view stem) noexcept
{
  for (std::string_view const architecture : {"-x86-64", "-x86_64", "-aarch64"}) {
    if (ends_with(stem, architecture)) { return stem.substr(0, stem.size() - architecture.size()); }
  }
  auto const last = stem.find_last_not_of("0123456789.");
  return last != std::string_view::npos && stem[last] == '-' ? stem.substr(0, last) : stem;
}

[[nodiscard]] std::string name_of(loaded_object const& found)
{
  if (std::string_view{found.path} == "/proc/self/exe") { return program_invocation_short_name; }
  std::string_view const path{found.path};
  return std::string{path.substr(path.rfind('/') + 1)};  // npos + 1 is 0
}

/// Whether the code is _start(), which calls main() by way of the C library.
[[nodiscard]] bool is_start(std::uintptr_t code) noexcept
{
  constexpr std::uintptr_t most_bytes = 64;
  return code - ::getauxval(AT_ENTRY) <= most_bytes;
}

}  // namespace

bool is_library_name(std::string_view file) noexcept
{
  static constexpr std::string_view names[]{
    "ld",        "ld-linux",  "ld-musl",   "libasan",          "libc",
    "libc++",    "libc++abi", "libc.musl", "libclang_rt.asan", "libclang_rt.tsan",
    "libdl",     "libgcc_s",  "libm",      "libpthread",       "librt",
    "libstdc++", "libtsan",   "libubsan",  "libunwind",        "libclang_rt.ubsan_standalone"};
  auto const ending = file.find(".so");
  if (ending == std::string_view::npos) { return false; }
  auto const version = file.substr(ending + 3);
  if (version.find_first_not_of("0123456789.") != std::string_view::npos) { return false; }
  return std::find(std::begin(names), std::end(names), without_suffix(file.substr(0, ending))) != std::end(names);
}

code_object::code_object(loaded_object const& found, std::shared_ptr<symbol_file const> read_before)
  : path{found.path},
    name{name_of(found)},
    bias{found.bias},
    begin{found.begin},
    end{found.end},
    version{found.version},
    stays{found.stays},
    is_library{found.is_simulator || is_library_name(name)},
    symbols{read_before != nullptr ? std::move(read_before)
                                   : std::make_shared<symbol_file const>(found.path, found.version)}
{}

code_kind code_object::kind_of(std::uintptr_t code) const
{
  if (is_library || is_start(code)) { return code_kind::library; }
  symbol_file::function function{};
  bool const is_standard = symbols->find(code - 1 - bias, function) && is_standard_name(function.name);
  return is_standard && lambda_of_program(written_name(function.name)).empty() ? code_kind::headers
                                                                               : code_kind::program;
}

unsigned find_object(void const* code, code_kind& kind)
{
  auto const address = reinterpret_cast<std::uintptr_t>(code);
  auto const found   = look_up(address - 1);  // the call instruction: the next one may be in another function
  code_object const* object{nullptr};
  auto const number = remember(found, object);
  kind              = object != nullptr ? object->kind_of(address) : code_kind::program;
  return found.stays ? 0 : number;
}

void note_loading() noexcept
{
  static std::atomic<std::uint64_t> seen{0};
  std::uint64_t now{0};
  search(count_loads, &now);
  if (now == seen.load(std::memory_order_acquire)) { return; }
  for (std::size_t number = 1; auto* const object = object_number(number); ++number) {
    if (object->stays || object->path.empty() || !object->is_loaded.load(std::memory_order_relaxed)) { continue; }
    if (!is_same(*object, look_up(object->begin))) { object->is_loaded.store(false, std::memory_order_relaxed); }
  }
  sites.forget_numbered();
  seen.store(now, std::memory_order_release);  // last: a thread that sees it finds nothing old
}

code_object const* object_of(void const* place)
{
  auto const address = address_in(place);
  auto const holds = [&](code_object const& object) { return address - 1 - object.begin < object.end - object.begin; };
  if (auto const number = number_in(place)) {
    auto const* const object = object_number(number);
    return object != nullptr && holds(*object) ? object : nullptr;
  }
  for (std::size_t number = 1; auto const* const object = object_number(number); ++number) {
    if (object->stays && holds(*object)) { return object; }
  }
  return nullptr;
}

}  // namespace cudasim
