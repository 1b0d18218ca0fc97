// SPDX-License-Identifier: Apache-2.0
#include <rapids_logger/logger.hpp>

#include <memory>
#include <sstream>

#ifndef RMM_PROVIDES_RAPIDS_LOGGER
#error "there is a library rapids_logger"
#endif

int main()
{
  std::ostringstream text;
  rapids_logger::logger log{"log", {std::make_shared<rapids_logger::ostream_sink_mt>(text)}};
  {
    rapids_logger::log_level_setter const quiet{log, rapids_logger::level_enum::error};
    log.info("not there");
  }
  log.set_pattern("%v");
  log.info("%s %d", "number", 1);
  return text.str() == "number 1\n" ? 0 : 1;
}
