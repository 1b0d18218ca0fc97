// SPDX-License-Identifier: Apache-2.0
#include "callers.hpp"

#include "known_code.hpp"

#include <link.h>
#include <unistd.h>
#include <unwind.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>

namespace RMM_NAMESPACE {
namespace tools {
namespace audit {
namespace {

constexpr int most_frames = 64;

/// The class of a piece of code: it passes calls on, or belongs to the library with a number.
constexpr std::uint32_t passes_on = 0;
[[nodiscard]] constexpr std::uint32_t to_entry(library_id library) noexcept { return library + 1U; }
[[nodiscard]] constexpr library_id to_library(std::uint32_t entry) noexcept
{
  return static_cast<library_id>(entry - 1);
}

using known_places_type = known_code<12>;
static_assert(ledger::most_libraries < known_places_type::most_entries);

known_places_type known_places;

/// Clears the cache if an object was unloaded since the last call, because other code may lie there now.
void forget_unloaded_objects() noexcept
{
  unsigned long long unloaded{};
  ::dl_iterate_phdr(
    [](dl_phdr_info* info, std::size_t, void* out) {
      *static_cast<unsigned long long*>(out) = info->dlpi_subs;
      return 1;
    },
    &unloaded);
  known_places.forget_unloaded(unloaded);
}

// Order: relaxed. A thread that has the number of a library has set this itself, or has acquired it with the number from known_places.
std::array<std::atomic<bool>, ledger::most_libraries> libraries_with_rmm{};

/// The shared object that contains a piece of code.
struct object {
  std::uintptr_t code;
  bool is_found{false};
  bool is_this_library{false};
  bool has_rmm{false};
  std::array<char, PATH_MAX> path{};
};

[[nodiscard]] bool has_code(dl_phdr_info const& info, std::uintptr_t code) noexcept
{
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    auto const& segment = info.dlpi_phdr[i];
    if (segment.p_type == PT_LOAD && code - (info.dlpi_addr + segment.p_vaddr) < segment.p_memsz) { return true; }
  }
  return false;
}

[[nodiscard]] std::uintptr_t code_of_this_library() noexcept
{
  return reinterpret_cast<std::uintptr_t>(&forget_unloaded_objects);
}

/// Whether a segment of notes has a note of RMM.
[[nodiscard]] bool has_note_of_rmm(char const* notes, std::size_t size, std::size_t alignment) noexcept
{
  auto const padded = [alignment](std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; };
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes, sizeof header);
    auto const end = padded(padded(sizeof header + header.n_namesz) + header.n_descsz);
    if (end > size) { break; }
    if (header.n_namesz == 4 && std::memcmp(notes + sizeof header, "RMM", 4) == 0) { return true; }
    notes += end;
    size -= end;
  }
  return false;
}

[[nodiscard]] bool has_note_of_rmm(dl_phdr_info const& info) noexcept
{
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    auto const& segment = info.dlpi_phdr[i];
    if (segment.p_type == PT_NOTE && has_note_of_rmm(reinterpret_cast<char const*>(info.dlpi_addr + segment.p_vaddr),
                                                     segment.p_memsz,
                                                     segment.p_align == 8 ? 8 : 4)) {
      return true;
    }
  }
  return false;
}

// Used instead of dladdr(), which blocks while another thread runs the constructors of a library.
int look_at_object(dl_phdr_info* info, std::size_t, void* out)
{
  auto& searched = *static_cast<object*>(out);
  if (!has_code(*info, searched.code)) { return 0; }
  searched.is_found        = true;
  searched.is_this_library = has_code(*info, code_of_this_library());
  searched.has_rmm         = has_note_of_rmm(*info);
  std::snprintf(searched.path.data(), searched.path.size(), "%s", info->dlpi_name != nullptr ? info->dlpi_name : "");
  return 1;
}

[[nodiscard]] std::uint32_t look_up(ledger& known, std::uintptr_t code)
{
  object searched{code};
  ::dl_iterate_phdr(look_at_object, &searched);
  if (!searched.is_found) { return to_entry(known.id_of("(code of no file)")); }
  if (searched.path[0] == '\0') {  // the program itself
    auto const length = ::readlink("/proc/self/exe", searched.path.data(), searched.path.size() - 1);
    if (length <= 0) { return to_entry(known.id_of("(the program)")); }
  }
  if (searched.is_this_library || only_passes_on(searched.path.data())) { return passes_on; }
  auto const library = known.id_of(std::string{name_of_library(searched.path.data())});
  if (searched.has_rmm) { libraries_with_rmm[library].store(true, std::memory_order_relaxed); }
  return to_entry(library);
}

[[nodiscard]] std::uint32_t entry_of(ledger& known, std::uintptr_t code)
{
  std::uint32_t entry{};
  if (known_places.find(code, entry)) { return entry; }
  entry = look_up(known, code);
  known_places.add(code, entry);
  return entry;
}

struct walk {
  ledger* known;
  int frames{0};
  std::uint32_t found{passes_on};
};

_Unwind_Reason_Code look_at_frame(_Unwind_Context* context, void* argument)
{
  auto& taken     = *static_cast<walk*>(argument);
  auto const code = static_cast<std::uintptr_t>(_Unwind_GetIP(context));
  try {
    if (code != 0) { taken.found = entry_of(*taken.known, code - 1); }
  } catch (std::exception const&) {
    return _URC_NORMAL_STOP;
  }
  return taken.found != passes_on || ++taken.frames == most_frames ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

}  // namespace

library_id calling_library(ledger& known, void const* code) noexcept
{
  forget_unloaded_objects();
  try {
    auto const direct = entry_of(known, reinterpret_cast<std::uintptr_t>(code) - 1);
    if (direct != passes_on) { return to_library(direct); }
    walk taken{&known};
    ::_Unwind_Backtrace(look_at_frame, &taken);
    // The stack may end in code that hides its callers.
    return taken.found != passes_on ? to_library(taken.found) : known.id_of("(unknown)");
  } catch (std::exception const&) {
    return 0;  // the ledger always has this number
  }
}

bool has_rmm_inside(library_id library) noexcept { return libraries_with_rmm[library].load(std::memory_order_relaxed); }

bool is_code_of_driver(void const* code) noexcept
{
  object searched{reinterpret_cast<std::uintptr_t>(code) - 1};
  ::dl_iterate_phdr(look_at_object, &searched);
  constexpr std::string_view beginning{"libcuda.so"};
  return file_of(searched.path.data()).substr(0, beginning.size()) == beginning;
}

std::string path_of_this_library()
{
  object searched{code_of_this_library()};
  ::dl_iterate_phdr(look_at_object, &searched);
  return searched.path.data();
}

}  // namespace audit
}  // namespace tools
}  // namespace RMM_NAMESPACE
