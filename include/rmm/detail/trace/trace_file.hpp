// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/log_hook.hpp>
#include <rmm/detail/base/private_file.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/detail/trace/format.hpp>
#include <rmm/detail/trace/trace_clock.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

namespace RMM_NAMESPACE {
namespace detail {
namespace trace {

/// The files of a trace. Blocks are appended to the newest file, and a block is never divided between files.
///
/// Only the owner can read and write the files. The trace is not written through a symbolic link (or, in folders that all users can write
/// to, through a linked folder), and not to a file that belongs to another user, has other hard links, or is in use by a trace. One
/// thread at a time may use the object.
class trace_file {
 public:
  /// `max_bytes` and `max_files` are those of trace_options. Throws std::runtime_error if the file cannot be opened.
  RMM_COLD trace_file(std::string path, std::size_t max_bytes, std::size_t max_files)
    : path_{std::move(path)}, max_bytes_{max_bytes}, max_files_{max_files}
  {
    std::timespec wall{};
    std::timespec_get(&wall, TIME_UTC);
    header_.wall_time_ns =
      static_cast<std::uint64_t>(wall.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(wall.tv_nsec);
    header_.clock_ns = trace::clock_ns();
    header_.process  = static_cast<std::uint32_t>(::getpid());
    header_.run      = header_.wall_time_ns ^ std::uint64_t{header_.process} << 48U;
    open_part(0);
    if (file_ < 0) { throw std::runtime_error("cannot write the trace '" + path_ + "': " + problem_); }
  }

  trace_file(trace_file const&)            = delete;
  trace_file& operator=(trace_file const&) = delete;

  ~trace_file() { close(); }

  [[nodiscard]] file_header const& header() const noexcept { return header_; }
  [[nodiscard]] std::string const& path() const noexcept { return path_; }

  /// Whether this process made the trace; false in a forked child.
  [[nodiscard]] bool is_in_its_process() const noexcept { return ::getpid() == static_cast<pid_t>(header_.process); }

  /// Appends a block, to the next file if it does not fit into this one. Returns false if writing fails, and logs the first such failure.
  /// Returns false, and writes nothing, in a forked child, because the trace belongs to the parent.
  [[nodiscard]] RMM_COLD bool append(void const* block, std::size_t bytes) noexcept
  {
    if (!is_in_its_process()) { return false; }
    bool const has_blocks = size_ > sizeof(file_header);
    if (max_bytes_ != 0 && has_blocks && size_ + bytes > max_bytes_) { begin_next_part(); }
    if (file_ >= 0 && write_whole(block, bytes)) { return true; }
    if (!std::exchange(has_failed_, true)) { log_problem(); }
    return false;
  }

 private:
  [[nodiscard]] std::string path_of(std::uint64_t part) const
  {
    return part == 0 ? path_ : path_ + '.' + std::to_string(part);
  }

  void begin_next_part() noexcept
  {
    try {
      auto const next = std::uint64_t{header_.part} + 1;
      if (max_files_ != 0 && next >= max_files_) { ::unlink(path_of(next - max_files_).c_str()); }
      open_part(static_cast<std::uint32_t>(next));
    } catch (std::exception const&) {
      problem_ = "host memory ran out when the next file was named";
      close();
    }
  }

  /// Opens a file and writes its header. On failure, file_ is below 0 afterwards.
  void open_part(std::uint32_t part)
  {
    close();
    auto const path = path_of(part);
    header_.part    = part;
    size_           = 0;
    auto opened     = make_private_file(path, O_WRONLY, links::refused);
    file_           = opened.file.release();
    if (file_ < 0) {
      problem_ = opened.problem;
      return;
    }
    struct stat status {};
    if (::fstat(file_, &status) != 0) {
      problem_ = std::strerror(errno);
    } else if (!S_ISREG(status.st_mode)) {
      problem_ = "it is not a regular file";
    } else if (status.st_uid != ::geteuid()) {
      problem_ = "it belongs to another user";
    } else if (status.st_nlink > 1) {
      problem_ = "it has other hard links";
    } else if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
      problem_ = "another trace is written to it";
    } else if (::fchmod(file_, 0600) != 0 || ::ftruncate(file_, 0) != 0) {
      problem_ = std::strerror(errno);
    } else if (write_whole(&header_, sizeof header_)) {
      return;
    }
    close();
  }

  void close() noexcept
  {
    if (file_ < 0) { return; }
    if (is_in_its_process()) { ::flock(file_, LOCK_UN); }  // a forked child that lives on shares the lock
    ::close(std::exchange(file_, -1));
  }

  /// Writes all bytes. On failure, removes the part that was written, or closes the file, and returns false.
  bool write_whole(void const* data, std::size_t bytes) noexcept
  {
    std::size_t done = 0;
    while (done < bytes) {
      auto const written =
        ::pwrite(file_, static_cast<char const*>(data) + done, bytes - done, static_cast<off_t>(size_ + done));
      if (written > 0) {
        done += static_cast<std::size_t>(written);
      } else if (written == 0 || errno != EINTR) {
        problem_ = written == 0 ? "the system wrote no bytes" : std::strerror(errno);
        if (done != 0 && ::ftruncate(file_, static_cast<off_t>(size_)) != 0) { close(); }
        return false;
      }
    }
    size_ += bytes;
    return true;
  }

  void log_problem() const noexcept
  {
    if (!is_logging()) { return; }
    try {
      auto const text = "The trace '" + path_ + "' cannot be written: " + problem_ + ". Events are lost.";
      log(log_level::error, text.c_str());
    } catch (std::exception const&) {
      log(log_level::error, "A trace cannot be written. Events are lost.");
    }
  }

  std::string path_;
  std::size_t max_bytes_;
  std::size_t max_files_;
  file_header header_;
  int file_{-1};
  std::size_t size_{0};  // bytes of the newest file
  char const* problem_{""};
  bool has_failed_{false};
};

}  // namespace trace
}  // namespace detail
}  // namespace RMM_NAMESPACE
