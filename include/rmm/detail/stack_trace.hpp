// SPDX-License-Identifier: Apache-2.0
#pragma once

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
#include <cstdlib>
#include <memory>
#include <ostream>
#include <vector>

namespace RMM_NAMESPACE {
namespace detail {

/// The calls that led to the place where the object was made: up to 64 return addresses, turned
/// into names when printed.
class stack_trace {
 public:
#if defined(RMM_ENABLE_STACK_TRACES)
  RMM_COLD stack_trace()
  {
    constexpr int max_frames{64};
    void* frames[max_frames];
    int const count{backtrace(frames, max_frames)};
    frames_.assign(frames, frames + count);
  }

  /// One line for each frame, innermost first: `#<i> in <function> from <object file>`, or what
  /// backtrace_symbols() says where the function's name is not known as that of a C++ function.
  RMM_COLD friend std::ostream& operator<<(std::ostream& out, stack_trace const& trace)
  {
    malloced<char*> const symbols{backtrace_symbols(trace.frames_.data(), static_cast<int>(trace.frames_.size()))};

    for (std::size_t i = 0; i < trace.frames_.size(); ++i) {
      out << "#" << i << " in ";
      Dl_info object{};
      malloced<char> name{};
      if (dladdr(trace.frames_[i], &object) != 0 && object.dli_sname != nullptr) {
        int status{};
        name.reset(abi::__cxa_demangle(object.dli_sname, nullptr, nullptr, &status));
      }
      if (name != nullptr) {
        out << name.get() << " from " << object.dli_fname;
      } else if (symbols != nullptr) {
        out << symbols.get()[i];
      } else {
        out << trace.frames_[i];
      }
      out << "\n";
    }
    return out;
  }

 private:
  struct free_memory {
    void operator()(void* ptr) const noexcept { std::free(ptr); }
  };
  template <class T>
  using malloced = std::unique_ptr<T, free_memory>;

  std::vector<void*> frames_;
#else
  friend std::ostream& operator<<(std::ostream& out, stack_trace const&) { return out << "stack traces disabled\n"; }
#endif
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
