// SPDX-License-Identifier: Apache-2.0
//
// Callers in shared objects that are unloaded, and in others that are loaded at their addresses later.

#include "../../tests/support/sanitizers.hpp"
#include "../../tests/support/temporary_folder.hpp"
#include "../src/code_objects.hpp"
#include "support.hpp"

#include <gmock/gmock.h>

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>

namespace cudasim_tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A loaded plugin (programs/plugin.cpp).
class plugin {
 public:
  explicit plugin(char const* path) : handle_{::dlopen(path, RTLD_NOW | RTLD_LOCAL)}
  {
    if (handle_ == nullptr) { throw std::runtime_error{::dlerror()}; }
  }
  plugin(plugin const&)            = delete;
  plugin& operator=(plugin const&) = delete;
  ~plugin() { ::dlclose(handle_); }

  int allocate(void** out, std::size_t bytes) const
  {
    return reinterpret_cast<int (*)(void**, std::size_t)>(::dlsym(handle_, "plugin_allocate"))(out, bytes);
  }
  int fill(void* memory, std::size_t bytes, cudaStream_t stream) const
  {
    return reinterpret_cast<int (*)(void*, std::size_t, cudaStream_t)>(::dlsym(handle_, "plugin_fill"))(
      memory, bytes, stream);
  }

 private:
  void* handle_;
};

class UnloadedCaller : public Simulated {};

TEST_F(UnloadedCaller, IsNamedAlsoWhenAnotherObjectHasItsAddresses)
{
  void* kept{};
  EXPECT_EQ(plugin{CUDASIM_PLUGIN_1}.allocate(&kept, 64), cudaSuccess);
  auto const was_there =
    AllOf(HasSubstr("::first_plugin(void**, unsigned long)+0x"), HasSubstr("plugin_1.so (unloaded since)"));
  EXPECT_THAT(cudasim::ledger().at(0).where, was_there);
  plugin const other{CUDASIM_PLUGIN_2};
  EXPECT_THAT(cudasim::ledger().at(0).where, was_there);
  void* second{};
  EXPECT_EQ(other.allocate(&second, 64), cudaSuccess);
  EXPECT_THAT(cudasim::ledger().at(0).where, was_there);
  EXPECT_THAT(cudasim::ledger().at(1).where,
              AllOf(HasSubstr("::second_plugin(void**, unsigned long)+0x"), Not(HasSubstr("unloaded"))));
  EXPECT_EQ(cudaFree(kept), cudaSuccess);
  EXPECT_EQ(cudaFree(second), cudaSuccess);
}

TEST_F(UnloadedCaller, IsTheSamePlaceWhenItsObjectIsLoadedAgain)
{
  void* kept{};
  EXPECT_EQ(plugin{CUDASIM_PLUGIN_1}.allocate(&kept, 64), cudaSuccess);
  plugin const again{CUDASIM_PLUGIN_1};
  EXPECT_NE(again.allocate(nullptr, 64), cudaSuccess);
  EXPECT_THAT(take_violations().at(0).text, AllOf(HasSubstr("::first_plugin("), Not(HasSubstr("unloaded"))));
  EXPECT_EQ(cudaFree(kept), cudaSuccess);
}

TEST_F(UnloadedCaller, IsApartFromTheCallerAfterItInReportsOfRaces)
{
  cudasim::check_ordering(true);
  void* memory{};
  ASSERT_EQ(cudaMalloc(&memory, 64), cudaSuccess);
  scoped_stream const a;
  scoped_stream const b;
  EXPECT_EQ(plugin{CUDASIM_PLUGIN_1}.fill(memory, 64, a), cudaSuccess);
  EXPECT_EQ(plugin{CUDASIM_PLUGIN_2}.fill(memory, 64, b), cudaSuccess);
  EXPECT_THAT(take_violations().at(0).text,
              AllOf(HasSubstr("plugin_1.so (unloaded since)"), HasSubstr("plugin_2.so)")));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  cudasim::check_ordering(false);
}

TEST_F(UnloadedCaller, HasTheNamesOfItsOwnVersionOfTheFile)
{
  rmm::test::temporary_folder const folder;
  auto const path = folder / "rebuilt.so";
  void* kept[2]{};
  std::filesystem::copy_file(CUDASIM_PLUGIN_1, path);
  EXPECT_EQ(plugin{path.c_str()}.allocate(&kept[0], 64), cudaSuccess);
  std::filesystem::remove(path);
  std::filesystem::copy_file(CUDASIM_PLUGIN_2, path);
  plugin const second{path.c_str()};
  EXPECT_EQ(second.allocate(&kept[1], 64), cudaSuccess);
  auto const leaks = cudasim::ledger();
  EXPECT_THAT(leaks.at(0).where, AllOf(HasSubstr("::first_plugin("), HasSubstr("rebuilt.so (unloaded since)")));
  EXPECT_THAT(leaks.at(1).where, AllOf(HasSubstr("::second_plugin("), Not(HasSubstr("unloaded"))));
  for (auto* const each : kept) { EXPECT_EQ(cudaFree(each), cudaSuccess); }
}

TEST_F(UnloadedCaller, HasNoNamesOfAFileThatWasReplacedBeforeItsFirstCall)
{
  rmm::test::temporary_folder const folder;
  auto const path = folder / "replaced.so";
  std::filesystem::copy_file(CUDASIM_PLUGIN_1, path);
  plugin const loaded{path.c_str()};
  std::filesystem::remove(path);
  std::filesystem::copy_file(CUDASIM_PLUGIN_2, path);
  EXPECT_NE(loaded.allocate(nullptr, 64), cudaSuccess);
  EXPECT_THAT(take_violations().at(0).text, AllOf(HasSubstr("called from replaced.so+0x"), Not(HasSubstr("_plugin"))));
}

/// Calls of a plugin in a second thread, while this object lives.
class calling_thread {
 public:
  explicit calling_thread(plugin const& from)
    : thread_{[this, &from] {
        while (!ends_) {
          EXPECT_EQ(from.fill(nullptr, 0, nullptr), cudaSuccess);
          calls_.fetch_add(1);
        }
      }}
  {
    while (calls_ == 0) { std::this_thread::yield(); }
  }
  calling_thread(calling_thread const&)            = delete;
  calling_thread& operator=(calling_thread const&) = delete;
  ~calling_thread()
  {
    ends_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> ends_{false};
  std::atomic<int> calls_{0};
  std::thread thread_;
};

TEST_F(UnloadedCaller, MayBeInACallbackThatHoldsTheLinkersLock)
{
  plugin const from{CUDASIM_PLUGIN_1};
  calling_thread const beside{from};
  for (int i = 0; i < 200; ++i) {
    void* memory{};
    struct {
      plugin const& from;
      void** memory;
    } arguments{from, &memory};
    ::dl_iterate_phdr(
      [](dl_phdr_info*, std::size_t, void* given) {
        auto const& [callee, out] = *static_cast<decltype(arguments)*>(given);
        return callee.allocate(out, 64) + 1;
      },
      &arguments);
    ASSERT_EQ(cudaFree(memory), cudaSuccess);
  }
}

// A child whose parent was in a search has the dynamic linker's lock, which nobody releases.
TEST_F(UnloadedCaller, LeavesForkedChildrenAbleToLoadObjects)
{
  if (RMM_TEST_UNDER_SANITIZER) { GTEST_SKIP() << "a sanitizer may hold locks of its own during a fork"; }
  plugin const from{CUDASIM_PLUGIN_1};
  calling_thread const beside{from};
  for (int i = 0; i < 200; ++i) {
    auto const child = ::fork();
    if (child == 0) {
      ::alarm(20);
      ::_exit(::dlopen(CUDASIM_PLUGIN_2, RTLD_NOW | RTLD_LOCAL) == nullptr ? 1 : 0);
    }
    int status{};
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  }
}

std::atomic<plugin const*> calls_during_forks{nullptr};
std::atomic<int> calls_made{0};

[[maybe_unused]] void call_during_fork()
{
  auto const* const from = calls_during_forks.load();
  void* memory{};
  if (from != nullptr && from->allocate(&memory, 100) == 0 && cudaFree(memory) == cudaSuccess) { ++calls_made; }
}

// Registered before the handlers of the simulator, so that they run while those are in a fork. Sanitizers do not run yet at that time.
#if !RMM_TEST_UNDER_SANITIZER
void register_before_libraries() { ::pthread_atfork(call_during_fork, call_during_fork, nullptr); }
[[gnu::section(".preinit_array"), gnu::used]] void (*const before_libraries)() = register_before_libraries;
#endif

TEST_F(UnloadedCaller, MayBeAHandlerOfAFork)
{
  if (RMM_TEST_UNDER_SANITIZER) { GTEST_SKIP() << "sanitizers begin after the handler has to be registered"; }
  plugin const made{CUDASIM_PLUGIN_1};
  calls_during_forks = &made;
  auto const begin   = std::chrono::steady_clock::now();
  auto const child   = ::fork();
  if (child == 0) { ::_exit(0); }
  calls_during_forks = nullptr;
  EXPECT_EQ(calls_made, 2);
  int status{};
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{1});
}

TEST(LibraryNames, AreExact)
{
  for (char const* const name : {"libc.so.6",
                                 "libc-2.31.so",
                                 "libc.so",
                                 "libm.so.6",
                                 "libpthread.so.0",
                                 "libpthread-2.31.so",
                                 "libdl.so.2",
                                 "librt-2.31.so",
                                 "ld-2.31.so",
                                 "ld-linux-x86-64.so.2",
                                 "ld-linux-aarch64.so.1",
                                 "ld-musl-x86_64.so.1",
                                 "libstdc++.so.6",
                                 "libstdc++.so.6.0.30",
                                 "libc++.so.1",
                                 "libc++abi.so.1.0",
                                 "libgcc_s.so.1",
                                 "libunwind.so.8",
                                 "libasan.so.8",
                                 "libtsan.so.2",
                                 "libubsan.so.1",
                                 "libclang_rt.asan-x86_64.so",
                                 "libclang_rt.tsan.so",
                                 "libc.musl-x86_64.so.1"}) {
    EXPECT_TRUE(cudasim::is_library_name(name)) << name;
  }
  for (char const* const name : {"",
                                 "libc-client.so",
                                 "libc-client.so.2007",
                                 "libpthreadpool.so",
                                 "libm.so.custom",
                                 "libc",
                                 "libunwind.so.8x",
                                 "libunwind-client.so",
                                 "libm-.so.6.so",
                                 "libcurl.so.4",
                                 "ld-app.so",
                                 "libc.so.6.bak",
                                 "libgcc_s_mine.so.1",
                                 "libmvec2.so",
                                 "libc++experimental.so"}) {
    EXPECT_FALSE(cudasim::is_library_name(name)) << name;
  }
}

}  // namespace
}  // namespace cudasim_tests
