// SPDX-License-Identifier: Apache-2.0
//
// What device, pinned, registered and managed memory do, asked through the CUDA API alone. The simulator and a real GPU have
// to pass the same tests. Managed memory stays small: a GPU that runs out of it can hang.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <limits>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t KiB   = 1024;
constexpr std::size_t MiB   = 1024 * KiB;
constexpr std::size_t huge  = std::size_t{1} << 40U;
constexpr auto maximum      = std::numeric_limits<std::size_t>::max();
constexpr std::size_t block = 2 * MiB;  // a device hands memory out in such blocks
void* const nonsense        = reinterpret_cast<void*>(std::uintptr_t{0xdead000});

[[nodiscard]] void* offset(void* ptr, std::size_t bytes) { return static_cast<char*>(ptr) + bytes; }

[[nodiscard]] std::size_t free_memory()
{
  std::size_t free  = 0;
  std::size_t total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return free;
}

[[nodiscard]] cudaPointerAttributes attributes_of(void const* ptr)
{
  cudaPointerAttributes out{};
  EXPECT_EQ(cudaPointerGetAttributes(&out, ptr), cudaSuccess);
  return out;
}

[[nodiscard]] cudaMemoryType type_of(void const* ptr) { return attributes_of(ptr).type; }

/// Keeps a stream of its own busy until it ends.
class busy_stream {
 public:
  busy_stream()
  {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaLaunchHostFunc(
                stream_, [](void* opened) { static_cast<std::future<void>*>(opened)->wait(); }, &opened_),
              cudaSuccess);
  }
  busy_stream(busy_stream const&)            = delete;
  busy_stream& operator=(busy_stream const&) = delete;
  ~busy_stream()
  {
    open();
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }
  void open()
  {
    if (!std::exchange(open_, true)) { open_it_.set_value(); }
  }
  [[nodiscard]] bool busy() const { return cudaStreamQuery(stream_) == cudaErrorNotReady; }
  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  std::promise<void> open_it_;
  std::future<void> opened_{open_it_.get_future()};
  bool open_{false};
  cudaStream_t stream_{};
};

class MemoryBehaviour : public ::testing::Test {
 protected:
  void SetUp() override
  {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaFree(nullptr), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  void TearDown() override
  {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    cudaGetLastError();
  }
};

// --- cudaMalloc and cudaFree ----------------------------------------------------------------------------------------

TEST_F(MemoryBehaviour, AllocatingNothingGivesNull)
{
  void* ptr = nonsense;
  EXPECT_EQ(cudaMalloc(&ptr, 0), cudaSuccess);
  EXPECT_EQ(ptr, nullptr);
}

TEST_F(MemoryBehaviour, AllocatingToNowhereIsInvalid)
{
  EXPECT_EQ(cudaMalloc(static_cast<void**>(nullptr), 16), cudaErrorInvalidValue);
}

TEST_F(MemoryBehaviour, AllocatingTooMuchIsRefused)
{
  void* ptr = nullptr;
  for (auto const bytes : {huge, maximum, maximum - 511}) {
    EXPECT_EQ(cudaMalloc(&ptr, bytes), cudaErrorMemoryAllocation) << bytes;
    EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  }
}

TEST_F(MemoryBehaviour, AllocationsAreAlignedTo512Bytes)
{
  std::vector<void*> all(20);
  for (auto& ptr : all) {
    ASSERT_EQ(cudaMalloc(&ptr, 700), cudaSuccess);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ptr) % 512, 0U);
  }
  EXPECT_EQ(std::set<void*>(all.begin(), all.end()).size(), all.size());
  for (auto* const ptr : all) { EXPECT_EQ(cudaFree(ptr), cudaSuccess); }
}

TEST_F(MemoryBehaviour, SmallAllocationsShareABlockOf2MiB)
{
  auto const before = free_memory();
  std::vector<void*> all(20);
  for (auto& ptr : all) { ASSERT_EQ(cudaMalloc(&ptr, 700), cudaSuccess); }
  EXPECT_EQ(before - free_memory(), block);
  for (auto* const ptr : all) { EXPECT_EQ(cudaFree(ptr), cudaSuccess); }
  EXPECT_EQ(free_memory(), before);
}

TEST_F(MemoryBehaviour, FreeMemoryMovesByWholeBlocks)
{
  auto const before = free_memory();
  for (auto const& [bytes, taken] : {std::pair{std::size_t{1}, block},
                                     {100'000, block},
                                     {MiB + 1, block},
                                     {block - 1, block},
                                     {block, block},
                                     {block + 1, 2 * block},
                                     {5 * MiB, 3 * block},
                                     {33 * MiB, 34 * MiB},
                                     {100 * MiB, 100 * MiB}}) {
    void* ptr = nullptr;
    ASSERT_EQ(cudaMalloc(&ptr, bytes), cudaSuccess);
    EXPECT_EQ(before - free_memory(), taken) << bytes;
    EXPECT_EQ(cudaFree(ptr), cudaSuccess);
    EXPECT_EQ(free_memory(), before) << bytes;
  }
}

TEST_F(MemoryBehaviour, BlocksOf600KiBGoThreeToABlock)
{
  auto const before = free_memory();
  std::array<void*, 6> all{};
  for (auto& ptr : all) { ASSERT_EQ(cudaMalloc(&ptr, 600 * KiB), cudaSuccess); }
  EXPECT_EQ(before - free_memory(), 2 * block);
  for (auto* const ptr : all) { EXPECT_EQ(cudaFree(ptr), cudaSuccess); }
}

TEST_F(MemoryBehaviour, FreeingNullIsFine) { EXPECT_EQ(cudaFree(nullptr), cudaSuccess); }

TEST_F(MemoryBehaviour, OnlyWhatWasAllocatedCanBeFreed)
{
  int on_stack = 0;
  void* small  = nullptr;
  void* large  = nullptr;
  ASSERT_EQ(cudaMalloc(&small, 1000), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&large, 4 * MiB), cudaSuccess);
  EXPECT_EQ(cudaFree(offset(small, 512)), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(offset(large, 4 * KiB)), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(&on_stack), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(nonsense), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(small), cudaSuccess);
  EXPECT_EQ(cudaFree(large), cudaSuccess);
}

TEST_F(MemoryBehaviour, FreeingTwiceIsInvalid)
{
  for (auto const bytes : {1000 * std::size_t{1}, 4 * MiB}) {
    void* ptr = nullptr;
    ASSERT_EQ(cudaMalloc(&ptr, bytes), cudaSuccess);
    EXPECT_EQ(cudaFree(ptr), cudaSuccess);
    EXPECT_EQ(cudaFree(ptr), cudaErrorInvalidValue);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  }
}

TEST_F(MemoryBehaviour, FreeingWaitsForTheDevice)
{
  void* ptr = nullptr;
  ASSERT_EQ(cudaMalloc(&ptr, 1000), cudaSuccess);
  busy_stream other;
  auto freed = std::async(std::launch::async, [ptr] { return cudaFree(ptr); });
  EXPECT_TRUE(other.busy());
  other.open();
  EXPECT_EQ(freed.get(), cudaSuccess);
  EXPECT_FALSE(other.busy());
}

TEST_F(MemoryBehaviour, AllocatingDoesNotWait)
{
  busy_stream other;
  void* device  = nullptr;
  void* pinned  = nullptr;
  void* managed = nullptr;
  EXPECT_EQ(cudaMalloc(&device, 80 * MiB), cudaSuccess);
  EXPECT_EQ(cudaMallocHost(&pinned, 1000), cudaSuccess);
  EXPECT_EQ(cudaMallocManaged(&managed, 1000, cudaMemAttachGlobal), cudaSuccess);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_TRUE(other.busy());
  other.open();
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFree(managed), cudaSuccess);
}

TEST_F(MemoryBehaviour, MemoryInfoNeedsNeitherPlace)
{
  std::size_t value = 0;
  EXPECT_EQ(cudaMemGetInfo(nullptr, &value), cudaSuccess);
  auto const total = value;
  EXPECT_EQ(cudaMemGetInfo(&value, nullptr), cudaSuccess);
  EXPECT_LE(value, total);
}

// --- pitched memory -------------------------------------------------------------------------------------------------

TEST_F(MemoryBehaviour, APitchIsAMultipleOf512Bytes)
{
  for (auto const& [width, expected] : {std::pair{std::size_t{100}, std::size_t{512}}, {512, 512}, {513, 1024}}) {
    void* ptr         = nullptr;
    std::size_t pitch = 0;
    ASSERT_EQ(cudaMallocPitch(&ptr, &pitch, width, 10), cudaSuccess);
    EXPECT_EQ(pitch, expected);
    EXPECT_EQ(cudaFree(ptr), cudaSuccess);
  }
}

TEST_F(MemoryBehaviour, PitchedMemoryOfNoSizeIsNull)
{
  for (auto const& [width, height] : {std::pair{std::size_t{0}, std::size_t{10}}, {10, 0}}) {
    void* ptr         = nonsense;
    std::size_t pitch = 1;
    EXPECT_EQ(cudaMallocPitch(&ptr, &pitch, width, height), cudaSuccess);
    EXPECT_EQ(ptr, nullptr);
    EXPECT_EQ(pitch, 0U);
  }
}

TEST_F(MemoryBehaviour, PitchedMemoryNeedsBothPlacesAndASensibleSize)
{
  void* ptr         = nullptr;
  std::size_t pitch = 0;
  EXPECT_EQ(cudaMallocPitch(static_cast<void**>(nullptr), &pitch, 10, 10), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMallocPitch(&ptr, nullptr, 10, 10), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMallocPitch(&ptr, &pitch, maximum, 10), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMallocPitch(&ptr, &pitch, MiB, maximum / KiB), cudaErrorMemoryAllocation);
}

TEST_F(MemoryBehaviour, MemoryOfThreeDimensionsKnowsItsShape)
{
  cudaPitchedPtr made{};
  ASSERT_EQ(cudaMalloc3D(&made, cudaExtent{100, 7, 5}), cudaSuccess);
  EXPECT_EQ(made.pitch, 512U);
  EXPECT_EQ(made.xsize, 100U);
  EXPECT_EQ(made.ysize, 7U);
  EXPECT_EQ(type_of(offset(made.ptr, std::size_t{512} * 7 * 5 - 1)), cudaMemoryTypeDevice);
  EXPECT_EQ(type_of(offset(made.ptr, std::size_t{512} * 7 * 5)), cudaMemoryTypeUnregistered);
  EXPECT_EQ(cudaFree(made.ptr), cudaSuccess);
}

TEST_F(MemoryBehaviour, MemoryOfThreeDimensionsOfNoSizeIsNull)
{
  cudaPitchedPtr made{nonsense, 1, 1, 1};
  EXPECT_EQ(cudaMalloc3D(&made, cudaExtent{0, 7, 5}), cudaSuccess);
  EXPECT_EQ(made.ptr, nullptr);
  EXPECT_EQ(made.pitch, 0U);
  EXPECT_EQ(made.ysize, 7U);
  EXPECT_EQ(cudaMalloc3D(nullptr, cudaExtent{1, 7, 5}), cudaErrorInvalidValue);
}

// --- pointer attributes ---------------------------------------------------------------------------------------------

TEST_F(MemoryBehaviour, AttributesOfDeviceMemoryAreExactToTheByte)
{
  void* ptr = nullptr;
  ASSERT_EQ(cudaMalloc(&ptr, 1000), cudaSuccess);
  auto const last = attributes_of(offset(ptr, 999));
  EXPECT_EQ(last.type, cudaMemoryTypeDevice);
  EXPECT_EQ(last.device, 0);
  EXPECT_EQ(last.devicePointer, offset(ptr, 999));
  EXPECT_EQ(last.hostPointer, nullptr);
  EXPECT_EQ(type_of(offset(ptr, 1000)), cudaMemoryTypeUnregistered);
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
  EXPECT_EQ(type_of(ptr), cudaMemoryTypeUnregistered);
}

TEST_F(MemoryBehaviour, OrdinaryMemoryIsUnregistered)
{
  int on_stack    = 0;
  auto const here = attributes_of(&on_stack);
  EXPECT_EQ(here.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(here.device, cudaInvalidDeviceId);
  EXPECT_EQ(here.devicePointer, nullptr);
  EXPECT_EQ(here.hostPointer, &on_stack);
}

TEST_F(MemoryBehaviour, NullIsUnregistered)
{
  auto const none = attributes_of(nullptr);
  EXPECT_EQ(none.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(none.hostPointer, nullptr);
}

TEST_F(MemoryBehaviour, AttributesNeedAPlace)
{
  EXPECT_EQ(cudaPointerGetAttributes(nullptr, nonsense), cudaErrorInvalidValue);
}

TEST_F(MemoryBehaviour, PinnedAndManagedMemoryHaveTheSamePointerOnBothSides)
{
  void* pinned  = nullptr;
  void* managed = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, 1000), cudaSuccess);
  ASSERT_EQ(cudaMallocManaged(&managed, 1000, cudaMemAttachGlobal), cudaSuccess);
  for (auto const& [ptr, type] : {std::pair{pinned, cudaMemoryTypeHost}, {managed, cudaMemoryTypeManaged}}) {
    auto const inside = attributes_of(offset(ptr, 10));
    EXPECT_EQ(inside.type, type);
    EXPECT_EQ(inside.device, 0);
    EXPECT_EQ(inside.devicePointer, offset(ptr, 10));
    EXPECT_EQ(inside.hostPointer, offset(ptr, 10));
  }
  EXPECT_EQ(type_of(offset(pinned, 1000)), cudaMemoryTypeUnregistered);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFree(managed), cudaSuccess);
  EXPECT_EQ(type_of(pinned), cudaMemoryTypeUnregistered);
  EXPECT_EQ(type_of(managed), cudaMemoryTypeUnregistered);
}

// --- pinned memory --------------------------------------------------------------------------------------------------

TEST_F(MemoryBehaviour, PinningNothingGivesNull)
{
  void* ptr = nonsense;
  EXPECT_EQ(cudaMallocHost(&ptr, 0), cudaSuccess);
  EXPECT_EQ(ptr, nullptr);
  ptr = nonsense;
  EXPECT_EQ(cudaHostAlloc(&ptr, 0, cudaHostAllocDefault), cudaSuccess);
  EXPECT_EQ(ptr, nullptr);
}

TEST_F(MemoryBehaviour, PinningNeedsAPlaceKnownFlagsAndASensibleSize)
{
  void* ptr = nullptr;
  EXPECT_EQ(cudaMallocHost(static_cast<void**>(nullptr), 8), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostAlloc(&ptr, 8, 0x100), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostAlloc(&ptr, std::size_t{1} << 50U, cudaHostAllocDefault), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMallocHost(&ptr, maximum), cudaErrorMemoryAllocation);
}

TEST_F(MemoryBehaviour, PinnedMemoryIsForTheHost)
{
  void* ptr = nullptr;
  ASSERT_EQ(cudaMallocHost(&ptr, 4096), cudaSuccess);
  auto* const numbers = static_cast<int*>(ptr);
  numbers[1023]       = 42;
  EXPECT_EQ(numbers[1023], 42);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ptr) % 512, 0U);
  EXPECT_EQ(cudaFreeHost(ptr), cudaSuccess);
}

TEST_F(MemoryBehaviour, PinnedMemoryIsAlwaysMapped)
{
  for (auto const flags : {unsigned{cudaHostAllocDefault},
                           unsigned{cudaHostAllocMapped},
                           unsigned{cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined}}) {
    void* ptr      = nullptr;
    unsigned found = 99;
    ASSERT_EQ(cudaHostAlloc(&ptr, 1000, flags), cudaSuccess);
    EXPECT_EQ(cudaHostGetFlags(&found, offset(ptr, 5)), cudaSuccess);
    EXPECT_EQ(found, flags | cudaHostAllocMapped);
    EXPECT_EQ(cudaFreeHost(ptr), cudaSuccess);
  }
}

TEST_F(MemoryBehaviour, FlagsAreThoseOfHostMemory)
{
  int on_stack   = 0;
  unsigned flags = 0;
  void* device   = nullptr;
  void* pinned   = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 8), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 8), cudaSuccess);
  EXPECT_EQ(cudaHostGetFlags(&flags, &on_stack), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostGetFlags(&flags, device), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostGetFlags(nullptr, pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(MemoryBehaviour, PinnedMemoryHasADevicePointer)
{
  void* ptr       = nullptr;
  void* on_device = nullptr;
  ASSERT_EQ(cudaMallocHost(&ptr, 1000), cudaSuccess);
  EXPECT_EQ(cudaHostGetDevicePointer(&on_device, offset(ptr, 5), 0), cudaSuccess);
  EXPECT_EQ(on_device, offset(ptr, 5));
  EXPECT_EQ(cudaHostGetDevicePointer(&on_device, ptr, 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostGetDevicePointer(nullptr, ptr, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(ptr), cudaSuccess);
  EXPECT_EQ(cudaHostGetDevicePointer(&on_device, ptr, 0), cudaErrorInvalidValue);
}

TEST_F(MemoryBehaviour, OnlyPinnedMemoryCanBeFreedAsSuch)
{
  int on_stack  = 0;
  void* device  = nullptr;
  void* pinned  = nullptr;
  void* managed = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 1000), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 1000), cudaSuccess);
  ASSERT_EQ(cudaMallocManaged(&managed, 1000, cudaMemAttachGlobal), cudaSuccess);
  for (auto* const ptr : {device, managed, offset(pinned, 16), static_cast<void*>(&on_stack)}) {
    EXPECT_EQ(cudaFreeHost(ptr), cudaErrorInvalidValue);
  }
  EXPECT_EQ(cudaFree(pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(nullptr), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFree(managed), cudaSuccess);
}

TEST_F(MemoryBehaviour, FreeingPinnedMemoryWaitsForTheDevice)
{
  void* ptr = nullptr;
  ASSERT_EQ(cudaMallocHost(&ptr, 1000), cudaSuccess);
  busy_stream other;
  auto freed = std::async(std::launch::async, [ptr] { return cudaFreeHost(ptr); });
  EXPECT_TRUE(other.busy());
  other.open();
  EXPECT_EQ(freed.get(), cudaSuccess);
  EXPECT_FALSE(other.busy());
}

// --- registered memory ----------------------------------------------------------------------------------------------

class RegisteredMemory : public MemoryBehaviour {
 protected:
  struct free_it {
    void operator()(void* ptr) const { std::free(ptr); }
  };
  std::unique_ptr<void, free_it> memory_{std::aligned_alloc(4096, 65536)};

  [[nodiscard]] void* at(std::size_t bytes) const { return offset(memory_.get(), bytes); }
};

TEST_F(RegisteredMemory, IsHostMemoryAsFarAsItGoes)
{
  ASSERT_EQ(cudaHostRegister(at(0), 8192, cudaHostRegisterDefault), cudaSuccess);
  EXPECT_EQ(type_of(at(8191)), cudaMemoryTypeHost);
  EXPECT_EQ(type_of(at(8192)), cudaMemoryTypeUnregistered);
  EXPECT_EQ(attributes_of(at(10)).devicePointer, at(10));
  EXPECT_EQ(cudaHostUnregister(at(0)), cudaSuccess);
  EXPECT_EQ(type_of(at(0)), cudaMemoryTypeUnregistered);
}

TEST_F(RegisteredMemory, NeedsNoAlignment)
{
  ASSERT_EQ(cudaHostRegister(at(100), 1000, cudaHostRegisterDefault), cudaSuccess);
  ASSERT_EQ(cudaHostRegister(at(2000), 100, cudaHostRegisterDefault), cudaSuccess);
  EXPECT_EQ(type_of(at(99)), cudaMemoryTypeUnregistered);
  EXPECT_EQ(type_of(at(100)), cudaMemoryTypeHost);
  EXPECT_EQ(type_of(at(1100)), cudaMemoryTypeUnregistered);
  EXPECT_EQ(cudaHostUnregister(at(2000)), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(at(100)), cudaSuccess);
}

TEST_F(RegisteredMemory, HasFlagsAndADevicePointer)
{
  ASSERT_EQ(cudaHostRegister(at(0), 4096, cudaHostRegisterPortable), cudaSuccess);
  unsigned flags  = 0;
  void* on_device = nullptr;
  EXPECT_EQ(cudaHostGetFlags(&flags, at(0)), cudaSuccess);
  EXPECT_EQ(flags, unsigned{cudaHostRegisterPortable | cudaHostRegisterMapped});
  EXPECT_EQ(cudaHostGetDevicePointer(&on_device, at(0), 0), cudaSuccess);
  EXPECT_EQ(on_device, at(0));
  EXPECT_EQ(cudaHostUnregister(at(0)), cudaSuccess);
}

TEST_F(RegisteredMemory, CannotBeRegisteredAgain)
{
  ASSERT_EQ(cudaHostRegister(at(0), 8192, cudaHostRegisterDefault), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(at(0), 8192, cudaHostRegisterDefault), cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_EQ(cudaHostRegister(at(4096), 8192, cudaHostRegisterDefault), cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_EQ(cudaHostRegister(at(8192), 4096, cudaHostRegisterDefault), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(at(8192)), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(at(0)), cudaSuccess);
}

TEST_F(RegisteredMemory, IsUnregisteredAsItWasRegistered)
{
  ASSERT_EQ(cudaHostRegister(at(0), 8192, cudaHostRegisterDefault), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(at(4096)), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(at(0)), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostUnregister(at(0)), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(at(0)), cudaErrorHostMemoryNotRegistered);
  EXPECT_EQ(cudaHostUnregister(nullptr), cudaErrorInvalidValue);
}

TEST_F(RegisteredMemory, HasToBeMemoryOfTheProcess)
{
  EXPECT_EQ(cudaHostRegister(nullptr, 8192, cudaHostRegisterDefault), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostRegister(at(0), 0, cudaHostRegisterDefault), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostRegister(at(0), 4096, 0x100), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostRegister(at(0), 4096, cudaHostRegisterIoMemory), cudaErrorInvalidValue);
  auto* const unmapped = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_EQ(::munmap(unmapped, 4096), 0);
  EXPECT_EQ(cudaHostRegister(unmapped, 4096, cudaHostRegisterDefault), cudaErrorInvalidValue);
}

TEST_F(RegisteredMemory, CannotBeMemoryOfCuda)
{
  void* device  = nullptr;
  void* pinned  = nullptr;
  void* managed = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 4096), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 4096), cudaSuccess);
  ASSERT_EQ(cudaMallocManaged(&managed, 4096, cudaMemAttachGlobal), cudaSuccess);
  for (auto* const ptr : {device, pinned, managed}) {
    EXPECT_EQ(cudaHostRegister(ptr, 100, cudaHostRegisterDefault), cudaErrorInvalidValue);
  }
  EXPECT_EQ(cudaHostUnregister(pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFree(managed), cudaSuccess);
}

TEST_F(RegisteredMemory, IsReleasedWhenTheDeviceIsIdle)
{
  busy_stream other;
  ASSERT_EQ(cudaHostRegister(at(0), 4096, cudaHostRegisterDefault), cudaSuccess);
  auto released = std::async(std::launch::async, [this] { return cudaHostUnregister(at(0)); });
  EXPECT_TRUE(other.busy());
  other.open();
  EXPECT_EQ(released.get(), cudaSuccess);
  EXPECT_FALSE(other.busy());
}

// --- managed memory -------------------------------------------------------------------------------------------------

TEST_F(MemoryBehaviour, ManagedMemoryOfNoSizeIsNull)
{
  void* ptr = nonsense;
  EXPECT_EQ(cudaMallocManaged(&ptr, 0, cudaMemAttachGlobal), cudaSuccess);
  EXPECT_EQ(ptr, nullptr);
}

TEST_F(MemoryBehaviour, ManagedMemoryNeedsAPlaceAndOneFlag)
{
  void* ptr = nullptr;
  for (auto const flags : {0U, 3U, 4U}) {
    EXPECT_EQ(cudaMallocManaged(&ptr, 100, flags), cudaErrorInvalidValue) << flags;
  }
  EXPECT_EQ(cudaMallocManaged(static_cast<void**>(nullptr), 100, cudaMemAttachGlobal), cudaErrorInvalidValue);
}

TEST_F(MemoryBehaviour, ManagedMemoryIsForBothSides)
{
  void* ptr = nullptr;
  ASSERT_EQ(cudaMallocManaged(&ptr, 4096, cudaMemAttachGlobal), cudaSuccess);
  ASSERT_EQ(cudaMemset(ptr, 7, 4096), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(static_cast<char*>(ptr)[4095], 7);
  EXPECT_EQ(cudaFree(offset(ptr, 512)), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
  EXPECT_EQ(cudaFree(ptr), cudaErrorInvalidValue);
}

TEST_F(MemoryBehaviour, ManagedMemoryTakesNoDeviceMemoryUntilItIsUsed)
{
  auto const before = free_memory();
  void* ptr         = nullptr;
  ASSERT_EQ(cudaMallocManaged(&ptr, 8 * MiB, cudaMemAttachGlobal), cudaSuccess);
  EXPECT_EQ(free_memory(), before);
  EXPECT_EQ(cudaFree(ptr), cudaSuccess);
}

// --- prefetch and advice --------------------------------------------------------------------------------------------

#if CUDART_VERSION >= 13000

constexpr cudaMemLocation device_0{cudaMemLocationTypeDevice, 0};
constexpr cudaMemLocation host{cudaMemLocationTypeHost, 0};
constexpr cudaMemLocation unknown_device{cudaMemLocationTypeDevice, 77};
constexpr cudaMemLocation no_location{cudaMemLocationTypeInvalid, 0};

class ManagedMemory : public MemoryBehaviour {
 protected:
  static constexpr std::size_t size = MiB;

  void SetUp() override
  {
    MemoryBehaviour::SetUp();
    ASSERT_EQ(cudaMallocManaged(&ptr_, size, cudaMemAttachGlobal), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override
  {
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(cudaFree(ptr_), cudaSuccess);
    MemoryBehaviour::TearDown();
  }
  [[nodiscard]] static int attribute(cudaMemRangeAttribute which, void* ptr, std::size_t bytes)
  {
    int value = -77;
    EXPECT_EQ(cudaMemRangeGetAttribute(&value, sizeof value, which, ptr, bytes), cudaSuccess);
    return value;
  }
  [[nodiscard]] int attribute(cudaMemRangeAttribute which) const { return attribute(which, ptr_, size); }
  [[nodiscard]] static int prefetched_to(void* ptr, std::size_t bytes)
  {
    return attribute(cudaMemRangeAttributeLastPrefetchLocation, ptr, bytes);
  }
  [[nodiscard]] std::array<int, 3> accessed_by() const
  {
    std::array<int, 3> devices{77, 77, 77};
    EXPECT_EQ(cudaMemRangeGetAttribute(devices.data(), sizeof devices, cudaMemRangeAttributeAccessedBy, ptr_, size),
              cudaSuccess);
    return devices;
  }
  void* ptr_{};
  cudaStream_t stream_{};
};

TEST_F(ManagedMemory, StartsWithoutAdvice)
{
  EXPECT_EQ(attribute(cudaMemRangeAttributeReadMostly), 0);
  EXPECT_EQ(attribute(cudaMemRangeAttributePreferredLocation), cudaInvalidDeviceId);
  EXPECT_EQ(attribute(cudaMemRangeAttributePreferredLocationType), cudaMemLocationTypeInvalid);
  EXPECT_EQ(attribute(cudaMemRangeAttributePreferredLocationId), cudaInvalidDeviceId);
  EXPECT_EQ(attribute(cudaMemRangeAttributeLastPrefetchLocation), cudaInvalidDeviceId);
  EXPECT_EQ(attribute(cudaMemRangeAttributeLastPrefetchLocationType), cudaMemLocationTypeInvalid);
  EXPECT_EQ(attribute(cudaMemRangeAttributeLastPrefetchLocationId), cudaInvalidDeviceId);
  EXPECT_EQ(accessed_by(), (std::array{cudaInvalidDeviceId, cudaInvalidDeviceId, cudaInvalidDeviceId}));
}

TEST_F(ManagedMemory, RemembersWhereItWasPrefetched)
{
  ASSERT_EQ(cudaMemPrefetchAsync(ptr_, size, device_0, 0, stream_), cudaSuccess);
  EXPECT_EQ(attribute(cudaMemRangeAttributeLastPrefetchLocation), 0);
  EXPECT_EQ(attribute(cudaMemRangeAttributeLastPrefetchLocationType), cudaMemLocationTypeDevice);
  EXPECT_EQ(attribute(cudaMemRangeAttributeLastPrefetchLocationId), 0);
  ASSERT_EQ(cudaMemPrefetchAsync(ptr_, size, host, 0, stream_), cudaSuccess);
  EXPECT_EQ(attribute(cudaMemRangeAttributeLastPrefetchLocation), cudaCpuDeviceId);
  EXPECT_EQ(attribute(cudaMemRangeAttributeLastPrefetchLocationType), cudaMemLocationTypeHost);
}

TEST_F(ManagedMemory, RemembersPrefetchesByPage)
{
  ASSERT_EQ(cudaMemPrefetchAsync(ptr_, size, host, 0, stream_), cudaSuccess);
  ASSERT_EQ(cudaMemPrefetchAsync(offset(ptr_, 5), 100, device_0, 0, stream_), cudaSuccess);
  EXPECT_EQ(prefetched_to(ptr_, 4096), 0);
  EXPECT_EQ(prefetched_to(offset(ptr_, 4095), 1), 0);
  EXPECT_EQ(prefetched_to(offset(ptr_, 4096), 4096), cudaCpuDeviceId);
  EXPECT_EQ(prefetched_to(ptr_, 8192), cudaInvalidDeviceId);
}

TEST_F(ManagedMemory, CanBePrefetchedToANumaNode)
{
  ASSERT_EQ(cudaMemPrefetchAsync(ptr_, size, cudaMemLocation{cudaMemLocationTypeHostNuma, 0}, 0, stream_), cudaSuccess);
  EXPECT_EQ(attribute(cudaMemRangeAttributeLastPrefetchLocation), cudaCpuDeviceId);
  EXPECT_EQ(attribute(cudaMemRangeAttributeLastPrefetchLocationType), cudaMemLocationTypeHostNuma);
  EXPECT_EQ(attribute(cudaMemRangeAttributeLastPrefetchLocationId), 0);
}

TEST_F(ManagedMemory, CannotBePrefetchedOutOfBoundsOrToNowhere)
{
  EXPECT_EQ(cudaMemPrefetchAsync(ptr_, 0, device_0, 0, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPrefetchAsync(ptr_, 4 * size, device_0, 0, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPrefetchAsync(nullptr, 4096, device_0, 0, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPrefetchAsync(ptr_, 4096, device_0, 1, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPrefetchAsync(ptr_, 4096, no_location, 0, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemPrefetchAsync(ptr_, 4096, unknown_device, 0, stream_), cudaErrorInvalidDevice);
}

TEST_F(ManagedMemory, IsTheOnlyKindThatCanBePrefetched)
{
  void* device = nullptr;
  void* pinned = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 4096), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 4096), cudaSuccess);
  for (auto* const ptr : {device, pinned}) {
    int value = -77;
    EXPECT_EQ(cudaMemPrefetchAsync(ptr, 4096, device_0, 0, stream_), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemAdvise(ptr, 4096, cudaMemAdviseSetReadMostly, device_0), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemRangeGetAttribute(&value, sizeof value, cudaMemRangeAttributeReadMostly, ptr, 4096),
              cudaErrorInvalidValue);
    EXPECT_EQ(value, -77);
  }
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(ManagedMemory, CannotBePrefetchedByACapturingStream)
{
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaMemPrefetchAsync(ptr_, size, device_0, 0, stream_), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph{};
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_F(ManagedMemory, IsReadMostlyIfAllPagesAre)
{
  ASSERT_EQ(cudaMemAdvise(ptr_, 4096, cudaMemAdviseSetReadMostly, device_0), cudaSuccess);
  EXPECT_EQ(attribute(cudaMemRangeAttributeReadMostly, ptr_, 4096), 1);
  EXPECT_EQ(attribute(cudaMemRangeAttributeReadMostly), 0);
  ASSERT_EQ(cudaMemAdvise(ptr_, 4096, cudaMemAdviseUnsetReadMostly, device_0), cudaSuccess);
  EXPECT_EQ(attribute(cudaMemRangeAttributeReadMostly, ptr_, 4096), 0);
}

TEST_F(ManagedMemory, RemembersItsPreferredLocation)
{
  ASSERT_EQ(cudaMemAdvise(ptr_, size, cudaMemAdviseSetPreferredLocation, device_0), cudaSuccess);
  EXPECT_EQ(attribute(cudaMemRangeAttributePreferredLocation), 0);
  EXPECT_EQ(attribute(cudaMemRangeAttributePreferredLocationType), cudaMemLocationTypeDevice);
  ASSERT_EQ(cudaMemAdvise(ptr_, size, cudaMemAdviseSetPreferredLocation, host), cudaSuccess);
  EXPECT_EQ(attribute(cudaMemRangeAttributePreferredLocation), cudaCpuDeviceId);
  ASSERT_EQ(cudaMemAdvise(ptr_, size, cudaMemAdviseUnsetPreferredLocation, device_0), cudaSuccess);
  EXPECT_EQ(attribute(cudaMemRangeAttributePreferredLocation), cudaInvalidDeviceId);
}

TEST_F(ManagedMemory, RemembersWhoAccessesIt)
{
  ASSERT_EQ(cudaMemAdvise(ptr_, size, cudaMemAdviseSetAccessedBy, device_0), cudaSuccess);
  ASSERT_EQ(cudaMemAdvise(ptr_, size, cudaMemAdviseSetAccessedBy, host), cudaSuccess);
  EXPECT_EQ(accessed_by(), (std::array{0, cudaCpuDeviceId, cudaInvalidDeviceId}));
  ASSERT_EQ(cudaMemAdvise(ptr_, size, cudaMemAdviseUnsetAccessedBy, device_0), cudaSuccess);
  EXPECT_EQ(accessed_by(), (std::array{cudaCpuDeviceId, cudaInvalidDeviceId, cudaInvalidDeviceId}));
}

TEST_F(ManagedMemory, TakesNoSenselessAdvice)
{
  EXPECT_EQ(cudaMemAdvise(ptr_, 0, cudaMemAdviseSetReadMostly, device_0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemAdvise(ptr_, 4 * size, cudaMemAdviseSetReadMostly, device_0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemAdvise(nullptr, 4096, cudaMemAdviseSetReadMostly, device_0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemAdvise(ptr_, 4096, static_cast<cudaMemoryAdvise>(7), device_0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemAdvise(ptr_, 4096, cudaMemAdviseSetPreferredLocation, unknown_device), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemAdvise(ptr_, 4096, cudaMemAdviseSetPreferredLocation, no_location), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemAdvise(ptr_, 4096, cudaMemAdviseSetReadMostly, no_location), cudaErrorInvalidValue);
}

TEST_F(ManagedMemory, IsAskedInTheRightSizes)
{
  std::array<char, 8> place{};
  auto const ask = [&](void* out, std::size_t bytes, cudaMemRangeAttribute which, void* ptr, std::size_t range) {
    return cudaMemRangeGetAttribute(out, bytes, which, ptr, range);
  };
  constexpr auto one  = cudaMemRangeAttributeReadMostly;
  constexpr auto list = cudaMemRangeAttributeAccessedBy;
  EXPECT_EQ(ask(place.data(), 3, one, ptr_, 4096), cudaErrorInvalidValue);
  EXPECT_EQ(ask(place.data(), 8, one, ptr_, 4096), cudaErrorInvalidValue);
  EXPECT_EQ(ask(place.data(), 6, list, ptr_, 4096), cudaErrorInvalidValue);
  EXPECT_EQ(ask(place.data(), 0, list, ptr_, 4096), cudaErrorInvalidValue);
  EXPECT_EQ(ask(nullptr, 4, one, ptr_, 4096), cudaErrorInvalidValue);
  EXPECT_EQ(ask(place.data(), 4, one, ptr_, 0), cudaErrorInvalidValue);
  EXPECT_EQ(ask(place.data(), 4, one, ptr_, 8 * size), cudaErrorInvalidValue);
  EXPECT_EQ(ask(place.data(), 4, one, nullptr, 4096), cudaErrorInvalidValue);
  EXPECT_EQ(ask(place.data(), 4, static_cast<cudaMemRangeAttribute>(15), ptr_, 4096), cudaErrorInvalidValue);
}

TEST_F(ManagedMemory, TellsSeveralAttributesAtOnce)
{
  ASSERT_EQ(cudaMemAdvise(ptr_, size, cudaMemAdviseSetReadMostly, device_0), cudaSuccess);
  int read_mostly = -77;
  int prefetched  = -77;
  std::array<void*, 2> places{&read_mostly, &prefetched};
  std::array<std::size_t, 2> sizes{sizeof(int), sizeof(int)};
  std::array which{cudaMemRangeAttributeReadMostly, cudaMemRangeAttributeLastPrefetchLocation};
  EXPECT_EQ(cudaMemRangeGetAttributes(places.data(), sizes.data(), which.data(), 2, ptr_, size), cudaSuccess);
  EXPECT_EQ(read_mostly, 1);
  EXPECT_EQ(prefetched, cudaInvalidDeviceId);
  EXPECT_EQ(cudaMemRangeGetAttributes(places.data(), sizes.data(), which.data(), 0, ptr_, size), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemRangeGetAttributes(nullptr, sizes.data(), which.data(), 2, ptr_, size), cudaErrorInvalidValue);
}

/// Two pages of a range, for the calls that take many.
class ManagedBatch : public ManagedMemory {
 protected:
  void SetUp() override
  {
    ManagedMemory::SetUp();
    ranges_ = {ptr_, offset(ptr_, 8192)};
  }
  [[nodiscard]] cudaError_t prefetch(std::size_t count, std::size_t places, unsigned long long flags, cudaStream_t s)
  {
    return cudaMemPrefetchBatchAsync(
      ranges_.data(), sizes_.data(), count, where_.data(), first_.data(), places, flags, s);
  }
  std::array<void*, 2> ranges_{};
  std::array<std::size_t, 2> sizes_{4096, 4096};
  std::array<cudaMemLocation, 2> where_{device_0, host};
  std::array<std::size_t, 2> first_{0, 1};
};

TEST_F(ManagedBatch, PrefetchesEachRangeToItsPlace)
{
  ASSERT_EQ(prefetch(2, 2, 0, stream_), cudaSuccess);
  EXPECT_EQ(prefetched_to(ranges_[0], 4096), 0);
  EXPECT_EQ(prefetched_to(ranges_[1], 4096), cudaCpuDeviceId);
  EXPECT_EQ(prefetched_to(offset(ptr_, 4096), 4096), cudaInvalidDeviceId);
}

TEST_F(ManagedBatch, PrefetchesAllRangesToOnePlace)
{
  ASSERT_EQ(prefetch(2, 1, 0, stream_), cudaSuccess);
  EXPECT_EQ(prefetched_to(ranges_[0], 4096), 0);
  EXPECT_EQ(prefetched_to(ranges_[1], 4096), 0);
}

TEST_F(ManagedBatch, RefusesPrefetchesThatMakeNoSense)
{
  EXPECT_EQ(prefetch(0, 1, 0, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(prefetch(2, 0, 0, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(prefetch(2, 1, 1, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(prefetch(2, 1, 0, cudaStreamLegacy), cudaErrorInvalidValue);
  first_[0] = 1;
  EXPECT_EQ(prefetch(2, 1, 0, stream_), cudaErrorInvalidValue);
}

TEST_F(ManagedBatch, RefusesDeviceMemory)
{
  ASSERT_EQ(cudaMalloc(&ranges_[1], 4096), cudaSuccess);
  EXPECT_EQ(prefetch(2, 1, 0, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemDiscardBatchAsync(ranges_.data(), sizes_.data(), 2, 0, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(ranges_[1]), cudaSuccess);
}

TEST_F(ManagedBatch, DiscardsWhatNobodyNeeds)
{
  EXPECT_EQ(cudaMemDiscardBatchAsync(ranges_.data(), sizes_.data(), 2, 0, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemDiscardBatchAsync(ranges_.data(), sizes_.data(), 0, 0, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemDiscardBatchAsync(ranges_.data(), sizes_.data(), 2, 1, stream_), cudaErrorInvalidValue);
}

TEST_F(ManagedBatch, DiscardsAndPrefetchesAtOnce)
{
  ASSERT_EQ(
    cudaMemDiscardAndPrefetchBatchAsync(ranges_.data(), sizes_.data(), 2, where_.data(), first_.data(), 2, 0, stream_),
    cudaSuccess);
  EXPECT_EQ(prefetched_to(ranges_[0], 4096), 0);
  EXPECT_EQ(prefetched_to(ranges_[1], 4096), cudaCpuDeviceId);
}

#endif

// --- capture --------------------------------------------------------------------------------------------------------

struct unsafe_call {
  char const* name;
  cudaError_t (*make)();
};

void PrintTo(unsafe_call const& call, std::ostream* out) { *out << call.name; }

class UnsafeInCapture : public ::testing::TestWithParam<unsafe_call> {};

TEST_P(UnsafeInCapture, InvalidatesTheCapture)
{
  cudaStream_t s{};
  ASSERT_EQ(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(GetParam().make(), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph{};
  EXPECT_EQ(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamDestroy(s), cudaSuccess);
  cudaGetLastError();
}

void* place = nullptr;
std::array<char, 4096> host_bytes{};

INSTANTIATE_TEST_SUITE_P(
  MemoryBehaviour,
  UnsafeInCapture,
  ::testing::Values(unsafe_call{"cudaMalloc", [] { return cudaMalloc(&place, 100); }},
                    unsafe_call{"cudaFree", [] { return cudaFree(nullptr); }},
                    unsafe_call{"cudaMallocHost", [] { return cudaMallocHost(&place, 100); }},
                    unsafe_call{"cudaFreeHost", [] { return cudaFreeHost(nullptr); }},
                    unsafe_call{"cudaMallocManaged",
                                [] { return cudaMallocManaged(&place, 100, cudaMemAttachGlobal); }},
                    unsafe_call{"cudaHostRegister", [] { return cudaHostRegister(host_bytes.data(), 4096, 0); }}),
  [](auto const& instance) { return std::string{instance.param.name}; });

TEST_F(MemoryBehaviour, QuestionsDoNotDisturbACapture)
{
  void* device = nullptr;
  void* pinned = nullptr;
  void* mapped = nullptr;
  cudaStream_t s{};
  ASSERT_EQ(cudaMalloc(&device, 100), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 100), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_GT(free_memory(), 0U);
  EXPECT_EQ(type_of(device), cudaMemoryTypeDevice);
  EXPECT_EQ(cudaHostGetDevicePointer(&mapped, pinned, 0), cudaSuccess);
  cudaGraph_t graph{};
  EXPECT_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(s), cudaSuccess);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

// --- peers and handles for other processes --------------------------------------------------------------------------

TEST_F(MemoryBehaviour, ADeviceIsNotItsOwnPeer)
{
  int answer = -1;
  EXPECT_EQ(cudaDeviceCanAccessPeer(&answer, 0, 0), cudaSuccess);
  EXPECT_EQ(answer, 0);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessUnsupported);
  EXPECT_EQ(cudaDeviceDisablePeerAccess(0), cudaErrorPeerAccessNotEnabled);
  EXPECT_EQ(cudaDeviceGetP2PAttribute(&answer, cudaDevP2PAttrAccessSupported, 0, 0), cudaErrorInvalidDevice);
}

TEST_F(MemoryBehaviour, PeersHaveToBeDevices)
{
  int answer = -1;
  EXPECT_EQ(cudaDeviceCanAccessPeer(&answer, 0, 77), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(77, 0), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceDisablePeerAccess(77), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceGetP2PAttribute(&answer, cudaDevP2PAttrAccessSupported, 0, 77), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceCanAccessPeer(nullptr, 0, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetP2PAttribute(nullptr, cudaDevP2PAttrAccessSupported, 0, 0), cudaErrorInvalidValue);
}

TEST_F(MemoryBehaviour, HandlesForOtherProcessesAreOfDeviceMemory)
{
  int on_stack = 0;
  void* device = nullptr;
  void* pinned = nullptr;
  cudaIpcMemHandle_t handle{};
  ASSERT_EQ(cudaMalloc(&device, 1000), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 1000), cudaSuccess);
  EXPECT_EQ(cudaIpcGetMemHandle(&handle, device), cudaSuccess);
  EXPECT_EQ(cudaIpcGetMemHandle(&handle, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaIpcGetMemHandle(&handle, &on_stack), cudaErrorInvalidValue);
  EXPECT_EQ(cudaIpcGetMemHandle(&handle, pinned), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(MemoryBehaviour, AHandleCannotBeOpenedByItsOwnProcess)
{
  void* device = nullptr;
  void* opened = nullptr;
  cudaIpcMemHandle_t handle{};
  ASSERT_EQ(cudaMalloc(&device, 1000), cudaSuccess);
  ASSERT_EQ(cudaIpcGetMemHandle(&handle, device), cudaSuccess);
  EXPECT_EQ(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess), cudaErrorDeviceUninitialized);
  EXPECT_EQ(cudaIpcOpenMemHandle(&opened, handle, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaIpcCloseMemHandle(device), cudaErrorInvalidValue);
  EXPECT_EQ(cudaIpcCloseMemHandle(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
}

}  // namespace
