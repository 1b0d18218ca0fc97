// SPDX-License-Identifier: Apache-2.0
#include <rmm/detail/error.hpp>
#include <rmm/error.hpp>

#include <cuda_runtime_api.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Returns the message of the exception that `function` throws; nothing if it throws none.
template <class Exception, class Function>
std::optional<std::string> text_of(Function function)
{
  try {
    function();
  } catch (Exception const& e) {
    return e.what();
  }
  return std::nullopt;
}

// Returns the position of line `line` in this file, in the form of the macros.
std::string position(int line) { return std::string{__FILE__} + ":" + std::to_string(line) + ": "; }

// Users' exceptions. Each has one constructor, from one kind of text.
struct made_from_characters : std::exception {
  explicit made_from_characters(char const* text) : text_{text} {}
  [[nodiscard]] char const* what() const noexcept override { return text_.c_str(); }
  std::string text_;
};
struct made_from_string : std::exception {
  explicit made_from_string(std::string const& text) : text_{text} {}
  [[nodiscard]] char const* what() const noexcept override { return text_.c_str(); }
  std::string text_;
};

// --- stringification

TEST(Stringify, GivesTokensOrTheirExpansion)
{
#define SOMETHING 42
  EXPECT_STREQ(STRINGIFY_DETAIL(SOMETHING), "SOMETHING");
  EXPECT_STREQ(RMM_STRINGIFY(SOMETHING), "42");
#undef SOMETHING
}

// --- RMM_EXPECTS

TEST(Expects, LetsTrueConditionsPass)
{
  EXPECT_NO_THROW(RMM_EXPECTS(true, "not thrown"));
  EXPECT_NO_THROW(RMM_EXPECTS(1 + 1 == 2, "not thrown", std::runtime_error));
}

TEST(Expects, ThrowsLogicErrorByDefault) { EXPECT_THROW(RMM_EXPECTS(false, "thrown"), rmm::logic_error); }

TEST(Expects, ThrowsTheTypeThatIsAskedFor)
{
  EXPECT_THROW(RMM_EXPECTS(false, "thrown", rmm::out_of_memory), rmm::out_of_memory);
  EXPECT_THROW(RMM_EXPECTS(false, "thrown", rmm::out_of_range), rmm::out_of_range);
  EXPECT_THROW(RMM_EXPECTS(false, "thrown", std::runtime_error), std::runtime_error);
  EXPECT_THROW(RMM_EXPECTS(false, "thrown", made_from_characters), made_from_characters);
  EXPECT_THROW(RMM_EXPECTS(false, "thrown", made_from_string), made_from_string);
}

TEST(Expects, SaysWhereAndWhat)
{
  int line{};
  auto const text = text_of<rmm::logic_error>([&] {
    line = __LINE__ + 1;
    RMM_EXPECTS(false, "what is wrong");
  });
  EXPECT_EQ(text, "RMM failure at: " + position(line) + "what is wrong");
}

TEST(Expects, GivesTheTextToExceptionsOfUsers)
{
  auto const from_characters =
    text_of<made_from_characters>([] { RMM_EXPECTS(false, "reason", made_from_characters); });
  EXPECT_THAT(from_characters.value(), EndsWith(": reason"));
  auto const from_string = text_of<made_from_string>([] { RMM_EXPECTS(false, "reason", made_from_string); });
  EXPECT_THAT(from_string.value(), EndsWith(": reason"));
}

TEST(Expects, AcceptsEveryKindOfMessage)
{
  char const* const characters = "characters";
  std::string const string{"string"};
  auto const text = [](auto check) { return text_of<rmm::logic_error>(check).value(); };
  EXPECT_THAT(text([&] { RMM_EXPECTS(false, characters); }), EndsWith(": characters"));
  EXPECT_THAT(text([&] { RMM_EXPECTS(false, string); }), EndsWith(": string"));
  EXPECT_THAT(text([&] { RMM_EXPECTS(false, std::string{"temporary"}); }), EndsWith(": temporary"));
  EXPECT_THAT(text([&] { RMM_EXPECTS(false, "sum of " + string + " and " + characters); }),
              EndsWith(": sum of string and characters"));
  EXPECT_THAT(text([&] {
                RMM_EXPECTS(false,
                            "two "
                            "literals");
              }),
              EndsWith(": two literals"));
}

TEST(Expects, EvaluatesTheConditionOnceAndTheMessageOnlyOnFailure)
{
  int conditions{0};
  int messages{0};
  auto const message = [&] {
    ++messages;
    return std::string{"message"};
  };
  RMM_EXPECTS(++conditions == 1, message());
  EXPECT_EQ(conditions, 1);
  EXPECT_EQ(messages, 0);
  EXPECT_THROW(RMM_EXPECTS(++conditions == 1, message()), rmm::logic_error);
  EXPECT_EQ(conditions, 2);
  EXPECT_EQ(messages, 1);
}

TEST(Expects, AcceptsWhatConvertsToBoolExplicitly)
{
  std::unique_ptr<int> const null;
  std::optional<int> const value{0};
  EXPECT_THROW(RMM_EXPECTS(null, "null"), rmm::logic_error);
  EXPECT_NO_THROW(RMM_EXPECTS(value, "has a value"));
}

int checked_in_branches(int value)
{
  if (value < 0)
    RMM_EXPECTS(value > -10, "too small");
  else
    RMM_EXPECTS(value < 10, "too large");
  return value;
}

TEST(Expects, StandsInBranchesWithoutBraces)
{
  EXPECT_EQ(checked_in_branches(-5), -5);
  EXPECT_EQ(checked_in_branches(5), 5);
  EXPECT_THROW(checked_in_branches(-10), rmm::logic_error);
  EXPECT_THROW(checked_in_branches(10), rmm::logic_error);
}

TEST(Expects, IsAnExpression)
{
  auto const half = [](int value) { return RMM_EXPECTS(value % 2 == 0, "odd"), value / 2; };
  EXPECT_EQ(half(6), 3);
  EXPECT_THROW(half(7), rmm::logic_error);
}

template <class Exception>
void check_as(bool condition)
{
  RMM_EXPECTS(condition, "in a template", Exception);
}

TEST(Expects, TakesADependentExceptionType)
{
  EXPECT_NO_THROW(check_as<rmm::bad_alloc>(true));
  EXPECT_THROW(check_as<rmm::bad_alloc>(false), rmm::bad_alloc);
}

// --- RMM_FAIL

TEST(Fail, ThrowsLogicErrorByDefault)
{
  EXPECT_THROW(RMM_FAIL("thrown"), rmm::logic_error);
  EXPECT_THROW(RMM_FAIL(), rmm::logic_error);
}

TEST(Fail, ThrowsTheTypeThatIsAskedFor)
{
  EXPECT_THROW(RMM_FAIL("thrown", rmm::out_of_range), rmm::out_of_range);
  EXPECT_THROW(RMM_FAIL("thrown", std::invalid_argument), std::invalid_argument);
}

TEST(Fail, SaysWhereAndWhat)
{
  int line{};
  auto const text = text_of<rmm::logic_error>([&] {
    line = __LINE__ + 1;
    RMM_FAIL("what is wrong");
  });
  EXPECT_EQ(text, "RMM failure at: " + position(line) + "what is wrong");
}

TEST(Fail, SaysWhereWithoutAMessage)
{
  int line{};
  auto const text = text_of<rmm::logic_error>([&] {
    line = __LINE__ + 1;
    RMM_FAIL();
  });
  EXPECT_EQ(text, "RMM failure at: " + position(line));
}

TEST(Fail, AcceptsStrings)
{
  std::string const string{"string"};
  EXPECT_THAT(text_of<rmm::logic_error>([&] { RMM_FAIL("a " + string); }).value(), EndsWith(": a string"));
  EXPECT_THAT(text_of<rmm::logic_error>([&] { RMM_FAIL(string.c_str()); }).value(), EndsWith(": string"));
}

// Compiles without a warning only if the compiler knows that the macro does not return, with and without a semicolon.
int never_returns() { RMM_FAIL("with a semicolon"); }
int never_returns_either() { RMM_FAIL("without one") }
int returns_for_one(int value)
{
  switch (value) {
    case 1:
      return 10;
    default:
      RMM_FAIL("not one", rmm::out_of_range);
  }
}

TEST(Fail, EndsFunctionsThatReturnAValue)
{
  EXPECT_THROW(never_returns(), rmm::logic_error);
  EXPECT_THROW(never_returns_either(), rmm::logic_error);
  EXPECT_EQ(returns_for_one(1), 10);
  EXPECT_THROW(returns_for_one(2), rmm::out_of_range);
}

// --- RMM_CUDA_TRY

TEST(CudaTry, LetsSuccessPass)
{
  EXPECT_NO_THROW(RMM_CUDA_TRY(cudaSuccess));
  EXPECT_NO_THROW(RMM_CUDA_TRY(cudaSuccess, std::runtime_error));
}

TEST(CudaTry, ThrowsCudaErrorByDefault) { EXPECT_THROW(RMM_CUDA_TRY(cudaErrorInvalidValue), rmm::cuda_error); }

TEST(CudaTry, ThrowsTheTypeThatIsAskedFor)
{
  EXPECT_THROW(RMM_CUDA_TRY(cudaErrorInvalidValue, std::runtime_error), std::runtime_error);
  EXPECT_THROW(RMM_CUDA_TRY(cudaErrorInvalidValue, rmm::bad_alloc), rmm::bad_alloc);
}

TEST(CudaTry, SaysWhereAndWhichError)
{
  int line{};
  auto const text = text_of<rmm::cuda_error>([&] {
    line = __LINE__ + 1;
    RMM_CUDA_TRY(cudaErrorInvalidValue);
  });
  EXPECT_EQ(text, "CUDA error at: " + position(line) + "cudaErrorInvalidValue invalid argument");
}

TEST(CudaTry, EvaluatesTheCallOnce)
{
  int calls{0};
  auto const call = [&](cudaError_t result) {
    ++calls;
    return result;
  };
  RMM_CUDA_TRY(call(cudaSuccess));
  EXPECT_EQ(calls, 1);
  EXPECT_THROW(RMM_CUDA_TRY(call(cudaErrorUnknown)), rmm::cuda_error);
  EXPECT_EQ(calls, 2);
}

TEST(CudaTry, ForgetsTheErrorOfTheRuntime)
{
  void* ptr{};
  auto const too_much = std::numeric_limits<std::size_t>::max() / 2;
  EXPECT_THROW(RMM_CUDA_TRY(cudaMalloc(&ptr, too_much)), rmm::cuda_error);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST(CudaTry, LeavesTheNamesOfItsSurroundingsAlone)
{
  cudaError_t const error{cudaErrorInvalidValue};
  cudaError_t const status{cudaErrorInvalidDevice};
  EXPECT_THAT(text_of<rmm::cuda_error>([&] { RMM_CUDA_TRY(error); }).value(), HasSubstr("cudaErrorInvalidValue"));
  EXPECT_THAT(text_of<rmm::cuda_error>([&] { RMM_CUDA_TRY(status); }).value(), HasSubstr("cudaErrorInvalidDevice"));
  RMM_CUDA_TRY(cudaSuccess);
  RMM_CUDA_TRY(cudaSuccess);
}

TEST(CudaTry, StandsInBranchesWithoutBraces)
{
  auto const check = [](bool first, cudaError_t result) {
    if (first)
      RMM_CUDA_TRY(result);
    else
      RMM_CUDA_TRY(result, std::runtime_error);
  };
  EXPECT_NO_THROW(check(true, cudaSuccess));
  EXPECT_THROW(check(true, cudaErrorUnknown), rmm::cuda_error);
  EXPECT_FALSE(
    text_of<rmm::cuda_error>([&] { EXPECT_THROW(check(false, cudaErrorUnknown), std::runtime_error); }).has_value());
}

// --- RMM_CUDA_TRY_ALLOC

TEST(CudaTryAlloc, LetsSuccessPass)
{
  EXPECT_NO_THROW(RMM_CUDA_TRY_ALLOC(cudaSuccess));
  EXPECT_NO_THROW(RMM_CUDA_TRY_ALLOC(cudaSuccess, 1024));
}

TEST(CudaTryAlloc, ThrowsOutOfMemoryWhereMemoryIsMissing)
{
  EXPECT_THROW(RMM_CUDA_TRY_ALLOC(cudaErrorMemoryAllocation), rmm::out_of_memory);
  EXPECT_THROW(RMM_CUDA_TRY_ALLOC(cudaErrorMemoryAllocation, 1024), rmm::out_of_memory);
}

TEST(CudaTryAlloc, ThrowsPlainBadAllocForOtherErrors)
{
  EXPECT_THROW(RMM_CUDA_TRY_ALLOC(cudaErrorInvalidValue), rmm::bad_alloc);
  EXPECT_FALSE(text_of<rmm::out_of_memory>([] {
                 EXPECT_THROW(RMM_CUDA_TRY_ALLOC(cudaErrorInvalidValue, 1024), rmm::bad_alloc);
               }).has_value());
}

TEST(CudaTryAlloc, SaysWhereAndWhichError)
{
  int line{};
  auto const text = text_of<rmm::bad_alloc>([&] {
    line = __LINE__ + 1;
    RMM_CUDA_TRY_ALLOC(cudaErrorMemoryAllocation);
  });
  EXPECT_EQ(
    text,
    "std::bad_alloc: out_of_memory: CUDA error at: " + position(line) + "cudaErrorMemoryAllocation out of memory");
}

TEST(CudaTryAlloc, SaysHowManyBytesWhenTold)
{
  int line{};
  auto const text = text_of<rmm::bad_alloc>([&] {
    line = __LINE__ + 1;
    RMM_CUDA_TRY_ALLOC(cudaErrorInvalidValue, 2048);
  });
  EXPECT_EQ(text,
            "std::bad_alloc: CUDA error (failed to allocate 2048 bytes) at: " + position(line) +
              "cudaErrorInvalidValue invalid argument");
}

TEST(CudaTryAlloc, ReportsARealAllocationThatDoesNotFit)
{
  void* ptr{};
  auto const too_much = std::numeric_limits<std::size_t>::max() / 2;
  auto const text     = text_of<rmm::out_of_memory>([&] { RMM_CUDA_TRY_ALLOC(cudaMalloc(&ptr, too_much), too_much); });
  EXPECT_THAT(text.value(), HasSubstr("failed to allocate " + std::to_string(too_much) + " bytes"));
  EXPECT_THAT(text.value(), HasSubstr("out of memory"));
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

}  // namespace
