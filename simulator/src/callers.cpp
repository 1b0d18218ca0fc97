// SPDX-License-Identifier: Apache-2.0
#include "callers.hpp"

#include "symbol_file.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>

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

address_hull library_code_hull{};

namespace {

constexpr std::size_t longest_name = 160;
constexpr int most_frames          = 64;

struct code_range {
  std::uintptr_t begin;
  std::uintptr_t end;
};

/// Where the code lies of which no caller is told. Written before the first call of CUDA.
std::array<code_range, 32> library_code;
std::size_t library_code_count{0};

[[nodiscard]] std::string_view file_of(std::string_view path)
{
  auto const slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

/// Whether an object is of the C or C++ library, the runtime of the compiler or of a sanitizer.
[[nodiscard]] bool is_library(std::string_view file)
{
  static constexpr std::string_view names[]{"libc.so",
                                            "libc-",
                                            "libpthread",
                                            "libm.so",
                                            "libdl.so",
                                            "ld-linux",
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

/// Before the constructors of what links the simulator.
[[gnu::constructor]] void find_library_code()
{
  dl_iterate_phdr(add_library_code, reinterpret_cast<void*>(&find_library_code));
  if (library_code_count == 0) { return; }
  library_code_hull = {library_code[0].begin, library_code[0].end};
  for (std::size_t i = 1; i < library_code_count; ++i) {
    library_code_hull.begin = std::min(library_code_hull.begin, library_code[i].begin);
    library_code_hull.end   = std::max(library_code_hull.end, library_code[i].end);
  }
}

[[nodiscard]] bool is_library_code(void const* code) noexcept
{
  auto const address = reinterpret_cast<std::uintptr_t>(code);
  return std::any_of(library_code.begin(), library_code.begin() + library_code_count, [&](code_range const& range) {
    return address - range.begin < range.end - range.begin;
  });
}

/// A name as it is written in the program, if it is one of C++.
[[nodiscard]] std::string demangled(std::string const& name)
{
  int status{};
  std::unique_ptr<char, void (*)(void*)> const text{abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                    std::free};
  std::string result{status == 0 && text != nullptr ? text.get() : name};
  if (result.size() > longest_name) { result = result.substr(0, longest_name) + "..."; }
  return result;
}

/// The symbols of a file, which is read once.
[[nodiscard]] symbol_file const& symbols_of(std::string const& path)
{
  static std::mutex mutex;
  // Never destroyed: reports are written until the process ends.
  static auto& known = *new std::map<std::string, symbol_file>;
  std::lock_guard<std::mutex> const lock{mutex};
  return known.try_emplace(path, path.c_str()).first->second;
}

}  // namespace

void const* search_program_caller(void const* site) noexcept
{
  if (!is_library_code(site)) { return site; }  // other code lies between two libraries
  void* frames[most_frames];
  auto const count        = ::backtrace(frames, most_frames);
  auto const* const end   = frames + count;
  auto const* const from  = std::find(frames, frames + count, site);
  auto const* const found = std::find_if_not(from, end, [](void const* frame) { return is_library_code(frame); });
  return found != end ? *found : site;
}

namespace {

/// The place without regard to whose code it is.
[[nodiscard]] std::string describe_code(void const* code)
{
  char offset[32];
  // The call itself: what it returns to may be another function.
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
  symbol_file::function function;
  if (symbols_of(is_program ? "/proc/self/exe" : object->l_name).find(address, function)) {
    std::snprintf(offset, sizeof offset, "+%#tx", static_cast<std::ptrdiff_t>(address + 1 - function.begin));
    return demangled(function.name) + offset + " in " + file;
  }
  auto const* const base = info.dli_saddr != nullptr ? info.dli_saddr : info.dli_fbase;
  std::snprintf(offset, sizeof offset, "+%#tx", static_cast<char const*>(code) - static_cast<char const*>(base));
  return info.dli_sname != nullptr ? demangled(info.dli_sname) + offset + " in " + file : file + offset;
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
