// SPDX-License-Identifier: Apache-2.0
//
// librmm_audit.so, preloaded into a program (program.cpp) that allocates by two libraries of its own.

#include <tests/support/temporary_folder.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

/// Runs a command with environment variables ("A=b C=d") and returns all that it writes, with its end.
[[nodiscard]] std::string output_of_command(std::string const& variables, std::string const& program)
{
  std::string const command = "env CUDASIM_CHECK=1 " + variables + " " + program + " 2>&1";
  std::string output;
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) { return "popen failed"; }
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) { output += static_cast<char>(c); }
  return output + "status " + std::to_string(::pclose(pipe));
}

/// Runs a scenario of the program.
[[nodiscard]] std::string output_of(std::string const& scenario, std::string const& variables, bool with_driver = true)
{
  std::string const folder = with_driver ? "LD_LIBRARY_PATH=" AUDIT_DRIVER_FOLDER " " : "";
  return output_of_command("LD_PRELOAD=" AUDIT_LIBRARY " " + folder + variables, AUDIT_PROGRAM " " + scenario);
}

/// Runs a scenario of the program with pools.
[[nodiscard]] std::string output_of_current(std::string const& scenario,
                                            std::string const& variables = "RMM_AUDIT=route:current",
                                            bool is_preloaded            = true)
{
  std::string const preloaded = is_preloaded ? "LD_PRELOAD=" AUDIT_LIBRARY " " : "";
  return output_of_command(
    "LD_LIBRARY_PATH=" AUDIT_DRIVER_FOLDER " CUDASIM_DEVICES=2 CUDASIM_QUIET=1 " + preloaded + variables,
    AUDIT_CURRENT_PROGRAM " " + scenario);
}

/// The words of each row of reports: calls, bytes in all, most at once, live now, kind, library.
[[nodiscard]] std::vector<std::string> rows_of(std::string const& output)
{
  std::vector<std::string> rows;
  std::istringstream lines{output};
  for (std::string line; std::getline(lines, line);) {
    if (line.find(".so") == std::string::npos || line.find("sim: ") != std::string::npos ||
        line.find("librmm_audit:") != std::string::npos) {
      continue;
    }
    std::istringstream words{line};
    std::string row;
    for (std::string word; words >> word;) { row += (row.empty() ? "" : " ") + word; }
    rows.push_back(row);
  }
  return rows;
}

TEST(Audit, ListsWhatALibraryAllocatesInEachWay)
{
  for (auto const& [scenario, library] :
       {std::pair{"linked", "second"}, std::pair{"by_symbol", "first"}, std::pair{"by_name", "first"}}) {
    auto const output = output_of(scenario, "RMM_AUDIT=report");
    EXPECT_THAT(output, EndsWith("status 0"));
    EXPECT_THAT(rows_of(output),
                ::testing::ElementsAre("2 4,000 4,000 0 device libaudit_" + std::string{library} + ".so"))
      << output;
  }
}

TEST(Audit, ReportsWithoutAVariable)
{
  EXPECT_THAT(output_of("linked", ""), HasSubstr("(audit_program), RMM_AUDIT=report\n"));
}

TEST(Audit, CountsEachKindOnce)
{
  auto const output = output_of("all_kinds", "RMM_AUDIT=report");
  EXPECT_THAT(rows_of(output),
              ::testing::UnorderedElementsAre("4 12,582,912 6,291,456 4,194,304 device libaudit_first.so",
                                              "2 6,291,456 4,194,304 2,097,152 async libaudit_first.so",
                                              "2 6,291,456 4,194,304 2,097,152 managed libaudit_first.so",
                                              "2 6,291,456 4,194,304 2,097,152 virtual libaudit_first.so",
                                              "2 6,291,456 4,194,304 2,097,152 array libaudit_first.so",
                                              "4 12,582,912 6,291,456 4,194,304 pinned host libaudit_first.so",
                                              "2 6,291,456 4,194,304 2,097,152 registered host libaudit_first.so"))
    << output;
  EXPECT_THAT(output, ::testing::ContainsRegex(" 12 +37,748,736 +14,680,064 +12,582,912  in all +.device memory."));
}

TEST(Audit, BooksAFreeForTheLibraryThatAllocated)
{
  auto const output = output_of("two_libraries", "RMM_AUDIT=report");
  EXPECT_THAT(rows_of(output),
              ::testing::UnorderedElementsAre("1 1,000 1,000 0 device libaudit_first.so",
                                              "1 2,000 2,000 2,000 device libaudit_second.so"))
    << output;
}

TEST(Audit, WritesToAFile)
{
  rmm::test::temporary_folder const folder;
  auto const file = folder / "audit";
  EXPECT_EQ(output_of("linked", "RMM_AUDIT_FILE=" + file), "done\nstatus 0");
  EXPECT_EQ(output_of("by_name", "RMM_AUDIT_FILE=" + file), "done\nstatus 0");
  EXPECT_THAT(
    rows_of(rmm::test::contents_of(file)),
    ::testing::ElementsAre("2 4,000 4,000 0 device libaudit_second.so", "2 4,000 4,000 0 device libaudit_first.so"));
  EXPECT_EQ(output_of("linked", "RMM_AUDIT_FILE=" + (folder / "%p.txt")), "done\nstatus 0");
  int files_with_numbers = 0;
  for (auto const& entry : std::filesystem::directory_iterator{folder / ""}) {
    auto const name = entry.path().filename().string();
    files_with_numbers += name.find_first_not_of("0123456789") == name.find(".txt") && name != "audit" ? 1 : 0;
  }
  EXPECT_EQ(files_with_numbers, 1);
  EXPECT_THAT(
    output_of("linked", "RMM_AUDIT_FILE=/dev/null/file"),
    ::testing::AllOf(HasSubstr("librmm_audit: cannot open /dev/null/file: Not a directory"), HasSubstr("4,000")));
}

TEST(Audit, WritesAPrivateFileAndFollowsNoLinkInASharedFolder)
{
  rmm::test::temporary_folder const folder;
  auto const shared = folder / "shared";
  ASSERT_EQ(::mkdir(shared.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(shared.c_str(), 0777), 0);
  auto const file = shared + "/audit";
  EXPECT_EQ(output_of("linked", "RMM_AUDIT_FILE=" + file), "done\nstatus 0");
  struct stat info {};
  ASSERT_EQ(::stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);

  auto const target = folder / "target";
  auto const link   = shared + "/link";
  ASSERT_EQ(::symlink(target.c_str(), link.c_str()), 0);
  EXPECT_THAT(output_of("linked", "RMM_AUDIT_FILE=" + link),
              ::testing::AllOf(HasSubstr("cannot open " + link + ": it is a symbolic link"), HasSubstr("4,000")));
  EXPECT_NE(::access(target.c_str(), F_OK), 0);
}

TEST(Audit, RefusesTheLibrariesThatAreListed)
{
  for (char const* const mode : {"deny:libaudit_f*,libother.so", "allow:libaudit_second.so"}) {
    auto const output = output_of("refused", std::string{"RMM_AUDIT="} + mode);
    EXPECT_THAT(output, EndsWith("status 0"));
    EXPECT_THAT(output, HasSubstr("librmm_audit: refused 1,000 bytes to libaudit_first.so (cuMemAlloc)\n"));
    EXPECT_THAT(output, HasSubstr("librmm_audit: refused 2,097,152 bytes to libaudit_first.so (cuMemCreate)\n"));
    EXPECT_THAT(output, HasSubstr("libaudit_first.so (refused: 1 calls, 1,000 bytes)\n"));
    EXPECT_THAT(rows_of(output), ::testing::Contains("1 1,000 1,000 1,000 pinned host libaudit_first.so")) << "allowed";
  }
}

TEST(Audit, SaysLessAndLessOftenWhatItRefuses)
{
  auto const output = output_of("refused_often", "RMM_AUDIT=deny");
  EXPECT_THAT(output, HasSubstr("bytes to libaudit_first.so (cuMemAlloc), and 512 calls before this one\n"));
  EXPECT_THAT(output, Not(HasSubstr("and 513 calls")));
  EXPECT_THAT(output, HasSubstr("(refused: 1,000 calls, 1,000,000 bytes)"));
}

TEST(Audit, OnlyReportsIfItDoesNotUnderstandTheVariable)
{
  auto const output = output_of("linked", "RMM_AUDIT=denny:libfoo.so");
  EXPECT_THAT(output, HasSubstr("librmm_audit: RMM_AUDIT is 'denny:libfoo.so', but takes one of: report, "));
  EXPECT_THAT(output, HasSubstr("2                  4,000"));
  EXPECT_THAT(output, EndsWith("status 0"));
}

TEST(Audit, CountsForThousandsOfThreads)
{
  auto const output = output_of("threads", "CUDASIM_CHECK=0");
  ASSERT_THAT(output, EndsWith("status 0"));
  ASSERT_EQ(rows_of(output).size(), 1U);
  EXPECT_THAT(rows_of(output)[0], ::testing::MatchesRegex("30,000 15,360,000 [0-9,]+ 0 device libaudit_first.so"));
}

TEST(Audit, ChangesNothingForOtherSymbols) { EXPECT_EQ(output_of("dlsym", ""), "done\nstatus 0"); }

TEST(Audit, ShowsNoDriverWhereThereIsNone) { EXPECT_EQ(output_of("without_driver", "", false), "done\nstatus 0"); }

TEST(Audit, PassesErrorsOn) { EXPECT_THAT(output_of("no_context", ""), EndsWith("status 0")); }

TEST(Audit, DoesNotWaitForAConstructor)
{
  auto const output = output_of("while_loading", "");
  EXPECT_THAT(rows_of(output), ::testing::ElementsAre("2 3,000 3,000 3,000 device libaudit_first.so")) << output;
}

TEST(Audit, AChildOfForkReportsNothingOfItsParent)
{
  for (char const* const mode : {"report", "route:pool"}) {
    auto const output = output_of("fork", std::string{"CUDASIM_QUIET=1 RMM_AUDIT="} + mode);
    EXPECT_THAT(output, EndsWith("status 0"));
    EXPECT_EQ(rows_of(output).size(), 1U) << output;
    EXPECT_THAT(output, Not(HasSubstr("5,000")));
  }
}

// --- memory of a pool -------------------------------------------------------------------------------------------------

TEST(AuditRoute, KeepsTheOrderOfStreams)
{
  auto const output = output_of("route_orders", "RMM_AUDIT=route:pool,initial=16MiB");
  EXPECT_THAT(output, EndsWith("status 0"));
  EXPECT_THAT(output, Not(HasSubstr("cudasim")));
  EXPECT_THAT(rows_of(output), ::testing::ElementsAre("200 209,715,200 1,048,576 0 routed libaudit_first.so"))
    << output;
}

TEST(AuditRoute, WaitsForMemoryThatAStreamStillUses)
{
  for (char const* const order : {"threads", "stepped"}) {  // in the second nothing is done before it is waited for
    auto const variables = "RMM_AUDIT=route:pool,initial=4MiB,max=4MiB CUDASIM_MODE=" + std::string{order};
    EXPECT_THAT(output_of("route_waits", variables), EndsWith("status 0")) << order;
  }
}

TEST(AuditRoute, AnswersQuestionsAboutABlock)
{
  auto const output = output_of("route_answers", "CUDASIM_QUIET=1 RMM_RESOURCE=pool,initial=1MiB RMM_AUDIT=route");
  EXPECT_THAT(output, EndsWith("status 0"));
  EXPECT_THAT(output,
              HasSubstr("librmm_audit: routed memory cannot be shared with other processes (cuIpcGetMemHandle)\n"));
  EXPECT_THAT(rows_of(output), ::testing::Contains("2 12,000 12,000 0 routed libaudit_first.so"));
}

TEST(AuditRoute, LeavesCapturesToTheDriver)
{
  auto const output = output_of("route_captures", "RMM_AUDIT=route:pool,initial=16MiB");
  EXPECT_THAT(output, EndsWith("status 0"));
  EXPECT_THAT(rows_of(output),
              ::testing::UnorderedElementsAre("2 67,109,864 67,109,864 0 routed libaudit_first.so",
                                              "1 1,000 1,000 0 async libaudit_first.so"))
    << output;
}

TEST(AuditRoute, FailsIfThePoolIsFull)
{
  auto const output = output_of("route_fails", "RMM_AUDIT=route:pool,max=1MiB");
  EXPECT_THAT(output, EndsWith("status 0"));
  EXPECT_THAT(rows_of(output), ::testing::ElementsAre("1 1,000 1,000 0 routed libaudit_first.so"));
}

TEST(AuditRoute, ServesSeveralDevices)
{
  auto const output = output_of("route_two_devices", "CUDASIM_DEVICES=2 RMM_AUDIT=route:pool");
  EXPECT_THAT(output, EndsWith("status 0"));
  EXPECT_THAT(rows_of(output), ::testing::Contains("2 2,000 2,000 0 routed libaudit_first.so"));
  EXPECT_THAT(output, Not(HasSubstr("cudasim")));
}

TEST(AuditRoute, DoesNoHarmAtTheEnd)
{
  auto const output = output_of("route_until_exit", "RMM_AUDIT=route:pool");
  EXPECT_THAT(output, EndsWith("status 0"));
  EXPECT_THAT(output, Not(HasSubstr("cudasim")));
}

TEST(AuditRoute, LeavesAllToTheDriverIfThereIsNoSuchResource)
{
  auto const output = output_of("linked", "RMM_AUDIT=route:poool");
  EXPECT_THAT(output, HasSubstr("librmm_audit: cannot route on device 0: "));
  EXPECT_THAT(rows_of(output), ::testing::Contains("2 4,000 4,000 0 device libaudit_second.so"));
  EXPECT_THAT(output, EndsWith("status 0"));
}

TEST(AuditRoute, CountsNothingOfThreadsTwice)
{
  auto const output = output_of("threads", "CUDASIM_CHECK=0 RMM_AUDIT=route:pool,initial=1MiB");
  ASSERT_THAT(output, EndsWith("status 0"));
  // While one thread makes the pool, the driver serves the others.
  EXPECT_THAT(output, HasSubstr(" 0  routed "));
}

// --- memory of the program's current resources -------------------------------------------------------------------------

TEST(AuditCurrent, ServesLibraries)
{
  auto const output = output_of_current("serves");
  EXPECT_THAT(output, EndsWith("status 0"));
  EXPECT_THAT(rows_of(output), ::testing::ElementsAre("2 12,000 12,000 0 routed libaudit_first.so")) << output;
}

TEST(AuditCurrent, LeavesToTheDriverWhatResourcesTake)
{
  for (char const* const scenario : {"grows", "callback_calls_a_library", "library_keeps_memory", "program_itself"}) {
    EXPECT_THAT(output_of_current(scenario), EndsWith("status 0")) << scenario;
  }
}

TEST(AuditCurrent, GivesEachBlockBackToItsResource)
{
  for (char const* const scenario :
       {"changes", "resource_is_at_home", "other_devices_and_threads", "sources", "withdrawal_waits", "two_routes"}) {
    EXPECT_THAT(output_of_current(scenario), EndsWith("status 0")) << scenario;
  }
}

TEST(AuditCurrent, FreesNothingOfAResourceThatHasEnded)
{
  for (char const* const scenario :
       {"pool_ends_first", "reserved_addresses_end_first", "own_resource_ends_first", "route_ends"}) {
    EXPECT_THAT(output_of_current(scenario), EndsWith("status 0")) << scenario;
  }
}

TEST(AuditCurrent, ServesInAProgramThatDoesNothingForIt)
{
  auto const output = output_of_command("LD_LIBRARY_PATH=" AUDIT_DRIVER_FOLDER " LD_PRELOAD=" AUDIT_LIBRARY
                                        ":" AUDIT_ENVIRONMENT " RMM_RESOURCE=pool,initial=1MiB RMM_AUDIT=route:current",
                                        AUDIT_CURRENT_PROGRAM " environment");
  EXPECT_THAT(output, EndsWith("status 0"));
  EXPECT_THAT(rows_of(output), ::testing::ElementsAre("2 3,000 2,000 0 routed libaudit_first.so")) << output;
}

TEST(AuditCurrent, TurnsFailuresIntoErrors) { EXPECT_THAT(output_of_current("fails"), EndsWith("status 0")); }

TEST(AuditCurrent, LetsCallbacksFreeBlocks) { EXPECT_THAT(output_of_current("callback_frees"), EndsWith("status 0")); }

TEST(AuditCurrent, IsNotForChildren)
{
  for (char const* const scenario : {"fork", "fork_before_use", "fork_during_a_call"}) {
    EXPECT_THAT(output_of_current(scenario), EndsWith("status 0")) << scenario;
  }
}

TEST(AuditCurrent, DoesNoHarmAtTheEnd)
{
  for (char const* const scenario : {"until_exit", "until_exit_without_end"}) {
    EXPECT_THAT(output_of_current(scenario), EndsWith("status 0")) << scenario;
  }
}

TEST(AuditCurrent, ServesThreadsWhileItChanges)
{
  EXPECT_THAT(output_of_current("threads", "CUDASIM_CHECK=0 RMM_AUDIT=route:current"), EndsWith("status 0"));
}

TEST(AuditCurrent, ServesFromTheCInterface) { EXPECT_THAT(output_of_current("c_interface"), EndsWith("status 0")); }

TEST(AuditCurrent, EndsWithTheResourceOfTheCInterface)
{
  for (char const* const scenario : {"c_interface_destroyed", "c_interface_replaced"}) {
    EXPECT_THAT(output_of_current(scenario), EndsWith("status 0")) << scenario;
  }
  EXPECT_THAT(output_of_current("c_interface_threads", "CUDASIM_CHECK=0 RMM_AUDIT=route:current"),
              EndsWith("status 0"));
}

TEST(AuditCurrent, ChecksTheArgumentsOfTheCInterface)
{
  EXPECT_THAT(output_of_current("c_interface_refuses"), EndsWith("status 0"));
}

TEST(AuditCurrent, DoesNothingInOtherModes)
{
  for (char const* const scenario : {"inactive", "c_interface_inactive"}) {
    EXPECT_THAT(output_of_current(scenario, "RMM_AUDIT=report"), EndsWith("status 0")) << scenario;
    EXPECT_THAT(output_of_current(scenario, "RMM_AUDIT=route:cuda"), EndsWith("status 0")) << scenario;
    EXPECT_EQ(output_of_current(scenario, "", false), "done\nstatus 0") << scenario;
  }
}

}  // namespace
