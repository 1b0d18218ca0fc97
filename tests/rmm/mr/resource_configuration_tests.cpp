// SPDX-License-Identifier: Apache-2.0
#include "../../support/temporary_folder.hpp"

#include <rmm/memory_amount.hpp>
#include <rmm/mr/detail/configuration_rules.hpp>
#include <rmm/mr/resource_configuration.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

using rmm::memory_amount;
using rmm::mr::resource_configuration;
using rmm::mr::detail::option_of;
using rmm::mr::detail::resource_kind;
using rmm::mr::detail::resource_rule;
using rmm::mr::detail::resource_rules;
using rmm::mr::detail::value_form;

/// Returns the first line of the message without its prefix, and the position of the mark.
std::string failure(std::string_view text)
{
  try {
    return "read as " + resource_configuration::parse(text).text();
  } catch (std::invalid_argument const& error) {
    std::string const message{error.what()};
    auto const begin = std::string{"Could not parse the resource configuration: "}.size();
    auto const mark  = message.rfind('\n');
    return message.substr(begin, message.find('\n') - begin) + " @" + std::to_string(message.size() - mark - 4);
  }
}

/// Returns the canonical text of a configuration.
std::string canonical(std::string_view text) { return resource_configuration::parse(text).text(); }

TEST(ResourceConfiguration, HasTheWrittenValues)
{
  auto const found =
    resource_configuration::parse("pool, initial=1GiB, max=80%, upstream=managed, statistics, log=\"a,b.csv\"");
  EXPECT_EQ(found.kind(), resource_kind::pool);
  EXPECT_EQ(found.resource(), "pool");
  EXPECT_EQ(found.amount("initial"), memory_amount{std::size_t{1} << 30U});
  EXPECT_EQ(found.amount("max"), memory_amount::parse("80%"));
  EXPECT_EQ(found.upstream()->kind(), resource_kind::managed);
  EXPECT_TRUE(found.has("statistics"));
  EXPECT_EQ(found.word("log"), "a,b.csv");
  EXPECT_EQ(resource_configuration::parse("pinned_pool,node=3").number("node"), 3);
}

TEST(ResourceConfiguration, HasNoOtherValues)
{
  auto const found = resource_configuration::parse("pool");
  EXPECT_EQ(found.amount("initial"), std::nullopt);
  EXPECT_EQ(found.number("node"), std::nullopt);
  EXPECT_EQ(found.word("log"), "");
  EXPECT_FALSE(found.has("statistics"));
}

TEST(ResourceConfiguration, ResourcesOverOthersHaveAnUpstreamByDefault)
{
  EXPECT_EQ(resource_configuration::parse("pool").upstream()->text(), "cuda");
  EXPECT_EQ(resource_configuration::parse("binning").upstream()->text(), "pool");
  EXPECT_EQ(resource_configuration::parse("cuda").upstream(), nullptr);
}

TEST(ResourceConfiguration, UpstreamsHaveOptionsToo)
{
  auto const found = resource_configuration::parse("binning,upstream=(pool,max=1GB,upstream=(cuda_async,threshold=0))");
  EXPECT_EQ(found.upstream()->amount("max"), memory_amount{1000000000});
  EXPECT_EQ(found.upstream()->upstream()->amount("threshold"), memory_amount{0});
}

TEST(ResourceConfiguration, HasOneCanonicalText)
{
  EXPECT_EQ(canonical(" pool "), "pool");
  EXPECT_EQ(canonical("pool,statistics,limit=2048 mib,max=0.5GiB,initial=0"),
            "pool,initial=0,max=512MiB,limit=2GiB,statistics");
  EXPECT_EQ(canonical("pool,upstream=(managed)"), "pool,upstream=managed");
  EXPECT_EQ(canonical("pool,upstream=(managed,limit=80.0%)"), "pool,upstream=(managed,limit=80%)");
  EXPECT_EQ(canonical("cuda,log=\"a.csv\""), "cuda,log=a.csv");
  EXPECT_EQ(canonical("cuda,log=\"a,b.csv\""), "cuda,log=\"a,b.csv\"");
  EXPECT_EQ(canonical("pinned_pool,threads=08"), "pinned_pool,threads=8");
}

TEST(ResourceConfiguration, ComparesMeanings)
{
  EXPECT_EQ(resource_configuration::parse("pool,max=1KiB,initial=0"),
            resource_configuration::parse("pool,initial=0,max=1024"));
  EXPECT_NE(resource_configuration::parse("pool,max=1KiB"), resource_configuration::parse("pool,max=1KB"));
}

TEST(ResourceConfiguration, ListsValidNamesForUnknownOnes)
{
  EXPECT_EQ(failure("pol,max=1"), "unknown resource 'pol'; there are " + rmm::mr::detail::names_of_resources() + " @0");
  EXPECT_EQ(failure("Pool"), "unknown resource 'Pool'; there are " + rmm::mr::detail::names_of_resources() + " @0");
  EXPECT_EQ(failure("pool,maxx=1"),
            "unknown option 'maxx' of pool; it has initial, max, upstream, tags, scrub, guard, alignment, "
            "alignment_threshold, prefetch, limit, statistics, thread_safe, log @5");
  EXPECT_EQ(failure("pool,upstream=(cuda,max=1)").substr(0, 31), "unknown option 'max' of cuda; i");
  EXPECT_EQ(failure("cuda_async_managed,initial=1").substr(0, 65),
            "unknown option 'initial' of cuda_async_managed; it has threshold,");
  EXPECT_EQ(failure("pool,upstream=nothing").substr(0, 26), "unknown resource 'nothing'");
}

TEST(ResourceConfiguration, RefusesRepeatedOptions)
{
  EXPECT_EQ(failure("pool,max=1GiB,max=1GiB"), "the option 'max' is there twice @14");
  EXPECT_EQ(failure("cuda,statistics,statistics"), "the option 'statistics' is there twice @16");
}

TEST(ResourceConfiguration, RefusesValuesOfTheWrongForm)
{
  EXPECT_EQ(failure("cuda,statistics=yes"), "the option 'statistics' takes no value @16");
  EXPECT_EQ(failure("pool,max"), "the option 'max' needs a value: the most memory to hold @8");
  EXPECT_EQ(failure("pool,max=(cuda)"), "the value of 'max' is not a resource @9");
  EXPECT_EQ(failure("pool,max=much").substr(0, 89),
            "'max' is not an amount of memory. Could not parse the size 'much': a number is missing @9");
  EXPECT_EQ(
    failure("cuda_async_managed,threshold"),
    "the option 'threshold' needs a value: the memory that the driver's pool keeps when the program synchronises @28");
  EXPECT_EQ(failure("cuda_async_managed,threshold=much").substr(0, 96),
            "'threshold' is not an amount of memory. Could not parse the size 'much': a number is missing @29");
  EXPECT_EQ(failure("pinned_pool,node=-1"), "'node' has to be a whole number @17");
  EXPECT_EQ(failure("pinned_pool,node=1.5"), "'node' has to be a whole number @17");
  EXPECT_EQ(failure("pinned_pool,node=99999999999999999999"), "'node' has to be at most 1023 @17");
  EXPECT_EQ(failure("elastic,decay_ms=18446744073709551615"), "'decay_ms' has to be at most 1000000000 @17");
  EXPECT_EQ(failure("elastic,decay_ms=\"\""), "'decay_ms' has to be a whole number @17");
  EXPECT_EQ(failure("cuda_async,share=all"), "'share' has to be one of none|fd|fabric|fd+fabric @17");
  EXPECT_EQ(failure("cuda,log=trace.txt"), "'log' has to be the name of a file that ends with one of .csv|.bin @9");
  EXPECT_EQ(failure("cuda,log=.csv"), "'log' has to be the name of a file that ends with one of .csv|.bin @9");
}

TEST(ResourceConfiguration, RefusesValuesOutOfRange)
{
  EXPECT_EQ(failure("pool,max=255"), "'max' has to be at least 256 @9");
  EXPECT_EQ(failure("cuda,limit=0"), "'limit' has to be at least 1 @11");
  EXPECT_EQ(failure("pool,max=0%"), "'max' has to be above 0 @9");
  EXPECT_EQ(failure("cuda,limit=0.0%free"), "'limit' has to be above 0 @11");
  EXPECT_EQ(failure("pool,initial=0%,max=0.0001%"), "read as pool,initial=0%,max=0.0001%");
  EXPECT_EQ(failure("arena,size=1023KiB"), "'size' has to be at least 1MiB @11");
  EXPECT_EQ(failure("pinned_pool,node=1024"), "'node' has to be at most 1023 @17");
  EXPECT_EQ(failure("fixed_size,preallocate=0"), "'preallocate' has to be at least 1 @23");
  EXPECT_EQ(failure("cuda,alignment=3KiB"), "'alignment' has to be a power of two @15");
  EXPECT_EQ(failure("cuda,alignment=0"), "'alignment' has to be a power of two @15");
  EXPECT_EQ(failure("cuda,alignment=50%"), "'alignment' has to be a power of two @15");
  EXPECT_EQ(failure("binning,smallest=128,largest=1KiB"), "'smallest' has to be at least 256 @17");
}

TEST(ResourceConfiguration, RefusesOptionsThatContradictEachOther)
{
  EXPECT_EQ(failure("pool,initial=2GiB,max=1GiB"), "'initial' is larger than 'max' @5");
  EXPECT_EQ(failure("pool,max=1GiB,initial=2GiB"), "'initial' is larger than 'max' @14");
  EXPECT_EQ(failure("binning,smallest=1MiB,largest=1KiB"), "'smallest' is larger than 'largest' @8");
  EXPECT_EQ(failure("pinned_pool,near_device,node=0"), "'node' contradicts 'near_device' @24");
  EXPECT_EQ(failure("pool,log=a.csv,upstream=(cuda,log=a.csv)"), "two resources have the same log @5");
  EXPECT_EQ(canonical("pool,initial=1GiB,max=1GiB"), "pool,initial=1GiB,max=1GiB");
  EXPECT_EQ(canonical("pool,initial=20%,max=1GiB"), "pool,initial=20%,max=1GiB");
}

TEST(ResourceConfiguration, RefusesOptionsWithoutTheirPrerequisites)
{
  EXPECT_EQ(failure("cuda,alignment_threshold=1KiB"), "the option 'alignment_threshold' needs 'alignment' @5");
  EXPECT_EQ(failure("binning,smallest=1KiB"), "the option 'smallest' needs 'largest' @8");
  EXPECT_EQ(failure("sam_headroom"), "the option 'headroom' of sam_headroom is missing @0");
  EXPECT_EQ(failure("pool,upstream=(sam_headroom)"), "the option 'headroom' of sam_headroom is missing @15");
}

TEST(ResourceConfiguration, IsReadFromTheEnvironment)
{
  rmm::test::environment_variable const variable{"RMM_RESOURCE"};
  variable.unset();
  EXPECT_EQ(resource_configuration::from_environment(), std::nullopt);
  variable.set("");
  EXPECT_EQ(resource_configuration::from_environment(), std::nullopt);
  variable.set("pool,max=1GiB");
  EXPECT_EQ(resource_configuration::from_environment(), resource_configuration::parse("pool,max=1GiB"));
  EXPECT_EQ(resource_configuration::from_environment("RMM_NO_SUCH_VARIABLE"), std::nullopt);
}

TEST(ResourceConfiguration, NamesTheVariableThatIsWrong)
{
  rmm::test::environment_variable const variable{"RMM_RESOURCE"};
  variable.set("pool,max=no");
  try {
    static_cast<void>(resource_configuration::from_environment());
    FAIL();
  } catch (std::invalid_argument const& error) {
    EXPECT_EQ(std::string{error.what()}.rfind("RMM_RESOURCE: Could not parse the resource configuration: ", 0), 0);
  }
}

TEST(ResourceConfiguration, NamesAreUniqueAndDescribed)
{
  std::set<std::string> resources;
  for (auto const& rule : resource_rules) {
    EXPECT_TRUE(resources.insert(rule.name).second) << rule.name;
    std::set<std::string> options;
    for (std::size_t i = 0; i < number_of_options(rule); ++i) {
      EXPECT_TRUE(options.insert(option_of(rule, i).name).second) << rule.name << ", " << option_of(rule, i).name;
      EXPECT_NE(std::string{option_of(rule, i).meaning}, "");
    }
    if (rule.default_upstream != nullptr) {
      EXPECT_EQ(canonical(rule.default_upstream), rule.default_upstream);
      EXPECT_EQ(options.count("upstream"), 1);
    }
  }
}

/// Makes random configurations, most of which are valid.
class random_text {
 public:
  explicit random_text(unsigned seed) : random_{seed} {}

  std::string configuration(int depth = 0)
  {
    auto const& rule = resource_rules[below(std::size(resource_rules))];
    std::string text{rule.name};
    for (std::size_t i = 0; i < number_of_options(rule); ++i) {
      auto const& option = option_of(rule, i);
      if (below(3) != 0 && !option.is_required) { continue; }
      text += std::string{","} + option.name;
      if (option.form != value_form::flag) { text += "=" + value(option.form, depth); }
    }
    return text;
  }

 private:
  std::size_t below(std::size_t limit) { return random_() % limit; }

  std::string value(value_form form, int depth)
  {
    switch (form) {
      case value_form::amount:
        return std::to_string(below(100)) + (below(2) != 0 ? std::to_string(below(10)).insert(0, ".") : "") +
               std::string{" %KBMBGBKiBTiB%free"}.substr(below(7) * 2, below(4));
      case value_form::power_of_two:
        return std::to_string(std::size_t{1} << below(20));
      case value_form::number:
        return std::to_string(below(2000));
      case value_form::word:
        return "fd";
      case value_form::file:
        return below(2) != 0 ? "a.csv" : "\"a,(b.csv\"";
      case value_form::resource:
        return depth < 3 ? "(" + configuration(depth + 1) + ")" : "cuda";
      case value_form::flag:
        break;
    }
    return "";
  }

  std::mt19937 random_;
};

TEST(ResourceConfiguration, IsReadBackAsItWasWritten)
{
  random_text random{1};
  int read = 0;
  for (int i = 0; i < 5000; ++i) {
    auto const text = random.configuration();
    try {
      auto const found = resource_configuration::parse(text);
      ++read;
      EXPECT_EQ(resource_configuration::parse(found.text()), found) << text;
      EXPECT_EQ(resource_configuration::parse(found.text()).text(), found.text()) << text;
    } catch (std::invalid_argument const&) {}
  }
  EXPECT_GT(read, 500);
}

}  // namespace
