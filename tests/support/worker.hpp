// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <semaphore.h>

#include <functional>
#include <thread>
#include <utility>

namespace rmm::test {

/// A thread that runs one task at a time while the caller waits, so that the steps of several threads happen in one
/// order. The thread ends with the object.
///
/// Uses semaphores, because random programs mostly switch threads: a task takes two switches, with a mutex up to four.
class worker {
 public:
  worker() : thread_{[this] { loop(); }} {}
  worker(worker const&)            = delete;
  worker& operator=(worker const&) = delete;

  ~worker()
  {
    begin_.post();  // no task: the thread ends
    thread_.join();
  }

  /// Runs `task` on the thread and returns when it is done. `task` must not throw.
  void run(std::function<void()> task)
  {
    task_ = std::move(task);
    begin_.post();
    done_.wait();
  }

 private:
  class semaphore {
   public:
    semaphore() { sem_init(&handle_, 0, 0); }
    semaphore(semaphore const&)            = delete;
    semaphore& operator=(semaphore const&) = delete;
    ~semaphore() { sem_destroy(&handle_); }

    void post() { sem_post(&handle_); }
    void wait()
    {
      while (sem_wait(&handle_) != 0) {}  // interrupted by a signal
    }

   private:
    sem_t handle_{};
  };

  void loop()
  {
    for (begin_.wait(); task_; begin_.wait()) {
      task_();
      task_ = nullptr;
      done_.post();
    }
  }

  semaphore begin_;
  semaphore done_;
  std::function<void()> task_;
  std::thread thread_;
};

/// Runs `task` on a new thread and waits until the thread has ended.
template <class Task>
void run_on_a_thread_that_ends(Task&& task)
{
  std::thread{std::forward<Task>(task)}.join();
}

}  // namespace rmm::test
