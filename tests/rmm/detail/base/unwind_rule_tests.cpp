// SPDX-License-Identifier: Apache-2.0
#include "../../../support/unwind_tables.hpp"

#include <rmm/detail/base/unwind_rule.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using namespace rmm::test;
using rmm::detail::frame_registers;
using rmm::detail::unwind_rule;
using rmm::detail::unwind_table;
using cfa  = unwind_rule::cfa;
using fp   = unwind_rule::saved_fp;
using kind = unwind_rule::kind;

unwind_rule rule_of(made_object const& object, std::size_t byte, std::size_t function = 0)
{
  unwind_table const table{object.table()};
  auto const address = object.code(function, byte);
  auto const number  = table.find(address);
  EXPECT_EQ(number, function);
  return number < table.size() ? table.rule(number, address).rule : unwind_rule{};
}

void expect(unwind_rule const& rule, cfa cfa_is, int cfa_offset, fp fp_is = fp::kept, int fp_offset = 0)
{
  EXPECT_EQ(rule.is, kind::caller);
  EXPECT_EQ(rule.cfa_is, cfa_is);
  EXPECT_EQ(rule.cfa_offset, cfa_offset);
  EXPECT_EQ(rule.fp_is, fp_is);
  EXPECT_EQ(rule.fp_offset, fp_offset);
}

/// A function that saves and uses the frame pointer, and has an end in its middle.
cfi::bytes with_frame_pointer()
{
  using namespace cfi;
  return {advance(1),
          def_cfa_offset,
          16,
          offset(rbp),
          2,
          advance(3),
          def_cfa_register,
          rbp,
          advance(20),
          remember,
          advance(2),
          def_cfa,
          rsp,
          8,
          restore(rbp),
          advance(1),
          restore_state};
}

TEST(UnwindRule, FollowsTheFunctionInstructionByInstruction)
{
  made_object const object{{with_frame_pointer()}};
  expect(rule_of(object, 0), cfa::sp_plus, 8);
  expect(rule_of(object, 1), cfa::sp_plus, 16, fp::at_cfa_plus, -16);
  expect(rule_of(object, 3), cfa::sp_plus, 16, fp::at_cfa_plus, -16);
  expect(rule_of(object, 4), cfa::fp_plus, 16, fp::at_cfa_plus, -16);
  expect(rule_of(object, 25), cfa::fp_plus, 16, fp::at_cfa_plus, -16);
  expect(rule_of(object, 26), cfa::sp_plus, 8);
  expect(rule_of(object, 27), cfa::fp_plus, 16, fp::at_cfa_plus, -16);
  expect(rule_of(object, 63), cfa::fp_plus, 16, fp::at_cfa_plus, -16);
}

TEST(UnwindRule, BelongsToTheFunctionWithTheAddress)
{
  made_object const object{{{cfi::def_cfa_offset, 24}, {cfi::def_cfa_offset, 32}, {cfi::def_cfa_offset, 40}}};
  for (std::size_t function = 0; function != 3; ++function) {
    for (auto const byte : {std::size_t{0}, std::size_t{63}}) {
      expect(rule_of(object, byte, function), cfa::sp_plus, 24 + 8 * static_cast<int>(function));
    }
  }
  unwind_table const table{object.table()};
  EXPECT_EQ(table.find(object.code(0) - 1), table.size());
  EXPECT_EQ(table.rule(2, object.code(3)).rule.is, kind::unknown);
}

TEST(UnwindRule, SaysThatAFrameIsTheLast)
{
  made_object const object{{{cfi::undefined, cfi::ra}}};
  EXPECT_EQ(rule_of(object, 5).is, kind::last);
}

TEST(UnwindRule, KnowsStacksThatAreAligned)
{
  // The CFA is stored at the frame pointer less 8, and the caller's frame pointer at the frame pointer.
  made_object const object{{{0x10, cfi::rbp, 2, 0x76, 0, 0x0F, 3, 0x76, 0x78, 0x06}}};
  expect(rule_of(object, 0), cfa::stored_at_fp_plus, -8, fp::at_fp_plus, 0);
}

TEST(UnwindRule, ReadsTheOperandsOfEveryInstruction)
{
  std::vector<cfi::bytes> const instructions{
    {0x00},           {0x05, 3, 0x81, 1},
    {0x06, 3},        {0x07, 3},
    {0x08, 3},        {0x09, 3, 12},
    {0x0A, 0x0B},     {0x0C, 3, 0x90, 1, 0x0C, cfi::rsp, 8},
    {0x0D, cfi::rsp}, {0x10, 3, 4, 1, 2, 3, 4},
    {0x11, 3, 0x7E},  {0x12, cfi::rsp, 0x7E},
    {0x13, 0x7E},     {0x14, 3, 0x81, 1},
    {0x15, 3, 0x7E},  {0x16, 3, 2, 9, 9},
    {0x2E, 0x81, 1},  {0x2F, 3, 2},
    {0x83, 0x81, 1},  {0xC3},
  };
  for (auto const& each : instructions) {
    auto code = each;
    code.insert(code.end(), {cfi::def_cfa_offset, 0xB0, 0x01});
    expect(rule_of(made_object{{code}}, 0), cfa::sp_plus, 176);
  }
}

TEST(UnwindRule, CountsTheUnitsOfEveryAdvance)
{
  for (cfi::bytes code :
       {cfi::bytes{0x02, 9}, cfi::bytes{0x03, 9, 0}, cfi::bytes{0x04, 9, 0, 0, 0}, cfi::bytes{cfi::advance(9)}}) {
    code.insert(code.end(), {cfi::def_cfa_offset, 48});
    made_object const object{{code}};
    expect(rule_of(object, 8), cfa::sp_plus, 8);
    expect(rule_of(object, 9), cfa::sp_plus, 48);
  }
}

TEST(UnwindRule, ReadsOffsetsInEveryForm)
{
  for (cfi::bytes const& code :
       {cfi::bytes{0x05, cfi::rbp, 5},
        cfi::bytes{0x11, cfi::rbp, 5},
        cfi::bytes{cfi::offset(cfi::rbp), 5},
        cfi::bytes{0x2F, cfi::rbp, 0xFB, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01}}) {
    expect(rule_of(made_object{{code}}, 0), cfa::sp_plus, 8, fp::at_cfa_plus, -40);
  }
  expect(rule_of(made_object{{{0x12, cfi::rbp, 0x7E}}}, 0), cfa::fp_plus, 16);
}

TEST(UnwindRule, RestoresWhatTheCommonEntrySays)
{
  expect(rule_of(made_object{{{cfi::offset(cfi::ra), 5, cfi::restore(cfi::ra)}}}, 0), cfa::sp_plus, 8);
  expect(rule_of(made_object{{{cfi::offset(cfi::ra), 5, 0x06, cfi::ra}}}, 0), cfa::sp_plus, 8);
}

TEST(UnwindRule, IsUnknownWhereTheTableSaysWhatItCannotExpress)
{
  std::vector<cfi::bytes> const functions{
    {0x01, 0, 0, 0, 0},                  // an address, in some encoding
    {0x17},                              // no such instruction
    {0x2D},                              // signed return addresses, or register windows
    {0x3F},                              //
    {cfi::def_cfa, cfi::r10, 0},         // another register
    {cfi::offset(cfi::ra), 2},           // return address elsewhere
    {0x09, cfi::ra, 3},                  // in a register
    {0x10, cfi::ra, 2, 0x76, 0},         // at a computed address
    {0x10, cfi::rbp, 3, 0x76, 0, 0x06},  // an expression of another form
    {0x10, cfi::rbp, 2, 0x77, 0},        //
    {0x0F, 2, 0x76, 0x78},               // without a load
    {0x0F, 4, 0x76, 0x78, 0x06, 0x06},   //
    {0x0F, 3, 0x77, 0x78, 0x06},         //
    {cfi::undefined, cfi::rbp},          //
    {0x14, cfi::rbp, 1},                 // a value
    {cfi::offset(cfi::rsp), 3},          // the stack pointer is saved
    {cfi::restore_state},                // of nothing
    {0x0A, 0x0A, 0x0A, 0x0A, 0x0A},      // too deep
    {0x0F, 3, 0x76, 0x78, 0x06, cfi::def_cfa_offset, 8},
    {cfi::def_cfa_offset, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F},  // too large
    {0, 0, 0, 0, 0x04, 1, 0},                                   // ends within an operand
    {0, 0, 0, 0, 0, 0, cfi::def_cfa_offset},                    //
    {0, 0, 0, 0, 0, 0x10, 0x83},                                //
  };
  for (auto const& each : functions) {
    EXPECT_EQ(rule_of(made_object{{each}}, 0).is, kind::unknown) << ::testing::PrintToString(each);
  }
}

TEST(UnwindRule, ReadsCommonEntriesAsCompilersWriteThem)
{
  expect(rule_of(made_object{{{}}, cfi::at_entry(), "zPLR", {0x9B, 1, 2, 3, 4, 0x1B, 0x1B}}, 0), cfa::sp_plus, 8);
  expect(rule_of(made_object{{{}}, cfi::at_entry(), "zPLR", {0x00, 1, 2, 3, 4, 5, 6, 7, 8, 0x1B, 0x1B}}, 0),
         cfa::sp_plus,
         8);
}

TEST(UnwindRule, IsUnknownBehindOtherCommonEntries)
{
  EXPECT_EQ(rule_of(made_object{{{}}, cfi::at_entry(), "zRS"}, 0).is, kind::unknown);  // the frame of a signal handler
  EXPECT_EQ(rule_of(made_object{{{}}, cfi::at_entry(), "zRB", {0x1B, 0}}, 0).is, kind::unknown);
  EXPECT_EQ(rule_of(made_object{{{}}, cfi::at_entry(), "zR", {0x00}}, 0).is, kind::unknown);
  EXPECT_EQ(rule_of(made_object{{{}}, cfi::at_entry(), "eh"}, 0).is, kind::unknown);
  EXPECT_EQ(rule_of(made_object{{{}}, cfi::at_entry(), "z", {}}, 0).is, kind::unknown);
  EXPECT_EQ(rule_of(made_object{{{}}, cfi::at_entry(), "zR", {0x1B}, 17}, 0).is, kind::unknown);
}

TEST(UnwindTable, OfAnotherFormIsEmpty)
{
  made_object object{{{}}};
  EXPECT_EQ(unwind_table{object.table()}.size(), 1U);
  object.at(3) = 0x1B;
  EXPECT_EQ(unwind_table{object.table()}.size(), 0U);
  EXPECT_EQ(unwind_table{nullptr}.size(), 0U);
}

TEST(UnwindTable, HasAFingerprintOfEachByteThatARuleDependsOn)
{
  made_object object{{with_frame_pointer()}};
  unwind_table const table{object.table()};
  auto const read  = table.rule(0, object.code(0, 4));
  auto const print = [&] {
    return table.fingerprint(0, read.bytes, 7) ^ unwind_table::fingerprint_of_common(object.table() + object.common(0));
  };
  auto const before = print();
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i != read.bytes; ++i) { places.push_back(object.entry(0) + i); }
  for (std::size_t i = 4; i != 24; ++i) { places.push_back(object.common(0) + i); }
  for (auto const place : places) {
    for (unsigned bit = 0; bit != 8; ++bit) {
      if (place - object.entry(0) - 4 < 4) { continue; }  // another distance leads to another CIE
      object.at(place) ^= static_cast<unsigned char>(1U << bit);
      EXPECT_NE(print(), before) << place << " " << bit;
      object.at(place) ^= static_cast<unsigned char>(1U << bit);
    }
  }
  EXPECT_EQ(print(), before);
  EXPECT_NE(table.fingerprint(0, read.bytes, 8), table.fingerprint(0, read.bytes, 7));
}

/// A library may come back at another place, where another of its functions returns to an address that is known.
TEST(UnwindTable, HasAnotherFingerprintAtAnotherPlace)
{
  made_object here{{with_frame_pointer()}};
  made_object there{{with_frame_pointer()}};
  unwind_table const one{here.table()};
  unwind_table const other{there.table()};
  auto const bytes = one.rule(0, here.code(0, 4)).bytes;
  EXPECT_EQ(bytes, other.rule(0, there.code(0, 4)).bytes);
  EXPECT_NE(one.fingerprint(0, bytes, 7), other.fingerprint(0, bytes, 7));
}

TEST(UnwindRule, LeadsToTheCaller)
{
  std::uintptr_t stack[16]{};
  auto const at = [&](std::size_t i) { return reinterpret_cast<std::uintptr_t>(&stack[i]); };
  stack[5]      = 1111;  // return address
  stack[4]      = 2222;  // frame pointer
  stack[1]      = at(6);

  unwind_rule rule;
  rule.is         = kind::caller;
  rule.cfa_offset = 48;
  frame_registers frame{1, at(0), 3};
  EXPECT_TRUE(rule.apply(frame));
  EXPECT_EQ(frame.pc, 1111U);
  EXPECT_EQ(frame.sp, at(6));
  EXPECT_EQ(frame.fp, 3U);

  rule.cfa_is     = cfa::fp_plus;
  rule.cfa_offset = 16;
  rule.fp_is      = fp::at_cfa_plus;
  rule.fp_offset  = -16;
  frame           = {1, at(0), at(4)};
  EXPECT_TRUE(rule.apply(frame));
  EXPECT_EQ(frame.pc, 1111U);
  EXPECT_EQ(frame.fp, 2222U);

  rule.cfa_is     = cfa::stored_at_fp_plus;
  rule.cfa_offset = -8;
  rule.fp_is      = fp::at_fp_plus;
  rule.fp_offset  = 16;
  frame           = {1, at(0), at(2)};
  EXPECT_TRUE(rule.apply(frame));
  EXPECT_EQ(frame.pc, 1111U);
  EXPECT_EQ(frame.sp, at(6));
  EXPECT_EQ(frame.fp, 2222U);
}

TEST(UnwindRule, RefusesStacksThatGoDown)
{
  std::uintptr_t stack[4]{};
  auto const at = [&](std::size_t i) { return reinterpret_cast<std::uintptr_t>(&stack[i]); };
  unwind_rule rule;
  rule.is     = kind::caller;
  rule.cfa_is = cfa::fp_plus;
  for (auto const cfa_at : {at(1), at(2), at(3) + 1}) {
    frame_registers frame{1, at(2), cfa_at};
    EXPECT_FALSE(rule.apply(frame));
  }
}

}  // namespace
