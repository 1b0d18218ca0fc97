// SPDX-License-Identifier: Apache-2.0
//
// Part of tests that an emulator of another processor runs (qemu-user). Preloaded into the emulated programs, for two
// reasons:
//  - A program that they start, often themselves, is for that processor, too, so the emulator must run it (death tests).
//  - The emulator keeps a record of each page that was ever mapped, and looks for new addresses above all earlier ones. So
//    a program that reserves addresses again and again, as elastic pools do, would take all memory of the machine.

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <vector>

namespace {

using arguments = std::vector<char*>;

[[nodiscard]] bool is_for_this_processor(char const* path)
{
  Elf64_Ehdr header{};
  int const file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file == -1) { return false; }
  bool const is_read = ::read(file, &header, sizeof header) == static_cast<ssize_t>(sizeof header);
  ::close(file);
  return is_read && std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_machine == EM_AARCH64;
}

/// The command that is started instead. QEMU_SET_ENV makes the program, not the emulator, load this library.
class emulated_call {
 public:
  emulated_call(char const* path, char* const* given, char* const* environment) : path_{path}
  {
    if (path_ == "/proc/self/exe") {
      std::array<char, 4096> self{};
      if (::readlink(path, self.data(), self.size() - 1) > 0) { path_ = self.data(); }
    }
    if (is_for_this_processor(path_.c_str())) {
      arguments_ = {emulator_.data(), name_option_.data(), given[0], path_.data()};
      if (*given != nullptr) { ++given; }
      path_in_use_ = emulator_.c_str();
    }
    for (; *given != nullptr; ++given) { arguments_.push_back(*given); }
    arguments_.push_back(nullptr);
    for (; *environment != nullptr; ++environment) {
      if (std::strncmp(*environment, "LD_PRELOAD=", 11) != 0) { environment_.push_back(*environment); }
    }
    environment_.push_back(nullptr);
  }

  [[nodiscard]] char const* path() const { return path_in_use_ != nullptr ? path_in_use_ : path_.c_str(); }
  [[nodiscard]] char** given() { return arguments_.data(); }
  [[nodiscard]] char** environment() { return environment_.data(); }

 private:
  std::string path_;
  std::string emulator_{RMM_TEST_EMULATOR};
  std::string name_option_{"-0"};
  char const* path_in_use_{};
  arguments arguments_;
  arguments environment_;
};

/// Keeps large ranges of reserved addresses for the next program that reserves as many, instead of giving them up. Needs no host memory,
/// which tests make fail.
class kept_reservations {
 public:
  /// Reserves addresses. Returns MAP_FAILED if there are none.
  [[nodiscard]] void* reserve(std::size_t bytes, int flags)
  {
    std::lock_guard<std::mutex> const lock{mutex_};
    range* best{};
    for (range* each = all_.data(); each != all_.data() + count_; ++each) {
      bool const fits = each->first == each->last && each->bytes >= bytes && each->bytes / 2 <= bytes;
      if (fits && (best == nullptr || each->bytes < best->bytes)) { best = each; }
    }
    if (best == nullptr) {
      void* const made = map(nullptr, bytes, PROT_NONE, flags, -1, 0);
      if (made == MAP_FAILED || count_ == all_.size()) { return made; }
      best  = &all_[count_++];
      *best = {static_cast<char*>(made), bytes, nullptr, nullptr};
    }
    best->first = best->begin;
    best->last  = best->begin + bytes;
    return best->begin;
  }

  /// Returns whether the addresses are part of a reservation, which keeps them. Once all of it is given up, the next one may take it.
  [[nodiscard]] bool give_up(void* ptr, std::size_t bytes)
  {
    auto* const begin = static_cast<char*>(ptr);
    std::lock_guard<std::mutex> const lock{mutex_};
    for (range* each = all_.data(); each != all_.data() + count_; ++each) {
      if (begin < each->begin || begin + bytes > each->begin + each->bytes) { continue; }
      constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
      if (map(ptr, bytes, PROT_NONE, flags, -1, 0) == MAP_FAILED) { return false; }
      if (begin <= each->first) { each->first = std::max(each->first, begin + bytes); }
      if (begin + bytes >= each->last) { each->last = std::max(each->first, std::min(each->last, begin)); }
      if (each->first >= each->last) { each->last = each->first; }
      return true;
    }
    return false;
  }

  static void* map(void* where, std::size_t bytes, int access, int flags, int file, off_t offset)
  {
    return reinterpret_cast<void*>(::syscall(SYS_mmap, where, bytes, access, flags, file, offset));
  }

  static constexpr std::size_t large = std::size_t{16} << 20U;

 private:
  struct range {
    char* begin;
    std::size_t bytes;
    char* first;  // what is reserved of it; empty: nothing
    char* last;
  };

  std::mutex mutex_;
  std::array<range, 4096> all_{};
  std::size_t count_{};
};

kept_reservations& reservations()
{
  alignas(kept_reservations) static std::array<std::byte, sizeof(kept_reservations)> place;
  static auto& all = *new (place.data()) kept_reservations;  // programs unmap until their very end
  return all;
}

}  // namespace

extern "C" {

void* mmap(void* where, std::size_t bytes, int access, int flags, int file, off_t offset) noexcept
{
  bool const reserves = where == nullptr && access == PROT_NONE && bytes >= kept_reservations::large;
  return reserves ? reservations().reserve(bytes, flags)
                  : kept_reservations::map(where, bytes, access, flags, file, offset);
}

int munmap(void* ptr, std::size_t bytes) noexcept
{
  if (reservations().give_up(ptr, bytes)) { return 0; }
  return static_cast<int>(::syscall(SYS_munmap, ptr, bytes));
}

int execve(char const* path, char* const* given, char* const* environment)
{
  emulated_call call{path, given, environment};
  return static_cast<int>(::syscall(SYS_execve, call.path(), call.given(), call.environment()));
}

int execv(char const* path, char* const* given) { return execve(path, given, environ); }

int execl(char const* path, char const* first, ...)
{
  arguments all{const_cast<char*>(first)};
  va_list list;
  va_start(list, first);
  while (all.back() != nullptr) { all.push_back(va_arg(list, char*)); }
  va_end(list);
  return execv(path, all.data());
}

int posix_spawn(pid_t* child,
                char const* path,
                posix_spawn_file_actions_t const* actions,
                posix_spawnattr_t const* attributes,
                char* const* given,
                char* const* environment)
{
  static auto* const next = reinterpret_cast<decltype(&posix_spawn)>(::dlsym(RTLD_NEXT, "posix_spawn"));
  emulated_call call{path, given, environment};
  return next(child, call.path(), actions, attributes, call.given(), call.environment());
}

std::FILE* popen(char const* command, char const* mode)
{
  static auto* const next = reinterpret_cast<decltype(&popen)>(::dlsym(RTLD_NEXT, "popen"));
  std::string const given{command};
  bool const is_ours = is_for_this_processor(given.substr(0, given.find(' ')).c_str());
  return next((is_ours ? "unset LD_PRELOAD; exec " RMM_TEST_EMULATOR " " + given : given).c_str(), mode);
}

}  // extern "C"
