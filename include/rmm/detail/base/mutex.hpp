// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <pthread.h>

#if RMM_DETAIL_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

namespace RMM_NAMESPACE {
namespace detail {

/// A mutex like std::mutex. It exists because <mutex> also includes std::chrono and std::system_error.
///
/// Constant-initialized, and trivially destructible except under ThreadSanitizer: a static mutex can be locked before and after the life of
/// all static objects.
class mutex {
 public:
  constexpr mutex() noexcept     = default;
  mutex(mutex const&)            = delete;
  mutex& operator=(mutex const&) = delete;
#if RMM_DETAIL_THREAD_SANITIZER
  // Without this, ThreadSanitizer would confuse a later mutex at the same address with this one.
  ~mutex() { __tsan_mutex_destroy(&native_, 0); }
#endif

  // The results of locking and unlocking are not checked: neither can fail if no thread locks a mutex that it holds, and if the thread that
  // locked a mutex unlocks it.
  void lock() noexcept { pthread_mutex_lock(&native_); }
  [[nodiscard]] bool try_lock() noexcept { return pthread_mutex_trylock(&native_) == 0; }
  void unlock() noexcept { pthread_mutex_unlock(&native_); }

 private:
  pthread_mutex_t native_ = PTHREAD_MUTEX_INITIALIZER;
};

// Different releases of the library in one process share objects that contain a mutex, such as stream_lifetimes. So its layout must not
// change.
static_assert(sizeof(mutex) == sizeof(pthread_mutex_t) && alignof(mutex) == alignof(pthread_mutex_t));

/// A lock like std::unique_lock: it holds a mutex, or none, until it is destroyed or assigned to.
template <class Mutex>
class basic_mutex_lock {
 public:
  basic_mutex_lock() noexcept = default;
  explicit basic_mutex_lock(Mutex& held) noexcept : held_{&held} { held.lock(); }
  basic_mutex_lock(basic_mutex_lock&& other) noexcept : held_{other.held_} { other.held_ = nullptr; }
  basic_mutex_lock& operator=(basic_mutex_lock&& other) noexcept
  {
    auto* const previous = held_;
    held_                = other.held_;
    other.held_          = previous;
    other.release();
    return *this;
  }
  ~basic_mutex_lock() { release(); }

 private:
  void release() noexcept
  {
    if (held_ != nullptr) { held_->unlock(); }
    held_ = nullptr;
  }

  Mutex* held_{};
};

using mutex_lock = basic_mutex_lock<mutex>;

}  // namespace detail
}  // namespace RMM_NAMESPACE
