// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/exec_check_disable.hpp>
#include <rmm/detail/export.hpp>

#include <gtest/gtest.h>

namespace RMM_NAMESPACE {
namespace export_test {
struct in_the_namespace {};
}  // namespace export_test
}  // namespace RMM_NAMESPACE

RMM_EXPORT int exported();
RMM_HIDDEN int hidden();
struct RMM_EXPORT exported_type {};

int exported() { return 1; }
int hidden() { return 2; }

namespace {

TEST(Export, AttributesApplyToFunctionsAndTypes)
{
  EXPECT_EQ(exported() + hidden(), 3);
  static_cast<void>(exported_type{});
}

TEST(Export, TheNamespaceMacroOpensRmm) { static_cast<void>(rmm::export_test::in_the_namespace{}); }

struct number {
  int value;
  RMM_CONSTEXPR_FRIEND bool operator==(number lhs, number rhs) { return lhs.value == rhs.value; }
};

TEST(Export, ConstexprFriendsAreConstantExpressions) { static_assert(number{1} == number{1}); }

RMM_EXEC_CHECK_DISABLE
template <class Function>
auto call(Function function)
{
  return function();
}

TEST(ExecCheckDisable, StandsBeforeTemplates)
{
  EXPECT_EQ(call([] { return 3; }), 3);
}

}  // namespace
