// SPDX-License-Identifier: Apache-2.0
#include <rapids_logger/logger.hpp>

#include <iostream>

void write_to(rapids_logger::logger& log);

int main()
{
  rapids_logger::logger log{"log", std::cerr};
  write_to(log);
}
