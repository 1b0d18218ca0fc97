// SPDX-License-Identifier: Apache-2.0
//
// Whom reports name: the first caller outside of the C and C++ libraries, by the name that the program's symbols give it.

#include "../../tests/support/temporary_folder.hpp"
#include "../src/callers.hpp"
#include "../src/symbol_file.hpp"
#include "support.hpp"

#include <gmock/gmock.h>

#include <elf.h>
#include <pthread.h>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace cudasim_tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CallerTest : public Simulated {};

/// A function that no dynamic symbol names. Returns only after the call.
[[gnu::noinline]] int make_a_mistake(int const* argument)
{
  int volatile const status = cudaGetDeviceCount(nullptr);
  return status + *argument;
}

TEST_F(CallerTest, IsNamedAsInTheProgram)
{
  int const zero = 0;
  EXPECT_EQ(make_a_mistake(&zero), cudaErrorInvalidValue);
  EXPECT_THAT(take_violations().at(0).text,
              AllOf(HasSubstr("called from "),
                    HasSubstr("cudasim_tests::(anonymous namespace)::make_a_mistake(int const*)+0x"),
                    HasSubstr(" in CUDASIM_TEST)")));
}

/// A function of CUDA as one that the C library calls.
template <class Function>
[[nodiscard]] Function as(cudaError_t (*function)(cudaEvent_t)) noexcept
{
  return reinterpret_cast<Function>(reinterpret_cast<void*>(function));
}

/// Has the C library call a function of CUDA, with pointers that are no events.
[[gnu::noinline]] int let_the_c_library_call()
{
  long values[2]{2, 1};
  std::qsort(values, 2, sizeof *values, as<int (*)(void const*, void const*)>(&cudaEventDestroy));
  int volatile const first = static_cast<int>(values[0]);
  return first;
}

TEST_F(CallerTest, IsOutsideOfTheCLibrary)
{
  EXPECT_NE(let_the_c_library_call(), 0);
  EXPECT_THAT(
    take_violations().at(0).text,
    AllOf(HasSubstr("cudasim_tests::(anonymous namespace)::let_the_c_library_call()+0x"), Not(HasSubstr("libc"))));
}

TEST_F(CallerTest, IsTheReturnAddressIfNoCallerIsOutside)
{
  pthread_t thread{};
  int no_event{};
  ASSERT_EQ(pthread_create(&thread, nullptr, as<void* (*)(void*)>(&cudaEventDestroy), &no_event), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  EXPECT_THAT(take_violations().at(0).text, HasSubstr(", for a function that ends with this call)"));
}

TEST_F(CallerTest, OfALeakIsNamedToo)
{
  cudaEvent_t event{};
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  EXPECT_THAT(cudasim::ledger().at(0).where, HasSubstr("OfALeakIsNamedToo"));
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(CallerTest, OutsideOfCodeIsPrintedAsAnAddress)
{
  EXPECT_EQ(cudasim::describe_address(nullptr), "an unknown place");
  EXPECT_EQ(cudasim::describe_address(reinterpret_cast<void const*>(std::uintptr_t{0x1234})), "0x1234");
}

// ---------------------------------------------------------------------------------------------------------------
// Files of symbols

[[nodiscard]] std::vector<char> own_file()
{
  std::ifstream file{"/proc/self/exe", std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

TEST(SymbolFileTest, WithoutSymbolsFindsNothing)
{
  rmm::test::temporary_folder const folder;
  cudasim::symbol_file::function found;
  EXPECT_FALSE(cudasim::symbol_file{"/no/such/file"}.find(0x1000, found));
  EXPECT_FALSE(cudasim::symbol_file{"/dev/null"}.find(0x1000, found));
  EXPECT_FALSE(cudasim::symbol_file{"/"}.find(0x1000, found));
  auto const text = folder / "text";
  std::ofstream{text} << "no ELF file";
  EXPECT_FALSE(cudasim::symbol_file{text.c_str()}.find(0x1000, found));
}

// Also one of which a part was written over, or that was cut off.
TEST(SymbolFileTest, ThatIsDamagedIsReadAsFarAsItGoes)
{
  rmm::test::temporary_folder const folder;
  auto const path  = folder / "damaged";
  auto const whole = own_file();
  ASSERT_GT(whole.size(), sizeof(Elf64_Ehdr));
  cudasim::symbol_file::function found;
  for (std::size_t length = whole.size(); length != 0; length /= 4) {
    std::ofstream{path, std::ios::binary}.write(whole.data(), static_cast<std::streamsize>(length));
    static_cast<void>(cudasim::symbol_file{path.c_str()}.find(0x1000, found));
  }
  Elf64_Ehdr header;
  std::memcpy(&header, whole.data(), sizeof header);
  std::ofstream{path, std::ios::binary}.write(whole.data(), static_cast<std::streamsize>(whole.size()));
  std::fstream file{path, std::ios::in | std::ios::out | std::ios::binary};
  auto const write = [&](std::size_t at, char const* bytes) {
    file.seekp(static_cast<std::streamoff>(at)).write(bytes, 4).flush();
  };
  for (std::size_t at = 0; at < header.e_shnum * sizeof(Elf64_Shdr); at += 4) {
    if (at % 64 != 24 && at % 64 != 32 && at % 64 != 40) { continue; }  // offset, size, link
    write(header.e_shoff + at, "\xFF\xFF\xFF\xFF");
    static_cast<void>(cudasim::symbol_file{path.c_str()}.find(0x1000, found));
    write(header.e_shoff + at, whole.data() + header.e_shoff + at);
  }
  ASSERT_TRUE(file);
}

}  // namespace
}  // namespace cudasim_tests
