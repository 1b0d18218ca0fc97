// SPDX-License-Identifier: Apache-2.0
#include "shared_devices.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace cudasim {
namespace {

constexpr std::uint64_t format_number = 0x316572616873ULL;

// Offsets in the file that are used as locks; the file need not have these bytes.
constexpr off_t turn_lock = 0;
[[nodiscard]] off_t slot_lock(std::size_t slot) { return static_cast<off_t>(1 + slot); }

/// Locks of the open file, not of the process: released when the last descriptor closes, however the process ends.
[[nodiscard]] int lock_call(int descriptor, int command, short type, off_t byte, struct flock& asked) noexcept
{
  asked          = {};
  asked.l_type   = type;
  asked.l_whence = SEEK_SET;
  asked.l_start  = byte;
  asked.l_len    = 1;
  int result     = -1;
  do {
    result = ::fcntl(descriptor, command, &asked);
  } while (result < 0 && errno == EINTR);
  return result;
}

[[nodiscard]] bool try_lock(int descriptor, off_t byte) noexcept
{
  struct flock asked {};
  return lock_call(descriptor, F_OFD_SETLK, F_WRLCK, byte, asked) == 0;
}

[[nodiscard]] bool is_locked_elsewhere(int descriptor, off_t byte) noexcept
{
  struct flock asked {};
  return lock_call(descriptor, F_OFD_GETLK, F_WRLCK, byte, asked) == 0 && asked.l_type != F_UNLCK;
}

[[noreturn]] void fail() { throw std::runtime_error{std::strerror(errno)}; }

}  // namespace

shared_devices::shared_devices(std::string const& path)
{
  try {
    open(path);
    take_slot();
  } catch (...) {
    if (content_ != nullptr) { ::munmap(content_, sizeof(content)); }
    if (descriptor_ >= 0) { ::close(descriptor_); }
    throw;
  }
}

void shared_devices::open(std::string const& path)
{
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor_ < 0) { fail(); }
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0) { fail(); }
  auto const bytes = static_cast<off_t>(sizeof(content));
  if (info.st_size != 0 && info.st_size != bytes) { throw std::runtime_error{"the file was not made for this"}; }
  if (::ftruncate(descriptor_, bytes) != 0) { fail(); }
  void* const at = ::mmap(nullptr, sizeof(content), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (at == MAP_FAILED) { fail(); }
  content_             = static_cast<content*>(at);
  std::uint64_t format = 0;  // the value in a new file
  if (!content_->format.compare_exchange_strong(format, format_number) && format != format_number) {
    throw std::runtime_error{"the file was not made for this"};
  }
}

void shared_devices::take_slot()
{
  while (own_ < most_processes && !try_lock(descriptor_, slot_lock(own_))) { ++own_; }
  if (own_ == most_processes) {
    throw std::runtime_error{"more than " + std::to_string(most_processes) + " processes"};
  }
  for (auto& used : content_->slots[own_].used) { used.store(0); }
}

shared_devices::~shared_devices()
{
  ::munmap(content_, sizeof(content));
  ::close(descriptor_);
}

std::size_t shared_devices::used_by_others(std::size_t device)
{
  if (!has_turn_) {
    struct flock asked {};
    has_turn_ = lock_call(descriptor_, F_OFD_SETLKW, F_WRLCK, turn_lock, asked) == 0;
  }
  std::size_t sum = 0;
  for (std::size_t i = 0; i < most_processes; ++i) {
    auto const used = content_->slots[i].used[device].load();
    if (i != own_ && used != 0 && is_locked_elsewhere(descriptor_, slot_lock(i))) { sum += used; }
  }
  return sum;
}

void shared_devices::tell(std::size_t device, std::size_t bytes) noexcept
{
  auto& used = content_->slots[own_].used[device];
  if (used.load(std::memory_order_relaxed) != bytes) { used.store(bytes); }
}

void shared_devices::end_turn() noexcept
{
  if (!has_turn_) { return; }
  struct flock asked {};
  has_turn_ = lock_call(descriptor_, F_OFD_SETLK, F_UNLCK, turn_lock, asked) != 0;
}

}  // namespace cudasim
