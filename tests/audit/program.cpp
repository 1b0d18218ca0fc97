// SPDX-License-Identifier: Apache-2.0
//
// A program that allocates past all pools, in the way that its first argument says. librmm_audit.so is preloaded.

#include "caller.hpp"
#include "require.hpp"

#include <cudasim/cudasim.h>

#include <cuda_runtime_api.h>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <vector>

extern "C" caller const first;
extern "C" int number_of_callers();

namespace {

/// The library that is linked to the driver.
[[nodiscard]] caller const& second()
{
  void* const library = ::dlopen(AUDIT_SECOND, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) { std::printf("%s\n", ::dlerror()); }
  REQUIRE(library != nullptr);
  return *static_cast<caller const*>(::dlsym(library, "second"));
}

void allocate_in_each_way(caller const& by, std::vector<way> const& ways)
{
  for (auto const how : ways) {
    auto const one = allocated(by, how, "device", 1000);
    auto const two = allocated(by, how, "device", 3000);
    release(by, how, "device", one);
    release(by, how, "device", two);
  }
}

void linked() { allocate_in_each_way(second(), {way::linked}); }
void by_symbol() { allocate_in_each_way(first, {way::by_symbol}); }
void by_name() { allocate_in_each_way(first, {way::by_name}); }

void all_kinds()
{
  for (char const* const kind :
       {"device", "async", "pitch", "managed", "virtual", "array", "host", "host twice", "registered"}) {
    auto const given = allocated(first, way::by_symbol, kind, 4U << 20U);
    release(first, way::by_symbol, kind, given);
    static_cast<void>(allocated(first, way::by_name, kind, 2U << 20U));
  }
}

/// One library allocates, another frees; and one more frees what it did not get from the driver.
void two_libraries()
{
  auto const& other = second();
  auto const one    = allocated(first, way::by_name, "device", 1000);
  auto const two    = allocated(other, way::linked, "device", 2000);
  release(other, way::linked, "device", one);
  REQUIRE(first.release(way::by_symbol, "device", {12345, 0}, nullptr) != CUDA_SUCCESS);
  static_cast<void>(two);
}

void refused()
{
  auto const& other = second();
  memory got{};
  REQUIRE(first.allocate(way::by_symbol, "device", 1000, nullptr, got) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(first.allocate(way::by_name, "virtual", 2U << 20U, nullptr, got) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(first.allocate(way::by_name, "host", 1000, nullptr, got) == CUDA_SUCCESS);
  release(other, way::linked, "device", allocated(other, way::linked, "device", 1000));
}

void refused_often()
{
  memory got{};
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(first.allocate(way::by_symbol, "device", 1000, nullptr, got) == CUDA_ERROR_OUT_OF_MEMORY);
  }
}

void threads()
{
  first.allocate(way::by_symbol, "host", 0, nullptr, *new memory);  // finds the functions
  std::atomic<int> failures{0};
  for (int i = 0; i < 3750; ++i) {
    std::vector<std::thread> running;
    for (int j = 0; j < 8; ++j) {
      running.emplace_back([&] {
        ::cudaSetDevice(0);
        memory got{};
        auto const how = way::by_name;
        if (first.allocate(how, "device", 512, nullptr, got) != CUDA_SUCCESS) { ++failures; }
        if (first.release(how, "device", got, nullptr) != CUDA_SUCCESS) { ++failures; }
      });
    }
    for (auto& thread : running) { thread.join(); }
  }
  REQUIRE(failures == 0);
}

/// What a program that has nothing to do with CUDA sees of dlsym().
void dlsym_is_as_before()
{
  REQUIRE(number_of_callers() == 2);
  REQUIRE(::dlsym(RTLD_DEFAULT, "printf") == reinterpret_cast<void*>(&std::printf));
  static_cast<void>(::dlerror());
  REQUIRE(::dlsym(RTLD_DEFAULT, "no_such_function") == nullptr);
  REQUIRE(std::strstr(::dlerror(), "no_such_function") != nullptr);
  REQUIRE(::dlsym(RTLD_DEFAULT, "cuNoSuchFunction") == nullptr);
  REQUIRE(std::strstr(::dlerror(), "cuNoSuchFunction") != nullptr);
}

/// The symbols of librmm_audit.so do not make it look as if there were a driver.
void without_driver()
{
  static_cast<void>(::dlerror());
  REQUIRE(::dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == nullptr);
  REQUIRE(std::strstr(::dlerror(), "cuMemAlloc_v2") != nullptr);
  REQUIRE(::dlsym(::dlopen(nullptr, RTLD_NOW), "cuGetProcAddress") == nullptr);
  REQUIRE(::dlopen("libcuda.so.1", RTLD_NOW) == nullptr);
}

void fork_child()
{
  auto const given = allocated(first, way::by_symbol, "device", 1000);
  auto const child = ::fork();
  if (child == 0) {
    memory got{};
    first.allocate(way::by_symbol, "device", 5000, nullptr, got);  // CUDA fails in a child
    std::exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  release(first, way::by_symbol, "device", given);
}

/// What the constructor of a library calls.
std::function<void()> while_constructed;

/// While a library is loaded, its constructor waits for a thread that allocates. The thread has allocated before: the simulator needs the
/// dynamic linker's lock once in each thread, to be told of its end.
void while_loading()
{
  std::promise<void> ready;
  std::promise<void> is_loading;
  std::promise<void> done;
  std::thread thread{[&] {
    ::cudaSetDevice(0);
    static_cast<void>(allocated(first, way::by_symbol, "device", 1000));
    ready.set_value();
    is_loading.get_future().wait();
    memory got{};
    REQUIRE(first.allocate_again(2000, got) == CUDA_SUCCESS);
    done.set_value();
  }};
  ready.get_future().wait();
  while_constructed = [&] {
    is_loading.set_value();
    done.get_future().wait();
  };
  REQUIRE(::dlopen(AUDIT_CONSTRUCTOR, RTLD_NOW | RTLD_LOCAL) != nullptr);
  thread.join();
}

/// Memory of a cuMemAlloc() may be used on each stream at once, and a cuMemFree() waits for all of them.
void route_orders()
{
  streams const s;
  for (int i = 0; i < 50; ++i) {
    auto const given = allocated(first, way::by_name, "device", 1U << 20U);
    use(s.one, given, 1U << 20U);
    release(first, way::by_name, "device", given);
    auto const again = allocated(first, way::by_symbol, "device", 1U << 20U);
    use(s.two, again, 1U << 20U);
    release(first, way::by_symbol, "device", again);
    auto const ordered = allocated(first, way::by_name, "async", 1U << 20U, s.one);
    use(s.one, ordered, 1U << 20U);
    release(first, way::by_name, "async", ordered, s.one);
    auto const other = allocated(first, way::by_symbol, "async", 1U << 20U, s.two);
    use(s.two, other, 1U << 20U);
    release(first, way::by_symbol, "async", other, s.two);
  }
  REQUIRE(::cudaDeviceSynchronize() == 0);
  REQUIRE(cudasim::violation_count() == 0);
}

/// Memory that was freed in the order of a stream is not for others before that stream is there. The pool has no other.
void route_waits()
{
  streams const s;
  auto const held = allocated(first, way::by_name, "async", 3U << 20U, s.one);
  use(s.one, held, 3U << 20U);
  release(first, way::by_name, "async", held, s.one);
  auto const fresh = allocated(first, way::by_name, "device", 3U << 20U);
  use(s.two, fresh, 3U << 20U);
  REQUIRE(fresh.number == held.number);
  REQUIRE(::cudaDeviceSynchronize() == 0);
  REQUIRE(cudasim::violation_count() == 0);
}

void route_answers()
{
  auto const one = allocated(first, way::by_name, "device", 5000);
  auto const two = allocated(first, way::by_name, "device", 7000);
  auto const range =
    reinterpret_cast<decltype(&cuMemGetAddressRange_v2)>(first.find(way::by_name, "", "cuMemGetAddressRange", 12000));
  CUdeviceptr begin{};
  std::size_t bytes{};
  REQUIRE(range(&begin, &bytes, two.number + 6999) == CUDA_SUCCESS && begin == two.number && bytes == 7000);
  auto const attribute =
    reinterpret_cast<decltype(&cuPointerGetAttribute)>(first.find(way::by_symbol, "cuPointerGetAttribute", "", 12000));
  REQUIRE(attribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, one.number + 10) == CUDA_SUCCESS && bytes == 5000);
  REQUIRE(attribute(&begin, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, one.number + 10) == CUDA_SUCCESS &&
          begin == one.number);
  int device{-1};
  REQUIRE(attribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, one.number) == CUDA_SUCCESS && device == 0);
  auto const share =
    reinterpret_cast<decltype(&cuIpcGetMemHandle)>(first.find(way::by_name, "", "cuIpcGetMemHandle", 12000));
  CUipcMemHandle handle{};
  REQUIRE(share(&handle, one.number) == CUDA_ERROR_NOT_SUPPORTED);
  // Not routed.
  auto const managed = allocated(first, way::by_name, "managed", 3000);
  REQUIRE(range(&begin, &bytes, managed.number) == CUDA_SUCCESS && begin == managed.number);
  release(first, way::by_name, "managed", managed);
  release(first, way::by_name, "device", two);
  REQUIRE(first.release(way::by_name, "device", two, nullptr) != CUDA_SUCCESS);
  release(first, way::by_name, "device", one);
}

/// The graph has memory of its own; a block of the pool cannot be freed in it.
void route_while_a_stream_captures()
{
  streams const s;
  auto const outside = allocated(first, way::by_name, "async", 1000, s.two);
  REQUIRE(::cudaStreamBeginCapture(s.one, cudaStreamCaptureModeRelaxed) == 0);
  auto const of_graph = allocated(first, way::by_name, "async", 1000, s.one);
  REQUIRE(first.release(way::by_name, "async", outside, s.one) == CUDA_ERROR_INVALID_VALUE);
  auto const beside = allocated(first, way::by_name, "device", 64U << 20U);  // for which the pool grows
  release(first, way::by_name, "async", of_graph, s.one);
  cudaGraph_t graph{};
  REQUIRE(::cudaStreamEndCapture(s.one, &graph) == 0);
  release(first, way::by_name, "async", outside, s.two);
  release(first, way::by_name, "device", beside);
}

void route_fails()
{
  memory got{};
  REQUIRE(first.allocate(way::by_name, "device", 2U << 20U, nullptr, got) == CUDA_ERROR_OUT_OF_MEMORY);
  release(first, way::by_name, "device", allocated(first, way::by_name, "device", 1000));
}

/// A device and a stream other than the current one's.
void route_on_two_devices()
{
  streams const of_first;
  auto const one = allocated(first, way::by_name, "device", 1000);
  REQUIRE(::cudaSetDevice(1) == 0);
  REQUIRE(::cudaFree(nullptr) == 0);
  auto const two     = allocated(first, way::by_name, "device", 1000);
  auto const foreign = allocated(first, way::by_name, "async", 1000, of_first.one);  // of the driver
  release(first, way::by_name, "async", foreign, of_first.one);
  release(first, way::by_name, "device", one);
  release(first, way::by_name, "device", two);
  int device{-1};
  REQUIRE(::cudaGetDevice(&device) == 0 && device == 1);
}

memory left{};

/// What is freed while the process exits does no harm.
void route_until_exit()
{
  std::atexit([] { first.release(way::by_name, "device", left, nullptr); });
  left = allocated(first, way::by_name, "device", 1000);
  static_cast<void>(allocated(first, way::by_name, "device", 2000));
}

void no_context()
{
  memory got{};
  REQUIRE(first.allocate(way::by_name, "device", 1000, nullptr, got) == CUDA_ERROR_INVALID_CONTEXT);
}

std::map<std::string, void (*)()> const scenarios{
  {"linked", linked},
  {"by_symbol", by_symbol},
  {"by_name", by_name},
  {"all_kinds", all_kinds},
  {"two_libraries", two_libraries},
  {"refused", refused},
  {"refused_often", refused_often},
  {"threads", threads},
  {"dlsym", dlsym_is_as_before},
  {"without_driver", without_driver},
  {"fork", fork_child},
  {"while_loading", while_loading},
  {"route_orders", route_orders},
  {"route_waits", route_waits},
  {"route_answers", route_answers},
  {"route_captures", route_while_a_stream_captures},
  {"route_fails", route_fails},
  {"route_two_devices", route_on_two_devices},
  {"route_until_exit", route_until_exit},
  {"no_context", no_context},
};

}  // namespace

/// Called by the constructor of libaudit_constructor.so.
extern "C" [[gnu::visibility("default")]] void allocate_while_constructed() { while_constructed(); }

int main(int count, char** arguments)
{
  REQUIRE(count == 2 && scenarios.count(arguments[1]) == 1);
  std::string const name{arguments[1]};
  ::alarm(600);  // ends a program that waits for ever
  if (name != "dlsym" && name != "without_driver" && name != "no_context") { ::cudaFree(nullptr); }
  scenarios.at(name)();
  std::printf("done\n");
  return 0;
}
