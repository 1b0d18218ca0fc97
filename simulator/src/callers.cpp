// SPDX-License-Identifier: Apache-2.0
#include "callers.hpp"

#include "standard_names.hpp"

#include <dlfcn.h>
#include <unwind.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

namespace cudasim {

known_sites sites;

namespace {

constexpr std::size_t longest_name = 160;
constexpr int most_frames          = 64;

/// A place, and whose code is there.
struct code_place {
  void const* place;
  code_kind kind;
};

[[nodiscard]] code_place place_of(void const* code) noexcept
{
  unsigned number{0};
  code_kind kind{code_kind::program};
  if (number_in(code) != 0) { return {code, kind}; }  // too high for an entry
  try {
    if (!sites.find(code, number, kind)) {
      number = find_object(code, kind);
      sites.add(code, number, kind);
    }
  } catch (std::exception const&) {  // no memory for the symbols
  }
  return {numbered(code, number), kind};
}

/// A walk up the stack, starting at the return address of a call.
struct stack_walk {
  void const* site;
  int frames{0};
  bool is_at_site{false};
  void const* in_headers{nullptr};  // the first place outside of libraries
  void const* in_program{nullptr};
};

_Unwind_Reason_Code look_at_frame(_Unwind_Context* context, void* walk_argument)
{
  auto& walk             = *static_cast<stack_walk*>(walk_argument);
  auto const* const code = reinterpret_cast<void const*>(_Unwind_GetIP(context));
  walk.is_at_site        = walk.is_at_site || code == walk.site;
  if (walk.is_at_site && code != nullptr) {
    auto const [place, kind] = place_of(code);
    if (kind == code_kind::headers && walk.in_headers == nullptr) { walk.in_headers = place; }
    if (kind == code_kind::program) { walk.in_program = place; }
  }
  return walk.in_program != nullptr || ++walk.frames == most_frames ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

}  // namespace

bool known_sites::find(void const* site, unsigned& number, code_kind& kind) const noexcept
{
  constexpr std::uint64_t low_bits = (std::uint64_t{1} << (number_bits + kind_bits)) - 1;
  for (std::size_t i = 0; i < most_probes; ++i) {
    auto const entry = entries_[(home_of(site) + i) % entries_.size()].load(std::memory_order_relaxed);
    if (((entry ^ entry_of(site, 0, {})) & ~low_bits) != 0) { continue; }
    number = static_cast<unsigned>((entry & low_bits) >> kind_bits);
    kind   = code_kind{static_cast<unsigned>(entry) & ((1U << kind_bits) - 1)};
    return true;
  }
  return false;
}

void known_sites::add(void const* site, unsigned number, code_kind kind) noexcept
{
  for (std::size_t i = 0; i < most_probes; ++i) {
    std::uint64_t none{0};
    if (entries_[(home_of(site) + i) % entries_.size()].compare_exchange_strong(
          none, entry_of(site, number, kind), std::memory_order_relaxed)) {
      return;
    }
  }
  entries_[home_of(site)].store(entry_of(site, number, kind), std::memory_order_relaxed);
}

void known_sites::forget_numbered() noexcept
{
  for (auto& each : entries_) {
    auto entry = each.load(std::memory_order_relaxed);
    if ((entry >> kind_bits) % (std::uint64_t{1} << number_bits) == 0) { continue; }
    each.compare_exchange_strong(entry, 0, std::memory_order_relaxed);
  }
}

void const* search_program_caller(void const* site) noexcept
{
  if (site == nullptr) { return site; }
  note_loading();
  auto const [place, kind] = place_of(site);
  if (kind == code_kind::program) { return place; }
  stack_walk walk{site};
  ::_Unwind_Backtrace(look_at_frame, &walk);
  if (walk.in_program != nullptr) { return walk.in_program; }
  return walk.in_headers != nullptr ? walk.in_headers : place;
}

namespace {

[[nodiscard]] std::string offset_text(std::uintptr_t offset)
{
  char text[32];
  std::snprintf(text, sizeof text, "+%#zx", static_cast<std::size_t>(offset));
  return text;
}

/// Finds the name of a function in the memory of a loaded object whose file cannot be read any more. The dynamic linker
/// makes it wait for constructors that another thread runs.
[[nodiscard]] bool find_exported(code_object const& object, std::uintptr_t address, symbol_file::function& found)
{
  if (!object.symbols->is_empty() || !object.is_loaded.load(std::memory_order_relaxed)) { return false; }
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void const*>(object.bias + address), &info) == 0 || info.dli_sname == nullptr) {
    return false;
  }
  found = {info.dli_sname, reinterpret_cast<std::uintptr_t>(info.dli_saddr) - object.bias};
  return true;
}

/// Describes a place of an object, whose address in the file is given.
[[nodiscard]] std::string describe_code(code_object const& object, std::uintptr_t address)
{
  symbol_file::function function{};
  // Look up the call instruction: the return address may be in the next function.
  if (!object.symbols->find(address - 1, function) && !find_exported(object, address - 1, function)) {
    return object.name + offset_text(address);
  }
  auto const whole       = written_name(function.name);
  bool const is_standard = is_standard_name(function.name);
  auto const lambda      = is_standard ? lambda_of_program(whole) : std::string_view{};
  auto const name        = lambda.empty() ? std::string_view{whole} : lambda;
  if (name.size() <= longest_name && !is_standard) {
    return whole + offset_text(address - function.begin) + " in " + object.name;
  }
  return std::string{name.substr(0, longest_name)} + (name.size() > longest_name ? "..." : "") + " in " + object.name +
         offset_text(address);
}

}  // namespace

std::string describe_address(void const* place)
{
  if (place == nullptr) { return "an unknown place"; }
  auto const code          = address_in(place);
  auto const* const object = object_of(place);
  if (object == nullptr || object->path.empty()) {
    char text[32];
    std::snprintf(text, sizeof text, "%#zx", static_cast<std::size_t>(code));
    return text;
  }
  auto text = describe_code(*object, code - object->bias);
  if (!object->is_loaded.load(std::memory_order_relaxed)) { text += " (unloaded since)"; }
  switch (object->kind_of(code)) {
    case code_kind::program:
      break;
    case code_kind::headers:
      text += ", for a function that is inlined there or ends with this call";
      break;
    case code_kind::library:
      text += ", for a function that ends with this call";
      break;
  }
  return text;
}

}  // namespace cudasim
