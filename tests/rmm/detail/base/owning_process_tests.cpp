// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/base/owning_process.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <memory>

namespace {

using rmm::detail::owning_process;

/// Forks. The child exits with the result of `in_child`. Returns its exit status.
template <class InChild>
int status_of_child(InChild in_child)
{
  auto const child = ::fork();
  if (child == 0) { ::_Exit(in_child()); }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(OwningProcess, IsTheProcessThatMadeTheObject)
{
  owning_process const made;
  EXPECT_TRUE(made.is_current());
  EXPECT_EQ(status_of_child([] { return owning_process{}.is_current() ? 0 : 1; }), 0);
}

TEST(OwningProcess, IsNotAForkedChildNorTheChildOfOne)
{
  owning_process const made;
  EXPECT_EQ(status_of_child([&] { return made.is_current() ? 1 : 0; }), 0);
  EXPECT_EQ(status_of_child([&] {
              owning_process const of_child;
              return status_of_child([&] { return made.is_current() || of_child.is_current() ? 1 : 0; });
            }),
            0);
  EXPECT_TRUE(made.is_current());
}

TEST(DeleteInOwnProcess, DeletesNothingInAForkedChild)
{
  struct counted {
    explicit counted(int& ends) : ends_{ends} {}
    ~counted() { ++ends_; }
    int& ends_;
  };
  int ends{0};
  std::unique_ptr<counted, rmm::detail::delete_in_own_process> made{new counted{ends}};
  EXPECT_EQ(status_of_child([&] {
              made.reset();
              std::unique_ptr<counted, rmm::detail::delete_in_own_process>{new counted{ends}}.reset();
              return ends;
            }),
            1);
  made.reset();
  EXPECT_EQ(ends, 1);
}

}  // namespace
