// SPDX-License-Identifier: Apache-2.0
//
// Tests of the explorer itself: the classic litmus tests have exactly the results that C++ allows.

#include "weak_memory.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace {

using weak_memory::atomic;
using weak_memory::explore;
using weak_memory::plain;
using weak_memory::program;
using results = std::set<std::string>;

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;
constexpr auto acq_rel = std::memory_order_acq_rel;
constexpr auto seq_cst = std::memory_order_seq_cst;

/// Some variables, and the values that the threads read.
struct litmus {
  atomic<int> x{0};
  atomic<int> y{0};
  atomic<int> z{0};
  plain<int> data{0, "data"};
  std::vector<int> read = std::vector<int>(4, 0);
};
using code = std::function<void(litmus&)>;

/// Runs all executions. Returns the values read in each, as digits.
results results_of(std::vector<code> const& threads, std::size_t reads, code const& last = {})
{
  results seen;
  auto const outcome = explore([&](program& made) {
    auto const state = std::make_shared<litmus>();
    for (auto const& each : threads) {
      made.thread([&each, state] { each(*state); });
    }
    made.finally([&, state] {
      if (last) { last(*state); }
      std::string text;
      for (std::size_t i = 0; i < reads; ++i) { text += std::to_string(state->read[i]); }
      seen.insert(text);
    });
  });
  EXPECT_TRUE(outcome.holds()) << outcome.error;
  return seen;
}

std::string error_of(std::vector<code> const& threads)
{
  return explore([&](program& made) {
           auto const state = std::make_shared<litmus>();
           for (auto const& each : threads) {
             made.thread([&each, state] { each(*state); });
           }
         })
    .error;
}

/// x = data; y = flag
/// reads flag, then data
results message_passing(std::memory_order write, std::memory_order read)
{
  return results_of({[=](litmus& s) {
                       s.x.store(1, relaxed);
                       s.y.store(1, write);
                     },
                     [=](litmus& s) {
                       s.read[0] = s.y.load(read);
                       s.read[1] = s.x.load(relaxed);
                     }},
                    2);
}

TEST(WeakMemory, PassesMessagesWithReleaseAndAcquireAlone)
{
  results const all{"00", "01", "10", "11"};
  results const ordered{"00", "01", "11"};
  EXPECT_EQ(message_passing(relaxed, relaxed), all);
  EXPECT_EQ(message_passing(release, relaxed), all);
  EXPECT_EQ(message_passing(relaxed, acquire), all);
  EXPECT_EQ(message_passing(release, acquire), ordered);
  EXPECT_EQ(message_passing(seq_cst, seq_cst), ordered);
}

TEST(WeakMemory, PassesMessagesWithFences)
{
  auto const fenced = [](bool writes, bool reads) {
    return results_of({[=](litmus& s) {
                         s.x.store(1, relaxed);
                         if (writes) { weak_memory::atomic_thread_fence(release); }
                         s.y.store(1, relaxed);
                       },
                       [=](litmus& s) {
                         s.read[0] = s.y.load(relaxed);
                         if (reads) { weak_memory::atomic_thread_fence(acquire); }
                         s.read[1] = s.x.load(relaxed);
                       }},
                      2);
  };
  EXPECT_EQ(fenced(true, true), (results{"00", "01", "11"}));
  EXPECT_EQ(fenced(false, true).count("10"), 1U);
  EXPECT_EQ(fenced(true, false).count("10"), 1U);
}

/// Each thread writes its own variable and reads the other's.
results store_buffering(std::memory_order order, bool first_fence, bool second_fence)
{
  auto const maybe_fence = [](bool fence) {
    if (fence) { weak_memory::atomic_thread_fence(seq_cst); }
  };
  return results_of({[=](litmus& s) {
                       s.x.store(1, order);
                       maybe_fence(first_fence);
                       s.read[0] = s.y.load(order == release ? acquire : order);
                     },
                     [=](litmus& s) {
                       s.y.store(1, order);
                       maybe_fence(second_fence);
                       s.read[1] = s.x.load(order == release ? acquire : order);
                     }},
                    2);
}

TEST(WeakMemory, BuffersStoresUnlessBothThreadsAreSequential)
{
  results const all{"00", "01", "10", "11"};
  results const ordered{"01", "10", "11"};
  EXPECT_EQ(store_buffering(relaxed, false, false), all);
  EXPECT_EQ(store_buffering(release, false, false), all);
  EXPECT_EQ(store_buffering(relaxed, true, false), all);
  EXPECT_EQ(store_buffering(relaxed, true, true), ordered);
  EXPECT_EQ(store_buffering(seq_cst, false, false), ordered);
}

TEST(WeakMemory, OrdersAFenceBeforeSequentialOperations)
{
  auto const mixed = [](std::memory_order others) {
    return results_of({[](litmus& s) {
                         s.x.store(1, relaxed);
                         weak_memory::atomic_thread_fence(seq_cst);
                         s.read[0] = s.y.load(relaxed);
                       },
                       [=](litmus& s) {
                         s.y.store(1, others == acq_rel ? release : others);
                         s.read[1] = s.x.load(others == acq_rel ? acquire : others);
                       }},
                      2);
  };
  EXPECT_EQ(mixed(seq_cst).count("00"), 0U);
  EXPECT_EQ(mixed(acq_rel).count("00"), 1U);
}

TEST(WeakMemory, ReadsOneVariableInItsModificationOrder)
{
  auto const seen = results_of({[](litmus& s) {
                                  s.x.store(1, relaxed);
                                  s.x.store(2, relaxed);
                                },
                                [](litmus& s) {
                                  s.read[0] = s.x.load(relaxed);
                                  s.read[1] = s.x.load(relaxed);
                                }},
                               2);
  EXPECT_EQ(seen, (results{"00", "01", "02", "11", "12", "22"}));
}

TEST(WeakMemory, ThreadsAgreeOnTheModificationOrder)
{
  auto const reader = [](std::size_t first) {
    return [=](litmus& s) {
      s.read[first]     = s.x.load(relaxed);
      s.read[first + 1] = s.x.load(relaxed);
    };
  };
  auto const seen = results_of(
    {[](litmus& s) { s.x.store(1, relaxed); }, [](litmus& s) { s.x.store(2, relaxed); }, reader(0), reader(2)}, 4);
  EXPECT_EQ(seen.count("1212"), 1U);
  EXPECT_EQ(seen.count("2121"), 1U);
  EXPECT_EQ(seen.count("1221"), 0U);
  EXPECT_EQ(seen.count("2112"), 0U);
}

TEST(WeakMemory, MayOrderStoresOfTwoThreadsAgainstTheirPrograms)
{
  auto const last = [](litmus& s) {
    s.read[0] = s.x.load();
    s.read[1] = s.y.load();
  };
  auto const seen = [&](std::memory_order order) {
    return results_of({[=](litmus& s) {
                         s.x.store(1, order);
                         s.y.store(2, order);
                       },
                       [=](litmus& s) {
                         s.y.store(1, order);
                         s.x.store(2, order);
                       }},
                      2,
                      last);
  };
  EXPECT_EQ(seen(relaxed), (results{"11", "12", "21", "22"}));
  EXPECT_EQ(seen(seq_cst), (results{"12", "21", "22"}));
}

TEST(WeakMemory, LetsReadersDisagreeOnIndependentWritesUnlessSequential)
{
  auto const seen = [](std::memory_order write, std::memory_order read) {
    return results_of({[=](litmus& s) { s.x.store(1, write); },
                       [=](litmus& s) { s.y.store(1, write); },
                       [=](litmus& s) {
                         s.read[0] = s.x.load(read);
                         s.read[1] = s.y.load(read);
                       },
                       [=](litmus& s) {
                         s.read[2] = s.y.load(read);
                         s.read[3] = s.x.load(read);
                       }},
                      4);
  };
  EXPECT_EQ(seen(release, acquire).count("1010"), 1U);
  EXPECT_EQ(seen(seq_cst, seq_cst).count("1010"), 0U);
}

TEST(WeakMemory, DoesNotReadWhatIsWrittenLater)  // a limit: C++11 allows it, RC11 does not
{
  auto const seen = results_of({[](litmus& s) {
                                  s.read[0] = s.x.load(relaxed);
                                  s.y.store(1, relaxed);
                                },
                                [](litmus& s) {
                                  s.read[1] = s.y.load(relaxed);
                                  s.x.store(1, relaxed);
                                }},
                               2);
  EXPECT_EQ(seen, (results{"00", "01", "10"}));
}

TEST(WeakMemory, ContinuesReleaseSequencesWithUpdatesAlone)
{
  auto const seen = [](bool updates) {
    return results_of({[](litmus& s) {
                         s.x.store(1, relaxed);
                         s.y.store(1, release);
                       },
                       [=](litmus& s) {
                         if (updates) {
                           s.y.fetch_add(1, relaxed);
                         } else {
                           s.y.store(2, relaxed);
                         }
                       },
                       [](litmus& s) {
                         s.read[0] = s.y.load(acquire);
                         s.read[1] = s.x.load(relaxed);
                       }},
                      2);
  };
  EXPECT_EQ(seen(true).count("20"), 0U);
  EXPECT_EQ(seen(false).count("20"), 1U);
}

TEST(WeakMemory, UpdatesReadTheLatestValue)
{
  auto const add  = [](litmus& s) { s.x.fetch_add(1, relaxed); };
  auto const last = [](litmus& s) { s.read[0] = s.x.load(); };
  EXPECT_EQ(results_of({add, add, add}, 1, last), results{"3"});
}

TEST(WeakMemory, OneThreadWinsACompareExchange)
{
  auto const take = [](std::size_t thread) {
    return [=](litmus& s) {
      int expected   = 0;
      s.read[thread] = s.x.compare_exchange_strong(expected, 1, relaxed) ? 1 : 0;
    };
  };
  EXPECT_EQ(results_of({take(0), take(1)}, 2), (results{"01", "10"}));
}

TEST(WeakMemory, ABarrierInAllThreadsStandsForTheFenceOfTheOther)
{
  auto const seen = [](bool barrier) {
    return results_of({[](litmus& s) {
                         s.x.store(1, relaxed);
                         weak_memory::atomic_signal_fence(seq_cst);
                         s.read[0] = s.y.load(relaxed);
                       },
                       [=](litmus& s) {
                         s.y.store(1, relaxed);
                         if (barrier) { weak_memory::barrier_in_all_threads(); }
                         s.read[1] = s.x.load(relaxed);
                       }},
                      2);
  };
  EXPECT_EQ(seen(true).count("00"), 0U);
  EXPECT_EQ(seen(false).count("00"), 1U);
}

TEST(WeakMemory, FindsRacesOfPlainVariables)
{
  auto const pass = [](std::memory_order write, std::memory_order read) {
    return error_of({[=](litmus& s) {
                       s.data = 1;
                       s.x.store(1, write);
                     },
                     [=](litmus& s) {
                       if (s.x.load(read) == 1) { weak_memory::expect(s.data == 1, "the data is passed"); }
                     }});
  };
  EXPECT_EQ(pass(release, acquire), "");
  EXPECT_NE(pass(relaxed, acquire).find("races with a write: data"), std::string::npos);
  EXPECT_NE(pass(release, relaxed).find("races with a write: data"), std::string::npos);
  EXPECT_NE(error_of({[](litmus& s) { static_cast<void>(static_cast<int>(s.data)); }, [](litmus& s) { s.data = 1; }})
              .find("race"),
            std::string::npos);
}

TEST(WeakMemory, SequentialFencesDoNotOrderPlainVariables)
{
  EXPECT_NE(error_of({[](litmus& s) {
                        s.data = 1;
                        weak_memory::atomic_thread_fence(seq_cst);
                      },
                      [](litmus& s) {
                        weak_memory::atomic_thread_fence(seq_cst);
                        s.data = 2;
                      }}),
            "");
}

TEST(WeakMemory, MutexesOrderPlainVariables)
{
  auto const outcome = explore([](program& made) {
    struct state_type {
      weak_memory::mutex mutex;
      plain<int> count{0, "count"};
    };
    auto const state = std::make_shared<state_type>();
    auto const add   = [state] {
      state->mutex.lock();
      state->count = state->count + 1;
      state->mutex.unlock();
    };
    made.thread(add).thread(add).thread(add);
    made.finally([state] { weak_memory::expect(state->count == 3, "all are counted"); });
  });
  EXPECT_TRUE(outcome.holds()) << outcome.error;
  EXPECT_EQ(outcome.runs, 6U);
}

TEST(WeakMemory, FindsDeadlocks)
{
  auto const outcome = explore([](program& made) {
    auto const mutexes = std::make_shared<std::array<weak_memory::mutex, 2>>();
    for (std::size_t i = 0; i != 2; ++i) {
      made.thread([=] {
        (*mutexes)[i].lock();
        (*mutexes)[1 - i].lock();
        (*mutexes)[1 - i].unlock();
        (*mutexes)[i].unlock();
      });
    }
  });
  EXPECT_EQ(outcome.error.substr(0, 19), "no thread can go on");
}

TEST(WeakMemory, WaitsInALoopUntilTheValueComes)
{
  EXPECT_EQ(error_of({[](litmus& s) {
                        s.data = 1;
                        s.x.store(1, release);
                      },
                      [](litmus& s) {
                        while (s.x.load(acquire) == 0) {}
                        s.data = 2;
                      }}),
            "");
  EXPECT_EQ(error_of({[](litmus& s) { s.x.store(1, relaxed); },
                      [](litmus& s) {
                        while (s.x.load(relaxed) != 2) {}
                      }})
              .substr(0, 19),
            "no thread can go on");
}

TEST(WeakMemory, AVariableIsMadeBeforeItIsUsed)
{
  auto const publish = [](std::memory_order order) {
    return explore([=](program& made) {
             auto const pointer = std::make_shared<atomic<atomic<int>*>>(nullptr);
             made.thread([=] { pointer->store(new atomic<int>{7}, order); });
             made.thread([=] {
               if (auto* const found = pointer->load(acquire)) {
                 weak_memory::expect(found->load(relaxed) == 7, "made");
               }
             });
           })
      .error;
  };
  EXPECT_EQ(publish(release), "");
  EXPECT_NE(publish(relaxed), "");
}

/// A random program: the operations of each thread, in order, with their variables.
class random_program {
 public:
  explicit random_program(unsigned seed) : random_{seed}
  {
    for (auto& thread : threads_) {
      thread.resize(2);
      for (auto& each : thread) { each = {draw(4), draw(2), orders[draw(orders.size())]}; }
    }
  }

  [[nodiscard]] results run(bool tries_every_order)
  {
    weak_memory::limits given;
    given.tries_every_order = tries_every_order;
    given.most_idle_loads   = 100;
    results seen;
    auto const outcome = explore(
      [&](program& made) {
        auto const state = std::make_shared<state_type>();
        for (std::size_t i = 0; i != threads_.size(); ++i) {
          made.thread([this, state, i] { run(threads_[i], *state, state->read[i]); });
        }
        made.finally([&seen, state] {
          std::string text = std::to_string(state->variables[0]) + std::to_string(state->variables[1]);
          for (auto const& each : state->read) { text += ' ' + each; }
          seen.insert(text);
        });
      },
      given);
    EXPECT_TRUE(outcome.holds()) << outcome.error;
    return seen;
  }

 private:
  struct operation {
    unsigned kind;
    unsigned on;
    std::memory_order order;
  };
  struct state_type {
    std::array<atomic<int>, 2> variables;
    std::array<std::string, 3> read;
  };
  static constexpr std::array<std::memory_order, 3> orders{relaxed, acq_rel, seq_cst};

  static void run(std::vector<operation> const& operations, state_type& state, std::string& read)
  {
    for (auto const& each : operations) {
      auto& variable = state.variables[each.on];
      switch (each.kind) {
        case 0:
          read += std::to_string(variable.load(each.order == acq_rel ? acquire : each.order));
          break;
        case 1:
          variable.store(1 + variable.load(relaxed), each.order == acq_rel ? release : each.order);
          break;
        case 2:
          read += std::to_string(variable.fetch_add(1, each.order));
          break;
        default:
          weak_memory::atomic_thread_fence(each.order);
          break;
      }
    }
  }

  [[nodiscard]] unsigned draw(std::size_t below) { return static_cast<unsigned>(random_() % below); }

  std::minstd_rand random_;
  std::array<std::vector<operation>, 3> threads_;
};

TEST(WeakMemory, RunsOneOfEqualOrdersAndFindsTheSameResults)
{
  for (unsigned seed = 1; seed != 40; ++seed) {
    random_program tried{seed};
    ASSERT_EQ(tried.run(false), tried.run(true)) << seed;
  }
}

TEST(WeakMemory, GivesEachThreadItsThreadLocalVariables)
{
  struct counted {
    int calls{0};
    atomic<int>* at_end{};
    ~counted() { at_end->store(calls, relaxed); }
  };
  results seen;
  auto const outcome = explore([&](program& made) {
    static thread_local int own = 1;
    auto const state            = std::make_shared<litmus>();
    for (std::size_t i = 0; i != 2; ++i) {
      made.thread([=] {
        thread_local counted calls;
        calls.at_end = i == 0 ? &state->x : &state->y;
        for (int call = 0; call != 3; ++call) {
          state->z.store(++own, relaxed);
          ++calls.calls;
        }
        state->read[i] = own;
      });
    }
    made.finally([&, state] {
      std::string text = std::to_string(state->x.load()) + std::to_string(state->y.load());
      for (std::size_t i = 0; i != 2; ++i) { text += std::to_string(state->read[i]); }
      seen.insert(text + std::to_string(own));
    });
  });
  EXPECT_TRUE(outcome.holds()) << outcome.error;
  EXPECT_EQ(seen, results{"33441"});
}

TEST(WeakMemory, WeakensTheOrderAtAPlace)
{
  auto const make = [](program& made) {
    auto const state = std::make_shared<litmus>();
    made.thread([state] {
      state->data = 1;
      state->x.store(1, release);
    });
    made.thread([state] {
      if (state->x.load(acquire) == 1) { state->data = 2; }
    });
  };
  auto const right = explore(make);
  ASSERT_TRUE(right.holds()) << right.error;
  ASSERT_EQ(right.places.size(), 2U);
  for (auto const& each : right.places) {
    EXPECT_FALSE(explore(make, {}, {each.where, each.kind, each.order, relaxed}).error.empty()) << each.where.line;
  }
}

}  // namespace
