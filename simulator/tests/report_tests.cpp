// SPDX-License-Identifier: Apache-2.0
//
// The environment, the ledger as text, and the process's output. Tests named ...Process run their statement in another
// process, which starts with the environment that the test has set.

#include "../../tests/support/temporary_folder.hpp"
#include "../src/violation_list.hpp"
#include "support.hpp"

#include <gmock/gmock.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <regex>
#include <string>

namespace cudasim_tests {
namespace {

using cudasim::execution;
using cudasim::violation;
using ::testing::AllOf;
using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

/// Sets a variable of the environment, or removes it if the value is null. The end of the scope restores it.
class scoped_variable {
 public:
  scoped_variable(char const* name, char const* value) : name_{name}
  {
    if (auto const* const before = std::getenv(name)) { before_ = before; }
    set(value);
  }
  scoped_variable(scoped_variable const&)            = delete;
  scoped_variable& operator=(scoped_variable const&) = delete;
  ~scoped_variable() { set(before_ ? before_->c_str() : nullptr); }

 private:
  void set(char const* value) const
  {
    if (value != nullptr) {
      ::setenv(name_, value, 1);
    } else {
      ::unsetenv(name_);
    }
  }

  char const* name_;
  std::optional<std::string> before_;
};

// --- The machine

TEST(EnvironmentTest, WithoutVariablesThereIsOneDeviceOf141GB)
{
  scoped_variable const devices{"CUDASIM_DEVICES", nullptr};
  scoped_variable const memory{"CUDASIM_MEMORY", nullptr};
  auto const o = cudasim::environment_options();
  EXPECT_EQ(o.devices, 1);
  EXPECT_EQ(o.memory_bytes, 141'000'000'000U);
  EXPECT_EQ(o.mode, execution::threads);
  EXPECT_EQ(o.seed, 0U);
  EXPECT_FALSE(o.check_ordering);
}

TEST(EnvironmentTest, VariablesDescribeTheMachine)
{
  scoped_variable const devices{"CUDASIM_DEVICES", "4"};
  scoped_variable const memory{"CUDASIM_MEMORY", "24GB"};
  scoped_variable const mode{"CUDASIM_MODE", "stepped"};
  scoped_variable const seed{"CUDASIM_SEED", "18446744073709551615"};
  scoped_variable const check{"CUDASIM_CHECK", "1"};
  auto const o = cudasim::environment_options();
  EXPECT_EQ(o.devices, 4);
  EXPECT_EQ(o.memory_bytes, 24'000'000'000U);
  EXPECT_EQ(o.mode, execution::stepped);
  EXPECT_EQ(o.seed, ~std::uint64_t{0});
  EXPECT_TRUE(o.check_ordering);
}

TEST(EnvironmentTest, AnEmptyVariableIsNone)
{
  scoped_variable const devices{"CUDASIM_DEVICES", ""};
  EXPECT_EQ(cudasim::environment_options().devices, 1);
}

TEST(EnvironmentTest, ResetTakesTheMachineOfTheEnvironment)
{
  scoped_variable const devices{"CUDASIM_DEVICES", "5"};
  cudasim::reset();
  EXPECT_EQ(cudasim::current_options().devices, 5);
  int count = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 5);
  cudasim::reset({});
}

struct size_text {
  char const* text;
  std::size_t bytes;
};
class EnvironmentSizeTest : public ::testing::TestWithParam<size_text> {};

TEST_P(EnvironmentSizeTest, HasItsUnit)
{
  scoped_variable const memory{"CUDASIM_MEMORY", GetParam().text};
  EXPECT_EQ(cudasim::environment_options().memory_bytes, GetParam().bytes);
}

INSTANTIATE_TEST_SUITE_P(Units,
                         EnvironmentSizeTest,
                         ::testing::Values(size_text{"4096", 4096},
                                           size_text{"4096B", 4096},
                                           size_text{"3KB", 3'000},
                                           size_text{"3MB", 3'000'000},
                                           size_text{"3GB", 3'000'000'000},
                                           size_text{"3TB", 3'000'000'000'000},
                                           size_text{"3KiB", 3UL << 10U},
                                           size_text{"3MiB", 3UL << 20U},
                                           size_text{"3GiB", 3UL << 30U},
                                           size_text{"3TiB", 3UL << 40U}));

// --- Malformed variables

struct malformed {
  char const* variable;
  char const* value;
  char const* message;
};
class MalformedEnvironmentProcess : public ::testing::TestWithParam<malformed> {};

TEST_P(MalformedEnvironmentProcess, EndsAtTheFirstCallWithAMessage)
{
  auto const& [variable, value, message] = GetParam();
  scoped_variable const set{variable, value};
  EXPECT_EXIT(cudaFree(nullptr),
              ExitedWithCode(64),
              HasSubstr(std::string{"cudasim: "} + variable + "=" + value + ": " + message));
}

INSTANTIATE_TEST_SUITE_P(
  Variables,
  MalformedEnvironmentProcess,
  ::testing::Values(
    malformed{"CUDASIM_DEVICES", "four", "expected a number from 0 to 256"},
    malformed{"CUDASIM_DEVICES", "-1", "expected a number from 0 to 256"},
    malformed{"CUDASIM_DEVICES", "257", "expected a number from 0 to 256"},
    malformed{"CUDASIM_MEMORY", "12XB", "expected a size such as 141GB"},
    malformed{"CUDASIM_MEMORY", "GB", "expected a size such as 141GB"},
    malformed{"CUDASIM_MEMORY", "0", "expected a size such as 141GB"},
    malformed{"CUDASIM_MEMORY", "99999999999999999999", "expected a size such as 141GB"},
    malformed{"CUDASIM_MEMORY", "99999999TiB", "expected a size such as 141GB"},
    malformed{"CUDASIM_MEMORY", "65TiB", "expected a size such as 141GB"},
    malformed{"CUDASIM_MODE", "fast", "expected 'threads' or 'stepped'"},
    malformed{"CUDASIM_SEED", "7up", "expected a number from 0"},
    malformed{"CUDASIM_CHECK", "yes", "expected a number from 0 to 1"},
    malformed{"CUDASIM_QUIET", "2", "expected a number from 0 to 1"},
    malformed{"CUDASIM_ALL", "yes", "expected a number from 0 to 1"},
    malformed{"CUDASIM_TIMEOUT", "0", "expected a number from 1"},
    malformed{"CUDASIM_FAULT", "cudaMalloc", "expected FUNCTION:N:ERROR or FUNCTION:N:ERROR:COUNT, not 'cudaMalloc'"},
    malformed{"CUDASIM_FAULT", "cudaMalloc:x:2", "'x' is not the number of a call"},
    malformed{"CUDASIM_FAULT", "cudaMalloc:1:cudaErrorNonsense", "'cudaErrorNonsense' is neither the name"},
    malformed{"CUDASIM_FAULT", "cudaMalloc:1:777", "'777' is neither the name nor the number of a CUDA error"},
    malformed{"CUDASIM_FAULT", "cudaMalloc:1:2:x", "'x' is not a number of calls"},
    malformed{"CUDASIM_FAULT", "cudaMalloc:0:2", "calls are counted from 1"},
    malformed{"CUDASIM_FAULT", "cudaMaloc:1:2", "there is no CUDA function 'cudaMaloc'"},
    malformed{"CUDASIM_FAULT", "cudaMalloc:1:2,", "expected FUNCTION:N:ERROR"}));

// --- What the other variables do

class EnvironmentProcess : public ::testing::Test {};

/// Ends the process with status 0 if its expectations hold.
[[noreturn]] void end_if(bool as_it_should_be) { std::exit(as_it_should_be ? 0 : 1); }

TEST_F(EnvironmentProcess, FaultsAreArmedFromTheFirstCallOn)
{
  scoped_variable const faults{"CUDASIM_FAULT",
                               "cudaSetDevice:2:cudaErrorUnknown:2,cudaGetDevice:1:100,*:6:cudaErrorAssert"};
  EXPECT_EXIT(
    {
      int value = 0;
      end_if(cudaSetDevice(0) == cudaSuccess && cudaSetDevice(0) == cudaErrorUnknown &&
             cudaSetDevice(0) == cudaErrorUnknown && cudaGetDevice(&value) == cudaErrorNoDevice &&
             cudaGetDevice(&value) == cudaSuccess && cudaSetDevice(0) == cudaErrorAssert &&
             cudaSetDevice(0) == cudaSuccess);
    },
    ExitedWithCode(0),
    "");
}

TEST_F(EnvironmentProcess, TheMachineIsThereFromTheFirstCallOn)
{
  scoped_variable const devices{"CUDASIM_DEVICES", "0"};
  EXPECT_EXIT(
    {
      int value = 0;
      end_if(cudaGetDevice(&value) == cudaErrorNoDevice);
    },
    ExitedWithCode(0),
    "");
}

TEST_F(EnvironmentProcess, MisuseIsPrintedInOneLine)
{
  EXPECT_EXIT(
    end_if(cudaGetDeviceCount(nullptr) == cudaErrorInvalidValue),
    ExitedWithCode(0),
    MatchesRegex(
      "cudasim: cudaGetDeviceCount: the output pointer for the number is null \\(cudaErrorInvalidValue, called from "
      "[^\n]*\\)\n"));
}

TEST_F(EnvironmentProcess, QuietPrintsNothingAndCountsAllTheSame)
{
  scoped_variable const quiet{"CUDASIM_QUIET", "1"};
  EXPECT_EXIT(end_if(cudaGetDeviceCount(nullptr) == cudaErrorInvalidValue && cudasim::violations().size() == 1),
              ExitedWithCode(0),
              "^$");
}

TEST_F(EnvironmentProcess, AVariableThatTheSimulatorDoesNotKnowIsNamed)
{
  scoped_variable const typo{"CUDASIM_DEVICE", "4"};
  EXPECT_EXIT(end_if(cudaFree(nullptr) == cudaSuccess),
              ExitedWithCode(0),
              HasSubstr("cudasim: the simulator does not know CUDASIM_DEVICE\n"));
}

TEST_F(EnvironmentProcess, AWaitThatCannotEndEndsWithTheTimeLimit)
{
  scoped_variable const limit{"CUDASIM_TIMEOUT", "1"};
  EXPECT_EXIT(
    {
      cudaStream_t s{};
      cudaStreamCreate(&s);
      cudasim::hold(s);
      cudasim::launch(s, {}, {}, [] {});
      bool const timed_out = cudaStreamSynchronize(s) == cudaErrorLaunchTimeout;
      end_if(timed_out && cudasim::violations().at(0).what == violation::kind::deadlock);
    },
    ExitedWithCode(0),
    MatchesRegex("(.|\n)*cudaStreamSynchronize \\(called from [^\n]*\\) waited 1 s(.|\n)*"));
}

// --- Mistakes that repeat

/// Hides a number from the compiler, which could otherwise unroll a loop and so make calls from several places.
[[nodiscard]] int unknown(int number)
{
  int volatile same = number;
  return same;
}

[[gnu::noinline]] void ask_nowhere(int times)
{
  for (int i = unknown(times); i > 0; --i) { cudaGetDeviceCount(nullptr); }
}

[[nodiscard]] std::size_t count_of(std::string const& text, std::string const& part)
{
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) { ++count; }
  return count;
}

constexpr auto misuse_line = "cudasim: cudaGetDeviceCount: the output pointer for the number is null \\([^\n]*\\)\n";
constexpr auto more_line =
  "cudasim: more of these from the same callers are counted, not printed; CUDASIM_ALL=1 prints them\n";

TEST_F(EnvironmentProcess, AMistakeThatRepeatsIsPrintedThreeTimesAndCounted)
{
  EXPECT_EXIT(
    {
      ask_nowhere(10'000);
      end_if(cudasim::violations().size() == 10'000 && cudasim::violation_count() == 10'000);
    },
    ExitedWithCode(0),
    MatchesRegex(std::string{misuse_line} + misuse_line + misuse_line + more_line +
                 "cudasim: 9997 more from the same callers: cudaGetDeviceCount: the output pointer [^\n]*\n"));
}

TEST_F(EnvironmentProcess, ThreeTimesAreNotCounted)
{
  EXPECT_EXIT(
    {
      ask_nowhere(3);
      end_if(true);
    },
    ExitedWithCode(0),
    MatchesRegex(std::string{misuse_line} + misuse_line + misuse_line));
}

TEST_F(EnvironmentProcess, AMistakeFromAnotherPlaceIsAnotherOne)
{
  EXPECT_EXIT(
    {
      for (int i = unknown(4); i > 0; --i) {
        cudaGetDeviceCount(nullptr);
        cudaGetDeviceCount(nullptr);
      }
      end_if(true);
    },
    ExitedWithCode(0),
    ::testing::Truly([](std::string const& text) {
      return count_of(text, "the output pointer for the number is null") == 8 &&
             count_of(text, ": 1 more from the same callers: ") == 2;
    }));
}

TEST_F(EnvironmentProcess, RepeatedReportsArePrintedOnRequest)
{
  scoped_variable const all{"CUDASIM_ALL", "1"};
  EXPECT_EXIT(
    {
      ask_nowhere(20);
      end_if(true);
    },
    ExitedWithCode(0),
    ::testing::Truly([](std::string const& text) {
      return count_of(text, "the output pointer for the number is null") == 20 && count_of(text, "more") == 0;
    }));
}

TEST_F(EnvironmentProcess, SuppressedReportsAreCountedBeforeTheyAreDropped)
{
  EXPECT_EXIT(
    {
      ask_nowhere(5);
      cudasim::clear_violations();
      std::fputs("cleared\n", stderr);
      end_if(cudasim::violations().empty());
    },
    ExitedWithCode(0),
    AllOf(HasSubstr("cudasim: 2 more from the same callers: "), MatchesRegex("(.|\n)*\ncleared\n")));
}

/// Two streams that nothing orders write the same bytes, again and again.
void race(int times)
{
  cudasim::check_ordering(true);
  cudaStream_t streams[2]{};
  for (auto& s : streams) { cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking); }
  void* bytes = nullptr;
  cudaMalloc(&bytes, 256);
  for (int i = unknown(times); i > 0; --i) {
    cudasim::launch(streams[0], {}, {{bytes, 256}});
    cudasim::launch(streams[1], {}, {{bytes, 256}});
    cudaDeviceSynchronize();
  }
}

TEST_F(EnvironmentProcess, RacesOfTheSameTwoCallersAreOneMistake)
{
  EXPECT_EXIT(
    {
      race(50);
      end_if(cudasim::violations().size() == 50);
    },
    ExitedWithCode(0),
    ::testing::Truly([](std::string const& text) {
      return count_of(text, "is not ordered after") == 4 &&
             count_of(text, "cudasim: 47 more from the same callers: ") == 1;
    }));
}

TEST_F(EnvironmentProcess, TwoMistakesThatRepeatAreBothPrintedAndCounted)
{
  EXPECT_EXIT(
    {
      ask_nowhere(10'000);
      race(50);
      ask_nowhere(10'000);
      end_if(cudasim::violation_count() == 20'050);
    },
    ExitedWithCode(0),
    ::testing::Truly([](std::string const& text) {
      return count_of(text, "\n") == 10 && count_of(text, "the output pointer for the number is null") == 4 &&
             count_of(text, "cudasim: 19997 more from the same callers: ") == 1 &&
             count_of(text, "is not ordered after") == 4 &&
             count_of(text, "cudasim: 47 more from the same callers: ") == 1;
    }));
}

TEST_F(EnvironmentProcess, AnUnsimulatedFunctionIsPrintedThreeTimesEvenIfQuiet)
{
  scoped_variable const quiet{"CUDASIM_QUIET", "1"};
  EXPECT_EXIT(
    {
      for (int i = 0; i < 10'000; ++i) {
        cudaFuncAttributes attributes{};
        cudaFuncGetAttributes(&attributes, nullptr);
      }
      end_if(cudasim::violations().size() == 10'000);
    },
    ExitedWithCode(0),
    ::testing::Truly([](std::string const& text) {
      return count_of(text, "cudaFuncGetAttributes is not simulated (called from ") == 3 &&
             count_of(text, more_line) == 1 && count_of(text, "\n") == 4;
    }));
}

TEST_F(EnvironmentProcess, TheReportCountsViolationsAndLeaksThatRepeat)
{
  scoped_variable const to{"CUDASIM_REPORT", "-"};
  scoped_variable const quiet{"CUDASIM_QUIET", "1"};
  EXPECT_EXIT(
    {
      ask_nowhere(20);
      for (int i = unknown(10); i > 0; --i) {
        void* lost = nullptr;
        cudaMalloc(&lost, 1000);
      }
      std::exit(0);
    },
    ExitedWithCode(66),
    ::testing::Truly([](std::string const& text) {
      return count_of(text, "no cudaFree") == 3 &&
             count_of(text, "    and 7 more from the same caller, 7000 bytes\n") == 1 &&
             count_of(text, "misuse: ") == 3 && count_of(text, "    and 17 more from the same callers\n") == 1;
    }));
}

TEST_F(EnvironmentProcess, TheReportHasAllOnRequest)
{
  scoped_variable const to{"CUDASIM_REPORT", "-"};
  scoped_variable const quiet{"CUDASIM_QUIET", "1"};
  scoped_variable const all{"CUDASIM_ALL", "1"};
  EXPECT_EXIT(
    {
      ask_nowhere(20);
      std::exit(3);
    },
    ExitedWithCode(3),
    ::testing::Truly([](std::string const& text) { return count_of(text, "misuse: ") == 20; }));
}

// --- The report at exit

TEST_F(EnvironmentProcess, TheReportOfACleanProgramHasItsCallsAndLeavesTheStatus)
{
  scoped_variable const to{"CUDASIM_REPORT", "-"};
  EXPECT_EXIT(
    {
      cudaSetDevice(0);
      cudaSetDevice(0);
      std::exit(0);
    },
    ExitedWithCode(0),
    MatchesRegex("cudasim: calls\n  cudaSetDevice +2\ncudasim: leaks: none\ncudasim: violations: none\n"));
}

TEST_F(EnvironmentProcess, ALeakTurnsSuccessIntoStatus66)
{
  scoped_variable const to{"CUDASIM_REPORT", "-"};
  EXPECT_EXIT(
    {
      cudaEvent_t e{};
      cudaEventCreate(&e);
      std::exit(0);
    },
    ExitedWithCode(66),
    MatchesRegex("cudasim: calls\n  cudaEventCreate +1\ncudasim: leaks\n  cudaEventCreate 0x[0-9a-f]+, device 0, "
                 "from [^\n]*: no cudaEventDestroy\ncudasim: violations: none\n"));
}

TEST_F(EnvironmentProcess, AViolationTurnsSuccessIntoStatus66)
{
  scoped_variable const to{"CUDASIM_REPORT", "-"};
  EXPECT_EXIT(
    {
      cudaGetDeviceCount(nullptr);
      std::exit(0);
    },
    ExitedWithCode(66),
    HasSubstr("cudasim: violations\n  misuse: cudaGetDeviceCount: the output pointer for the number is null"));
}

TEST_F(EnvironmentProcess, AnotherStatusStaysWhatItIs)
{
  scoped_variable const to{"CUDASIM_REPORT", "-"};
  EXPECT_EXIT(
    {
      cudaGetDeviceCount(nullptr);
      std::exit(3);
    },
    ExitedWithCode(3),
    HasSubstr("cudasim: violations\n  misuse:"));
}

/// Starts this program with one of its tests and a report to `path`. Returns the process id.
[[nodiscard]] pid_t start_reporting(std::string const& path)
{
  auto const process = ::fork();
  if (process == 0) {
    ::setenv("CUDASIM_REPORT", path.c_str(), 1);
    ::execl("/proc/self/exe",
            "tests",
            "--gtest_filter=DISABLED_ReportingProcess.*",
            "--gtest_also_run_disabled_tests",
            "--gtest_brief=1",
            nullptr);
    ::_exit(127);
  }
  return process;
}

/// Waits for the end of a process. Returns its exit status.
[[nodiscard]] int end_of(pid_t process)
{
  int status = -1;
  EXPECT_EQ(::waitpid(process, &status, 0), process);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

constexpr auto whole_report = "cudasim: calls\n  cudaSetDevice +1\ncudasim: leaks: none\ncudasim: violations: none\n";

/// The test that start_reporting() runs. It cannot fail.
TEST(DISABLED_ReportingProcess, CallsCuda) { EXPECT_EQ(cudaSetDevice(0), cudaSuccess); }

TEST_F(EnvironmentProcess, TheReportGoesToAFileInPlaceOfWhatWasThere)
{
  rmm::test::temporary_folder const folder;
  auto const path = folder / "report";
  std::ofstream{path} << std::string(10'000, 'x');
  EXPECT_EQ(end_of(start_reporting(path)), 0);
  EXPECT_THAT(rmm::test::contents_of(path), MatchesRegex(whole_report));
}

TEST_F(EnvironmentProcess, EveryProcessHasAReportOfItsOwnIfItsIdIsInTheNameOfTheFile)
{
  rmm::test::temporary_folder const folder;
  std::array<pid_t, 3> processes{};
  for (auto& process : processes) { process = start_reporting(folder / "of_%p_%%p_%x_%p%"); }
  for (auto const process : processes) {
    EXPECT_EQ(end_of(process), 0);
    auto const id = std::to_string(process);
    EXPECT_THAT(rmm::test::contents_of(folder / ("of_" + id + "_%p_%x_" + id + "%")), MatchesRegex(whole_report));
  }
}

TEST_F(EnvironmentProcess, AReportWaitsForAnotherProcessThatWritesToTheSameFile)
{
  if (!std::ifstream{"/proc/locks"}) { GTEST_SKIP() << "/proc/locks does not tell who waits"; }
  rmm::test::temporary_folder const folder;
  auto const path  = folder / "report";
  int const writer = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::flock(writer, LOCK_EX), 0);
  ASSERT_EQ(::write(writer, "half", 4), 4);

  auto const process = start_reporting(path);
  auto const waits   = "-> FLOCK +ADVISORY +WRITE " + std::to_string(process) + " ";
  int status         = 0;
  pid_t ended        = 0;
  while (ended == 0 && !std::regex_search(rmm::test::contents_of("/proc/locks"), std::regex{waits})) {
    ended = ::waitpid(process, &status, WNOHANG);
  }
  ASSERT_EQ(ended, 0) << "the report was written before the file was free";
  EXPECT_EQ(rmm::test::contents_of(path), "half");

  ::close(writer);
  EXPECT_EQ(end_of(process), 0);
  EXPECT_THAT(rmm::test::contents_of(path), MatchesRegex(whole_report));
}

TEST_F(EnvironmentProcess, AReportThatCannotBeWrittenIsAFailureThatIsPrinted)
{
  for (std::string const path : {"/no/such/folder/report", "/dev/full"}) {
    scoped_variable const to{"CUDASIM_REPORT", path.c_str()};
    EXPECT_EXIT(std::exit(0), ExitedWithCode(66), HasSubstr("cudasim: CUDASIM_REPORT=" + path + ": "));
  }
}

TEST_F(EnvironmentProcess, AReportIsItsUsersOwnAndNeverGoesThroughALink)
{
  rmm::test::temporary_folder const folder;
  auto const path   = folder / "report";
  auto const before = ::umask(0);
  EXPECT_EQ(end_of(start_reporting(path)), 0);
  ::umask(before);
  struct stat is {};
  ASSERT_EQ(::stat(path.c_str(), &is), 0);
  EXPECT_EQ(is.st_mode & 0777U, 0600U);

  auto const link = folder / "link";
  std::ofstream{folder / "else"} << "someone else's";
  ASSERT_EQ(::symlink((folder / "else").c_str(), link.c_str()), 0);
  EXPECT_EQ(end_of(start_reporting(link)), 66);
  EXPECT_EQ(rmm::test::contents_of(folder / "else"), "someone else's");
  EXPECT_EQ(end_of(start_reporting("/dev/stdout")), 0);  // which is a link
}

/// Owns an event that a late destructor gives back.
struct late_owner {
  cudaEvent_t event{};
  ~late_owner() { cudaEventDestroy(event); }
};

TEST_F(EnvironmentProcess, MemoryThatStaticDestructorsFreeIsNotReportedAsALeak)
{
  scoped_variable const to{"CUDASIM_REPORT", "-"};
  EXPECT_EXIT(
    {
      static late_owner owner;
      cudaEventCreate(&owner.event);
      std::exit(0);
    },
    ExitedWithCode(0),
    HasSubstr("cudasim: leaks: none"));
}

// --- Violations and the ledger

class ReportTest : public Simulated {};

TEST_F(ReportTest, ViolationsAreKeptInTheirOrderUntilTheyAreCleared)
{
  EXPECT_EQ(cudaGetDeviceCount(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDriverGetVersion(nullptr), cudaErrorInvalidValue);
  auto const all = cudasim::violations();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].what, violation::kind::misuse);
  EXPECT_THAT(all[0].text, HasSubstr("cudaGetDeviceCount: "));
  EXPECT_THAT(all[1].text, HasSubstr("cudaDriverGetVersion: "));
  cudasim::clear_violations();
  EXPECT_TRUE(cudasim::violations().empty());
}

TEST(ViolationListTest, KeepsAFewOfEachMistakeWhenItIsFull)
{
  constexpr auto most = cudasim::violation_list::most_kept;
  cudasim::violation_list list;
  violation const one{violation::kind::misuse, "one"};
  for (std::size_t i = 0; i < 2 * most; ++i) { ASSERT_EQ(list.add({"one"}, one), i + 1); }
  EXPECT_EQ(list.all().size(), most);

  for (std::uint64_t i = 0; i < 10; ++i) { EXPECT_EQ(list.add({"other"}, {violation::kind::race, "other"}), i + 1); }
  EXPECT_EQ(list.all().size(), most + 3);
  EXPECT_EQ(list.all().back().text, "other");
  EXPECT_EQ(list.count(), 2 * most + 10);
  EXPECT_THAT(list.untold(),
              ::testing::ElementsAre(std::to_string(2 * most - 3) + " more from the same callers: one",
                                     "7 more from the same callers: other"));
  EXPECT_EQ(
    list.text("", false),
    "misuse: one\nmisuse: one\nmisuse: one\n  and " + std::to_string(2 * most - 3) +
      " more from the same callers\nrace: other\nrace: other\nrace: other\n  and 7 more from the same callers\n");
  EXPECT_THAT(list.text("", true), HasSubstr("misuse: one\n  and 100000 more from the same callers\nrace: other\n"));

  list.clear();
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.count(), 0U);
  EXPECT_EQ(list.add({"one"}, one), 1U);
}

TEST_F(ReportTest, TheLedgerKnowsWhoMadeWhatAndHowItIsGivenBack)
{
  EXPECT_EQ(cudasim::leak_report(), "");
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 1000), cudaSuccess);
  auto const open = cudasim::ledger();
  ASSERT_EQ(open.size(), 1U);
  EXPECT_EQ(open[0].made_by, "cudaMalloc");
  EXPECT_EQ(open[0].freed_by, "cudaFree");
  EXPECT_EQ(open[0].handle, memory);
  EXPECT_EQ(open[0].bytes, 1000U);
  EXPECT_EQ(open[0].device, 0);
  EXPECT_THAT(cudasim::leak_report(),
              MatchesRegex("cudaMalloc 0x[0-9a-f]+, 1000 bytes, device 0, from [^\n]*: no cudaFree\n"));
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudasim::leak_report(), "");
}

}  // namespace
}  // namespace cudasim_tests
