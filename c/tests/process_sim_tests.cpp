// SPDX-License-Identifier: Apache-2.0
#include <rmm/c/rmm.h>

#include <cudasim/cudasim.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

/// The life of a process that uses the C interface: RMM_RESOURCE, the end, and children. Each test has its own process.

namespace {

/// Ends the child process with a message if the condition does not hold.
void require(bool condition, char const* what)
{
  if (!condition) {
    std::fprintf(stderr, "not true: %s; %s\n", what, rmm_c_last_failure_text());
    std::_Exit(1);
  }
}
#define REQUIRE(condition) require(condition, #condition)

rmm_c_resource* resource{};
void* block{};
rmm_c_graph_memory* graph_memory{};
rmm_c_capture* capture{};

void make_and_allocate(char const* configuration)
{
  REQUIRE(rmm_c_resource_create(configuration, 0, &resource) == RMM_C_OK);
  REQUIRE(rmm_c_resource_allocate(resource, 1000, 0, nullptr, &block) == RMM_C_OK);
}

TEST(CInterfaceProcessTest, TakesTheResourceOfTheEnvironment)
{
  EXPECT_EXIT(
    {
      ::setenv("RMM_RESOURCE", "pool,initial=3MiB", 1);
      REQUIRE(rmm_c_default_resource(0, &resource) == RMM_C_OK);
      rmm_c_figures figures{};
      figures.size = sizeof figures;
      REQUIRE(rmm_c_resource_figures(resource, &figures) == RMM_C_OK && figures.reserved_bytes == 3U << 20U);
      auto* const given = rmm_c_torch_allocate(1000, 0, nullptr);
      REQUIRE(rmm_c_resource_figures(resource, &figures) == RMM_C_OK && figures.live_blocks == 1);
      for (int const unknown : {-1, 1 << 20}) { rmm_c_torch_deallocate(given, 1000, unknown, nullptr); }
      REQUIRE(rmm_c_resource_figures(resource, &figures) == RMM_C_OK && figures.live_blocks == 1);
      rmm_c_torch_deallocate(given, 1000, 0, nullptr);
      REQUIRE(rmm_c_resource_figures(resource, &figures) == RMM_C_OK && figures.live_blocks == 0);
      rmm_c_resource* other{};
      REQUIRE(rmm_c_resource_create(nullptr, 0, &other) == RMM_C_OK && other != resource);
      std::exit(0);
    },
    ::testing::ExitedWithCode(0),
    "");
}

TEST(CInterfaceProcessTest, PrintsWhyPyTorchGetsNothing)
{
  EXPECT_EXIT(
    {
      ::setenv("RMM_RESOURCE", "pool,max=1MiB", 1);
      REQUIRE(rmm_c_torch_allocate(2U << 20U, 0, nullptr) == nullptr);
      std::exit(0);
    },
    ::testing::ExitedWithCode(0),
    "rmm_c_torch_allocate: .*out_of_memory");
  EXPECT_EXIT(
    {
      ::setenv("RMM_RESOURCE", "poool", 1);
      REQUIRE(rmm_c_torch_allocate(1, 0, nullptr) == nullptr && rmm_c_last_failure() == RMM_C_BAD_CONFIGURATION);
      ::setenv("RMM_RESOURCE", "pool", 1);  // the failure was not remembered
      REQUIRE(rmm_c_torch_allocate(1, 0, nullptr) != nullptr);
      std::exit(0);
    },
    ::testing::ExitedWithCode(0),
    "rmm_c_torch_allocate: RMM_RESOURCE: .*poool");
  EXPECT_EXIT(
    {
      for (int const unknown : {-7, -1, 1000, 1024, 1 << 20}) {
        REQUIRE(rmm_c_torch_allocate(1, unknown, nullptr) == nullptr);
        REQUIRE(rmm_c_last_failure() == RMM_C_INVALID_ARGUMENT);
        rmm_c_resource* none{};
        REQUIRE(unknown == RMM_C_CURRENT_DEVICE ||
                (rmm_c_default_resource(unknown, &none) == RMM_C_INVALID_ARGUMENT && none == nullptr));
      }
      std::exit(0);
    },
    ::testing::ExitedWithCode(0),
    "rmm_c_torch_allocate: the device does not exist");
}

void make_default_and_capture()
{
  REQUIRE(rmm_c_default_resource(0, &resource) == RMM_C_OK);
  REQUIRE(rmm_c_graph_memory_create(&graph_memory) == RMM_C_OK);
  REQUIRE(rmm_c_capture_begin(graph_memory, nullptr, &capture) == RMM_C_OK);
}

/// Nothing new can be made, and older objects are refused and ended, all without a call of CUDA.
void find_default_and_capture_unavailable()
{
  auto const before = cudasim::calls();
  auto* found       = resource;
  REQUIRE(rmm_c_default_resource(0, &found) == RMM_C_UNAVAILABLE && found == nullptr);
  found = resource;
  REQUIRE(rmm_c_default_resource(RMM_C_CURRENT_DEVICE, &found) == RMM_C_UNAVAILABLE && found == nullptr);
  REQUIRE(rmm_c_torch_allocate(1000, 0, nullptr) == nullptr && rmm_c_last_failure() == RMM_C_UNAVAILABLE);
  for (int const device : {RMM_C_CURRENT_DEVICE, 0}) {
    REQUIRE(rmm_c_serve_libraries(device, nullptr) == RMM_C_UNAVAILABLE);
    REQUIRE(rmm_c_serve_libraries(device, resource) == RMM_C_UNAVAILABLE);
  }
  auto* memory = graph_memory;
  REQUIRE(rmm_c_graph_memory_create(&memory) == RMM_C_UNAVAILABLE && memory == nullptr);
  auto* second = capture;
  REQUIRE(rmm_c_capture_begin(graph_memory, nullptr, &second) == RMM_C_UNAVAILABLE && second == nullptr);
  rmm_c_capture_end(capture);
  rmm_c_graph_memory_destroy_on(graph_memory, nullptr);
  REQUIRE(cudasim::calls() == before);
}

/// Counts the calls of CUDA that the interface makes while the process exits. Registered before the resource is made,
/// so it runs after the library knows that the process exits.
void use_at_exit()
{
  auto const before = cudasim::calls();
  void* late{&late};
  REQUIRE(rmm_c_resource_allocate(resource, 1, 0, nullptr, &late) == RMM_C_UNAVAILABLE && late == nullptr);
  REQUIRE(rmm_c_resource_trim(resource, 0, nullptr) == RMM_C_UNAVAILABLE);
  auto const visit = [](void*, char const*, std::uint64_t, std::uint64_t) {};
  REQUIRE(rmm_c_resource_visit_tags(resource, visit, nullptr) == RMM_C_UNAVAILABLE);
  rmm_c_resource* other{};
  REQUIRE(rmm_c_resource_create("cuda", 0, &other) == RMM_C_UNAVAILABLE);
  REQUIRE(rmm_c_resource_destroy(resource) == RMM_C_OK);
  rmm_c_resource_deallocate(resource, block, 1000, 0, nullptr);
  std::_Exit(cudasim::calls() == before ? 0 : 1);
}

TEST(CInterfaceProcessTest, CallsNothingOfCudaWhileTheProcessExits)
{
  for (auto const* const configuration : {"pool,initial=1MiB", "cuda", "elastic", "cuda_async"}) {
    EXPECT_EXIT(
      {
        std::atexit(use_at_exit);
        make_and_allocate(configuration);
        std::exit(2);  // use_at_exit() says how it ends
      },
      ::testing::ExitedWithCode(0),
      "");
  }
}

void use_default_and_capture_at_exit()
{
  find_default_and_capture_unavailable();
  std::_Exit(0);
}

TEST(CInterfaceProcessTest, RefusesDefaultResourcesAndCapturesWhileTheProcessExits)
{
  EXPECT_EXIT(
    {
      std::atexit(use_default_and_capture_at_exit);
      make_default_and_capture();
      std::exit(2);  // use_default_and_capture_at_exit() says how it ends
    },
    ::testing::ExitedWithCode(0),
    "the process exits");
}

TEST(CInterfaceProcessTest, RefusesDefaultResourcesAndCapturesOfTheParentInAChild)
{
  EXPECT_EXIT(
    {
      make_default_and_capture();
      auto const child = ::fork();
      if (child == 0) {
        find_default_and_capture_unavailable();
        std::_Exit(0);
      }
      int status{1};
      REQUIRE(::waitpid(child, &status, 0) == child && status == 0);
      rmm_c_capture_end(capture);
      rmm_c_graph_memory_destroy(graph_memory);
      rmm_c_resource* found{};
      REQUIRE(rmm_c_default_resource(0, &found) == RMM_C_OK && found == resource);
      std::exit(0);
    },
    ::testing::ExitedWithCode(0),
    "forked after the resource or graph memory was made");
}

/// Whether this is a child of a process with threads. LeakSanitizer must not look for leaks there: threads that the child lacks may have
/// taken its locks, and what they allocated looks lost.
bool is_child_of_threads{false};

// LeakSanitizer calls this function where it is linked.
extern "C" int __lsan_is_turned_off();  // NOLINT: not our name
extern "C" int __lsan_is_turned_off() { return is_child_of_threads ? 1 : 0; }

/// Makes and ends resources, graph memory and captures for ever.
void use_in_turn()
{
  for (;;) {
    rmm_c_resource* own{};
    REQUIRE(rmm_c_resource_create("pool,initial=64KiB", 0, &own) == RMM_C_OK);
    void* given{};
    REQUIRE(rmm_c_resource_allocate(own, 1000, 0, nullptr, &given) == RMM_C_OK);
    rmm_c_resource_deallocate(own, given, 1000, 0, nullptr);
    REQUIRE(rmm_c_resource_destroy(own) == RMM_C_OK);
    rmm_c_graph_memory* memory{};
    REQUIRE(rmm_c_graph_memory_create(&memory) == RMM_C_OK);
    rmm_c_graph_memory_destroy(memory);
    REQUIRE(rmm_c_resource_allocate(resource, 1000, 0, nullptr, &given) == RMM_C_OK);
    rmm_c_resource_deallocate(resource, given, 1000, 0, nullptr);
  }
}

TEST(CInterfaceProcessTest, EndsAChildWhileThreadsOfTheParentUseTheLibrary)
{
  EXPECT_EXIT(
    {
      make_default_and_capture();
      rmm_c_capture_end(capture);
      REQUIRE(rmm_c_resource_allocate(resource, 1000, 0, nullptr, &block) == RMM_C_OK);
      for (int i = 0; i != 2; ++i) { std::thread{use_in_turn}.detach(); }
      for (int i = 0; i != 200; ++i) {
        auto const child = ::fork();
        if (child == 0) {
          is_child_of_threads = true;
          ::alarm(60);  // rather than never end
          void* other{};
          REQUIRE(rmm_c_resource_allocate(resource, 1, 0, nullptr, &other) == RMM_C_UNAVAILABLE);
          rmm_c_resource_deallocate(resource, block, 1000, 0, nullptr);
          REQUIRE(rmm_c_resource_create("pool", 0, &resource) == RMM_C_UNAVAILABLE);
          rmm_c_graph_memory_destroy(graph_memory);
          std::exit(0);
        }
        int status{1};
        REQUIRE(::waitpid(child, &status, 0) == child && status == 0);
      }
      std::_Exit(0);
    },
    ::testing::ExitedWithCode(0),
    "");
}

TEST(CInterfaceProcessTest, ServesAChildOfAProcessThatDidNotUseCuda)
{
  EXPECT_EXIT(
    {
      auto const child = ::fork();
      if (child == 0) {
        make_and_allocate("pool,initial=1MiB");
        make_default_and_capture();
        rmm_c_capture_end(capture);
        rmm_c_graph_memory_destroy(graph_memory);
        std::_Exit(0);
      }
      int status{1};
      REQUIRE(::waitpid(child, &status, 0) == child && status == 0);
      std::exit(0);
    },
    ::testing::ExitedWithCode(0),
    "");
}

TEST(CInterfaceProcessTest, LeavesTheChildrenOfAForkAlone)
{
  EXPECT_EXIT(
    {
      make_and_allocate("pool,initial=1MiB");
      auto const child = ::fork();
      if (child == 0) {
        auto const before = cudasim::calls();
        void* other{};
        REQUIRE(rmm_c_resource_allocate(resource, 1, 0, nullptr, &other) == RMM_C_UNAVAILABLE);
        rmm_c_resource* made{};
        REQUIRE(rmm_c_resource_create("pool", 0, &made) == RMM_C_UNAVAILABLE && made == nullptr);
        rmm_c_resource_deallocate(resource, block, 1000, 0, nullptr);
        REQUIRE(rmm_c_resource_destroy(resource) == RMM_C_OK);
        std::_Exit(cudasim::calls() == before ? 0 : 1);
      }
      int status{1};
      REQUIRE(::waitpid(child, &status, 0) == child && status == 0);
      rmm_c_resource_deallocate(resource, block, 1000, 0, nullptr);
      REQUIRE(rmm_c_resource_destroy(resource) == RMM_C_OK && cudasim::usage(0).allocated == 0);
      std::exit(0);
    },
    ::testing::ExitedWithCode(0),
    "");
}

}  // namespace
