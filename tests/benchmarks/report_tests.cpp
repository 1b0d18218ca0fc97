// SPDX-License-Identifier: Apache-2.0
#include <benchmarks/compare/plot.hpp>
#include <benchmarks/compare/report.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace compare;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::vector<result> const some_results{
  {"pair", "rmm.pool", {{"ns", 20}, {"syncs", 0}}, ""},
  {"pair", "driver", {{"ns", 500}, {"syncs", 3}}, ""},
  {"pair", "floor", {{"ns", 4}}, ""},
  {"share", "rmm.pool", {{"mean_share", 0.95}}, ""},
  {"share", "perfect packing", {{"mean_share", 0.99}}, ""},
  {"broken", "rmm.pool", {}, "std::bad_alloc"},
};

std::vector<target> targets_of(std::string const& rows)
{
  std::istringstream in{"allocator,row,figure,relation,limit\n" + rows};
  return parse_targets(in);
}

/// How many of these targets are missed.
std::size_t missed(std::string const& rows)
{
  std::ostringstream out;
  return judge(out, some_results, targets_of(rows));
}

TEST(Medians, AreOfEachFigure)
{
  std::vector<figures> const runs{{{"a", 1}, {"b", 30}}, {{"a", 3}, {"b", 10}}, {{"a", 2}, {"b", 20}}};
  auto const result = medians(runs);
  EXPECT_EQ(find_figure(result, "a"), 2);
  EXPECT_EQ(find_figure(result, "b"), 20);
  EXPECT_EQ(find_figure(result, "c"), std::nullopt);
}

TEST(Medians, OfAnEvenNumberLieBetween) { EXPECT_EQ(find_figure(medians({{{"a", 1}}, {{"a", 4}}}), "a"), 2.5); }

TEST(ResultTable, HasALineForEachFigureAndAColumnForEachAllocator)
{
  std::ostringstream out;
  write_table(out, some_results);
  EXPECT_THAT(out.str(), HasSubstr("rmm.pool"));
  EXPECT_THAT(out.str(), HasSubstr("share mean_share     0.950       -      -            0.990\n"));
}

TEST(ResultTable, SaysWhatFailed)
{
  std::ostringstream out;
  write_table(out, some_results);
  EXPECT_THAT(out.str(), HasSubstr("broken, rmm.pool: std::bad_alloc"));
}

TEST(ResultCsv, HasARowForEachFigure)
{
  std::ostringstream out;
  write_csv(out, some_results);
  EXPECT_THAT(out.str(), HasSubstr("allocator,row,figure,value\nrmm.pool,pair,ns,20\nrmm.pool,pair,syncs,0\n"));
}

TEST(Targets, AreMetOrMissedByNumber)
{
  EXPECT_EQ(missed("rmm.pool,pair,ns,<=,20\n"), 0);
  EXPECT_EQ(missed("rmm.pool,pair,ns,<=,19.9\n"), 1);
  EXPECT_EQ(missed("rmm.pool,share,mean_share,>=,0.95\n"), 0);
  EXPECT_EQ(missed("rmm.pool,share,mean_share,>=,0.951\n"), 1);
}

TEST(Targets, CompareWithTheBestPeerButNotWithTheFloor)
{
  EXPECT_EQ(missed("rmm.pool,pair,ns,<=,peers\n"), 0);
  EXPECT_EQ(missed("driver,pair,ns,<=,peers\n"), 1);
}

TEST(Targets, CompareWithPerfectPacking)
{
  EXPECT_EQ(missed("rmm.pool,share,mean_share,>=,perfect-0.05\n"), 0);
  EXPECT_EQ(missed("rmm.pool,share,mean_share,>=,perfect-0.03\n"), 1);
}

TEST(Targets, CompareWithAnotherAllocator)
{
  EXPECT_EQ(missed("driver,pair,ns,<=,25*rmm.pool\n"), 0);
  EXPECT_EQ(missed("driver,pair,ns,<=,24.9*rmm.pool\n"), 1);
  EXPECT_EQ(missed("rmm.pool,share,mean_share,>=,0.96*perfect packing\n"), 1);
  EXPECT_EQ(missed("rmm.pool,share,mean_share,>=,0.5*driver\n"), 0) << "which has no such figure";
}

TEST(Targets, OfAllRowsCountWhereTheFigureIs)
{
  EXPECT_EQ(missed("driver,*,syncs,<=,0\n"), 1);
  EXPECT_EQ(missed("rmm.pool,*,syncs,<=,0\n"), 0);
}

TEST(Targets, OfARowThatFailedAreMissed) { EXPECT_EQ(missed("rmm.pool,broken,ns,<=,1\n"), 1); }

TEST(Targets, OfARowThatDidNotRunAreNotJudged) { EXPECT_EQ(missed("rmm.pool,other,ns,<=,1\n"), 0); }

TEST(Targets, NameMissedTargets)
{
  std::ostringstream out;
  judge(out, some_results, targets_of("rmm.pool,pair,ns,<=,15\n"));
  EXPECT_EQ(out.str(), "missed: rmm.pool, pair, ns: 20.0 instead of at most 15.0\n");
  std::ostringstream relative;
  judge(relative, some_results, targets_of("driver,pair,ns,<=,2*rmm.pool\n"));
  EXPECT_EQ(relative.str(), "missed: driver, pair, ns: 500 instead of at most 40.0 (rmm.pool)\n");
}

TEST(Targets, SkipComments) { EXPECT_THAT(targets_of("# why\n\nrmm.pool,pair,ns,<=,15\n"), SizeIs(1)); }

TEST(Targets, RefuseMalformedTexts)
{
  EXPECT_THROW(targets_of("rmm.pool,pair,ns,<=\n"), std::runtime_error);
  EXPECT_THROW(targets_of("rmm.pool,pair,ns,<,15\n"), std::runtime_error);
  EXPECT_THROW(targets_of("rmm.pool,pair,ns,<=,fast\n"), std::runtime_error);
  EXPECT_THROW(targets_of("rmm.pool,pair,ns,<=,2*\n"), std::runtime_error);
  EXPECT_THROW(targets_of("rmm.pool,pair,ns,<=,fast*driver\n"), std::runtime_error);
  EXPECT_THROW(targets_of("rmm.pool,pair,ns,<=,peers*driver\n"), std::runtime_error);
  std::istringstream in{"rmm.pool,pair,ns,<=,15\n"};
  EXPECT_THROW(parse_targets(in), std::runtime_error);
}

TEST(Targets, OfThisProjectCanBeRead)
{
  std::istringstream in{own_targets};
  EXPECT_THAT(parse_targets(in), Not(IsEmpty()));
}

std::string drawn(dot_plot const& plot)
{
  std::ostringstream out;
  write_svg(out, plot);
  return out.str();
}

std::size_t count(std::string const& text, std::string const& word)
{
  std::size_t found = 0;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) { ++found; }
  return found;
}

TEST(DotPlot, HasADotForEachValueAndSeries)
{
  dot_plot const plot{"title", "ns", true, {"a", "b"}, {{"one", {1.0, 10.0}}, {"two", {std::nullopt, 100.0}}}};
  EXPECT_EQ(count(drawn(plot), "<title>"), 3);
  EXPECT_EQ(count(drawn(plot), "<circle"), 3 + 2);
  EXPECT_THAT(drawn(plot), AllOf(HasSubstr("two, b: 100 ns"), HasSubstr("</svg>")));
}

TEST(DotPlot, PutsValuesOnALogarithmicAxis)
{
  dot_plot const plot{"title", "ns", true, {"a", "b", "c"}, {{"one", {1.0, 10.0, 100.0}}}};
  EXPECT_THAT(drawn(plot), AllOf(HasSubstr("cx=\"180\""), HasSubstr("cx=\"520\""), HasSubstr("cx=\"860\"")));
}

TEST(DotPlot, BeginsALinearAxisAtZero)
{
  dot_plot const plot{"title", "", false, {"a", "b"}, {{"one", {0.5, 1.0}}}};
  EXPECT_THAT(drawn(plot), AllOf(HasSubstr("cx=\"520\""), HasSubstr("cx=\"860\"")));
}

TEST(DotPlot, EscapesNames)
{
  dot_plot const plot{"a < b & c", "", false, {"a"}, {{"one", {1.0}}}};
  EXPECT_THAT(drawn(plot), HasSubstr("a &lt; b &amp; c"));
}

}  // namespace
