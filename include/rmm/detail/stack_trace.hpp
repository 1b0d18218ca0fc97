// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/algorithms.hpp>
#include <rmm/detail/base/frame_walk.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/owning_process.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#if !defined(RMM_ENABLE_STACK_TRACES) && defined(__GNUC__) && !defined(__MINGW32__)
#if __has_include(<execinfo.h>)
#define RMM_ENABLE_STACK_TRACES
#endif
#endif

#if defined(RMM_ENABLE_STACK_TRACES)
#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#endif

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <string>
#include <unordered_map>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// Writes up to `capacity` return addresses of the current call stack to `frames`, innermost first; the first one is in this function.
/// Returns their number.
[[nodiscard]] RMM_OUT_OF_LINE inline std::size_t capture_frames([[maybe_unused]] void** frames,
                                                                [[maybe_unused]] std::size_t capacity) noexcept
{
#if defined(RMM_ENABLE_STACK_TRACES)
#if defined(RMM_DETAIL_HAS_FRAME_WALK)
  auto const here  = registers_here();
  auto* const walk = shared_frame_walk();
  frame_walk::result found{0, unwind_rule::kind::unknown};
  if (walk != nullptr) { found = walk->walk(here, frames, capacity); }
  if (found.end == unwind_rule::kind::last) { return found.frames; }
#endif
  auto count = static_cast<std::size_t>(detail::max(0, ::backtrace(frames, static_cast<int>(capacity))));
#if defined(RMM_DETAIL_HAS_FRAME_WALK)
  if (found.end == unwind_rule::kind::missing) { count = walk->learn(here, frames, count, capacity); }
  // If a call above were the last thing done, the frame of `here` could be gone while it runs.
  asm volatile("" : "+r"(count));
#endif
  return count;
#else
  return 0;
#endif
}

/// Returns the name of a return address: `<function> from <object file>` for C++ functions, else what backtrace_symbols() says. The
/// name of each address is looked up once, and kept; a forked child looks it up again.
[[nodiscard]] RMM_COLD inline std::string const& name_of_frame(void* frame)
{
  struct known_names {
    detail::mutex mutex;
    std::unordered_map<void*, std::string> names;
  };
  static one_per_process<known_names> known;  // never destroyed: threads may call this while the process exits
  auto& [mutex, names] = known.get();
  detail::mutex_lock const lock{mutex};
  auto const [entry, is_new] = names.try_emplace(frame);
  auto& name                 = entry->second;
  if (!is_new) { return name; }

#if defined(RMM_ENABLE_STACK_TRACES)
  struct free_memory {
    void operator()(void* ptr) const noexcept { std::free(ptr); }
  };
  Dl_info object{};
  if (::dladdr(frame, &object) != 0 && object.dli_sname != nullptr) {
    int status{};
    std::unique_ptr<char, free_memory> const plain{abi::__cxa_demangle(object.dli_sname, nullptr, nullptr, &status)};
    if (plain != nullptr) { name = std::string{plain.get()} + " from " + object.dli_fname; }
  }
  if (name.empty()) {
    std::unique_ptr<char*, free_memory> const symbols{::backtrace_symbols(&frame, 1)};
    if (symbols != nullptr) { name = *symbols.get(); }
  }
#endif
  if (name.empty()) {
    char text[24];
    std::snprintf(text, sizeof text, "%p", frame);
    name = text;
  }
  return name;
}

/// The call stack at the construction of the object: up to 64 return addresses. Printing looks up their names.
class stack_trace {
 public:
#if defined(RMM_ENABLE_STACK_TRACES)
  RMM_COLD stack_trace()
  {
    constexpr std::size_t max_frames{64};
    void* frames[max_frames];
    frames_.assign(frames, frames + capture_frames(frames, max_frames));
  }

  /// One line for each frame, innermost first: `#<i> in ` and name_of_frame().
  RMM_COLD friend std::ostream& operator<<(std::ostream& out, stack_trace const& trace)
  {
    for (std::size_t i = 0; i < trace.frames_.size(); ++i) {
      out << "#" << i << " in " << name_of_frame(trace.frames_[i]) << "\n";
    }
    return out;
  }

 private:
  std::vector<void*> frames_;
#else
  friend std::ostream& operator<<(std::ostream& out, stack_trace const&) { return out << "stack traces disabled\n"; }
#endif
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
