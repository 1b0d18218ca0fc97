// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace rmm::test {

/// A thread that does what it is told, one task after the other, while who tells it waits: programs of several threads
/// whose steps have one order. The thread ends with the object.
class worker {
 public:
  worker() : thread_{[this] { loop(); }} {}
  worker(worker const&)            = delete;
  worker& operator=(worker const&) = delete;

  ~worker()
  {
    {
      std::lock_guard<std::mutex> const lock{mutex_};
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  /// Runs `task` on the thread and returns when it is done. `task` must not throw.
  void run(std::function<void()> task)
  {
    std::unique_lock<std::mutex> lock{mutex_};
    task_ = std::move(task);
    changed_.notify_all();
    changed_.wait(lock, [this] { return !task_; });
  }

 private:
  void loop()
  {
    std::unique_lock<std::mutex> lock{mutex_};
    for (;;) {
      changed_.wait(lock, [this] { return ends_ || task_; });
      if (!task_) { return; }
      task_();
      task_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> task_;
  bool ends_{false};
  std::thread thread_;
};

/// Runs `task` on a thread of its own, which has ended when this returns.
template <class Task>
void run_on_a_thread_that_ends(Task&& task)
{
  std::thread{std::forward<Task>(task)}.join();
}

}  // namespace rmm::test
