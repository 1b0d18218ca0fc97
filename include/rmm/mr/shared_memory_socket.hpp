// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rmm/detail/base/file_descriptor.hpp>
#include <rmm/detail/config.hpp>
#include <rmm/detail/error.hpp>
#include <rmm/detail/export.hpp>
#include <rmm/mr/shared_memory.hpp>

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <system_error>

/// @file
/// Sending of an elastic pool's memory to another process of the same user, over a connected Unix socket.

namespace RMM_NAMESPACE {
namespace detail {

[[noreturn]] RMM_COLD inline void throw_socket_error(int code, std::string const& text)
{
  throw std::system_error{code, std::generic_category(), text};
}

/// Throws unless the process at the other end belongs to the user of this process. Root is no exception.
inline void expect_peer_of_same_user(int socket)
{
  ::ucred peer{};
  ::socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    throw_socket_error(errno, "The user at the other end of a socket is not known");
  }
  if (peer.uid == static_cast<::uid_t>(-1)) { throw_socket_error(ENOTCONN, "Memory is shared over Unix sockets only"); }
  if (peer.uid != ::geteuid()) {
    throw_socket_error(EACCES,
                       "The other process belongs to user " + std::to_string(peer.uid) + " and this one to user " +
                         std::to_string(::geteuid()) + ": memory is shared only between processes of one user");
  }
}

/// A message with the descriptor of one chunk, and the block that the chunk belongs to.
class chunk_message {
 public:
  explicit chunk_message(mr::shared_block& block) noexcept : data_{&block, sizeof block}
  {
    header_.msg_iov        = &data_;
    header_.msg_iovlen     = 1;
    header_.msg_control    = control_.data();
    header_.msg_controllen = CMSG_LEN(sizeof(int));  // CMSG_SPACE would have room for two
  }
  chunk_message(chunk_message const&)            = delete;
  chunk_message& operator=(chunk_message const&) = delete;

  void send(int socket, int descriptor)
  {
    auto* const item = CMSG_FIRSTHDR(&header_);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type  = SCM_RIGHTS;
    item->cmsg_len   = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(item), &descriptor, sizeof descriptor);
    ::ssize_t sent{};
    do {
      sent = ::sendmsg(socket, &header_, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) { throw_socket_error(errno, "A descriptor of shared memory cannot be sent"); }
  }

  [[nodiscard]] file_descriptor receive(int socket)
  {
    ::ssize_t received{};
    do {
      received = ::recvmsg(socket, &header_, MSG_WAITALL | MSG_CMSG_CLOEXEC);
    } while (received < 0 && errno == EINTR);
    if (received < 0) { throw_socket_error(errno, "A descriptor of shared memory cannot be received"); }
    file_descriptor descriptor;
    auto const* const item = CMSG_FIRSTHDR(&header_);
    int number{-1};
    if (item != nullptr && item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_RIGHTS &&
        item->cmsg_len == CMSG_LEN(sizeof number)) {
      std::memcpy(&number, CMSG_DATA(item), sizeof number);
      descriptor = file_descriptor{number};
    }
    bool const is_whole = static_cast<std::size_t>(received) == data_.iov_len && descriptor.get() >= 0 &&
                          (header_.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) == 0;
    if (!is_whole) {
      throw_socket_error(EPROTO,
                         "A message of shared memory is not one block and one descriptor: the sender ended, or this "
                         "process has too many open files");
    }
    return descriptor;
  }

 private:
  alignas(::cmsghdr) std::array<unsigned char, CMSG_SPACE(sizeof(int))> control_{};
  ::iovec data_;
  ::msghdr header_{};
};

}  // namespace detail

namespace mr {

/// Sends an exported block to the process at the other end of `socket`, a connected Unix socket whose calls wait.
///
/// Refuses a process of another user, root included: throws std::system_error with EACCES. The kernel knows the user who connected, or who
/// called listen() at the other end. Both ends of a socketpair() belong to the user who made it, even if another process has one now.
/// Throws std::system_error also if the socket fails; then the receiver gets an exception, too.
///
/// @code{.cpp}
/// rmm::mr::elastic_pool_options options;
/// options.share_descriptors = true;
/// rmm::mr::elastic_pool_memory_resource pool{options};
/// void* const block = pool.allocate(1000);
/// int sockets[2];
/// if (::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) { return; }
/// rmm::mr::send_descriptors(sockets[0], pool.export_descriptors(block, 1000));
/// {  // in another process
///   rmm::mr::imported_memory const imported{pool.get_device(), rmm::mr::receive_descriptors(sockets[1])};
/// }
/// pool.deallocate(block, 1000);
/// @endcode
inline void send_descriptors(int socket, exported_descriptors const& memory)
{
  rmm::detail::expect_peer_of_same_user(socket);
  RMM_EXPECTS(!memory.chunks.empty() && memory.chunks.size() == memory.block.chunks(),
              "The exported memory does not have a descriptor for each of its chunks: was it moved from?");
  for (auto const& chunk : memory.chunks) {
    auto block = memory.block;
    rmm::detail::chunk_message{block}.send(socket, chunk.get());
  }
}

/// Receives what send_descriptors() sent at the other end of `socket`. Programs that this one starts do not inherit the descriptors.
///
/// Throws as send_descriptors() does, std::system_error with EINVAL if the socket has SO_PASSCRED, and with EPROTO for anything else than one descriptor for each chunk. What had
/// arrived is closed. Only imported_memory finds out whether the descriptors are memory of that size.
[[nodiscard]] inline exported_descriptors receive_descriptors(int socket)
{
  rmm::detail::expect_peer_of_same_user(socket);
  int passes_credentials{};
  ::socklen_t size = sizeof passes_credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PASSCRED, &passes_credentials, &size) == 0 && passes_credentials != 0) {
    rmm::detail::throw_socket_error(EINVAL, "The socket has SO_PASSCRED, which takes the place of descriptors");
  }
  exported_descriptors memory;
  do {
    shared_block block{};
    memory.chunks.push_back(rmm::detail::chunk_message{block}.receive(socket));
    if (memory.chunks.size() == 1) { memory.block = block; }
    if (std::memcmp(&block, &memory.block, sizeof block) != 0) {
      rmm::detail::throw_socket_error(EPROTO, "The chunks of shared memory belong to different blocks");
    }
  } while (memory.chunks.size() < memory.block.chunks());
  return memory;
}

}  // namespace mr
}  // namespace RMM_NAMESPACE
