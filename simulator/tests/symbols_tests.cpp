// SPDX-License-Identifier: Apache-2.0
//
// The simulator has every symbol of the CUDA runtime, so that no call of a program reaches another runtime, and a
// function that it does not simulate returns an error and reports it.

#include "../../tests/support/sanitizers.hpp"
#include "support.hpp"

#include <gmock/gmock.h>

#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

// Called by nvcc's code; no header declares these for other compilers.
extern "C" {
void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFatBinaryEnd(void**);
void __cudaUnregisterFatBinary(void**);
char __cudaInitModule(void**);
void __cudaRegisterVar(void**, char*, char*, char const*, int, std::size_t, int, int);
void __cudaRegisterHostVar(void**, char const*, char*, std::size_t);
void __cudaRegisterManagedVar(void**, void**, char*, char const*, int, std::size_t, int, int);
void __cudaRegisterUnifiedTable(void**, void*);
void __cudaRegisterFunction(void**, char const*, char*, char const*, int, uint3*, uint3*, dim3*, dim3*, int*);
unsigned __cudaPushCallConfiguration(dim3, dim3, std::size_t, cudaStream_t);
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*);
cudaError_t __cudaGetKernel(void**, void const*);
cudaError_t __cudaLaunchKernel(void*, dim3, dim3, void**, std::size_t, cudaStream_t);
}

namespace cudasim_tests {
namespace {

using cudasim::violation;
using ::testing::MatchesRegex;

std::vector<std::string> const runtime_symbols{
#define CUDART_SYMBOL(symbol) #symbol,
#include "../symbols/cudart_12_only.inc"
#include "../symbols/cudart_13_0.inc"
#undef CUDART_SYMBOL
};

/// The load address of the object that holds an address.
void const* object_of(void const* address)
{
  Dl_info info{};
  return dladdr(address, &info) == 0 ? nullptr : info.dli_fbase;
}

/// The end of a report about a call of this test.
std::string const from_here = " \\(called from [^\n]*SymbolTest[^\n]*\\)";

class SymbolTest : public Simulated {};

TEST_F(SymbolTest, EverySymbolOfTheRuntimeIsTheSimulators)
{
  auto const* const simulator = object_of(reinterpret_cast<void const*>(&cudasim::now_ns));
  ASSERT_GT(runtime_symbols.size(), 400U);
  for (auto const& name : runtime_symbols) {
    void const* const found = dlsym(RTLD_DEFAULT, name.c_str());
    ASSERT_NE(found, nullptr) << name << " is missing";
    EXPECT_EQ(object_of(found), simulator) << name << " is another library's";
  }
}

#if CUDART_VERSION >= 13000  // in older toolkits, the symbol that stands for a function varies
std::vector<std::string> const unsimulated_symbols{
#define CUDART_SYMBOL(symbol) #symbol,
#include "../symbols/unsimulated.inc"
#undef CUDART_SYMBOL
};

TEST_F(SymbolTest, AnUnsimulatedFunctionPrintsItsNameAndFails)
{
  for (auto const& name : unsimulated_symbols) {
    auto const function = reinterpret_cast<cudaError_t (*)()>(dlsym(RTLD_DEFAULT, name.c_str()));
    ASSERT_NE(function, nullptr) << name;
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(function(), cudaErrorNotSupported) << name;
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                MatchesRegex("cudasim: " + name + " is not simulated" + from_here + "\n"));
    EXPECT_EQ(cudaGetLastError(), cudaErrorNotSupported) << name;
  }
  EXPECT_EQ(take_count(violation::kind::misuse), unsimulated_symbols.size());
}
#endif

TEST_F(SymbolTest, CallsOfUnsimulatedFunctionsAreCountedAndCanFailInOtherWays)
{
  cudaFuncAttributes attributes{};
  cudasim::inject({"cudaFuncGetAttributes", 1, cudaErrorInvalidDeviceFunction, 1});
  EXPECT_EQ(cudaFuncGetAttributes(&attributes, nullptr), cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(cudasim::calls("cudaFuncGetAttributes"), 1U);
}

TEST_F(SymbolTest, ChannelDescriptionsAreMade)
{
  auto const d = cudaCreateChannelDesc(8, 16, 0, 0, cudaChannelFormatKindUnsigned);
  EXPECT_EQ(d.x, 8);
  EXPECT_EQ(d.y, 16);
  EXPECT_EQ(d.f, cudaChannelFormatKindUnsigned);
}

// --- Programs with kernels

TEST_F(SymbolTest, AKernelIsRegisteredAndItsLaunchFailsWithItsName)
{
  static char const host_function = 0;
  auto** const handle             = __cudaRegisterFatBinary(nullptr);
  char name[]                     = "_Z3addPi";
  __cudaRegisterFunction(handle, &host_function, name, name, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  __cudaRegisterFatBinaryEnd(handle);
  auto const refusal =
    " is not simulated: nothing runs add\\(int\\*\\); cudasim::launch stands for a kernel" + from_here + "\n";

  ::testing::internal::CaptureStderr();
  EXPECT_EQ(cudaLaunchKernel(&host_function, dim3{}, dim3{}, nullptr, 0, nullptr), cudaErrorNotSupported);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), MatchesRegex("cudasim: cudaLaunchKernel" + refusal));

  void* kernel = nullptr;
  EXPECT_EQ(__cudaGetKernel(&kernel, &host_function), cudaSuccess);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(__cudaLaunchKernel(kernel, dim3{}, dim3{}, nullptr, 0, nullptr), cudaErrorNotSupported);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), MatchesRegex("cudasim: __cudaLaunchKernel" + refusal));

  cudaLaunchConfig_t configuration{};
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(cudaLaunchKernelExC(&configuration, &host_function, nullptr), cudaErrorNotSupported);
  EXPECT_EQ(cudaLaunchCooperativeKernel(&host_function, dim3{}, dim3{}, nullptr, 0, nullptr), cudaErrorNotSupported);
  EXPECT_THAT(
    ::testing::internal::GetCapturedStderr(),
    MatchesRegex("cudasim: cudaLaunchKernelExC" + refusal + "cudasim: cudaLaunchCooperativeKernel" + refusal));
  __cudaUnregisterFatBinary(handle);
  EXPECT_EQ(take_count(violation::kind::misuse), 4U);
  cudaGetLastError();
}

TEST_F(SymbolTest, VariablesOfADeviceAreRegisteredAndHaveNoMemory)
{
  char variable       = 0;
  char name[]         = "counter";
  void* managed       = nullptr;
  void* address       = nullptr;
  auto** const handle = __cudaRegisterFatBinary(nullptr);
  __cudaRegisterVar(handle, &variable, name, name, 0, sizeof variable, 0, 0);
  __cudaRegisterHostVar(handle, name, &variable, sizeof variable);
  __cudaRegisterUnifiedTable(handle, nullptr);
  EXPECT_EQ(__cudaInitModule(handle), 1);

  ::testing::internal::CaptureStderr();
  __cudaRegisterManagedVar(handle, &managed, name, name, 0, sizeof variable, 0, 0);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "cudasim: __managed__ variables are not simulated: counter has no memory\n");
  EXPECT_EQ(managed, nullptr);

  ::testing::internal::CaptureStderr();
  EXPECT_EQ(cudaGetSymbolAddress(&address, static_cast<void const*>(&variable)), cudaErrorNotSupported);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              MatchesRegex("cudasim: cudaGetSymbolAddress is not simulated" + from_here + "\n"));
  __cudaUnregisterFatBinary(handle);
  EXPECT_EQ(take_count(violation::kind::misuse), 1U);
  cudaGetLastError();
}

TEST_F(SymbolTest, LaunchConfigurationsAreAStack)
{
  dim3 grid{};
  dim3 block{};
  std::size_t shared_bytes = 0;
  cudaStream_t s{};
  EXPECT_EQ(__cudaPushCallConfiguration(dim3{1, 2, 3}, dim3{4, 5, 6}, 7, cudaStreamPerThread), 0U);
  EXPECT_EQ(__cudaPushCallConfiguration(dim3{9, 9, 9}, dim3{9, 9, 9}, 9, nullptr), 0U);
  EXPECT_EQ(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &s), cudaSuccess);
  EXPECT_EQ(shared_bytes, 9U);
  EXPECT_EQ(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &s), cudaSuccess);
  EXPECT_EQ(grid.z, 3U);
  EXPECT_EQ(block.x, 4U);
  EXPECT_EQ(shared_bytes, 7U);
  EXPECT_EQ(s, cudaStreamPerThread);
  EXPECT_EQ(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &s), cudaErrorMissingConfiguration);
}

// --- Programs with another runtime

TEST_F(SymbolTest, AProgramWhoseCallsGoElsewhereIsEndedWhenItIsLoaded)
{
  if (RMM_TEST_UNDER_SANITIZER) { GTEST_SKIP() << "a sanitizer has to be loaded before all else"; }
  std::string output;
  std::FILE* const pipe = ::popen(CUDASIM_OTHER_RUNTIME " 2>&1", "r");
  ASSERT_NE(pipe, nullptr);
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) { output += static_cast<char>(c); }
  EXPECT_NE(::pclose(pipe), 0);
  EXPECT_NE(output.find("cudasim: calls of the CUDA runtime go to "), std::string::npos) << output;
  EXPECT_NE(output.find(" and not to the simulator "), std::string::npos) << output;
  EXPECT_EQ(output.find("main runs"), std::string::npos) << output;
}

}  // namespace
}  // namespace cudasim_tests
