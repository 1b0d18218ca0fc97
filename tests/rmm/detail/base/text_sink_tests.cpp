// SPDX-License-Identifier: Apache-2.0
#include "../../../support/recycling_upstream.hpp"
#include "../../../support/temporary_folder.hpp"

#include <rmm/detail/base/file_error.hpp>
#include <rmm/detail/base/text_sink.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>

namespace {

using namespace rmm::test;
using rmm::detail::file_sink;
using rmm::detail::stream_sink;

TEST(FileSink, EmptiesTheFileOrAppendsToIt)
{
  temporary_folder const folder;
  file_sink{folder / "log", file_sink::mode::truncate}.write("one\n");
  file_sink{folder / "log", file_sink::mode::append}.write("two\n");
  EXPECT_EQ(contents_of(folder / "log"), "one\ntwo\n");
  file_sink{folder / "log", file_sink::mode::truncate}.write("three\n");
  EXPECT_EQ(contents_of(folder / "log"), "three\n");
}

TEST(FileSink, WritesWhenItIsFlushed)
{
  temporary_folder const folder;
  file_sink sink{folder / "log", file_sink::mode::truncate};
  sink.write("text");
  EXPECT_EQ(contents_of(folder / "log"), "");
  sink.flush();
  EXPECT_EQ(contents_of(folder / "log"), "text");
}

TEST(FileSink, WritesTextOfAnyLengthInOrder)
{
  temporary_folder const folder;
  std::string expected;
  {
    file_sink sink{folder / "log", file_sink::mode::truncate};
    for (std::size_t const length : {1U, 4000U, 96U, 4096U, 1U, 4097U, 10'000U, 5U}) {
      std::string const text(length, static_cast<char>('a' + length % 26));
      sink.write(text);
      expected += text;
    }
  }
  EXPECT_EQ(contents_of(folder / "log"), expected);
}

TEST(FileSink, WritesNothingInAForkedChild)
{
  temporary_folder const folder;
  file_sink sink{folder / "log", file_sink::mode::truncate};
  sink.write("parent\n");
  auto const child = ::fork();
  if (child == 0) {
    sink.flush();
    sink.write("child\n");
    sink.~file_sink();
    ::_exit(0);
  }
  int status{};
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(contents_of(folder / "log"), "");
  sink.flush();
  EXPECT_EQ(contents_of(folder / "log"), "parent\n");
}

TEST(FileSinkDeathTest, WritesNothingWhenAForkedChildExits)
{
  temporary_folder const folder;
  ::setenv("RMM_TEST_LOG",
           (folder / "log").c_str(),
           0);  // the death test's process runs this test again, with the variable set
  std::string const log{std::getenv("RMM_TEST_LOG")};
  auto const end = [&] {
    static auto* const sink = new file_sink{log, file_sink::mode::truncate};  // leaked on purpose
    sink->write("parent\n");
    auto const child = ::fork();
    if (child != 0) { ::waitpid(child, nullptr, 0); }
    std::exit(0);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(0), "");
  ::unsetenv("RMM_TEST_LOG");
  EXPECT_EQ(contents_of(log), "parent\n");
}

TEST(FileSink, CreatesMissingFolders)
{
  temporary_folder const folder;
  file_sink{folder / "one/two/log", file_sink::mode::truncate}.write("text");
  EXPECT_EQ(contents_of(folder / "one/two/log"), "text");
}

TEST(FileSink, SaysWhichFileCannotBeOpened)
{
  temporary_folder const folder;
  try {
    file_sink const sink{folder / "", file_sink::mode::truncate};  // the folder itself
    FAIL();
  } catch (std::runtime_error const& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("cannot open '" + (folder / "") + "' for writing: "));
  }
}

TEST(FileSink, SaysWhyAFileCannotBeOpened)
{
  temporary_folder const folder;
  file_sink{folder / "file", file_sink::mode::truncate}.write("text");
  for (std::string const name : {"file/log", "file/folder/log"}) {
    try {
      file_sink const sink{folder / name, file_sink::mode::truncate};
      FAIL();
    } catch (rmm::detail::file_error const& e) {
      EXPECT_THAT(e.what(), ::testing::EndsWith("' for writing: Not a directory"));
      EXPECT_EQ(e.path(), folder / name);
      EXPECT_STREQ(e.reason(), "Not a directory");
      EXPECT_EQ(e.number(), ENOTDIR);
    }
  }
  try {
    file_sink const sink{"", file_sink::mode::truncate};
    FAIL();
  } catch (rmm::detail::file_error const& e) {
    EXPECT_STREQ(e.reason(), "the file name is empty");
    EXPECT_EQ(e.number(), 0);
  }
}

TEST(StreamSink, WritesAtOnce)
{
  std::ostringstream stream;
  stream_sink{stream}.write("text");
  EXPECT_EQ(stream.str(), "text");
}

TEST(StreamSink, KeepsLinesOfThreadsWhole)
{
  std::ostringstream stream;
  stream_sink sink{stream};
  run_on_threads(4, [&](int number) {
    std::string const line(50, static_cast<char>('a' + number));
    for (int i = 0; i < 500; ++i) { sink.write(line + "\n"); }
  });
  std::istringstream lines{stream.str()};
  int count{0};
  for (std::string line; std::getline(lines, line); ++count) { ASSERT_EQ(line, std::string(50, line.at(0))); }
  EXPECT_EQ(count, 2000);
}

}  // namespace
