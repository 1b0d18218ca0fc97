// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/file_descriptor.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/export.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

/// @file
/// Files for the eyes of the program's own user: what logs and traces are written to.

namespace RMM_NAMESPACE {
namespace detail {

/// A file that was opened for writing; or none, and why.
struct private_file {
  file_descriptor file;
  bool is_in_shared_folder;  ///< into which all users may write, as /tmp, or that someone else made in one
  char const* problem;       ///< null if it is open
  int number{};              ///< errno, where that is the problem
};

enum class links {
  refused,           ///< the file is no symbolic link
  refused_in_shared  ///< nor in a shared folder
};

/// Opens or makes a file, which its owner alone may read and write, and the folders on the way, which are private too.
///
/// Symbolic links in folders into which all users may write, and in folders that other users made there, are not followed, neither
/// to the file nor on the way to it: whoever put them there could choose what is overwritten. `flags` are those of open(), besides
/// O_CREAT.
[[nodiscard]] RMM_COLD inline private_file make_private_file(std::string const& path, int flags, links which)
{
  // What someone else made in a folder of all users is theirs to change.
  auto const is_shared = [](int folder, bool lies_in_shared) {
    struct stat is {};
    return ::fstat(folder, &is) == 0 &&
           ((is.st_mode & S_IWOTH) != 0 || (lies_in_shared && is.st_uid != ::geteuid() && is.st_uid != 0));
  };
  auto const failed = [](bool in_shared, int number) {
    return private_file{file_descriptor{}, in_shared, std::strerror(number), number};
  };
  constexpr int as_folder = O_PATH | O_DIRECTORY | O_CLOEXEC;
  file_descriptor folder{::open(path.front() == '/' ? "/" : ".", as_folder)};
  int number        = errno;  // of what failed, if the folder is not open
  bool shared       = is_shared(folder.get(), false);
  std::size_t begin = 0;
  for (auto end = path.find('/'); folder.get() >= 0 && end != std::string::npos; end = path.find('/', begin)) {
    if (end != begin) {
      auto const name = path.substr(begin, end - begin);
      ::mkdirat(folder.get(), name.c_str(), 0700);  // what fails here shows below
      struct stat is {};
      bool const is_link =
        shared && ::fstatat(folder.get(), name.c_str(), &is, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(is.st_mode);
      if (is_link) {
        return {file_descriptor{}, true, "a folder on the way is a symbolic link in a folder of all users"};
      }
      folder = file_descriptor{::openat(folder.get(), name.c_str(), as_folder | (shared ? O_NOFOLLOW : 0))};
      number = errno;
      shared = is_shared(folder.get(), shared);
    }
    begin = end + 1;
  }
  if (folder.get() < 0) { return failed(false, number); }
  bool const follows = which == links::refused_in_shared && !shared;
  flags |= O_CREAT | O_CLOEXEC | (follows ? 0 : O_NOFOLLOW) | (shared ? O_NONBLOCK : 0);  // a pipe makes nobody wait
  file_descriptor file{::openat(folder.get(), path.c_str() + begin, flags, 0600)};
  if (file.get() < 0) {
    if (errno != ELOOP) { return failed(shared, errno); }
    return {file_descriptor{}, shared, "it is a symbolic link"};
  }
  return {std::move(file), shared, nullptr};
}

/// The file of a log, to append to; emptied first with `empties`. In a folder of all users it has to be an ordinary file of the
/// caller's own without other names.
[[nodiscard]] RMM_COLD inline private_file open_log_file(std::string const& path, bool empties)
{
  if (path.empty()) { return {file_descriptor{}, false, "the name is empty"}; }
  auto opened = make_private_file(path, O_WRONLY | O_APPEND | O_NOCTTY, links::refused_in_shared);
  if (opened.problem != nullptr) { return opened; }
  struct stat is {};
  auto const refuse = [&](char const* why) { return private_file{file_descriptor{}, opened.is_in_shared_folder, why}; };
  auto const fail   = [&] {
    return private_file{file_descriptor{}, opened.is_in_shared_folder, std::strerror(errno), errno};
  };
  if (::fstat(opened.file.get(), &is) != 0) { return fail(); }
  if (opened.is_in_shared_folder) {
    if (!S_ISREG(is.st_mode)) { return refuse("it is no regular file"); }
    if (is.st_uid != ::geteuid()) { return refuse("it belongs to someone else"); }
    if (is.st_nlink > 1) { return refuse("it has other names"); }
    if (::fchmod(opened.file.get(), 0600) != 0) { return fail(); }
  }
  if (empties && S_ISREG(is.st_mode) && ::ftruncate(opened.file.get(), 0) != 0) { return fail(); }
  return opened;
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
