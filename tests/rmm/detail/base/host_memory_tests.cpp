// SPDX-License-Identifier: Apache-2.0
#include "../../../support/temporary_folder.hpp"

#include <rmm/detail/base/host_memory.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <string>

namespace {

using rmm::detail::number_in_file;

struct NumberInFile : ::testing::Test {
  std::size_t read(char const* content, char const* name) const
  {
    auto const path = folder / "file";
    std::ofstream{path} << content;
    return number_in_file(path.c_str(), name, 7);
  }

  rmm::test::temporary_folder folder;
};

TEST_F(NumberInFile, FollowsItsName)
{
  EXPECT_EQ(read("MemTotal:  8000 kB\nMemAvailable:    100 kB\n", "MemAvailable:"), 100);
  EXPECT_EQ(read("MemTotal:  8000 kB\nMemAvailable:    100 kB\n", "MemTotal:"), 8000);
}

TEST_F(NumberInFile, WithAnEmptyNameIsTheFirst) { EXPECT_EQ(read("12345\n6\n", ""), 12345); }

TEST_F(NumberInFile, IsTheDefaultIfTheFileHasNone)
{
  EXPECT_EQ(read("max\n", ""), 7);
  EXPECT_EQ(read("MemTotal: many\n", "MemTotal:"), 7);
  EXPECT_EQ(read("MemTotal: 1\n", "MemFree:"), 7);
  EXPECT_EQ(read("", ""), 7);
  EXPECT_EQ(number_in_file((folder / "none").c_str(), "", 7), 7);
}

TEST(HostMemory, IsNoMoreThanTheMachineHas)
{
  auto const [free, total] = rmm::detail::host_memory_info();
  EXPECT_GT(free, 0);
  EXPECT_LE(free, total);
}

}  // namespace
