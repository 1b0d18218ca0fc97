// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/file_descriptor.hpp>
#include <rmm/detail/base/file_error.hpp>
#include <rmm/detail/base/mutex.hpp>
#include <rmm/detail/base/owning_process.hpp>
#include <rmm/detail/base/private_file.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

/// @file
/// Destinations for lines of text. Several threads may write to a sink at once; the texts of their writes do not mix.

namespace RMM_NAMESPACE {
namespace detail {

class text_sink {
 public:
  text_sink()                            = default;
  text_sink(text_sink const&)            = delete;
  text_sink& operator=(text_sink const&) = delete;
  virtual ~text_sink()                   = default;

  virtual void write(std::string_view text) = 0;
  virtual void flush()                      = 0;
};

/// A sink that writes to a file, which it owns.
///
/// The file belongs to the process that opened it: a forked child writes nothing, neither text of its own nor what its parent had buffered,
/// which exit() would write once more.
class file_sink final : public text_sink {
 public:
  enum class mode { append, truncate };

  /// Opens the file, and creates it and the folders of its path if they do not exist. Only the user can read what is created; see
  /// open_log_file(). Throws file_error if the file cannot be opened.
  RMM_COLD file_sink(std::string const& path, mode how)
  {
    auto opened = open_log_file(path, how == mode::truncate);
    if (opened.problem != nullptr) { throw file_error{path, opened.number, opened.problem}; }
    target_.file = std::move(opened.file);
    file_.reset(::fopencookie(&target_, "a", {nullptr, owned_file::write, nullptr, nullptr}));
    if (file_ == nullptr) {
      auto const number = errno;
      throw file_error{path, number, std::strerror(number)};
    }
  }

  void write(std::string_view text) override { std::fwrite(text.data(), 1, text.size(), file_.get()); }

  void flush() override { std::fflush(file_.get()); }

 private:
  /// The destination of the buffer of the std::FILE.
  struct owned_file {
    file_descriptor file{};
    pid_t process{::getpid()};

    /// Returns the bytes written, fewer than `bytes` after an error.
    static ssize_t write(void* target, char const* text, std::size_t bytes)
    {
      auto const& self = *static_cast<owned_file*>(target);
      if (self.process != ::getpid()) { return static_cast<ssize_t>(bytes); }
      std::size_t done{0};
      while (done != bytes) {
        auto const written = ::write(self.file.get(), text + done, bytes - done);
        if (written > 0) {
          done += static_cast<std::size_t>(written);
        } else if (written == 0 || errno != EINTR) {
          break;
        }
      }
      return static_cast<ssize_t>(done);
    }
  };

  struct close_file {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };

  owned_file target_;
  std::unique_ptr<std::FILE, close_file> file_;  // ends first
};

/// A sink that writes to a std::ostream, which has to outlive it.
class stream_sink final : public text_sink {
 public:
  explicit stream_sink(std::ostream& stream) : stream_{stream} { static_cast<void>(mutex_.get()); }
  ~stream_sink() override { mutex_.destroy(); }

  void write(std::string_view text) override
  {
    detail::mutex_lock const lock{mutex_.get()};
    stream_.write(text.data(), static_cast<std::streamsize>(text.size()));
  }

  void flush() override
  {
    detail::mutex_lock const lock{mutex_.get()};
    stream_.flush();
  }

 private:
  std::ostream& stream_;
  one_per_process<detail::mutex> mutex_;  // std::ostream is not thread-safe
};

}  // namespace detail
}  // namespace RMM_NAMESPACE
