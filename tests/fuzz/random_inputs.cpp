// SPDX-License-Identifier: Apache-2.0

// Replaces libFuzzer for compilers without it. Runs the inputs in the given folders, these inputs with random changes, and random
// inputs; it does not search for new paths. Takes the options -runs=, -seed=, -max_len= and -max_total_time= of libFuzzer, and ignores
// the others.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
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

using input = std::vector<std::uint8_t>;

/// Returns the contents of the files that the command line names, and of all files in the folders that it names.
std::vector<input> corpus(int count, char** arguments)
{
  std::vector<std::string> paths;
  for (int at = 1; at < count; ++at) {
    if (arguments[at][0] == '-') { continue; }
    if (!std::filesystem::is_directory(arguments[at])) {
      paths.emplace_back(arguments[at]);
      continue;
    }
    for (auto const& each : std::filesystem::directory_iterator{arguments[at]}) { paths.push_back(each.path()); }
  }
  std::vector<input> result;
  for (auto const& path : paths) {
    std::ifstream file{path, std::ios::binary};
    result.emplace_back(std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{});
  }
  return result;
}

input make_input(std::vector<input> const& known, std::size_t longest, std::mt19937_64& random)
{
  if (known.empty() || random() % 4 == 0) {
    input made(random() % (longest + 1));
    for (auto& byte : made) { byte = static_cast<std::uint8_t>(random()); }
    return made;
  }
  auto made = known[random() % known.size()];
  for (auto changes = 1 + random() % 4; changes != 0 && !made.empty(); --changes) {
    auto const at = made.begin() + static_cast<std::ptrdiff_t>(random() % made.size());
    switch (random() % 4) {
      case 0:
        *at = static_cast<std::uint8_t>(random());
        break;
      case 1:
        made.erase(at);
        break;
      case 2:
        made.insert(at, static_cast<std::uint8_t>(random()));
        break;
      default:
        *at = static_cast<std::uint8_t>(*at ^ 1U << random() % 8);
    }
  }
  return made;
}

}  // namespace

int main(int count, char** arguments)
{
  using clock        = std::chrono::steady_clock;
  auto const seconds = option(count, arguments, "-max_total_time=", 0);
  auto const runs = option(count, arguments, "-runs=", seconds != 0 ? std::numeric_limits<std::uint64_t>::max() : 1000);
  auto const seed = option(count, arguments, "-seed=", 1);
  auto const longest = option(count, arguments, "-max_len=", 512);
  auto const end     = clock::now() + std::chrono::seconds{seconds};
  auto const known   = corpus(count, arguments);
  std::uint64_t run  = 0;
  for (; run != runs && (seconds == 0 || clock::now() < end); ++run) {
    std::mt19937_64 random{seed + run};
    auto const made = run < known.size() ? known[run] : make_input(known, longest, random);
    try {
      LLVMFuzzerTestOneInput(made.data(), made.size());
    } catch (std::exception const& error) {
      std::printf("%s; run %llu of seed %llu\n",
                  error.what(),
                  static_cast<unsigned long long>(run),
                  static_cast<unsigned long long>(seed));
      return EXIT_FAILURE;
    }
  }
  std::printf("%llu runs\n", static_cast<unsigned long long>(run));
  return EXIT_SUCCESS;
}
