// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>
#include <unistd.h>

#include <type_traits>

namespace rmm_python {

/// Whether the calling thread may run Python. After the end of the interpreter no thread may; during its end, only threads that it
/// knows. Other threads and static C++ objects can use buffers and resources even later.
[[nodiscard]] inline bool can_run_python() noexcept
{
  return Py_IsInitialized() != 0 || PyGILState_GetThisThreadState() != nullptr;
}

/// A guard whose destructor never returns, unless open() was called: it stops a thread that leaves the scope in another way.
class no_way_out {
 public:
  no_way_out() = default;
  ~no_way_out()
  {
    while (!has_returned_) { ::pause(); }
  }
  no_way_out(no_way_out const&)            = delete;
  no_way_out& operator=(no_way_out const&) = delete;

  void open() { has_returned_ = true; }

 private:
  bool has_returned_{false};
};

/// Calls `function` from C++. It takes the GIL and must not throw. Requires can_run_python().
///
/// While the interpreter ends, Python up to 3.13 ends other threads that want the GIL with pthread_exit(). That unwinds their callers, and
/// the process aborts at the first noexcept function or catch-all handler. So such a thread is stopped here until the process ends, as
/// Python 3.14 does itself. A destructor stops it, because the unwinding cannot be caught while another exception is handled.
template <class Function>
[[gnu::noinline]] auto run_python(Function&& function)
{
  no_way_out held;
  if constexpr (std::is_void_v<decltype(function())>) {
    function();
    held.open();
  } else {
    auto result = function();
    held.open();
    return result;
  }
}

}  // namespace rmm_python
