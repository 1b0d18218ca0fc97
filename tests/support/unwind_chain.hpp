// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/frame_walk.hpp>
#include <rmm/detail/stack_trace.hpp>

#include <alloca.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <ostream>
#include <stdexcept>

namespace rmm::test {

/// A stack as the library finds it and as backtrace() does.
class captured_stack {
 public:
  /// Finds the stack of the caller. Allocates nothing after the first call.
  __attribute__((noinline)) static captured_stack here()
  {
    captured_stack result;
    result.count_      = rmm::detail::capture_frames(result.ours_.data(), most);
    result.true_count_ = static_cast<std::size_t>(::backtrace(result.theirs_.data(), most));
    result.is_kept_    = walk_again();
    return result;
  }

  /// Whether both have found the same callers of here(). A sanitizer adds a frame to what backtrace() finds.
  [[nodiscard]] bool is_right() const
  {
    for (std::size_t const mine : {2U, 3U}) {
      for (std::size_t const true_one : {1U, 2U}) {
        if (count_ <= mine || true_count_ <= true_one) { return false; }
        auto const left      = count_ - mine;
        auto const true_left = true_count_ - true_one;
        bool const is_whole  = count_ == most || true_count_ == most || left == true_left;
        auto const* const at = &ours_[mine];
        if (is_whole && std::equal(at, at + std::min(left, true_left), &theirs_[true_one])) { return true; }
      }
    }
    return false;
  }

  /// Whether the library could find the stack again without backtrace(), or nobody can on this system.
  [[nodiscard]] bool is_kept() const { return is_kept_; }

  /// Returns a frame; 0 is in capture_frames(), and 1 in here().
  [[nodiscard]] void* frame(std::size_t number) const { return number < count_ ? ours_[number] : nullptr; }

  friend std::ostream& operator<<(std::ostream& out, captured_stack const& stack)
  {
    for (std::size_t i = 0; i != stack.count_; ++i) {
      out << "  " << rmm::detail::name_of_frame(stack.ours_[i]) << "\n";
    }
    out << "backtrace\n";
    for (std::size_t i = 0; i != stack.true_count_; ++i) {
      out << "  " << rmm::detail::name_of_frame(stack.theirs_[i]) << "\n";
    }
    return out;
  }

 private:
  static bool walk_again()
  {
#if defined(RMM_DETAIL_HAS_FRAME_WALK)
    using kind = rmm::detail::unwind_rule::kind;
    if (::dlsym(RTLD_DEFAULT, "_dl_find_object") == nullptr) { return true; }
    void* frames[most];
    auto& walk       = *rmm::detail::shared_frame_walk();
    auto const here  = rmm::detail::registers_here();
    auto const found = walk.walk(here, frames, most);
    if (found.end == kind::missing) {
      auto const count = static_cast<std::size_t>(::backtrace(frames, most));
      static_cast<void>(walk.learn(here, frames, count, most));
    }
    return walk.walk(here, frames, most).end == kind::last;
#else
    return true;
#endif
  }

  static constexpr std::size_t most{64};

  std::array<void*, most> ours_{};
  std::array<void*, most> theirs_{};
  std::size_t count_{};
  std::size_t true_count_{};
  bool is_kept_{};
};

/// Functions that call each other at random, with stacks of all kinds: of any size, aligned, through the C library, in handlers of
/// exceptions.
class random_chain {
 public:
  explicit random_chain(unsigned seed) : state_{seed * 2654435761U + 1} {}

  __attribute__((noinline)) void call(int depth)
  {
    if (depth == 0) {
      result = captured_stack::here();
    } else {
      switch (next() % 7) {
        case 0:
          plain(depth - 1);
          break;
        case 1:
          variable(depth - 1);
          break;
        case 2:
          aligned(depth - 1, 1, 2, 3, 4, 5, 6);
          break;
        case 3:
          sorting(depth - 1);
          break;
        case 4:
          handling(depth - 1);
          break;
        case 5:
          many_registers(depth - 1, next(), next(), next(), next());
          break;
        default:
          wrapped(depth - 1);
          break;
      }
    }
    asm volatile("");  // keeps the call above from being the last thing done
  }

  captured_stack result;

 private:
  unsigned next() { return (state_ = state_ * 1664525U + 1013904223U) >> 16U; }

  __attribute__((noinline)) void plain(int depth)
  {
    call(depth);
    asm volatile("");
  }

  __attribute__((noinline)) void variable(int depth)
  {
    void* const space = ::alloca(next() % 3000 + 1);
    asm volatile("" : : "r"(space) : "memory");
    call(depth);
    asm volatile("" : : "r"(space) : "memory");
  }

  __attribute__((noinline)) void aligned(int depth, long a, long b, long c, long d, long e, long f)
  {
    alignas(64) char space[256];
    void* const more = ::alloca(next() % 300 + 1);
    asm volatile("" : : "r"(space), "r"(more) : "memory");
    call(depth);
    asm volatile("" : : "r"(space), "r"(more), "r"(a + b + c), "r"(d + e + f) : "memory");
  }

  __attribute__((noinline)) void sorting(int depth)
  {
    static thread_local random_chain* self;
    static thread_local int at;
    static thread_local bool is_done;
    self    = this;
    at      = depth;
    is_done = false;
    int numbers[2]{2, 1};
    std::qsort(numbers, 2, sizeof(int), [](void const*, void const*) {
      if (!is_done) {
        is_done = true;
        self->call(at);
      }
      return 0;
    });
    asm volatile("");
  }

  __attribute__((noinline)) void handling(int depth)
  {
    try {
      throw std::runtime_error{"on purpose"};
    } catch (std::runtime_error const&) {
      call(depth);
    }
  }

  __attribute__((noinline)) unsigned many_registers(int depth, unsigned a, unsigned b, unsigned c, unsigned d)
  {
    auto const more = a * b + c;
    call(depth);
    return (a ^ b) + (c ^ d) + more;
  }

  __attribute__((noinline)) void wrapped(int depth)
  {
    std::function<void()> const inner = [&, depth] { call(depth); };
    inner();
    asm volatile("");
  }

  unsigned state_;
};

/// Returns the stack at the end of a random chain of at most 24 calls.
inline captured_stack stack_of_chain(unsigned seed)
{
  random_chain chain{seed};
  chain.call(static_cast<int>(seed % 25));
  return chain.result;
}

}  // namespace rmm::test
