// SPDX-License-Identifier: Apache-2.0

// The end of a reservation (mr/detail/reserved_memory.hpp), in all executions of the C++ memory model: its owner ends
// it while other threads free their blocks and allocate more.
//
// A transcription, with counters for the heap and the source. A test compares its atomic operations with the header's.

#include "check_orders.hpp"
#include "weak_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>
#include <set>
#include <string>

namespace {

using weak_memory::expect;
using weak_memory::program;
using unnoticed = std::set<std::string>;

constexpr std::size_t block = 256;

/// The class of the header, with the same names.
class reserved_memory {
 public:
  /// Begins with `blocks` live blocks.
  reserved_memory(std::size_t bytes, std::size_t blocks)
    : bytes_{bytes}, free_bytes_{bytes - blocks * block, "the heap"}, charged_{is_reserved + blocks * block}
  {}

  [[nodiscard]] bool try_allocate(std::size_t bytes)
  {
    use();
    if (!try_charge(bytes)) { return false; }
    use();
    heap_mutex_.lock();
    bool const fits = bytes <= free_bytes_;
    if (fits) { free_bytes_ = free_bytes_ - bytes; }
    heap_mutex_.unlock();
    if (!fits) { discharge(bytes); }
    return fits;
  }

  void deallocate(std::size_t bytes)
  {
    use();
    if (ended_.load(std::memory_order_relaxed)) {
      give(bytes);
    } else {
      heap_mutex_.lock();
      free_bytes_ = free_bytes_ + bytes;
      heap_mutex_.unlock();
    }
    discharge(bytes);
  }

  void shrink(std::size_t bytes)
  {
    use();
    auto const removed = charge_up_to(bytes);
    shrunk_.store(shrunk_.load(std::memory_order_relaxed) + removed, std::memory_order_relaxed);
    give_back(removed);
  }

  void end()
  {
    use();
    ended_.store(true, std::memory_order_relaxed);
    give_back(bytes_);
    discharge(is_reserved + shrunk_.load(std::memory_order_relaxed));
  }

  /// The bytes that the source got back.
  [[nodiscard]] std::size_t given() const { return given_; }
  [[nodiscard]] bool is_gone() const { return !exists_; }

 private:
  static constexpr std::uint64_t is_reserved = std::uint64_t{1} << 63U;

  [[nodiscard]] bool try_charge(std::size_t bytes)
  {
    if (ended_.load(std::memory_order_relaxed)) { return false; }
    auto charged = charged_.load(std::memory_order_relaxed);
    do {
      if (bytes > bytes_ - (charged & ~is_reserved)) { return false; }
    } while (!charged_.compare_exchange_weak(charged, charged + bytes, std::memory_order_relaxed));
    return true;
  }

  [[nodiscard]] std::size_t charge_up_to(std::size_t bytes)
  {
    auto charged = charged_.load(std::memory_order_relaxed);
    std::size_t taken{};
    do {
      taken = std::min(bytes, static_cast<std::size_t>(bytes_ - (charged & ~is_reserved)));
    } while (!charged_.compare_exchange_weak(charged, charged + taken, std::memory_order_relaxed));
    return taken;
  }

  void discharge(std::uint64_t charge)
  {
    if (charged_.fetch_sub(charge, std::memory_order_acq_rel) != charge) { return; }
    give_back(bytes_);
    expect(exists_, "one thread destroys the object");
    exists_ = false;
  }

  void give_back(std::size_t limit)
  {
    heap_mutex_.lock();
    auto const bytes = std::min<std::size_t>(free_bytes_, limit);
    free_bytes_      = free_bytes_ - bytes;
    heap_mutex_.unlock();
    if (bytes != 0) { give(bytes); }
  }

  void give(std::size_t bytes)
  {
    giving_mutex_.lock();
    given_ = given_ + bytes;
    giving_mutex_.unlock();
  }

  void use() const { expect(exists_, "the object exists"); }

  std::size_t bytes_;
  weak_memory::plain<bool> exists_{true, "the object"};
  weak_memory::mutex heap_mutex_;
  weak_memory::plain<std::size_t> free_bytes_;
  weak_memory::mutex giving_mutex_;
  weak_memory::plain<std::size_t> given_{0, "what was given back"};
  weak_memory::atomic<std::size_t> shrunk_{0};
  weak_memory::atomic<bool> ended_{false};
  weak_memory::atomic<std::uint64_t> charged_;
};

void check(reserved_memory const& state, std::size_t bytes)
{
  expect(state.is_gone(), "the object is destroyed");
  expect(state.given() == bytes, "all memory has gone back");
}

/// Two threads free their blocks while the owner ends the reservation.
void end_beside_frees(program& made)
{
  auto const state = std::make_shared<reserved_memory>(2 * block, 2);
  made.thread([=] { state->end(); });
  for (int i = 0; i != 2; ++i) {
    made.thread([=] { state->deallocate(block); });
  }
  made.finally([=] { check(*state, 2 * block); });
}

/// A thread that has a block allocates another one, while the owner ends the reservation.
void end_beside_allocation(program& made)
{
  auto const state = std::make_shared<reserved_memory>(2 * block, 1);
  made.thread([=] { state->end(); });
  made.thread([=] {
    if (state->try_allocate(block)) { state->deallocate(block); }
    state->deallocate(block);
  });
  made.finally([=] { check(*state, 2 * block); });
}

/// The owner shrinks the reservation before it ends it, beside a free.
void shrink_beside_free(program& made)
{
  auto const state = std::make_shared<reserved_memory>(3 * block, 1);
  made.thread([=] {
    state->shrink(block);
    state->end();
  });
  made.thread([=] {
    if (state->try_allocate(block)) { state->deallocate(block); }
    state->deallocate(block);
  });
  made.finally([=] { check(*state, 3 * block); });
}

weak_memory::checked_part const reservation_part{"tests/models/reserved_memory_model.cpp",
                                                 {end_beside_frees, end_beside_allocation, shrink_beside_free}};

TEST(ReservationModel, TheLastDischargeGivesAllMemoryBack) { weak_memory::expect_right(reservation_part); }

TEST(ReservationModel, NeedsItsOrders) { EXPECT_EQ(weak_memory::unnoticed_weakenings(reservation_part), unnoticed{}); }

/// The operations on atomic variables in a file: `variable operation order`.
std::set<std::string> operations_in(std::string const& path)
{
  std::ifstream file{RMM_MODELS_SOURCE_FOLDER "/" + path};
  std::string const text{std::istreambuf_iterator<char>{file}, {}};
  std::regex const pattern{R"((charged_|ended_|shrunk_)\.([a-z_]+)\([^;]*?std::memory_order_([a-z_]+))"};
  std::set<std::string> found;
  for (std::sregex_iterator each{text.begin(), text.end(), pattern}; each != std::sregex_iterator{}; ++each) {
    found.insert((*each)[1].str() + ' ' + (*each)[2].str() + ' ' + (*each)[3].str());
  }
  return found;
}

TEST(ReservationModel, HasTheOperationsOfTheHeader)
{
  auto const found = operations_in("include/rmm/mr/detail/reserved_memory.hpp");
  EXPECT_EQ(operations_in(reservation_part.file), found);
  EXPECT_GE(found.size(), 7U);
}

}  // namespace
