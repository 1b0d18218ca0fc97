// SPDX-License-Identifier: Apache-2.0
//
// Output for people: violations, the ledger, the report at exit. Also reads the environment.

#include "reports.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <string_view>

extern char** environ;

namespace cudasim {
namespace {

constexpr int exit_malformed_environment = 64;
constexpr int exit_unclean               = 66;

// --- The environment

/// Value of a variable; null if it is unset or empty.
[[nodiscard]] char const* environment(char const* variable)
{
  auto const* const value = std::getenv(variable);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

/// Ends the process: results from another machine than the requested one would be worthless.
[[noreturn]] void reject(char const* variable, std::string const& why)
{
  std::fprintf(stderr, "cudasim: %s=%s: %s\n", variable, std::getenv(variable), why.c_str());
  std::fflush(stderr);
  _exit(exit_malformed_environment);
}

/// Reads decimal digits from the front of `text` and removes them. Returns false if there are none, or too many.
[[nodiscard]] bool take_number(std::string_view& text, std::uint64_t& out)
{
  out              = 0;
  std::size_t used = 0;
  for (; used < text.size() && text[used] >= '0' && text[used] <= '9'; ++used) {
    auto const digit = static_cast<std::uint64_t>(text[used] - '0');
    if (__builtin_mul_overflow(out, std::uint64_t{10}, &out) || __builtin_add_overflow(out, digit, &out)) {
      return false;
    }
  }
  text.remove_prefix(used);
  return used != 0;
}

[[nodiscard]] bool parse_number(std::string_view text, std::uint64_t& out)
{
  return take_number(text, out) && text.empty();
}

[[nodiscard]] bool parse_bytes(std::string_view text, std::uint64_t& out)
{
  struct unit {
    std::string_view name;
    std::uint64_t bytes;
  };
  static constexpr unit units[]{{"", 1},
                                {"B", 1},
                                {"KB", 1'000},
                                {"MB", 1'000'000},
                                {"GB", 1'000'000'000},
                                {"TB", 1'000'000'000'000},
                                {"KiB", 1ULL << 10U},
                                {"MiB", 1ULL << 20U},
                                {"GiB", 1ULL << 30U},
                                {"TiB", 1ULL << 40U}};
  if (!take_number(text, out)) { return false; }
  auto const* const found =
    std::find_if(std::begin(units), std::end(units), [&](unit const& u) { return u.name == text; });
  return found != std::end(units) && !__builtin_mul_overflow(out, found->bytes, &out);
}

[[nodiscard]] std::uint64_t number_from(char const* variable,
                                        std::uint64_t otherwise,
                                        std::uint64_t least,
                                        std::uint64_t most)
{
  auto const* const value = environment(variable);
  if (value == nullptr) { return otherwise; }
  std::uint64_t number = 0;
  if (!parse_number(value, number) || number < least || number > most) {
    reject(variable, "expected a number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return number;
}

[[nodiscard]] std::vector<std::string> split(std::string const& text, char separator)
{
  std::vector<std::string> parts{""};
  for (char const letter : text) {
    if (letter == separator) {
      parts.emplace_back();
    } else {
      parts.back() += letter;
    }
  }
  return parts;
}

/// Warns because a misspelled variable would otherwise silently do nothing.
void warn_of_unknown_variables()
{
  static constexpr std::string_view known[]{"CUDASIM_DEVICES",
                                            "CUDASIM_MEMORY",
                                            "CUDASIM_MODE",
                                            "CUDASIM_SEED",
                                            "CUDASIM_CHECK",
                                            "CUDASIM_FAULT",
                                            "CUDASIM_REPORT",
                                            "CUDASIM_SHARED",
                                            "CUDASIM_TIMEOUT",
                                            "CUDASIM_QUIET",
                                            "CUDASIM_ALL"};
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    std::string_view name{*entry};
    name = name.substr(0, name.find('='));
    if (name.compare(0, 8, "CUDASIM_") == 0 && std::find(std::begin(known), std::end(known), name) == std::end(known)) {
      std::fprintf(stderr, "cudasim: the simulator does not know %.*s\n", static_cast<int>(name.size()), name.data());
    }
  }
}

// --- The report at exit

/// Uses one write, so that lines of several threads and processes do not mix.
void print_line(std::string const& text)
{
  auto const line = "cudasim: " + text + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

/// A leak in words.
[[nodiscard]] std::string line_of(outstanding const& item)
{
  char handle[32];
  std::snprintf(handle, sizeof handle, "%p", item.handle);
  auto text = item.made_by + " " + handle;
  if (item.bytes != 0) { text += ", " + std::to_string(item.bytes) + " bytes"; }
  if (item.device >= 0) { text += ", device " + std::to_string(item.device); }
  if (!item.where.empty()) { text += ", from " + item.where; }
  return text + ": no " + item.freed_by;
}

/// Leaks as lines: the first few of each calling place, with a count of the rest.
[[nodiscard]] std::string leak_lines(std::vector<outstanding> const& leaks, bool in_full)
{
  std::map<std::pair<std::string, std::string>, std::vector<outstanding const*>> by_place;
  std::vector<std::vector<outstanding const*> const*> in_order;
  for (auto const& leak : leaks) {
    auto const [at, is_new] = by_place.try_emplace({leak.made_by, leak.where});
    at->second.push_back(&leak);
    if (is_new) { in_order.push_back(&at->second); }
  }
  std::string text;
  for (auto const* const same : in_order) {
    auto const shown = in_full ? same->size() : std::min<std::size_t>(same->size(), violation_list::printed_in_full);
    std::size_t bytes{0};
    for (std::size_t i = 0; i < same->size(); ++i) {
      if (i < shown) {
        text += "  " + line_of(*(*same)[i]) + "\n";
      } else {
        bytes += (*same)[i]->bytes;
      }
    }
    if (shown < same->size()) {
      text += "    and " + std::to_string(same->size() - shown) + " more from the same caller" +
              (bytes != 0 ? ", " + std::to_string(bytes) + " bytes" : std::string{}) + "\n";
    }
  }
  return text;
}

[[nodiscard]] std::string report_text(std::vector<outstanding> const& leaks,
                                      violation_list const& violations,
                                      bool in_full)
{
  std::string text{"cudasim: calls\n"};
  for (auto const& [name, count] : calls_by_function()) {
    text +=
      "  " + name + std::string(name.size() < 40 ? 40 - name.size() : 0, ' ') + " " + std::to_string(count) + "\n";
  }
  text += leaks.empty() ? "cudasim: leaks: none\n" : "cudasim: leaks\n" + leak_lines(leaks, in_full);
  text += violations.empty() ? "cudasim: violations: none\n" : "cudasim: violations\n" + violations.text("  ", in_full);
  return text;
}

/// Replaces every `%p` by the process id, and `%%` by a per cent sign.
[[nodiscard]] std::string with_process_id(std::string_view path)
{
  std::string name;
  for (std::size_t i = 0; i < path.size(); ++i) {
    char const next = path[i] == '%' && i + 1 < path.size() ? path[i + 1] : '\0';
    if (next == 'p') {
      name += std::to_string(getpid());
    } else {
      name += path[i];
    }
    if (next == 'p' || next == '%') { ++i; }
  }
  return name;
}

/// Writes a report as a whole. Where several processes use one path, it replaces the other's report; the two never mix.
/// Returns false, with the reason in errno, if it could not be written.
[[nodiscard]] bool write_report(char const* path, std::string const& text)
{
  if (std::strcmp(path, "-") == 0) {
    return std::fwrite(text.data(), 1, text.size(), stderr) == text.size() && std::fflush(stderr) == 0;
  }
  // No O_TRUNC before the file is locked, and no link that someone else may have put there. Only /dev/std* may be links.
  int const follow = std::strncmp(path, "/dev/std", 8) == 0 ? 0 : O_NOFOLLOW;
  int const file =
    ::open(with_process_id(path).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | follow, S_IRUSR | S_IWUSR);
  if (file < 0) { return false; }
  std::FILE* const out = ::fdopen(file, "a");
  if (out == nullptr) {
    int const why = errno;
    ::close(file);
    errno = why;
    return false;
  }
  // Writes also if locking fails: not a regular file, or a file system without locks.
  static_cast<void>(flock(fileno(out), LOCK_EX));
  static_cast<void>(!ftruncate(fileno(out), 0));
  bool const written = std::fwrite(text.data(), 1, text.size(), out) == text.size() && std::fflush(out) == 0;
  int const why      = errno;
  bool const closed  = std::fclose(out) == 0;  // also releases the lock
  if (!written) { errno = why; }
  return written && closed;
}

/// Runs after the destructors of the program and of its libraries.
void report_at_exit(int status, void* path_argument)
{
  if (is_forked()) { return; }  // the parent writes the report
  auto const* const path = static_cast<char const*>(path_argument);
  auto const leaks       = ledger();
  auto& w                = the_world();
  std::unique_lock<std::mutex> lock{w.mutex};
  auto const all        = w.violations;
  bool const prints_all = w.prints_all;
  lock.unlock();
  bool const written = write_report(path, report_text(leaks, all, prints_all));
  if (!written) { std::fprintf(stderr, "cudasim: CUDASIM_REPORT=%s: %s\n", path, std::strerror(errno)); }
  if (status == 0 && !(written && leaks.empty() && all.empty())) {
    std::fflush(nullptr);
    _exit(exit_unclean);
  }
}

/// Whether violations went unprinted since the last count was printed. Needs no lock.
std::atomic<bool> is_something_untold{false};

/// Prints how many violations were not printed, once. Expects the lock.
void tell_untold()
{
  if (!is_something_untold.exchange(false)) { return; }
  for (auto const& line : the_world().violations.untold()) { print_line(line); }
}

void tell_untold_at_exit(int /*status*/, void* /*argument*/)
{
  if (is_forked() || !is_something_untold) { return; }
  std::lock_guard<std::mutex> const lock{the_world().mutex};
  tell_untold();
}

/// Runs before the constructors of the program, so that the report comes after its destructors.
[[gnu::constructor]] void arrange_report()
{
  if (auto const* const path = environment("CUDASIM_REPORT")) { on_exit(report_at_exit, ::strdup(path)); }
  on_exit(tell_untold_at_exit, nullptr);  // runs before report_at_exit, which may end the process
}

}  // namespace

options environment_options()
{
  options chosen;
  chosen.devices =
    static_cast<int>(number_from("CUDASIM_DEVICES", static_cast<std::uint64_t>(chosen.devices), 0, most_devices));
  if (auto const* const memory = environment("CUDASIM_MEMORY")) {
    std::uint64_t bytes = 0;
    if (!parse_bytes(memory, bytes) || bytes == 0 || bytes > most_memory) {
      reject("CUDASIM_MEMORY",
             "expected a size such as 141GB or 512MiB (B, KB, MB, GB, TB, KiB, MiB, GiB, TiB), at most 64TiB");
    }
    chosen.memory_bytes = bytes;
  }
  if (auto const* const mode = environment("CUDASIM_MODE")) {
    if (std::strcmp(mode, "threads") == 0) {
      chosen.mode = execution::threads;
    } else if (std::strcmp(mode, "stepped") == 0) {
      chosen.mode = execution::stepped;
    } else {
      reject("CUDASIM_MODE", "expected 'threads' or 'stepped'");
    }
  }
  chosen.seed           = number_from("CUDASIM_SEED", chosen.seed, 0, std::numeric_limits<std::uint64_t>::max());
  chosen.check_ordering = number_from("CUDASIM_CHECK", 0, 0, 1) != 0;
  return chosen;
}

std::unique_ptr<shared_devices> open_shared_devices()
{
  auto const* const path = environment("CUDASIM_SHARED");
  if (path == nullptr) { return nullptr; }
  try {
    return std::make_unique<shared_devices>(path);
  } catch (std::exception const& problem) {
    reject("CUDASIM_SHARED", problem.what());
  }
}

std::string parse_fault(std::string const& text, fault& out)
{
  auto const parts = split(text, ':');
  if (parts.size() < 3 || parts.size() > 4) {
    return "expected FUNCTION:N:ERROR or FUNCTION:N:ERROR:COUNT, not '" + text + "'";
  }
  out          = {};
  out.function = parts[0];
  if (!parse_number(parts[1], out.nth)) { return "'" + parts[1] + "' is not the number of a call"; }
  if (!find_error(parts[2], out.error)) {
    return "'" + parts[2] + "' is neither the name nor the number of a CUDA error";
  }
  if (parts.size() == 4 && !parse_number(parts[3], out.count)) { return "'" + parts[3] + "' is not a number of calls"; }
  return check_fault(out);
}

void apply_environment()
{
  static bool applied = false;
  if (applied) { return; }
  applied = true;
  auto& w = the_world();
  warn_of_unknown_variables();
  w.timeout    = std::chrono::seconds{number_from("CUDASIM_TIMEOUT", 60, 1, 1'000'000)};
  w.quiet      = number_from("CUDASIM_QUIET", 0, 0, 1) != 0;
  w.prints_all = number_from("CUDASIM_ALL", 0, 0, 1) != 0;
  if (auto const* const list = environment("CUDASIM_FAULT")) {
    for (auto const& text : split(list, ',')) {
      fault what;
      auto const problem = parse_fault(text, what);
      if (!problem.empty()) { reject("CUDASIM_FAULT", problem); }
      arm(what);
    }
  }
}

// --- Violations

namespace {

/// Prints violation number `count` of its mistake, or leaves it to a later count. Expects the lock.
void print_unless_repeated(std::string const& text, std::uint64_t count)
{
  auto const& w = the_world();
  if (w.prints_all || count <= violation_list::printed_in_full) { return print_line(text); }
  if (count == violation_list::printed_in_full + 1) {
    print_line("more of these from the same callers are counted, not printed; CUDASIM_ALL=1 prints them");
  }
  if (!w.quiet) { is_something_untold = true; }
}

}  // namespace

void report(violation::kind what, mistake const& by, std::string text)
{
  auto& w          = the_world();
  auto const count = w.violations.add(by, {what, text});
  if (!w.quiet) { print_unless_repeated(text, count); }
}

void forget_violations()
{
  tell_untold();
  the_world().violations.clear();
}

cudaError_t report_fork(char const* function)
{
  // Process id and number of lines in one word. A forked child starts with its parent's word and then counts anew.
  static std::atomic<std::uint64_t> printed{0};
  auto const& w         = the_world();
  auto const process    = static_cast<std::uint64_t>(::getpid()) << 32U;
  auto before           = printed.load();
  std::uint64_t count   = 0;
  constexpr auto enough = violation_list::printed_in_full + 1;
  do {
    count = (before & ~std::uint64_t{0xFFFFFFFF}) == process ? before - process : 0;
  } while (count < enough && !printed.compare_exchange_weak(before, process + count + 1));
  if (w.quiet) { return cudaErrorInitializationError; }
  if (w.prints_all || count < violation_list::printed_in_full) {
    print_line(std::string{function} +
               ": this process was forked from one that used CUDA; it has to start a new program");
  } else if (count < enough) {
    print_line("more of these are not printed; CUDASIM_ALL=1 prints them");
  }
  return cudaErrorInitializationError;
}

cudaError_t report_unsimulated(call const& c, std::string const& what)
{
  auto const text = std::string{c.name()} + what + " (called from " + describe_address(c.site()) + ")";
  print_unless_repeated(text, the_world().violations.add({c.name() + what, c.site()}, {violation::kind::misuse, text}));
  return cudaErrorNotSupported;
}

cudaError_t call::misuse(cudaError_t error, char const* format, ...)
{
  char reason[512];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  auto const* const known = error_name(error);
  report(violation::kind::misuse,
         {std::string{name()} + ": " + format, site()},
         std::string{name()} + ": " + reason + " (" + (known != nullptr ? known : std::to_string(error)) +
           ", called from " + describe_address(site()) + ")");
  return error;
}

std::vector<violation> violations()
{
  auto& w = the_world();
  std::lock_guard<std::mutex> const lock{w.mutex};
  return w.violations.all();
}

std::uint64_t violation_count()
{
  auto& w = the_world();
  std::lock_guard<std::mutex> const lock{w.mutex};
  return w.violations.count();
}

void clear_violations()
{
  auto& w = the_world();
  std::lock_guard<std::mutex> const lock{w.mutex};
  forget_violations();
}

// --- The ledger

std::vector<outstanding> ledger()
{
  note_loading();
  std::lock_guard<std::mutex> const lock{the_world().mutex};
  std::vector<outstanding> all;
  list_memory(all);
  list_streams(all);
  return all;
}

std::string leak_report()
{
  std::string text;
  for (auto const& item : ledger()) { text += line_of(item) + "\n"; }
  return text;
}

}  // namespace cudasim
