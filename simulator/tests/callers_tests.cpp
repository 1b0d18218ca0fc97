// SPDX-License-Identifier: Apache-2.0
//
// The caller that reports name: the first one outside of the C and C++ libraries, named by the program's symbols.

#include "../../tests/support/temporary_folder.hpp"
#include "../src/callers.hpp"
#include "../src/standard_names.hpp"
#include "../src/symbol_file.hpp"
#include "support.hpp"

#include <gmock/gmock.h>

#include <elf.h>
#include <pthread.h>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cudasim_tests {
namespace {

using cudasim::code_kind;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CallerTest : public Simulated {};

/// A function that no dynamic symbol names. Uses the result of the call, so that the call is not a jump.
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

/// A function of CUDA with a type that the C library calls.
template <class Function>
[[nodiscard]] Function as(cudaError_t (*function)(cudaEvent_t)) noexcept
{
  return reinterpret_cast<Function>(reinterpret_cast<void*>(function));
}

/// Makes the C library call a function of CUDA with pointers that are not events.
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

/// Makes a function of the C++ library's headers call a function of CUDA with pointers that are not events.
[[gnu::noinline]] int let_an_algorithm_call()
{
  int no_event{};
  std::array<cudaEvent_t, 2> events{};
  events.fill(reinterpret_cast<cudaEvent_t>(&no_event));
  auto* volatile const for_each = &std::for_each<cudaEvent_t*, cudaError_t (*)(cudaEvent_t)>;  // not inlined
  for_each(events.data(), events.data() + events.size(), &cudaEventDestroy);
  int volatile const result = no_event;
  return result;
}

TEST_F(CallerTest, IsOutsideOfTheHeadersOfTheCppLibrary)
{
  EXPECT_EQ(let_an_algorithm_call(), 0);
  auto const seen = take_violations();
  ASSERT_EQ(seen.size(), 2U);
  for (auto const& each : seen) {
    EXPECT_THAT(
      each.text,
      AllOf(HasSubstr("cudasim_tests::(anonymous namespace)::let_an_algorithm_call()+0x"), Not(HasSubstr("std::"))));
  }
}

/// Makes a std::function call a lambda.
[[gnu::noinline]] int let_a_function_object_call()
{
  std::function<int()> const ask = [] {
    int volatile const status = cudaGetDeviceCount(nullptr);
    return status + 0;
  };
  auto const* volatile const same = &ask;  // not inlined
  int volatile const result       = (*same)();
  return result;
}

// Compilers put the lambda's code into a function of the library.
TEST_F(CallerTest, IsTheLambdaThatAFunctionObjectCalls)
{
  EXPECT_EQ(let_a_function_object_call(), cudaErrorInvalidValue);
  EXPECT_THAT(
    take_violations().at(0).text,
    AllOf(Not(HasSubstr("std::")),
          HasSubstr("cudasim_tests::(anonymous namespace)::let_a_function_object_call()::"),
          AnyOf(HasSubstr("{lambda()#1} in CUDASIM_TEST+0x"), HasSubstr("operator()() const+0x"), HasSubstr("$_"))));
}

TEST_F(CallerTest, IsTheLambdaThatAThreadRuns)
{
  std::thread{[] {
    int volatile const status = cudaGetDeviceCount(nullptr);
    EXPECT_EQ(status, cudaErrorInvalidValue);
  }}.join();
  EXPECT_THAT(take_violations().at(0).text, HasSubstr("IsTheLambdaThatAThreadRuns_Test::TestBody()::"));
}

TEST_F(CallerTest, IsInTheHeadersOrTheLibraryIfNoFunctionOfTheProgramIsThere)
{
  int no_event{};
  std::thread{cudaEventDestroy, reinterpret_cast<cudaEvent_t>(&no_event)}.join();
  EXPECT_THAT(take_violations().at(0).text,
              AnyOf(HasSubstr(" std::"), HasSubstr(", for a function that ends with this call)")));
}

/// Launches work that writes the same byte as other work.
[[gnu::noinline]] int launch_a_racing_write(cudaStream_t stream, char* byte)
{
  int volatile const status = cudasim::launch(stream, {}, {{byte, 1}});
  return status;
}

TEST_F(CallerTest, OfALaunchIsTheFunctionThatLaunches)
{
  cudasim::check_ordering(true);
  char byte{};
  scoped_stream const a;
  scoped_stream const b;
  EXPECT_EQ(launch_a_racing_write(a, &byte), cudaSuccess);
  EXPECT_EQ(launch_a_racing_write(b, &byte), cudaSuccess);
  auto const text = take_violations().at(0).text;
  std::string const name{"cudasim_tests::(anonymous namespace)::launch_a_racing_write("};
  auto const first = text.find(name);
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_NE(text.find(name, first + 1), std::string::npos) << text;
  cudasim::check_ordering(false);
}

TEST_F(CallerTest, OfALeakIsNamedToo)
{
  cudaEvent_t event{};
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  EXPECT_THAT(cudasim::ledger().at(0).where, HasSubstr("OfALeakIsNamedToo"));
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

/// What programs/tail_calls.cpp prints about its call.
[[nodiscard]] std::string tail_call(std::string const& argument)
{
  std::string output;
  std::FILE* const pipe = ::popen((CUDASIM_TAIL_CALLS " " + argument + " 2>&1").c_str(), "r");
  if (pipe == nullptr) { return "no pipe"; }
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) { output += static_cast<char>(c); }
  EXPECT_EQ(::pclose(pipe), 0);
  return output;
}

// Where the call is a jump, the C++ library's headers are left. addr2line needs the place in the file.
TEST_F(CallerTest, InTheHeadersHasItsPlaceInTheFile)
{
  EXPECT_THAT(
    tail_call("async"),
    AnyOf(HasSubstr("called from (anonymous namespace)::load_weights()+0x"),  // no jump
          ::testing::ContainsRegex("called from std::.* in cudasim_tail_calls\\+0x[0-9a-f]+, for a function that is "
                                   "inlined there or ends with this call\\)")));
}

TEST_F(CallerTest, AtExitIsNotTheStartOfTheProgram)
{
  EXPECT_THAT(tail_call("'at exit'"),
              AnyOf(HasSubstr("called from (anonymous namespace)::clean_up()+0x"),  // no jump
                    HasSubstr(", for a function that ends with this call)")));
}

TEST_F(CallerTest, OutsideOfCodeIsPrintedAsAnAddress)
{
  EXPECT_EQ(cudasim::describe_address(nullptr), "an unknown place");
  EXPECT_EQ(cudasim::describe_address(reinterpret_cast<void const*>(std::uintptr_t{0x1234})), "0x1234");
}

// --- Names

TEST(StandardNamesTest, AreThoseOfTheNamespacesOfTheCppLibrary)
{
  for (char const* const name : {"_ZSt8for_eachIPiPFviEET0_T_S4_S3_",
                                 "_ZNSt6vectorIiSaIiEE9push_backERKi",
                                 "_ZNKSt8functionIFvvEEclEv",
                                 "_ZNKRSt8optionalIiE5valueEv",
                                 "_ZNSaIcED1Ev",
                                 "_ZNKSs4sizeEv",
                                 "_ZNSt3__18functionIFvvEE4swapERS2_",
                                 "_ZN9__gnu_cxx13new_allocatorIiE8allocateEmPKv",
                                 "_ZN4cuda3std3__47forwardIiEEOT_RS3_",
                                 "_ZZNSt9once_flag18_Prepare_executionC4IZ3fooE3$_0EERT_ENKUlvE_clEv",
                                 "_ZNSt6vectorIiSaIiEE9push_backERKi.cold"}) {
    EXPECT_TRUE(cudasim::is_standard_name(name)) << name;
  }
  for (char const* const name : {"",
                                 "_Z",
                                 "_ZN",
                                 "_ZNK",
                                 "_ZS",
                                 "main",
                                 "St4main",
                                 "_Z7averagePKf",
                                 "_ZN3app4loadERKSt6vectorIiSaIiEE",
                                 "_ZN5Stack3popEv",
                                 "_ZlsRSoRK3app",
                                 "_ZN4cuda2mr8resource8allocateEm",
                                 "_ZZ4mainENKUlvE_clEv",
                                 "_ZN3app4loadEv.part.0"}) {
    EXPECT_FALSE(cudasim::is_standard_name(name)) << name;
  }
}

struct lambda_name {
  char const* function;
  char const* lambda;
};

TEST(StandardNamesTest, MayHaveALambdaOfTheProgram)
{
  for (auto const& [function, lambda] : std::initializer_list<lambda_name>{
         {"std::_Function_handler<void (), main::{lambda()#1}>::_M_invoke(std::_Any_data const&)",
          "main::{lambda()#1}"},
         {"int* std::transform<int*, app::f(int, long)::{lambda(int, char)#2}>(int*, app::f(int, long)::{lambda(int, "
          "char)#2})",
          "app::f(int, long)::{lambda(int, char)#2}"},
         {"std::thread::_State_impl<std::tuple<(anonymous namespace)::f<a, b>(int)::{lambda()#1}, int> >::_M_run()",
          "(anonymous namespace)::f<a, b>(int)::{lambda()#1}"},
         {"std::_Function_handler<int (int), void app::run<int>(int) const::{lambda(int)#1}>::_M_invoke()",
          "app::run<int>(int) const::{lambda(int)#1}"},
         {"std::f<{lambda()#1}>()", "{lambda()#1}"},
         {"std::f<main::$_12>(main::$_12)", "main::$_12"},
         {"std::__1::f<main::'lambda0'(int, char)&>()", "main::'lambda0'(int, char)"},
         {"void std::call_once<void (&)()>(std::once_flag&, void (&)())::{lambda()#2}::operator()() const", ""},
         {"void std::call_once<app::f()::{lambda()#1}>(app::f()::{lambda()#1}&&)::{lambda()#2}::_FUN()",
          "app::f()::{lambda()#1}"},
         {"std::vector<int, std::allocator<int> >::push_back(int const&)", ""},
         {"std::f<main::{lambda(", "main::{lambda("},
         {"std::f<$_", "$_"},
         {"", ""}}) {
    EXPECT_EQ(cudasim::lambda_of_program(function), lambda) << function;
  }
}

[[nodiscard]] void const* at(std::uintptr_t address) { return reinterpret_cast<void const*>(address); }

/// The number and the kind of a known site.
[[nodiscard]] std::optional<std::pair<unsigned, code_kind>> known_as(cudasim::known_sites const& known,
                                                                     std::uintptr_t site)
{
  std::pair<unsigned, code_kind> found;
  return known.find(at(site), found.first, found.second) ? std::optional{found} : std::nullopt;
}

TEST(KnownSitesTest, RememberWhoseCodeIsThere)
{
  auto const known = std::make_unique<cudasim::known_sites>();
  EXPECT_FALSE(known_as(*known, 0x1000));
  EXPECT_FALSE(known->is_surely_of_program(at(0x1000)));
  known->add(at(0x1000), 0, code_kind::program);
  known->add(at(0x2000), 0, code_kind::library);
  known->add(at(0x3000), 7, code_kind::program);
  known->add(at(0x4000), (1U << cudasim::number_bits) - 1, code_kind::headers);
  EXPECT_EQ(known_as(*known, 0x1000), (std::pair{0U, code_kind::program}));
  EXPECT_EQ(known_as(*known, 0x2000), (std::pair{0U, code_kind::library}));
  EXPECT_EQ(known_as(*known, 0x3000), (std::pair{7U, code_kind::program}));
  EXPECT_EQ(known_as(*known, 0x4000), (std::pair{(1U << cudasim::number_bits) - 1, code_kind::headers}));
  EXPECT_TRUE(known->is_surely_of_program(at(0x1000)));
  EXPECT_FALSE(known->is_surely_of_program(at(0x2000)));
  EXPECT_FALSE(known->is_surely_of_program(at(0x3000)));  // can be unloaded
}

TEST(KnownSitesTest, ForgetObjectsThatCanBeUnloaded)
{
  auto const known = std::make_unique<cudasim::known_sites>();
  for (unsigned i = 1; i <= 100; ++i) { known->add(at(i * 0x1000), i % 2, code_kind::program); }
  known->forget_numbered();
  for (unsigned i = 1; i <= 100; ++i) { EXPECT_EQ(known_as(*known, i * 0x1000).has_value(), i % 2 == 0) << i; }
}

// Many more sites than there is room for: some are forgotten, and the others are still right.
TEST(KnownSitesTest, ForgetWhatTheyHaveNoRoomFor)
{
  constexpr std::uintptr_t many = 100'000;
  auto const known              = std::make_unique<cudasim::known_sites>();
  std::uintptr_t remembered{0};
  auto const kind = [](std::uintptr_t i) { return i % 3 == 0 ? code_kind::program : code_kind::library; };
  for (std::uintptr_t i = 1; i <= many; ++i) { known->add(at(i * 5), 0, kind(i)); }
  for (std::uintptr_t i = 1; i <= many; ++i) {
    auto const found = known_as(*known, i * 5);
    if (!found) { continue; }
    ++remembered;
    EXPECT_EQ(found->second, kind(i));
  }
  EXPECT_GT(remembered, 1'000U);
  EXPECT_LT(remembered, many / 10);
  EXPECT_TRUE(known_as(*known, many * 5));  // the newest
}

// --- Files of symbols

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

// Also reads a file that is partly overwritten or cut off.
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
