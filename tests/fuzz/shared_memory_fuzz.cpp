// SPDX-License-Identifier: Apache-2.0

// Imports memory as another process describes it that lies: about the block, about the size of the chunks, and with descriptors of something
// else, repeated, in another order, or closed. Then receives it over a socket, with messages of any size and with any descriptors, that ends
// somewhere. Runs on the simulator.

#include <rmm/error.hpp>
#include <rmm/mr/elastic_pool_memory_resource.hpp>
#include <rmm/mr/shared_memory.hpp>
#include <rmm/mr/shared_memory_socket.hpp>

#include <cuda_runtime_api.h>
#include <cudasim/cudasim.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;

void require(bool holds, char const* what)
{
  if (holds) { return; }
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

[[nodiscard]] rmm::mr::elastic_pool_options options_of(std::size_t chunk_bytes)
{
  rmm::mr::elastic_pool_options options;
  options.chunk_bytes       = chunk_bytes;
  options.share_descriptors = true;
  return options;
}

/// Two pools with chunks of different sizes, a block of either, and descriptors of all kinds.
class exporter {
 public:
  static constexpr std::size_t block_bytes = 5 * MiB;

  exporter()
  {
    static_cast<void>(small_.allocate(MiB));  // so that the block has an offset
    for (auto* const pool : {&small_, &large_}) {
      exported_.push_back(pool->export_descriptors(pool->allocate(block_bytes), block_bytes));
      for (auto const& chunk : exported_.back().chunks) { descriptors_.push_back(chunk.get()); }
    }
    int ends[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "there are sockets");
    descriptors_.push_back(ends[0]);
    ::close(ends[1]);
    require(::pipe(ends) == 0, "there are pipes");
    descriptors_.insert(descriptors_.end(), {ends[0], ends[1]});
    descriptors_.push_back(::open("/dev/null", O_RDWR | O_CLOEXEC));
    descriptors_.push_back(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    descriptors_.push_back(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    auto const closed = ::dup(ends[0]);
    ::close(closed);
    descriptors_.insert(descriptors_.end(), {closed, -1, 1 << 30, -(1 << 30)});
  }

  [[nodiscard]] int descriptor(std::uint8_t number) const { return descriptors_[number % descriptors_.size()]; }
  [[nodiscard]] std::size_t genuine() const { return exported_[0].chunks.size() + exported_[1].chunks.size(); }
  [[nodiscard]] rmm::mr::shared_block const& block(std::uint8_t number) const { return exported_[number % 2].block; }
  [[nodiscard]] rmm::cuda_device_id device() const { return small_.get_device(); }

 private:
  rmm::mr::elastic_pool_memory_resource small_{options_of(2 * MiB)};
  rmm::mr::elastic_pool_memory_resource large_{options_of(8 * MiB)};
  std::vector<rmm::mr::exported_descriptors> exported_;
  std::vector<int> descriptors_;
};

/// Reads the input from its front, and zeros after its end.
class reader {
 public:
  reader(std::uint8_t const* data, std::size_t size) : data_{data}, size_{size} {}

  [[nodiscard]] std::uint8_t byte()
  {
    if (size_ == 0) { return 0; }
    --size_;
    return *data_++;
  }

  /// The truth, or something near it, or any number.
  [[nodiscard]] std::size_t number_near(std::size_t truth)
  {
    auto const kind = byte();
    switch (kind % 8) {
      case 0:
      case 1:
        return truth;
      case 2:
        return truth + byte();
      case 3:
        return truth - byte();
      case 4:
        return truth << (byte() % 64);
      case 5:
        return truth >> (byte() % 64);
      case 6:
        return ~std::size_t{0} - byte();
      default:
        std::size_t any{};
        for (int i = 0; i != 8; ++i) { any = any << 8 | byte(); }
        return any;
    }
  }

 private:
  std::uint8_t const* data_;
  std::size_t size_;
};

/// Checks that a message says something, is short, and has no control characters.
void check_message(std::string_view message)
{
  require(!message.empty() && message.size() < 2048, "messages are short");
  for (char const c : message) { require(c >= ' ' || c == '\n', "no control character gets into a message"); }
}

/// Maps memory of `bytes` bytes as another process describes it, unless it is refused.
template <class... Description>
void import(exporter const& from, std::size_t bytes, Description const&... description)
{
  try {
    rmm::mr::imported_memory const imported{from.device(), description...};
    require(imported.size() == bytes && imported.size() <= 16 * 8 * MiB, "it is as large as was said");
    std::memset(imported.data(), 1, imported.size());
  } catch (rmm::logic_error const& error) {
    check_message(error.what());
  } catch (rmm::cuda_error const& error) {
    check_message(error.what());
  } catch (rmm::bad_alloc const& error) {
    check_message(error.what());
  }
}

/// A block that one of the pools exported, or nearly so.
[[nodiscard]] rmm::mr::shared_block block_of(exporter const& from, reader& in)
{
  auto block         = from.block(in.byte());
  block.offset_bytes = in.number_near(block.offset_bytes);
  block.bytes        = in.number_near(block.bytes);
  block.chunk_bytes  = in.number_near(block.chunk_bytes);
  return block;
}

void import_numbers(exporter const& from, reader& in)
{
  auto const block = block_of(from, in);
  auto const count = in.byte() % 4 == 0 ? in.byte() % 16U : block.chunks() % 16;
  std::vector<int> descriptors;
  for (std::size_t i = 0; i != count; ++i) { descriptors.push_back(from.descriptor(in.byte())); }
  import(from, block.bytes, block, descriptors);
}

/// Sends a message with at most three descriptors. If one is not open, the kernel sends nothing.
void send_message(exporter const& from, reader& in, int socket, rmm::mr::shared_block const& block)
{
  std::array<std::size_t, 4> data{block.offset_bytes, block.bytes, block.chunk_bytes, 0};
  ::iovec part{data.data(), in.byte() % 4 == 0 ? in.byte() % sizeof data : sizeof block};
  std::array<int, 3> numbers{};
  alignas(::cmsghdr) std::array<unsigned char, CMSG_SPACE(sizeof numbers)> control{};
  auto const kind  = in.byte() % 8;
  auto const bytes = (kind < 4 ? static_cast<std::size_t>(kind) : 1) * sizeof(int);
  for (auto& number : numbers) { number = from.descriptor(in.byte()); }
  ::msghdr header{};
  header.msg_iov    = &part;
  header.msg_iovlen = 1;
  if (bytes != 0) {
    header.msg_control    = control.data();
    header.msg_controllen = CMSG_SPACE(bytes);
    auto* const item      = CMSG_FIRSTHDR(&header);
    item->cmsg_level      = SOL_SOCKET;
    item->cmsg_type       = SCM_RIGHTS;
    item->cmsg_len        = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(item), numbers.data(), bytes);
  }
  static_cast<void>(::sendmsg(socket, &header, MSG_NOSIGNAL));
}

/// Receives memory from a sender that sends some messages and ends.
void import_from_socket(exporter const& from, reader& in)
{
  int ends[2];
  require(::socketpair(AF_UNIX, in.byte() % 2 == 0 ? SOCK_STREAM : SOCK_SEQPACKET, 0, ends) == 0, "there are sockets");
  rmm::detail::file_descriptor const receiver{ends[0]};
  {
    rmm::detail::file_descriptor const sender{ends[1]};
    auto const block = block_of(from, in);
    for (int left = in.byte() % 8; left != 0; --left) {
      send_message(from, in, sender.get(), in.byte() % 8 == 0 ? block_of(from, in) : block);
    }
  }
  try {
    auto const received = rmm::mr::receive_descriptors(receiver.get());
    require(received.chunks.size() >= received.block.chunks(), "no chunk is missing");
    import(from, received.block.bytes, received);
  } catch (std::system_error const& error) {
    check_message(error.what());
  }
}

/// The number of open descriptors. Whatever is lost here gets a small number.
[[nodiscard]] int open_descriptors()
{
  int count{};
  for (int number = 0; number != 128; ++number) { count += ::fcntl(number, F_GETFD) != -1 ? 1 : 0; }
  return count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size)
{
  static auto& from = *new exporter;
  auto const live   = cudasim::ledger().size();
  auto const open   = open_descriptors();
  reader in{data, size};
  import_numbers(from, in);
  import_from_socket(from, in);
  require(cudasim::ledger().size() == live, "all that was mapped is unmapped");
  require(open_descriptors() == open, "no descriptor is lost");
  require(cudaGetLastError() == cudaSuccess, "no error stays");
  return 0;
}
