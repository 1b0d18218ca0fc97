// SPDX-License-Identifier: Apache-2.0
#include "../support/unwind_chain.hpp"

#include <dlfcn.h>

#include <gtest/gtest.h>

namespace {

using rmm::test::captured_stack;

captured_stack last;
void take() { last = captured_stack::here(); }

/// A shared object from its loading until its unloading.
class module {
 public:
  explicit module(char const* file) : handle_{::dlopen(file, RTLD_NOW | RTLD_LOCAL)}
  {
    EXPECT_NE(handle_, nullptr) << ::dlerror();
    if (handle_ != nullptr) { call_ = reinterpret_cast<void (*)(void (*)())>(::dlsym(handle_, "call_from_module")); }
  }
  module(module const&)            = delete;
  module& operator=(module const&) = delete;
  ~module()
  {
    if (handle_ != nullptr) { ::dlclose(handle_); }
  }

  /// Takes a stack with a frame of the module, and returns that frame.
  [[nodiscard]] void* frame_of_call() const
  {
    call_(take);
    return last.frame(4);  // behind capture_frames(), here() and take() is the module
  }

 private:
  void* handle_;
  void (*call_)(void (*)()){};
};

TEST(StackModule, IsNotTakenForTheOneThatWasLoadedAtItsPlaceBefore)
{
  int same_places{0};
  void* previous{nullptr};
  for (int i = 0; i != 10; ++i) {
    module const loaded{i % 2 == 0 ? RMM_SMALL_STACK_MODULE : RMM_LARGE_STACK_MODULE};
    for (int call = 0; call != 3; ++call) {
      auto* const frame = loaded.frame_of_call();
      EXPECT_TRUE(last.is_right() && last.is_kept()) << last;
      same_places += call == 0 && frame == previous;
      previous = frame;
    }
  }
  EXPECT_GT(same_places, 0) << "the test shows nothing where objects get a new address each time";
}

}  // namespace
