// SPDX-License-Identifier: Apache-2.0
#include <rmm/error.hpp>

#include <gtest/gtest.h>

#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace {

TEST(Exceptions, DeriveFromTheStandardOnes)
{
  static_assert(std::is_base_of_v<std::logic_error, rmm::logic_error>);
  static_assert(std::is_base_of_v<std::runtime_error, rmm::cuda_error>);
  static_assert(std::is_base_of_v<std::bad_alloc, rmm::bad_alloc>);
  static_assert(std::is_base_of_v<rmm::bad_alloc, rmm::out_of_memory>);
  static_assert(std::is_base_of_v<std::out_of_range, rmm::out_of_range>);
  static_assert(std::is_base_of_v<std::invalid_argument, rmm::invalid_argument>);
}

template <class Exception>
struct Exceptions : ::testing::Test {};
using all_exceptions = ::testing::Types<rmm::logic_error,
                                        rmm::cuda_error,
                                        rmm::bad_alloc,
                                        rmm::out_of_memory,
                                        rmm::out_of_range,
                                        rmm::invalid_argument>;
TYPED_TEST_SUITE(Exceptions, all_exceptions);

TYPED_TEST(Exceptions, AreMadeFromCharactersAndFromStrings)
{
  EXPECT_NE(std::string{TypeParam{"the reason"}.what()}.find("the reason"), std::string::npos);
  EXPECT_NE(std::string{TypeParam{std::string{"the reason"}}.what()}.find("the reason"), std::string::npos);
}

TYPED_TEST(Exceptions, AreCaughtAsStdExceptionWithTheirText)
{
  try {
    throw TypeParam{"the reason"};
  } catch (std::exception const& e) {
    EXPECT_STREQ(e.what(), TypeParam{"the reason"}.what());
  }
}

TYPED_TEST(Exceptions, AreCopiedWithoutThrowingAndKeepTheirText)
{
  static_assert(std::is_nothrow_copy_constructible_v<TypeParam>);
  static_assert(std::is_nothrow_copy_assignable_v<TypeParam>);
  TypeParam const original{"the reason"};
  TypeParam copy{"another"};
  copy = original;
  EXPECT_STREQ(copy.what(), original.what());
}

TYPED_TEST(Exceptions, HaveANoexceptWhat) { static_assert(noexcept(std::declval<TypeParam const&>().what())); }

TEST(Exceptions, OfLogicRangeAndCudaKeepTheMessageUnchanged)
{
  EXPECT_STREQ(rmm::invalid_argument{"text"}.what(), "text");
  EXPECT_STREQ(rmm::logic_error{"text"}.what(), "text");
  EXPECT_STREQ(rmm::cuda_error{"text"}.what(), "text");
  EXPECT_STREQ(rmm::out_of_range{"text"}.what(), "text");
}

TEST(Exceptions, BadAllocPutsTheStandardTextFirst)
{
  EXPECT_EQ(std::string{rmm::bad_alloc{"text"}.what()}, std::string{std::bad_alloc{}.what()} + ": text");
  EXPECT_STREQ(rmm::bad_alloc{"text"}.what(), "std::bad_alloc: text");
}

TEST(Exceptions, OutOfMemorySaysSoBeforeTheMessage)
{
  EXPECT_STREQ(rmm::out_of_memory{"text"}.what(), "std::bad_alloc: out_of_memory: text");
}

TEST(Exceptions, BadAllocAndOutOfMemoryConvertFromTexts)
{
  static_assert(std::is_convertible_v<char const*, rmm::bad_alloc>);
  static_assert(std::is_convertible_v<std::string const&, rmm::bad_alloc>);
  static_assert(std::is_convertible_v<char const*, rmm::out_of_memory>);
  static_assert(std::is_convertible_v<std::string const&, rmm::out_of_memory>);
}

TEST(Exceptions, OutOfMemoryIsCaughtAsBadAllocButNotTheReverse)
{
  EXPECT_THROW(throw rmm::out_of_memory{"text"}, rmm::bad_alloc);
  EXPECT_THROW(throw rmm::out_of_memory{"text"}, std::bad_alloc);
  try {
    throw rmm::bad_alloc{"text"};
  } catch (rmm::out_of_memory const&) {
    FAIL() << "bad_alloc is not out_of_memory";
  } catch (rmm::bad_alloc const&) {
    SUCCEED();
  }
}

}  // namespace
