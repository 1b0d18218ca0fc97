// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

int through_containers(int value);
std::size_t with_pool(void (*work)());

static int received{0};

int main()
{
  auto const taken = with_pool([] { received = through_containers(7); });
  return received == 7 && taken == std::size_t{1} << 16 ? 0 : 1;
}
