// SPDX-License-Identifier: Apache-2.0
//
// Memory on its way to another process: of this user, of another one, and from senders that lie or end.

#include "../../support/simulated.hpp"

#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/shared_memory.hpp>
#include <rmm/mr/shared_memory_socket.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace {

using rmm::detail::file_descriptor;

constexpr std::size_t MiB      = std::size_t{1} << 20U;
constexpr ::uid_t another_user = 65534;

/// The number of descriptors that are open.
[[nodiscard]] std::ptrdiff_t open_descriptors()
{
  return std::distance(std::filesystem::directory_iterator{"/proc/self/fd"}, std::filesystem::directory_iterator{});
}

[[nodiscard]] std::pair<file_descriptor, file_descriptor> socket_pair(int type = SOCK_STREAM)
{
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {file_descriptor{ends[0]}, file_descriptor{ends[1]}};
}

/// A block of `chunks` chunks, with descriptors of something else.
[[nodiscard]] rmm::mr::exported_descriptors some_block(std::size_t chunks)
{
  rmm::mr::exported_descriptors made;
  made.block = {0, 2 * MiB * chunks, 2 * MiB};
  for (std::size_t i = 0; i != chunks; ++i) { made.chunks.emplace_back(::open("/", O_RDONLY | O_CLOEXEC)); }
  return made;
}

/// Calls `work`, which should fail. Returns the error's number, or 0, and puts the message into `text`.
template <class Work>
[[nodiscard]] int error_of(Work&& work, std::string& text)
{
  try {
    work();
  } catch (std::system_error const& error) {
    text = error.what();
    return error.code().value();
  }
  return 0;
}

template <class Work>
[[nodiscard]] int error_of(Work&& work)
{
  std::string text;
  return error_of(std::forward<Work>(work), text);
}

[[nodiscard]] int error_of_receive(int socket)
{
  return error_of([&] { static_cast<void>(rmm::mr::receive_descriptors(socket)); });
}

struct SharedMemorySocket : Simulated, ::testing::WithParamInterface<int> {};

TEST_P(SharedMemorySocket, CarriesMemoryThatPoolsExport)
{
  rmm::mr::elastic_pool_options options;
  options.share_descriptors = true;
  rmm::mr::elastic_pool_memory_resource pool{options};
  auto* const block       = static_cast<unsigned char*>(pool.allocate(5 * MiB));
  auto const before       = open_descriptors();
  auto const [ours, them] = socket_pair(GetParam());
  {
    rmm::mr::send_descriptors(ours.get(), pool.export_descriptors(block, 5 * MiB));
    auto const received = rmm::mr::receive_descriptors(them.get());
    EXPECT_GT(received.chunks.size(), 1U);
    for (auto const& chunk : received.chunks) { EXPECT_EQ(::fcntl(chunk.get(), F_GETFD), FD_CLOEXEC); }
    rmm::mr::imported_memory const imported{pool.get_device(), received};
    ASSERT_EQ(imported.size(), 5 * MiB);
    std::memset(imported.data(), 7, imported.size());
    EXPECT_EQ(block[0], 7);
    EXPECT_EQ(block[5 * MiB - 1], 7);
  }
  EXPECT_EQ(open_descriptors(), before + 2);
  pool.deallocate(block, 5 * MiB);
}

INSTANTIATE_TEST_SUITE_P(Types, SharedMemorySocket, ::testing::Values(SOCK_STREAM, SOCK_SEQPACKET));

// --- other processes

/// Connects to a new socket of this process from a child, which has become `user`. The child calls `work` and ends with what it returns.
template <class Work>
[[nodiscard]] std::pair<file_descriptor, ::pid_t> connect_from_child(::uid_t user, Work&& work)
{
  file_descriptor const listener{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  ::sockaddr_un address{};
  address.sun_family = AF_UNIX;
  auto const name    = "rmm-test-" + std::to_string(::getpid());
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // an abstract name, which all users may connect to
  auto const size = static_cast<::socklen_t>(offsetof(::sockaddr_un, sun_path) + 1 + name.size());
  EXPECT_EQ(::bind(listener.get(), reinterpret_cast<::sockaddr*>(&address), size), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  auto const child = ::fork();
  if (child == 0) {
    file_descriptor const end{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (user != ::geteuid() && ::setuid(user) != 0) { ::_exit(254); }
    if (::connect(end.get(), reinterpret_cast<::sockaddr*>(&address), size) != 0) { ::_exit(253); }
    ::_exit(work(end.get()));
  }
  return {file_descriptor{::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)}, child};
}

[[nodiscard]] int status_of(::pid_t child)
{
  int status{};
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Returns 0 if the other end sends a block of three chunks and nothing stays open, else the number of an error.
[[nodiscard]] int take_three(int socket)
{
  auto const before = open_descriptors();
  auto const result = error_of([&] {
    if (rmm::mr::receive_descriptors(socket).chunks.size() != 3) {
      throw std::system_error{EDOM, std::generic_category()};
    }
  });
  return open_descriptors() == before ? result : 252;
}

TEST(SharedMemorySockets, ConnectProcessesOfOneUser)
{
  auto const before = open_descriptors();
  {
    auto const [socket, child] = connect_from_child(::geteuid(), take_three);
    rmm::mr::send_descriptors(socket.get(), some_block(3));
    EXPECT_EQ(status_of(child), 0);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(SharedMemorySockets, RefuseAnotherUserAtBothEnds)
{
  if (::geteuid() != 0) { GTEST_SKIP() << "only root can start a process of another user"; }
  auto [socket, child] = connect_from_child(another_user, take_three);
  std::string text;
  auto const number = socket.get();
  EXPECT_EQ(error_of([&] { rmm::mr::send_descriptors(number, some_block(3)); }, text), EACCES);
  EXPECT_THAT(text,
              ::testing::HasSubstr("belongs to user 65534 and this one to user 0: memory is shared only between"));
  socket = file_descriptor{};
  EXPECT_EQ(status_of(child), EACCES);
}

TEST(SharedMemorySockets, TakeNothingFromAnotherUser)
{
  if (::geteuid() != 0) { GTEST_SKIP() << "only root can start a process of another user"; }
  auto const [socket, child] = connect_from_child(another_user, [](int end) {
    auto block  = some_block(1);
    auto shared = block.block;  // as a program that does not look at the other user
    return error_of([&] { rmm::detail::chunk_message{shared}.send(end, block.chunks[0].get()); });
  });
  EXPECT_EQ(status_of(child), 0);
  auto const before = open_descriptors();
  EXPECT_EQ(error_of_receive(socket.get()), EACCES);
  EXPECT_EQ(open_descriptors(), before);
}

// --- senders that lie or end

/// Sends `bytes` bytes, with descriptors.
void send_message(int socket, void const* data, std::size_t bytes, std::vector<int> const& descriptors)
{
  alignas(::cmsghdr) std::array<unsigned char, 256> control{};
  ::iovec part{const_cast<void*>(data), bytes};
  ::msghdr header{};
  header.msg_iov    = &part;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control    = control.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    auto* const item      = CMSG_FIRSTHDR(&header);
    item->cmsg_level      = SOL_SOCKET;
    item->cmsg_type       = SCM_RIGHTS;
    item->cmsg_len        = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(item), descriptors.data(), descriptors.size() * sizeof(int));
  }
  EXPECT_EQ(::sendmsg(socket, &header, MSG_NOSIGNAL), static_cast<::ssize_t>(bytes));
}

/// Calls `send` with one end of a pair of sockets, closes it, and expects that the other end refuses what came.
template <class Send>
void expect_protocol_error(Send&& send)
{
  auto const before = open_descriptors();
  {
    auto [ours, theirs] = socket_pair();
    send(ours.get());
    ours = file_descriptor{};
    EXPECT_EQ(error_of_receive(theirs.get()), EPROTO);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(SharedMemorySockets, RefuseWhatASenderDidNotFinish)
{
  auto const block = rmm::mr::shared_block{0, 6 * MiB, 2 * MiB};
  expect_protocol_error([](int) {});
  auto const small = rmm::mr::shared_block{0, 2 * MiB, 2 * MiB};
  expect_protocol_error([&](int socket) { send_message(socket, &small, sizeof small - 1, {0}); });
  expect_protocol_error([&](int socket) {
    for (int i = 0; i != 2; ++i) { send_message(socket, &block, sizeof block, {0}); }  // of three
  });
  auto const endless = rmm::mr::shared_block{0, ~std::size_t{0}, 1};
  expect_protocol_error([&](int socket) { send_message(socket, &endless, sizeof endless, {0}); });
}

TEST(SharedMemorySockets, RefuseOtherMessages)
{
  auto const block = rmm::mr::shared_block{0, 2 * MiB, 2 * MiB};
  for (auto const& descriptors : {std::vector<int>{}, std::vector<int>(2), std::vector<int>(50)}) {  // not one
    expect_protocol_error([&](int socket) { send_message(socket, &block, sizeof block, descriptors); });
  }
  auto const first  = rmm::mr::shared_block{0, 4 * MiB, 2 * MiB};
  auto const second = rmm::mr::shared_block{0, 3 * MiB, 2 * MiB};
  expect_protocol_error([&](int socket) {
    send_message(socket, &first, sizeof first, {0});
    send_message(socket, &second, sizeof second, {0});
  });
}

TEST(SharedMemorySockets, SayWhyTheyFail)
{
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  file_descriptor const reading{ends[0]};
  file_descriptor const writing{ends[1]};
  EXPECT_EQ(error_of_receive(reading.get()), ENOTSOCK);
  EXPECT_EQ(error_of([&] { rmm::mr::send_descriptors(writing.get(), some_block(1)); }), ENOTSOCK);
  auto [ours, theirs] = socket_pair();
  theirs              = file_descriptor{};
  auto const number   = ours.get();
  EXPECT_EQ(error_of([&] { rmm::mr::send_descriptors(number, some_block(1)); }), EPIPE);  // and no signal
  EXPECT_THROW(rmm::mr::send_descriptors(number, rmm::mr::exported_descriptors{}), rmm::logic_error);
  int const on = 1;
  ASSERT_EQ(::setsockopt(number, SOL_SOCKET, SO_PASSCRED, &on, sizeof on), 0);
  EXPECT_EQ(error_of_receive(number), EINVAL);
  file_descriptor const alone{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  EXPECT_EQ(error_of_receive(alone.get()), ENOTCONN);
}

}  // namespace
