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
/// Files that only the user of the program can read, for logs and traces.

namespace RMM_NAMESPACE {
namespace detail {

/// Returns the name of a file for one device and process, and whether it names the device: `%d` in `pattern` is the device's number, `%p`
/// the process's, `%%` a percent sign.
[[nodiscard]] RMM_COLD inline std::pair<std::string, bool> expanded_file_name(std::string const& pattern, int device)
{
  std::string name;
  bool names_device = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    char const next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'd') { name += std::to_string(device); }
    if (next == 'p') { name += std::to_string(::getpid()); }
    bool const is_replaced = next == 'd' || next == 'p' || next == '%';
    names_device           = names_device || next == 'd';
    if (next == '%' || !is_replaced) { name += pattern[i]; }
    if (is_replaced) { ++i; }
  }
  return {std::move(name), names_device};
}

/// The result of opening a file for writing: the file, or a problem.
struct private_file {
  file_descriptor file;
  bool is_in_shared_folder;  ///< whether other users may change the folder: see make_private_file()
  char const* problem;       ///< why the file is not open; null if it is
  int number{};              ///< errno, if a call of the system failed; else 0
};

/// In which folders a symbolic link is refused instead of the file.
enum class links {
  refused,           ///< anywhere
  refused_in_shared  ///< in a shared folder
};

/// Says why a file in this folder could not be opened, which failed with `number`.
[[nodiscard]] RMM_COLD inline char const* problem_of_opening(int folder, char const* name, int number)
{
  if (number == ELOOP) { return "it is a symbolic link"; }
  struct stat info {};
  bool const is_pipe = number == ENXIO && ::fstatat(folder, name, &info, 0) == 0 && S_ISFIFO(info.st_mode);
  return is_pipe ? "it is a pipe that no program reads" : std::strerror(number);
}

/// Opens or creates a file that only its owner may read and write. Creates missing folders of the path, which are private too.
///
/// A folder is shared if all users may write into it, as into /tmp, or if another user made it in a shared folder. Symbolic links in
/// shared folders are not followed, neither for the file nor for a folder of the path: another user could redirect them to any file of
/// this user. `flags` are those of open() without O_CREAT.
[[nodiscard]] RMM_COLD inline private_file make_private_file(std::string const& path, int flags, links policy)
{
  auto const is_shared = [](int folder, bool lies_in_shared) {
    struct stat info {};
    return ::fstat(folder, &info) == 0 &&
           ((info.st_mode & S_IWOTH) != 0 || (lies_in_shared && info.st_uid != ::geteuid() && info.st_uid != 0));
  };
  auto const failed = [](bool in_shared, int number) {
    return private_file{file_descriptor{}, in_shared, std::strerror(number), number};
  };
  constexpr int as_folder = O_PATH | O_DIRECTORY | O_CLOEXEC;
  file_descriptor folder{::open(path.front() == '/' ? "/" : ".", as_folder)};
  int number        = errno;  // the error, if the folder is not open
  bool shared       = is_shared(folder.get(), false);
  std::size_t begin = 0;
  for (auto end = path.find('/'); folder.get() >= 0 && end != std::string::npos; end = path.find('/', begin)) {
    if (end != begin) {
      auto const name = path.substr(begin, end - begin);
      ::mkdirat(folder.get(), name.c_str(), 0700);  // if this fails, openat() below fails too, unless the folder exists
      struct stat info {};
      bool const is_link =
        shared && ::fstatat(folder.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode);
      if (is_link) {
        return {file_descriptor{}, true, "a folder in its path is a symbolic link that another user may have made"};
      }
      folder = file_descriptor{::openat(folder.get(), name.c_str(), as_folder | (shared ? O_NOFOLLOW : 0))};
      number = errno;
      shared = is_shared(folder.get(), shared);
    }
    begin = end + 1;
  }
  if (folder.get() < 0) { return failed(false, number); }
  bool const follows = policy == links::refused_in_shared && !shared;
  // O_NONBLOCK: opening a pipe must not wait for its reader. Writing to it may.
  flags |= O_CREAT | O_CLOEXEC | (follows ? 0 : O_NOFOLLOW);
  file_descriptor file{::openat(folder.get(), path.c_str() + begin, flags | O_NONBLOCK, 0600)};
  if (file.get() < 0) {
    number = errno;
    return {file_descriptor{},
            shared,
            problem_of_opening(folder.get(), path.c_str() + begin, number),
            number == ELOOP ? 0 : number};
  }
  ::fcntl(file.get(), F_SETFL, flags);
  return {std::move(file), shared, nullptr};
}

/// Opens a log file to append to it; with `empties`, empties it first. In a shared folder it has to be a regular file of the caller
/// without other hard links.
[[nodiscard]] RMM_COLD inline private_file open_log_file(std::string const& path, bool empties)
{
  if (path.empty()) { return {file_descriptor{}, false, "the file name is empty"}; }
  auto opened = make_private_file(path, O_WRONLY | O_APPEND | O_NOCTTY, links::refused_in_shared);
  if (opened.problem != nullptr) { return opened; }
  struct stat info {};
  auto const refuse = [&](char const* why) { return private_file{file_descriptor{}, opened.is_in_shared_folder, why}; };
  auto const fail   = [&] {
    return private_file{file_descriptor{}, opened.is_in_shared_folder, std::strerror(errno), errno};
  };
  if (::fstat(opened.file.get(), &info) != 0) { return fail(); }
  if (opened.is_in_shared_folder) {
    if (!S_ISREG(info.st_mode)) { return refuse("it is not a regular file"); }
    if (info.st_uid != ::geteuid()) { return refuse("it belongs to another user"); }
    if (info.st_nlink > 1) { return refuse("it has other hard links"); }
    if (::fchmod(opened.file.get(), 0600) != 0) { return fail(); }
  }
  if (empties && S_ISREG(info.st_mode) && ::ftruncate(opened.file.get(), 0) != 0) { return fail(); }
  return opened;
}

}  // namespace detail
}  // namespace RMM_NAMESPACE
