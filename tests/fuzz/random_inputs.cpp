// SPDX-License-Identifier: Apache-2.0

// Stands in for libFuzzer where the compiler has none: random inputs instead of inputs that search for new paths. Takes its
// options -runs=, -seed= and -max_len=, and ignores the others.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size);

namespace {

std::uint64_t option(int count, char** arguments, std::string const& name, std::uint64_t otherwise)
{
  for (int at = 1; at < count; ++at) {
    std::string const argument{arguments[at]};
    if (argument.compare(0, name.size(), name) == 0) { return std::stoull(argument.substr(name.size())); }
  }
  return otherwise;
}

}  // namespace

int main(int count, char** arguments)
{
  auto const runs    = option(count, arguments, "-runs=", 1000);
  auto const seed    = option(count, arguments, "-seed=", 1);
  auto const longest = option(count, arguments, "-max_len=", 512);
  for (std::uint64_t run = 0; run != runs; ++run) {
    std::mt19937_64 random{seed + run};
    std::vector<std::uint8_t> input(random() % (longest + 1));
    for (auto& byte : input) { byte = static_cast<std::uint8_t>(random()); }
    try {
      LLVMFuzzerTestOneInput(input.data(), input.size());
    } catch (std::exception const& error) {
      std::printf("%s; -runs=1 -seed=%llu repeats this\n", error.what(), static_cast<unsigned long long>(seed + run));
      return EXIT_FAILURE;
    }
  }
  std::printf("%llu runs\n", static_cast<unsigned long long>(runs));
  return EXIT_SUCCESS;
}
