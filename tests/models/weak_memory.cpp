// SPDX-License-Identifier: Apache-2.0

#include "weak_memory.hpp"

#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <tuple>
#include <unordered_map>
#include <utility>

/// _longjmp() of the C library. What that name stands for with _FORTIFY_SOURCE, which some distributions switch on, refuses to change to
/// another stack.
extern "C" [[noreturn]] void weak_memory_jump(::__jmp_buf_tag*, int) __asm__("_longjmp");

namespace weak_memory {
namespace detail {
namespace {

constexpr std::size_t most_threads = 8;
using clock_type                   = std::array<unsigned, most_threads>;

[[nodiscard]] bool acquires(std::memory_order order) noexcept
{
  return order == std::memory_order_acquire || order == std::memory_order_consume ||
         order == std::memory_order_acq_rel || order == std::memory_order_seq_cst;
}
[[nodiscard]] bool releases(std::memory_order order) noexcept
{
  return order == std::memory_order_release || order == std::memory_order_acq_rel || order == std::memory_order_seq_cst;
}
[[nodiscard]] bool is_seq_cst(std::memory_order order) noexcept { return order == std::memory_order_seq_cst; }

/// The oldest message of each location that may still be read, by its position in the modification order.
class view {
 public:
  [[nodiscard]] double at(std::size_t location) const noexcept
  {
    return location < oldest_.size() ? oldest_[location] : 0;
  }
  /// Raises an entry. Returns whether that changed anything.
  bool raise(std::size_t location, double to)
  {
    if (to <= at(location)) { return false; }
    if (location >= oldest_.size()) { oldest_.resize(location + 1); }
    oldest_[location] = to;
    return true;
  }
  bool join(view const& other)
  {
    bool changed = false;
    for (std::size_t i = 0; i < other.oldest_.size(); ++i) { changed |= raise(i, other.oldest_[i]); }
    return changed;
  }

 private:
  std::vector<double> oldest_;
};

/// A view, and what happened before.
struct knowledge {
  view seen;
  clock_type clock{};

  bool join(knowledge const& other)
  {
    bool changed = seen.join(other.seen);
    for (std::size_t i = 0; i < clock.size(); ++i) {
      changed |= other.clock[i] > clock[i];
      clock[i] = std::max(clock[i], other.clock[i]);
    }
    return changed;
  }
};

struct message {
  bits value;
  double at;  // its position in the modification order
  knowledge known;
  bool is_updated{false};  // the next message belongs to a read-modify-write that read this one
};

enum class step { load, store, update, fence, fence_in_other, lock };

/// What a thread does next.
struct operation {
  step kind{step::load};
  location const* on{};
  bool is_seq_cst{};
  int other{-1};  // the thread in which a barrier executes a fence
  place where{"", 0};
};

struct logged {
  int thread;
  operation done;
  bits value;
};

}  // namespace

struct location {
  std::size_t number{};
  std::vector<message> messages;  // in modification order
  int holder{-1};                 // of a mutex
  knowledge left;                 // by the last holder of a mutex
};

namespace {

/// The program's thread_local variables, without those of shared objects. All fibers run in one thread of the system,
/// so the explorer swaps the contents of these variables when it switches fibers.
struct thread_local_segment {
  unsigned char* begin{};
  unsigned char const* image{};  // initial values; the rest is 0
  std::size_t image_bytes{};
  std::size_t bytes{};

  [[nodiscard]] static thread_local_segment const& of_program()
  {
    static thread_local_segment const found = [] {
      thread_local_segment segment;
      ::dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* to) {
          auto& program = *static_cast<thread_local_segment*>(to);
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            auto const& each = info->dlpi_phdr[i];
            if (each.p_type != PT_TLS) { continue; }
            program = {static_cast<unsigned char*>(info->dlpi_tls_data),
                       reinterpret_cast<unsigned char const*>(info->dlpi_addr + each.p_vaddr),
                       each.p_filesz,
                       each.p_memsz};
          }
          return 1;  // the first object is the program
        },
        &segment);
      return segment;
    }();
    return found;
  }

  [[nodiscard]] bool contains(std::uintptr_t address) const noexcept
  {
    return address - reinterpret_cast<std::uintptr_t>(begin) < bytes;
  }
  [[nodiscard]] std::vector<unsigned char> initial_contents() const
  {
    std::vector<unsigned char> contents(bytes);
    std::copy_n(image, image_bytes, contents.begin());
    return contents;
  }
  void exchange(std::vector<unsigned char>& contents) const
  {
    std::swap_ranges(begin, begin + bytes, contents.begin());
  }
};

// Whether a thread of a run executes its own code, as opposed to the explorer's.
bool is_in_code = false;

/// A scope in which a thread is inside the explorer.
class explorer_call {
 public:
  explorer_call() noexcept : was_in_code_{std::exchange(is_in_code, false)} {}
  explorer_call(explorer_call const&)            = delete;
  explorer_call& operator=(explorer_call const&) = delete;
  ~explorer_call() { is_in_code = was_in_code_; }

 private:
  bool was_in_code_;
};

/// Runs code that can be paused and resumed, with its own thread_local variables.
class fiber {
 public:
  explicit fiber(program::thread_code code) : code_{std::move(code)}, stack_{take_stack()} {}
  fiber(fiber const&)            = delete;
  fiber& operator=(fiber const&) = delete;
  ~fiber() { stacks().push_back(std::move(stack_)); }

  /// The fiber that runs; null if none does.
  [[nodiscard]] static fiber* running() noexcept { return running_; }

  void resume()
  {
    auto* const outer = std::exchange(running_, this);
    thread_local_segment::of_program().exchange(variables_);
    run_until_pause();
    thread_local_segment::of_program().exchange(variables_);
    running_ = outer;
  }
  void pause()
  {
    if (_setjmp(own_) == 0) { weak_memory_jump(explorer_, 1); }
  }
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_; }

  /// Calls `destroy(object)` when the code has ended.
  void destroy_at_end(void (*destroy)(void*), void* object) { at_end_.emplace_back(destroy, object); }
  void keep_at_end() noexcept { at_end_.clear(); }

 private:
  static constexpr std::size_t stack_bytes = 256 * 1024;
  using stack_type                         = std::unique_ptr<char[]>;

  static std::vector<stack_type>& stacks()
  {
    static std::vector<stack_type> unused;
    return unused;
  }
  static stack_type take_stack()
  {
    if (stacks().empty()) { return stack_type{new char[stack_bytes]}; }
    auto taken = std::move(stacks().back());
    stacks().pop_back();
    return taken;
  }

  void run_until_pause()
  {
    if (_setjmp(explorer_) != 0) { return; }
    if (was_started_) { weak_memory_jump(own_, 1); }
    was_started_ = true;
    ucontext_t context{};
    ::getcontext(&context);
    context.uc_stack.ss_sp   = stack_.get();
    context.uc_stack.ss_size = stack_bytes;
    ::makecontext(&context, &fiber::run, 0);
    ::setcontext(&context);
  }

  static void run()
  {
    auto* const self = running_;
    if (self->code_.before) {
      self->code_.before();
      self->pause();
    }
    is_in_code = true;
    self->code_.body();
    while (!self->at_end_.empty()) {
      auto const [destroy, object] = self->at_end_.back();
      self->at_end_.pop_back();
      destroy(object);
    }
    is_in_code       = false;
    self->has_ended_ = true;
    weak_memory_jump(self->explorer_, 1);
  }

  static inline fiber* running_ = nullptr;
  program::thread_code code_;
  stack_type stack_;
  std::vector<unsigned char> variables_ = thread_local_segment::of_program().initial_contents();
  std::vector<std::pair<void (*)(void*), void*>> at_end_;
  jmp_buf explorer_{};
  jmp_buf own_{};
  bool was_started_{false};
  bool has_ended_{false};
};

/// The accesses to plain memory in a run.
class plain_memory {
 public:
  /// The accesses to some bytes of a word.
  struct record {
    unsigned bytes;  // one bit each
    plain_state state;
  };
  struct word {
    std::uint64_t run{};
    std::vector<record> records;
  };

  [[nodiscard]] word& at(std::uintptr_t address, std::uint64_t run)
  {
    auto const number = address / page_bytes;
    if (number != last_number_) {
      auto& found = pages_[number];
      if (found == nullptr) { found = std::make_unique<page>(); }
      last_number_ = number;
      last_        = found.get();
    }
    auto& found = (*last_)[address % page_bytes / word_bytes];
    if (found.run != run) {
      found.run = run;
      found.records.clear();
    }
    return found;
  }

  /// Called between runs.
  void limit_pages()
  {
    if (pages_.size() <= most_pages) { return; }
    pages_.clear();
    last_number_ = ~std::uintptr_t{0};
  }

  static constexpr std::uintptr_t word_bytes = 8;

 private:
  static constexpr std::size_t most_pages    = 1024;
  static constexpr std::uintptr_t page_bytes = 4096;
  using page                                 = std::array<word, page_bytes / word_bytes>;

  std::unordered_map<std::uintptr_t, std::unique_ptr<page>> pages_;
  std::uintptr_t last_number_{~std::uintptr_t{0}};
  page* last_{};
};

struct thread_state {
  std::unique_ptr<fiber> code;
  knowledge now;       // what the thread knows
  knowledge acquired;  // what it knows after an acquire fence
  knowledge released;  // what it knew at its last release fence
  operation next;

  /// A load that brought nothing new since the thread last learned or wrote something.
  struct idle_load {
    location const* on;
    place where;
    int count;
  };
  std::vector<idle_load> idle;
};

class explorer {
 public:
  explorer(std::function<void(program&)> const& make, limits const& given, weakening const& weaker)
    : make_{make}, limits_{given}, weaker_{weaker}
  {}

  outcome explore_all()
  {
    do {
      run_once();
      if (!result_.error.empty() || result_.runs + result_.cut_off >= limits_.most_runs) { return finish(); }
    } while (advance());
    result_.is_complete = true;
    return finish();
  }

  // --- called by threads ---

  [[nodiscard]] bool is_running() const noexcept { return running_ != nobody; }
  [[nodiscard]] bool is_after_run() const noexcept { return running_ == nobody && run_ != 0; }
  [[nodiscard]] std::uint64_t run() const noexcept { return run_; }
  [[nodiscard]] int self() const noexcept { return running_; }
  thread_state& me() { return threads_[static_cast<std::size_t>(running_)]; }

  void fail(std::string const& text)
  {
    if (result_.error.empty()) { result_.error = text + "\n" + log_text(); }
    if (is_running()) { me().code->pause(); }  // never resumed
  }

  std::memory_order order_at(ordered_place::kind_type kind, std::memory_order asked, place where)
  {
    places_.emplace(where, kind, asked);
    bool const is_weaker = weaker_.where.line == where.line && weaker_.kind == kind && weaker_.from == asked &&
                           std::strcmp(weaker_.where.file, where.file) == 0;
    return is_weaker ? weaker_.to : asked;
  }

  location& find(variable& of, bits initial)
  {
    if (of.run != run_ || of.in_run == nullptr) {
      auto& made  = *locations_.emplace_back(std::make_unique<location>());
      made.number = locations_.size() - 1;
      made.messages.push_back({initial, 0, {}, false});
      bool const is_older = of.run != run_;
      of.creator          = is_older ? nobody : of.creator;
      of.run              = run_;
      of.in_run           = &made;
    }
    if (of.creator != nobody && of.creator != running_ &&
        me().now.clock[static_cast<std::size_t>(of.creator)] < of.created) {
      fail("an atomic variable is used by a thread that does not know that it has been made");
    }
    return *of.in_run;
  }

  bits load(location& from, std::memory_order order, place where)
  {
    take_turn({step::load, &from, is_seq_cst(order), -1, where});
    auto const& got = from.messages[choose_message(from, is_seq_cst(order), false)];
    bool const news = learn(from, got, order);
    note_idle(from, where, news);
    log(got.value);
    tick();
    return got.value;
  }

  void store(location& to, bits value, std::memory_order order, place where)
  {
    take_turn({step::store, &to, is_seq_cst(order), -1, where});
    auto const floor = floor_of(to, is_seq_cst(order));
    std::vector<std::size_t> after;
    for (std::size_t i = to.messages.size(); i-- != 0 && to.messages[i].at >= floor;) {
      if (!to.messages[i].is_updated) { after.push_back(i); }
    }
    auto const chosen = after[choose(after.size())];
    write(to, chosen, value, order, releases(order) ? me().now : me().released);
    log(value);
    tick();
  }

  bits update(location& of,
              bool (*change)(bits, bits&, void*),
              void* context,
              std::memory_order order,
              std::memory_order failure,
              place where)
  {
    take_turn({step::update, &of, is_seq_cst(order), -1, where});
    auto const chosen = choose_message(of, is_seq_cst(order), true);
    auto const got    = of.messages[chosen].value;
    bits now{};
    bool const changes = change(got, now, context);
    bool const news    = learn(of, of.messages[chosen], changes ? order : failure);
    if (changes) {
      auto known = of.messages[chosen].known;  // continues a release sequence
      known.join(releases(order) ? me().now : me().released);
      of.messages[chosen].is_updated = true;
      write(of, chosen, now, order, known);
    }
    note_idle(of, where, news || changes);
    log(changes ? now : got);
    tick();
    return got;
  }

  void fence(std::memory_order order, place where)
  {
    if (is_seq_cst(order)) { take_turn({step::fence, nullptr, true, -1, where}); }
    execute_fence(me(), order);
    log(0);
    tick();
  }

  void barrier(place where)
  {
    fence_of_barrier(where);
    for (int other = 0; other != static_cast<int>(threads_.size()); ++other) {
      if (other == running_) { continue; }
      take_turn({step::fence_in_other, nullptr, true, other, where});
      execute_fence(threads_[static_cast<std::size_t>(other)], std::memory_order_seq_cst);
      log(static_cast<bits>(other));
    }
    fence_of_barrier(where);
  }

  void lock(location& held)
  {
    take_turn({step::lock, &held, false, -1, {"", 0}});
    held.holder = running_;
    join(me(), held.left);
    progress();
    log(0);
    tick();
  }
  bool try_lock(location& held)
  {
    take_turn({step::update, &held, false, -1, {"", 0}});
    if (held.holder != nobody) { return false; }
    held.holder = running_;
    join(me(), held.left);
    progress();
    tick();
    return true;
  }
  void unlock(location& held)
  {
    held.holder = nobody;
    held.left   = me().now;
    tick();
  }

  void read_plain(plain_state& state, char const* name)
  {
    check_after_write(state, name);
    state.read[static_cast<std::size_t>(running_)] = own_clock();
  }
  void write_plain(plain_state& state, char const* name)
  {
    check_after_write(state, name);
    for (std::size_t i = 0; i != threads_.size(); ++i) {
      if (state.read[i] > me().now.clock[i]) { fail(std::string{"a write races with a read: "} + name); }
    }
    state.writer  = running_;
    state.written = own_clock();
  }

  /// Handles an access to plain memory. Only the code of a thread calls this.
  void access(std::uintptr_t from, std::size_t bytes, bool writes, void const* code)
  {
    if (thread_local_segment::of_program().contains(from)) { return; }
    auto const to = from + bytes;
    for (auto at = from / plain_memory::word_bytes * plain_memory::word_bytes; at < to;
         at += plain_memory::word_bytes) {
      auto const first = std::max(at, from) - at;
      auto const last  = std::min(at + plain_memory::word_bytes, to) - at;
      auto const mask  = (1U << last) - (1U << first);
      access(memory_.at(at, run_).records, mask, writes, code);
    }
  }

  /// Forgets accesses to memory that was allocated again.
  void forget(std::uintptr_t from, std::size_t bytes)
  {
    for (auto at = from; at < from + bytes; at += plain_memory::word_bytes) { memory_.at(at, run_).records.clear(); }
  }

  unsigned own_clock() { return me().now.clock[static_cast<std::size_t>(running_)]; }

  static constexpr int nobody = -1;

 private:
  struct decision {
    std::size_t options;
    std::size_t at;
  };

  // --- runs ---

  void run_once()
  {
    static std::uint64_t runs = 0;
    locations_.clear();
    threads_.clear();
    sequential_           = {};
    written_sequentially_ = {};
    position_             = 0;
    sleeping_             = 0;
    log_.clear();
    memory_.limit_pages();
    program made;
    run_ = 0;  // while it is 0, variables behave as plain ones
    make_(made);
    run_ = ++runs;
    start(made);
    while (true) {
      if (!result_.error.empty()) { return leave_run(); }
      auto const next = pick();
      if (next == nobody) { break; }
      resume(next);
    }
    if (!result_.error.empty() || was_cut_off_) { return leave_run(); }
    ++result_.runs;
    if (made.last) { made.last(); }
    run_ = 0;
  }

  void start(program& made)
  {
    writers_ = made.threads.size();
    made.threads.insert(made.threads.end(), made.readers.begin(), made.readers.end());
    if (made.threads.size() > most_threads) { throw std::length_error{"too many threads"}; }
    threads_.resize(made.threads.size());
    for (std::size_t i = 0; i != threads_.size(); ++i) {
      auto& each = threads_[i];
      each.code  = std::make_unique<fiber>(made.threads[i]);
      if (made.threads[i].before) { each.code->resume(); }
      each.now.clock[i] = 1;
    }
    for (std::size_t i = 0; i != threads_.size(); ++i) { resume(static_cast<int>(i)); }
  }

  void resume(int thread)
  {
    running_ = thread;
    threads_[static_cast<std::size_t>(thread)].code->resume();
    running_ = nobody;
  }

  /// Abandons a run that adds nothing. Its fibers are not resumed.
  void leave_run()
  {
    if (was_cut_off_) { ++result_.cut_off; }
    was_cut_off_ = false;
    run_         = 0;
  }

  bool advance()
  {
    while (!decisions_.empty() && decisions_.back().at + 1 == decisions_.back().options) { decisions_.pop_back(); }
    if (decisions_.empty()) { return false; }
    ++decisions_.back().at;
    return true;
  }

  std::size_t choose(std::size_t options)
  {
    if (options <= 1) { return 0; }
    if (position_ == decisions_.size()) { decisions_.push_back({options, 0}); }
    return decisions_[position_++].at;
  }

  outcome finish()
  {
    for (auto const& [where, kind, order] : places_) { result_.places.push_back({where, kind, order}); }
    return std::move(result_);
  }

  // --- whose turn it is ---

  void take_turn(operation const& next)
  {
    if (static_cast<std::size_t>(running_) >= writers_ && next.kind != step::load) {
      fail("a reader does not only load");
    }
    me().next = next;
    me().code->pause();
  }

  [[nodiscard]] static bool is_write(operation const& what) noexcept
  {
    return what.kind == step::store || what.kind == step::update || what.kind == step::lock;
  }

  [[nodiscard]] bool is_waiting(thread_state const& thread) const noexcept
  {
    return thread.next.kind == step::load &&
           std::any_of(thread.idle.begin(), thread.idle.end(), [&](thread_state::idle_load const& each) {
             return each.count >= limits_.most_idle_loads && is_same(each, *thread.next.on, thread.next.where);
           });
  }

  [[nodiscard]] static bool has_newer(thread_state const& thread, location const& on) noexcept
  {
    return on.messages.back().at > thread.now.seen.at(on.number);
  }

  [[nodiscard]] bool is_enabled(thread_state const& thread) const
  {
    if (thread.next.kind == step::lock) { return thread.next.on->holder == nobody; }
    if (!is_waiting(thread)) { return true; }
    return has_newer(thread, *thread.next.on) ||
           std::any_of(thread.idle.begin(), thread.idle.end(), [&](auto& each) { return has_newer(thread, *each.on); });
  }

  [[nodiscard]] bool touches(thread_state const& thread, location const* on) const
  {
    return thread.next.on == on ||
           (is_waiting(thread) &&
            std::any_of(thread.idle.begin(), thread.idle.end(), [&](auto& each) { return each.on == on; }));
  }

  /// Whether the next steps of two threads have the same effect in any order.
  [[nodiscard]] bool are_independent(int lhs, int rhs) const
  {
    auto const& first  = threads_[static_cast<std::size_t>(lhs)];
    auto const& second = threads_[static_cast<std::size_t>(rhs)];
    auto const& a      = first.next;
    auto const& b      = second.next;
    if (a.kind == step::fence_in_other && a.other == rhs) { return false; }
    if (b.kind == step::fence_in_other && b.other == lhs) { return false; }
    bool const a_is_fence = a.on == nullptr;
    bool const b_is_fence = b.on == nullptr;
    if (a_is_fence || b_is_fence) { return !(a.is_seq_cst && b.is_seq_cst); }
    bool const a_meets = is_write(a) && touches(second, a.on);
    bool const b_meets = is_write(b) && touches(first, b.on);
    return !a_meets && !b_meets;
  }

  [[nodiscard]] bool have_writers_ended() const
  {
    return std::all_of(threads_.begin(),
                       threads_.begin() + static_cast<std::ptrdiff_t>(writers_),
                       [](auto const& each) { return each.code->has_ended(); });
  }

  int pick()
  {
    bool const may_read = have_writers_ended();
    std::vector<int> awake;
    bool any  = false;
    bool ends = true;
    for (int i = 0; i != static_cast<int>(threads_.size()); ++i) {
      auto const& each = threads_[static_cast<std::size_t>(i)];
      if (each.code->has_ended()) { continue; }
      ends                 = false;
      bool const is_reader = static_cast<std::size_t>(i) >= writers_;
      if ((is_reader && !may_read) || !is_enabled(each)) { continue; }
      any = true;
      if ((sleeping_ >> static_cast<unsigned>(i) & 1U) == 0) { awake.push_back(i); }
    }
    if (ends) { return nobody; }
    if (!any) {
      result_.error = "no thread can go on\n" + log_text();
      return nobody;
    }
    if (awake.empty()) {
      was_cut_off_ = true;
      return nobody;
    }
    auto const chosen = choose(awake.size());
    auto const next   = awake[chosen];
    if (limits_.tries_every_order) { return next; }
    for (std::size_t i = 0; i != chosen; ++i) { sleeping_ |= 1U << static_cast<unsigned>(awake[i]); }
    for (int i = 0; i != static_cast<int>(threads_.size()); ++i) {
      bool const sleeps = (sleeping_ >> static_cast<unsigned>(i) & 1U) != 0;
      if (sleeps && !are_independent(i, next)) { sleeping_ &= ~(1U << static_cast<unsigned>(i)); }
    }
    return next;
  }

  void fence_of_barrier(place where)
  {
    take_turn({step::fence, nullptr, true, nobody, where});
    execute_fence(me(), std::memory_order_seq_cst);
    tick();
  }

  // --- memory ---

  [[nodiscard]] double floor_of(location const& on, bool sequential)
  {
    auto floor = me().now.seen.at(on.number);
    if (sequential) { floor = std::max({floor, written_sequentially_.at(on.number), sequential_.at(on.number)}); }
    return floor;
  }

  std::size_t choose_message(location const& on, bool sequential, bool updates)
  {
    auto const floor = floor_of(on, sequential);
    bool const newer = !updates && is_waiting(me()) && has_newer(me(), on);
    std::vector<std::size_t> options;
    for (std::size_t i = on.messages.size(); i-- != 0 && on.messages[i].at >= floor;) {
      if (updates && on.messages[i].is_updated) { continue; }
      if (newer && on.messages[i].at <= me().now.seen.at(on.number)) { continue; }
      options.push_back(i);
    }
    // A thread that waits for a change elsewhere reads the same message again.
    if (!newer && !updates && is_waiting(me())) { return options.back(); }
    return options[choose(options.size())];
  }

  /// Adds a message's knowledge to the running thread. Returns whether the thread knows more now.
  bool learn(location const& from, message const& got, std::memory_order order)
  {
    auto& thread = me();
    bool news    = thread.now.seen.raise(from.number, got.at);
    thread.acquired.seen.raise(from.number, got.at);
    thread.acquired.join(got.known);
    if (acquires(order)) { news |= thread.now.join(got.known); }
    return news;
  }

  void write(location& to, std::size_t after, bits value, std::memory_order order, knowledge known)
  {
    bool const is_last = after + 1 == to.messages.size();
    auto const at      = is_last ? to.messages[after].at + 1 : (to.messages[after].at + to.messages[after + 1].at) / 2;
    auto& thread       = me();
    thread.now.seen.raise(to.number, at);
    thread.acquired.seen.raise(to.number, at);
    known.seen.raise(to.number, at);
    to.messages.insert(to.messages.begin() + static_cast<std::ptrdiff_t>(after) + 1,
                       {value, at, std::move(known), false});
    if (is_seq_cst(order)) { written_sequentially_.raise(to.number, at); }
    progress();
  }

  void execute_fence(thread_state& thread, std::memory_order order)
  {
    if (acquires(order)) { thread.now.join(thread.acquired); }
    if (is_seq_cst(order)) {
      thread.now.seen.join(sequential_);
      thread.now.seen.join(written_sequentially_);
      sequential_.join(thread.now.seen);
      thread.acquired.seen.join(thread.now.seen);
    }
    if (releases(order)) { thread.released = thread.now; }
  }

  static void join(thread_state& thread, knowledge const& other)
  {
    thread.now.join(other);
    thread.acquired.join(other);
  }

  void tick()
  {
    auto& clock = me().now.clock[static_cast<std::size_t>(running_)];
    ++clock;
    me().acquired.clock[static_cast<std::size_t>(running_)] = clock;
  }

  void progress() { me().idle.clear(); }
  void note_idle(location const& on, place where, bool news)
  {
    if (news) { return progress(); }
    auto& all        = me().idle;
    auto const known = std::find_if(all.begin(), all.end(), [&](auto& each) { return is_same(each, on, where); });
    if (known != all.end()) {
      ++known->count;
    } else {
      all.push_back({&on, where, 1});
    }
  }
  [[nodiscard]] static bool is_same(thread_state::idle_load const& idle, location const& on, place where) noexcept
  {
    return idle.on == &on && idle.where.line == where.line && std::strcmp(idle.where.file, where.file) == 0;
  }

  void access(std::vector<plain_memory::record>& records, unsigned mask, bool writes, void const* code)
  {
    plain_memory::record* same = nullptr;
    for (auto& each : records) {
      if ((each.bytes & mask) == 0) { continue; }
      bool races = is_unknown(each.state.writer, each.state.written);
      for (int i = 0; writes && i != static_cast<int>(threads_.size()); ++i) {
        races = races || is_unknown(i, each.state.read[static_cast<std::size_t>(i)]);
      }
      if (races) { fail("a data race, at " + text_of(code)); }
      if (each.bytes == mask) { same = &each; }
    }
    if (same == nullptr) { same = &records.emplace_back(plain_memory::record{mask, {}}); }
    if (writes) {
      same->state.writer  = running_;
      same->state.written = own_clock();
    } else {
      same->state.read[static_cast<std::size_t>(running_)] = own_clock();
    }
  }

  /// Whether the running thread does not know what another thread did at that time.
  [[nodiscard]] bool is_unknown(int thread, unsigned clock)
  {
    return thread != nobody && thread != running_ && clock > me().now.clock[static_cast<std::size_t>(thread)];
  }

  /// A place in the code, in the form that addr2line takes.
  [[nodiscard]] static std::string text_of(void const* code)
  {
    Dl_info found{};
    std::ostringstream text;
    text << code;
    if (::dladdr(code, &found) != 0 && found.dli_fbase != nullptr) {
      text << ": addr2line -Cfpie " << found.dli_fname << " 0x" << std::hex
           << reinterpret_cast<std::uintptr_t>(code) - reinterpret_cast<std::uintptr_t>(found.dli_fbase) - 1;
    }
    return text.str();
  }

  void check_after_write(plain_state const& state, char const* name)
  {
    if (state.writer != nobody && state.written > me().now.clock[static_cast<std::size_t>(state.writer)]) {
      fail(std::string{"an access races with a write: "} + name);
    }
  }

  // --- what happened ---

  void log(bits value) { log_.push_back({running_, me().next, value}); }

  [[nodiscard]] std::string log_text() const
  {
    static constexpr std::array<char const*, 6> names{"loads", "stores", "updates", "fence", "fence in", "locks"};
    std::ostringstream text;
    for (auto const& each : log_) {
      text << "  thread " << each.thread << ' ' << names[static_cast<std::size_t>(each.done.kind)];
      if (each.done.on != nullptr) { text << " variable " << each.done.on->number; }
      text << ": " << each.value << " (line " << each.done.where.line << ")\n";
    }
    return text.str();
  }

  std::function<void(program&)> const& make_;
  limits limits_;
  weakening weaker_;
  outcome result_;
  std::set<std::tuple<place, ordered_place::kind_type, std::memory_order>> places_;

  std::vector<decision> decisions_;
  std::size_t position_{0};
  unsigned sleeping_{0};  // threads whose next step was tried before steps that do not affect it
  bool was_cut_off_{false};

  std::uint64_t run_{0};
  int running_{nobody};
  std::vector<std::unique_ptr<location>> locations_;
  std::vector<thread_state> threads_;  // those that write, then readers
  std::size_t writers_{0};
  view sequential_;            // of seq_cst fences
  view written_sequentially_;  // by seq_cst stores
  std::vector<logged> log_;
  plain_memory& memory_ = all_memory();

  [[nodiscard]] static plain_memory& all_memory()
  {
    static plain_memory all;
    return all;
  }
};

explorer* current = nullptr;

[[nodiscard]] bool is_modelled() noexcept { return current != nullptr && current->is_running(); }

/// The newest value of a variable outside of a run.
[[nodiscard]] bits& plain_value(variable& of, bits& initial) noexcept
{
  bool const was_changed =
    current != nullptr && current->run() != 0 && of.run == current->run() && of.in_run != nullptr;
  return was_changed ? of.in_run->messages.back().value : initial;
}

}  // namespace

void construct(variable& made) noexcept
{
  explorer_call const call;
  made.in_run  = nullptr;
  made.run     = current != nullptr ? current->run() : 0;
  made.creator = explorer::nobody;
  if (is_modelled()) {
    made.creator = current->self();
    made.created = current->own_clock();
  }
}

bits load(variable& from, bits& initial, std::memory_order order, place where)
{
  explorer_call const call;
  if (!is_modelled()) { return plain_value(from, initial); }
  auto const actual = current->order_at(ordered_place::load, order, where);
  return current->load(current->find(from, initial), actual, where);
}

void store(variable& to, bits& initial, bits value, std::memory_order order, place where)
{
  explorer_call const call;
  if (!is_modelled()) {
    plain_value(to, initial) = value;
    return;
  }
  auto const actual = current->order_at(ordered_place::store, order, where);
  current->store(current->find(to, initial), value, actual, where);
}

bits update(variable& of,
            bits& initial,
            bool (*change)(bits old, bits& now, void* context),
            void* context,
            std::memory_order order,
            std::memory_order failure,
            place where)
{
  explorer_call const call;
  if (!is_modelled()) {
    auto& value    = plain_value(of, initial);
    auto const old = value;
    bits now{};
    if (change(old, now, context)) { value = now; }
    return old;
  }
  auto const actual = current->order_at(ordered_place::update, order, where);
  if (actual != order) { failure = acquires(actual) ? std::memory_order_acquire : std::memory_order_relaxed; }
  return current->update(current->find(of, initial), change, context, actual, failure, where);
}

void fence(std::memory_order order, place where)
{
  explorer_call const call;
  if (!is_modelled()) { return; }
  auto const actual = current->order_at(ordered_place::fence, order, where);
  if (actual != std::memory_order_relaxed) { current->fence(actual, where); }
}

void read_plain(plain_state& state, char const* name)
{
  explorer_call const call;
  if (is_modelled()) { current->read_plain(state, name); }
}
void write_plain(plain_state& state, char const* name)
{
  explorer_call const call;
  if (is_modelled()) { current->write_plain(state, name); }
}

void access_memory(void const* at, std::size_t bytes, bool writes, void const* code) noexcept
{
  if (!is_in_code || !is_modelled()) { return; }
  explorer_call const call;
  current->access(reinterpret_cast<std::uintptr_t>(at), bytes, writes, code);
}

void take_memory(void const* at, std::size_t bytes) noexcept
{
  if (!is_in_code || !is_modelled()) { return; }
  explorer_call const call;
  current->forget(reinterpret_cast<std::uintptr_t>(at), bytes);
}

}  // namespace detail

void mutex::lock()
{
  detail::explorer_call const call;
  detail::bits none{};
  if (detail::is_modelled()) { detail::current->lock(detail::current->find(state_, none)); }
}
void mutex::unlock()
{
  detail::explorer_call const call;
  detail::bits none{};
  if (detail::is_modelled()) { detail::current->unlock(detail::current->find(state_, none)); }
}
bool mutex::try_lock()
{
  detail::explorer_call const call;
  detail::bits none{};
  return !detail::is_modelled() || detail::current->try_lock(detail::current->find(state_, none));
}

void expect(bool condition, char const* what)
{
  detail::explorer_call const call;
  if (!condition && detail::current != nullptr) { detail::current->fail(std::string{"not so: "} + what); }
}

void run_before(std::function<void()> body)
{
  detail::explorer_call const call;
  detail::fiber thread{{std::move(body), {}}};
  thread.resume();
}

void keep_thread_local_objects() { detail::fiber::running()->keep_at_end(); }

void barrier_in_all_threads()
{
  detail::explorer_call const call;
  if (detail::is_modelled()) { detail::current->barrier({"", 0}); }
}

outcome explore(std::function<void(program&)> const& make, limits const& given, weakening const& weaker)
{
  detail::explorer all{make, given, weaker};
  detail::current = &all;
  auto result     = all.explore_all();
  detail::current = nullptr;
  return result;
}

std::vector<std::memory_order> weaker_orders(ordered_place::kind_type kind, std::memory_order order)
{
  std::vector<std::memory_order> weaker;
  bool const loads  = kind == ordered_place::load || kind == ordered_place::update || kind == ordered_place::fence;
  bool const stores = kind == ordered_place::store || kind == ordered_place::update || kind == ordered_place::fence;
  if (order == std::memory_order_seq_cst) {
    weaker.push_back(loads && stores ? std::memory_order_acq_rel
                                     : (loads ? std::memory_order_acquire : std::memory_order_release));
  }
  if (loads && stores && (order == std::memory_order_seq_cst || order == std::memory_order_acq_rel)) {
    weaker.push_back(std::memory_order_acquire);
    weaker.push_back(std::memory_order_release);
  }
  if (order != std::memory_order_relaxed) { weaker.push_back(std::memory_order_relaxed); }
  return weaker;
}

char const* name_of(std::memory_order order) noexcept
{
  switch (order) {
    case std::memory_order_relaxed:
      return "relaxed";
    case std::memory_order_consume:
      return "consume";
    case std::memory_order_acquire:
      return "acquire";
    case std::memory_order_release:
      return "release";
    case std::memory_order_acq_rel:
      return "acq_rel";
    case std::memory_order_seq_cst:
      return "seq_cst";
  }
  return "unknown";
}

mutex& mutex_of(void const* object)
{
  detail::explorer_call const call;
  static std::map<void const*, mutex> all;
  return all[object];
}

futex& futex_of(void const* object)
{
  detail::explorer_call const call;
  static std::map<void const*, futex> all;
  auto* const running = std::exchange(detail::current, nullptr);  // all threads know a futex, whichever uses it first
  auto& found         = all[object];
  detail::current     = running;
  return found;
}

}  // namespace weak_memory

extern "C" {

extern int __cxa_thread_atexit_impl(void (*destroy)(void*), void* object, void* module);

/// Called by code that constructs a thread_local object. The C++ library's own function knows no fibers.
int __cxa_thread_atexit(void (*destroy)(void*), void* object, void* module) noexcept
{
  weak_memory::detail::explorer_call const call;
  if (auto* const running = weak_memory::detail::fiber::running()) {
    running->destroy_at_end(destroy, object);
    return 0;
  }
  return __cxa_thread_atexit_impl(destroy, object, module);
}

}  // extern "C"
