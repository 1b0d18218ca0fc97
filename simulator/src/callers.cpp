// SPDX-License-Identifier: Apache-2.0
#include "callers.hpp"

#include "standard_names.hpp"
#include "symbol_file.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace cudasim {

known_sites sites;

namespace {

constexpr std::size_t longest_name = 160;
constexpr int most_frames          = 64;

struct code_range {
  std::uintptr_t begin;
  std::uintptr_t end;
};

/// Code that is never reported as the caller. Written before the first call of CUDA.
std::array<code_range, 32> library_code;
std::size_t library_code_count{0};

[[nodiscard]] std::string_view file_of(std::string_view path)
{
  auto const slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

/// Whether an object belongs to the C or C++ library, the compiler's runtime or a sanitizer.
[[nodiscard]] bool is_library(std::string_view file)
{
  static constexpr std::string_view names[]{"libc.so",
                                            "libc-",
                                            "libpthread",
                                            "libm.so",
                                            "libdl.so",
                                            "librt.so",
                                            "ld-linux",
                                            "ld-musl",
                                            "libstdc++.so",
                                            "libc++.so",
                                            "libc++abi.so",
                                            "libgcc_s",
                                            "libunwind.so",
                                            "libasan.so",
                                            "libubsan.so",
                                            "libtsan.so",
                                            "libclang_rt."};
  return std::any_of(
    std::begin(names), std::end(names), [&](std::string_view name) { return file.substr(0, name.size()) == name; });
}

int add_library_code(dl_phdr_info* info, std::size_t /*bytes*/, void* own_code)
{
  auto const add = [&](ElfW(Phdr) const& segment) {
    auto const begin = static_cast<std::uintptr_t>(info->dlpi_addr + segment.p_vaddr);
    if (library_code_count < library_code.size()) {
      library_code[library_code_count++] = {begin, begin + segment.p_memsz};
    }
  };
  bool const may_be_ours = !is_library(file_of(info->dlpi_name != nullptr ? info->dlpi_name : ""));
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    auto const& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) { continue; }
    auto const own = reinterpret_cast<std::uintptr_t>(own_code) - (info->dlpi_addr + segment.p_vaddr);
    if (!may_be_ours || own < segment.p_memsz) { add(segment); }
  }
  return 0;
}

/// Runs before the constructors of objects that link the simulator.
[[gnu::constructor]] void find_library_code()
{
  dl_iterate_phdr(add_library_code, reinterpret_cast<void*>(&find_library_code));
}

[[nodiscard]] bool is_library_code(void const* code) noexcept
{
  auto const address = reinterpret_cast<std::uintptr_t>(code);
  return std::any_of(library_code.begin(), library_code.begin() + library_code_count, [&](code_range const& range) {
    return address - range.begin < range.end - range.begin;
  });
}

using c_string = std::unique_ptr<char, void (*)(void*)>;

/// Demangles a name; null if it is not a C++ name. Allocates with malloc(), as operator new may be the program's.
[[nodiscard]] c_string written_name(char const* name)
{
  int status{};
  return {abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free};
}

[[nodiscard]] std::string shortened(std::string_view name)
{
  return name.size() > longest_name ? std::string{name.substr(0, longest_name)} + "..." : std::string{name};
}

[[nodiscard]] std::string demangled(char const* name)
{
  auto const text = written_name(name);
  return shortened(text != nullptr ? text.get() : name);
}

/// The program's lambda whose code may be inside this function of the C++ library's headers; empty if there is none.
[[nodiscard]] std::string lambda_in(char const* name)
{
  if (!is_standard_name(name)) { return {}; }
  auto const text = written_name(name);
  return text != nullptr ? shortened(lambda_of_program(text.get())) : std::string{};
}

/// The symbols of a file, which is read once.
[[nodiscard]] symbol_file const& symbols_of(char const* path)
{
  static std::mutex mutex;
  // Never destroyed: reports are written until the process ends.
  static auto& known = *new std::map<std::string, symbol_file, std::less<>>;
  std::lock_guard<std::mutex> const lock{mutex};
  auto const found = known.find(std::string_view{path});
  return found != known.end() ? found->second : known.try_emplace(path, path).first->second;
}

/// The file of an object, and where it is loaded.
struct loaded_object {
  std::uintptr_t code;
  std::uintptr_t bias{0};
  std::array<char, 4096> path{};
};

int find_object(dl_phdr_info* info, std::size_t /*bytes*/, void* out)
{
  auto& object = *static_cast<loaded_object*>(out);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    auto const& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || object.code - (info->dlpi_addr + segment.p_vaddr) >= segment.p_memsz) { continue; }
    object.bias           = info->dlpi_addr;
    bool const is_program = info->dlpi_name == nullptr || *info->dlpi_name == '\0';
    std::snprintf(object.path.data(), object.path.size(), "%s", is_program ? "/proc/self/exe" : info->dlpi_name);
    return 1;
  }
  return 0;
}

/// Whether the program's file says that the code is of the C++ library's headers and contains no lambda of the program.
/// Does not call dladdr(), which blocks while another thread runs the constructors of a library.
[[nodiscard]] bool is_header_code(void const* code)
{
  loaded_object object{reinterpret_cast<std::uintptr_t>(code) - 1};
  symbol_file::function function{};
  if (::dl_iterate_phdr(find_object, &object) == 0 ||
      !symbols_of(object.path.data()).find(object.code - object.bias, function) || !is_standard_name(function.name)) {
    return false;
  }
  auto const text = written_name(function.name);
  return text == nullptr || lambda_of_program(text.get()).empty();
}

[[nodiscard]] bool is_program_code(void const* code) noexcept
{
  bool of_program{};
  if (sites.find(code, of_program)) { return of_program; }
  try {
    of_program = !is_library_code(code) && !is_header_code(code);
  } catch (std::exception const&) {
    return true;  // no memory for the symbols
  }
  sites.add(code, of_program);
  return of_program;
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
  if (walk.is_at_site && !is_library_code(code)) {
    if (walk.in_headers == nullptr) { walk.in_headers = code; }
    if (is_program_code(code)) { walk.in_program = code; }
  }
  return walk.in_program != nullptr || ++walk.frames == most_frames ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

}  // namespace

bool known_sites::find(void const* site, bool& of_program) const noexcept
{
  for (std::size_t i = 0; i < most_probes; ++i) {
    auto const entry = entries_[(home_of(site) + i) % entries_.size()].load(std::memory_order_relaxed);
    if (entry >> 1U != entry_of(site, false) >> 1U) { continue; }
    of_program = (entry & 1U) != 0;
    return true;
  }
  return false;
}

void known_sites::add(void const* site, bool of_program) noexcept
{
  for (std::size_t i = 0; i < most_probes; ++i) {
    std::uint64_t none{0};
    if (entries_[(home_of(site) + i) % entries_.size()].compare_exchange_strong(
          none, entry_of(site, of_program), std::memory_order_relaxed)) {
      return;
    }
  }
  entries_[home_of(site)].store(entry_of(site, of_program), std::memory_order_relaxed);
}

void const* search_program_caller(void const* site) noexcept
{
  if (site == nullptr || is_program_code(site)) { return site; }
  stack_walk walk{site};
  ::_Unwind_Backtrace(look_at_frame, &walk);
  if (walk.in_program != nullptr) { return walk.in_program; }
  return walk.in_headers != nullptr ? walk.in_headers : site;
}

namespace {

/// Describes the place, whether it is code of the program or of a library.
[[nodiscard]] std::string describe_code(void const* code)
{
  char offset[32];
  // Look up the call instruction: the return address may be in the next function.
  auto const* const call = static_cast<char const*>(code) - 1;
  Dl_info info{};
  link_map* object{};
  if (::dladdr1(call, &info, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) == 0 || info.dli_fname == nullptr) {
    std::snprintf(offset, sizeof offset, "%p", code);
    return offset;
  }
  std::string const file{file_of(info.dli_fname)};
  bool const is_program = object == nullptr || object->l_name == nullptr || *object->l_name == '\0';
  auto const bias       = object != nullptr ? object->l_addr : 0;
  auto const address    = reinterpret_cast<std::uintptr_t>(call) - bias;
  symbol_file::function function{};
  if (symbols_of(is_program ? "/proc/self/exe" : object->l_name).find(address, function)) {
    auto const lambda = lambda_in(function.name);
    std::snprintf(
      offset, sizeof offset, "+%#tx", static_cast<std::ptrdiff_t>(address + 1 - (lambda.empty() ? function.begin : 0)));
    return lambda.empty() ? demangled(function.name) + offset + " in " + file : lambda + " in " + file + offset;
  }
  if (info.dli_sname == nullptr) {
    std::snprintf(offset, sizeof offset, "+%#tx", static_cast<std::ptrdiff_t>(address + 1));
    return file + offset;
  }
  std::snprintf(
    offset, sizeof offset, "+%#tx", static_cast<char const*>(code) - static_cast<char const*>(info.dli_saddr));
  return demangled(info.dli_sname) + offset + " in " + file;
}

}  // namespace

std::string describe_address(void const* code)
{
  if (code == nullptr) { return "an unknown place"; }
  auto place = describe_code(code);
  if (is_library_code(code)) { place += ", for a function that ends with this call"; }
  return place;
}

}  // namespace cudasim
