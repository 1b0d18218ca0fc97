// SPDX-License-Identifier: Apache-2.0
#include "../../../support/temporary_folder.hpp"

#include <rmm/detail/base/file_descriptor.hpp>
#include <rmm/detail/base/private_file.hpp>
#include <rmm/detail/base/text_sink.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace {

using namespace rmm::test;
using rmm::detail::file_sink;
using rmm::detail::open_log_file;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

unsigned rights_of(std::string const& path)
{
  struct stat is {};
  return ::stat(path.c_str(), &is) == 0 ? is.st_mode & 07777U : 0U;
}

struct LogFile : ::testing::Test {
  temporary_folder const folder;
  std::string const shared = folder / "shared";
  std::string const log    = shared + "/log";

  void SetUp() override
  {
    std::filesystem::create_directory(shared);
    ::chmod(shared.c_str(), 01777);
    std::ofstream{folder / "precious"} << "data";
  }

  [[nodiscard]] static std::string problem_of(std::string const& path)
  {
    auto const opened = open_log_file(path, true);
    return opened.problem != nullptr ? opened.problem : "none";
  }
};

TEST_F(LogFile, IsReadableByItsOwnerOnly)
{
  file_sink{folder / "a/b/log", file_sink::mode::truncate}.write("text");
  EXPECT_EQ(rights_of(folder / "a/b/log"), 0600U);
  EXPECT_EQ(rights_of(folder / "a/b"), 0700U);
  EXPECT_EQ(rights_of(folder / "a"), 0700U);
}

TEST_F(LogFile, KeepsItsPermissionsInThisUsersFolder)
{
  ::chmod((folder / "precious").c_str(), 0644);
  EXPECT_EQ(problem_of(folder / "precious"), "none");
  EXPECT_EQ(rights_of(folder / "precious"), 0644U);
}

TEST_F(LogFile, LosesOthersPermissionsInASharedFolder)
{
  std::ofstream{log} << "old";
  ::chmod(log.c_str(), 0666);
  EXPECT_EQ(problem_of(log), "none");
  EXPECT_EQ(rights_of(log), 0600U);
}

TEST_F(LogFile, MayBeALinkInThisUsersFolder)
{
  std::filesystem::create_symlink(folder / "precious", folder / "link");
  file_sink{folder / "link", file_sink::mode::truncate}.write("text");
  EXPECT_EQ(contents_of(folder / "precious"), "text");
}

TEST_F(LogFile, IsNotALinkInASharedFolder)
{
  std::filesystem::create_symlink(folder / "precious", log);
  EXPECT_THAT(
    [&] {
      (file_sink{log, file_sink::mode::truncate});
    },
    ThrowsMessage<std::runtime_error>(HasSubstr("log' for writing: it is a symbolic link")));
  EXPECT_EQ(contents_of(folder / "precious"), "data");
}

TEST_F(LogFile, IsNotBehindALinkInASharedFolder)
{
  std::filesystem::create_symlink(folder / "", shared + "/link");
  EXPECT_THAT(problem_of(shared + "/link/precious"), HasSubstr("a symbolic link that another user may have made"));
  EXPECT_EQ(contents_of(folder / "precious"), "data");
}

TEST_F(LogFile, MayBeBehindALinkInThisUsersFolder)
{
  std::filesystem::create_symlink(shared, folder / "link");
  EXPECT_EQ(problem_of(folder / "link/log"), "none");
  EXPECT_EQ(rights_of(log), 0600U);
}

TEST_F(LogFile, MustNotHaveAnotherNameInASharedFolder)
{
  std::filesystem::create_hard_link(folder / "precious", log);
  EXPECT_EQ(problem_of(log), "it has other hard links");
  EXPECT_EQ(contents_of(folder / "precious"), "data");
}

TEST_F(LogFile, MayBeAPipeInThisUsersFolderOnceItIsRead)
{
  auto const pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(problem_of(pipe), "it is a pipe that no program reads");  // must fail without waiting for a reader
  rmm::detail::file_descriptor const reader{::open(pipe.c_str(), O_RDONLY | O_NONBLOCK)};
  auto const opened = open_log_file(pipe, true);
  ASSERT_EQ(opened.problem, nullptr);
  EXPECT_EQ(::fcntl(opened.file.get(), F_GETFL) & (O_NONBLOCK | O_APPEND), O_APPEND);  // a full pipe loses no text
}

TEST_F(LogFile, IsNotAPipeInASharedFolder)
{
  ASSERT_EQ(::mkfifo(log.c_str(), 0666), 0);
  EXPECT_NE(problem_of(log), "none");  // must fail without waiting for a reader
}

TEST_F(LogFile, MustBelongToThisUserInASharedFolder)
{
  if (::geteuid() != 0) { GTEST_SKIP() << "only root can give a file away"; }
  std::ofstream{log} << "data";
  ASSERT_EQ(::chown(log.c_str(), 1, 1), 0);
  EXPECT_EQ(problem_of(log), "it belongs to another user");
  EXPECT_EQ(contents_of(log), "data");
}

/// A shared folder with a folder that belongs to another user.
struct LogFileBesideOthers : LogFile {
  std::string const theirs = shared + "/theirs";

  void SetUp() override
  {
    if (::geteuid() != 0) { GTEST_SKIP() << "only root can give a folder away"; }
    LogFile::SetUp();
    std::filesystem::create_directory(theirs);
    ASSERT_EQ(::chown(theirs.c_str(), 1, 1), 0);
  }
};

TEST_F(LogFileBesideOthers, IsNotALinkInAFolderOfOtherUsers)
{
  std::filesystem::create_symlink(folder / "precious", theirs + "/log");
  EXPECT_EQ(problem_of(theirs + "/log"), "it is a symbolic link");
  EXPECT_EQ(contents_of(folder / "precious"), "data");
}

TEST_F(LogFileBesideOthers, IsNotBehindALinkInTheirFolder)
{
  std::filesystem::create_symlink(folder / "", theirs + "/link");
  EXPECT_THAT(problem_of(theirs + "/link/precious"), HasSubstr("a symbolic link that another user may have made"));
  std::filesystem::create_directory(theirs + "/deeper");
  ASSERT_EQ(::chown((theirs + "/deeper").c_str(), 1, 1), 0);
  std::filesystem::create_symlink(folder / "precious", theirs + "/deeper/log");
  EXPECT_EQ(problem_of(theirs + "/deeper/log"), "it is a symbolic link");
  EXPECT_EQ(contents_of(folder / "precious"), "data");
}

TEST_F(LogFileBesideOthers, MayBeALinkInThisUsersFolder)
{
  std::filesystem::create_directory(shared + "/own");
  std::filesystem::create_symlink(folder / "precious", shared + "/own/log");
  EXPECT_EQ(problem_of(shared + "/own/log"), "none");
}

TEST_F(LogFile, MayBeADevice) { EXPECT_EQ(problem_of("/dev/null"), "none"); }

TEST_F(LogFile, MustHaveAName) { EXPECT_EQ(problem_of(""), "the file name is empty"); }

TEST_F(LogFile, MayBeRelativeToTheWorkingFolder)
{
  auto const before = std::filesystem::current_path();
  std::filesystem::current_path(shared);
  std::filesystem::create_symlink(folder / "precious", "link");
  auto const problem = problem_of("link");
  auto const other   = problem_of("./new/../log");
  std::filesystem::current_path(before);
  EXPECT_EQ(problem, "it is a symbolic link");
  EXPECT_EQ(other, "none");
  EXPECT_EQ(rights_of(log), 0600U);
}

}  // namespace
