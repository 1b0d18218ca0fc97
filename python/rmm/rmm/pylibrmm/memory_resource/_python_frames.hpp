// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>
#include <rmm/detail/base/interpreter_frames.hpp>
#include <rmm/detail/base/scope_guard.hpp>

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

/// @file
/// Reads the Python functions that a thread is in, for the stacks of traces.
///
/// Reading frames requires the GIL. A thread that allocates mostly does not have it, and must not wait for it: the thread with the GIL may
/// wait for a lock that the allocating thread holds. So a reader thread reads the frames, and the allocating thread waits for it for a
/// limited time.

namespace rmm_python {

class python_frames {
 public:
  /// Makes traces of this process include Python's frames. Requires the GIL.
  static void offer() noexcept
  {
    try {
      static auto* const language =
        new rmm::detail::interpreter_frames{names, reinterpret_cast<void*>(PyEval_GetFrame)};
      static_cast<void>(instance());
      rmm::detail::interpreter().store(language, std::memory_order_release);
    } catch (std::exception const&) {
      return;  // stacks then have the frames of the interpreter itself
    }
  }

  /// Stops reading frames. Requires the GIL; call it before the interpreter ends. Does nothing in a forked child, where other threads of
  /// the parent may have held the mutex.
  static void end() noexcept
  {
    auto& self = instance();
    if (self.process_ != ::getpid()) { return; }
    std::unique_lock<std::mutex> lock{self.mutex_};
    self.has_ended_ = true;
    lock.unlock();
    self.changed_.notify_all();
    auto* const state = PyEval_SaveThread();  // the reader may wait for the GIL
    lock.lock();
    self.changed_.wait_for(lock, std::chrono::seconds{1}, [&] { return !self.is_reading_; });
    lock.unlock();
    PyEval_RestoreThread(state);
  }

 private:
  using clock = std::chrono::steady_clock;

  static constexpr auto patience            = std::chrono::milliseconds{20};
  static constexpr auto pause               = 100 * patience;  // after a wait without an answer: at most 1 % is waited
  static constexpr std::size_t longest_part = 90;

  [[nodiscard]] static python_frames& instance()
  {
    static auto* const self = new python_frames;  // never destroyed, because ending threads may still trace
    return *self;
  }

  [[nodiscard]] static std::size_t names(char* text, std::size_t capacity) noexcept
  {
    auto& self = instance();
    if (self.process_ != ::getpid() || PyGILState_GetThisThreadState() == nullptr) { return 0; }
    try {
      if (self.holds_gil_ != nullptr && self.holds_gil_() != 0) {
        auto* const frame = reinterpret_cast<PyObject*>(PyEval_GetFrame());
        return frame != nullptr ? copy(describe(frame, capacity), text) : 0;
      }
      return copy(self.ask(capacity), text);
    } catch (std::exception const&) {
      return 0;
    }
  }

  /// Returns how many names there are.
  [[nodiscard]] static std::size_t copy(std::string const& names, char* text) noexcept
  {
    std::memcpy(text, names.data(), names.size());
    return static_cast<std::size_t>(std::count(names.begin(), names.end(), '\0'));
  }

  /// Returns the reader's answer for the calling thread; nothing if that takes too long.
  [[nodiscard]] std::string ask(std::size_t capacity)
  {
    auto const deadline = clock::now() + patience;
    std::unique_lock<std::timed_mutex> const turn{turns_, deadline};
    if (!turn.owns_lock()) { return {}; }
    std::unique_lock<std::mutex> lock{mutex_};
    if (has_ended_ || clock::now() < paused_until_) { return {}; }
    if (!has_reader_) {
      std::thread{[this] { read(); }}.detach();
      has_reader_ = true;
    }
    wanted_   = PyThread_get_thread_ident();
    capacity_ = capacity;
    ++question_;
    changed_.notify_all();
    if (!changed_.wait_until(lock, deadline, [&] { return wanted_ == 0; })) {
      wanted_       = 0;
      paused_until_ = clock::now() + pause;
      return {};
    }
    return std::move(answer_);
  }

  /// The reader: a thread of its own.
  void read() noexcept
  {
    std::unique_lock<std::mutex> lock{mutex_};
    for (;;) {
      changed_.wait(lock, [&] { return wanted_ != 0 || has_ended_; });
      if (has_ended_) { return; }
      auto const thread   = wanted_;
      auto const question = question_;
      auto const capacity = capacity_;
      is_reading_         = true;
      lock.unlock();
      std::string answer = describe_thread(thread, capacity);
      lock.lock();
      is_reading_ = false;
      if (question == question_ && wanted_ != 0) {
        answer_ = std::move(answer);
        wanted_ = 0;
      }
      changed_.notify_all();
    }
  }

  [[nodiscard]] static std::string describe_thread(unsigned long thread, std::size_t capacity) noexcept
  {
    auto const gil = PyGILState_Ensure();
    rmm::detail::scope_guard const release{[&]() noexcept { PyGILState_Release(gil); }};
    std::string names;
    auto* const ask    = PySys_GetObject("_current_frames");
    auto* const frames = ask != nullptr ? PyObject_CallObject(ask, nullptr) : nullptr;
    auto* const number = frames != nullptr ? PyLong_FromUnsignedLong(thread) : nullptr;
    auto* const frame  = number != nullptr ? PyDict_GetItemWithError(frames, number) : nullptr;
    try {
      if (frame != nullptr) { names = describe(frame, capacity); }
    } catch (std::exception const&) {
      names.clear();
    }
    Py_XDECREF(number);
    Py_XDECREF(frames);
    PyErr_Clear();
    return names;
  }

  /// The names of a frame and those around it, `function at file:line`, each with its end, as many as fit. With the
  /// GIL. No Python code runs meanwhile: it could allocate.
  [[nodiscard]] static std::string describe(PyObject* frame, std::size_t capacity)
  {
    PyObject* type{};
    PyObject* value{};
    PyObject* traceback{};
    PyErr_Fetch(&type, &value, &traceback);
    bool const collects = PyGC_Disable() != 0;
    Py_INCREF(frame);
    rmm::detail::scope_guard const leave{[&]() noexcept {
      Py_XDECREF(frame);
      if (collects) { PyGC_Enable(); }
      PyErr_Restore(type, value, traceback);
    }};
    std::string names;
    while (frame != nullptr && frame != Py_None) {
      auto* const code = reinterpret_cast<PyObject*>(PyFrame_GetCode(reinterpret_cast<PyFrameObject*>(frame)));
      rmm::detail::scope_guard const drop{[&]() noexcept { Py_DECREF(code); }};
      auto const name = part(code, "co_qualname") + " at " + part(code, "co_filename") + ":" +
                        std::to_string(PyFrame_GetLineNumber(reinterpret_cast<PyFrameObject*>(frame)));
      if (names.size() + name.size() + 1 > capacity) { break; }
      names.append(name).push_back('\0');
      auto* const outer = PyObject_GetAttrString(frame, "f_back");
      Py_DECREF(frame);
      frame = outer;
    }
    PyErr_Clear();
    return names;
  }

  /// A text of a code object; if it is long, its end.
  [[nodiscard]] static std::string part(PyObject* code, char const* attribute)
  {
    auto* const object = PyObject_GetAttrString(code, attribute);
    rmm::detail::scope_guard const drop{[&]() noexcept { Py_XDECREF(object); }};
    Py_ssize_t length{};
    char const* const utf8 = object != nullptr ? PyUnicode_AsUTF8AndSize(object, &length) : nullptr;
    if (utf8 == nullptr) { return "?"; }
    std::string_view text{utf8, static_cast<std::size_t>(length)};
    if (text.size() > longest_part) { text.remove_prefix(text.size() - longest_part); }
    while (!text.empty() && (static_cast<unsigned char>(text.front()) & 0xC0U) == 0x80U) { text.remove_prefix(1); }
    std::string whole{text};
    std::replace(whole.begin(), whole.end(), '\0', '?');
    return whole;
  }

  pid_t const process_{::getpid()};  // a forked child has no reader thread
  int (*holds_gil_)(){reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "PyGILState_Check"))};
  std::timed_mutex turns_;  // one thread asks at a time
  std::mutex mutex_;        // guards what follows
  std::condition_variable changed_;
  unsigned long wanted_{0};  // the thread that asks; 0: none
  std::uint64_t question_{0};
  std::size_t capacity_{0};
  std::string answer_;
  clock::time_point paused_until_{};
  bool has_reader_{false};
  bool is_reading_{false};
  bool has_ended_{false};
};

inline void offer_python_frames() noexcept { python_frames::offer(); }
inline void end_python_frames() noexcept { python_frames::end(); }

}  // namespace rmm_python
