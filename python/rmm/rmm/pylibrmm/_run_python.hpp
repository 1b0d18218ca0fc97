// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>
#include <unistd.h>

#include <type_traits>

namespace rmm_python {

/// Whether the calling thread may run Python: no thread may when the interpreter has ended, and while it ends only those may that
/// it knows. Buffers and resources can be in use after it, in other threads and in static objects of C++.
[[nodiscard]] inline bool can_run_python() noexcept
{
  return Py_IsInitialized() != 0 || PyGILState_GetThisThreadState() != nullptr;
}

/// Ends nothing: who leaves its block without saying that the function has returned stays in it until the process is gone.
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

/// Calls `function`, which takes the GIL and throws nothing, from C++, where `can_run_python()`.
///
/// Once the interpreter ends, Python up to 3.13 ends other threads that want the GIL, by pthread_exit: that unwinds the callers,
/// and the process aborts at the first of them that is noexcept or catches everything. So such a thread stays here until the
/// process is gone, as Python 3.14 lets it. A destructor holds it: it could not be caught while an exception is being handled.
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
