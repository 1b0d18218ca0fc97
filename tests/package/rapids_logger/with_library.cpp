// SPDX-License-Identifier: Apache-2.0
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/logging_resource_adaptor.hpp>

#if RMM_HAS_SPDLOG
#include <rmm/logger.hpp>
#endif

#include <rapids_logger/logger.hpp>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#ifdef RMM_PROVIDES_RAPIDS_LOGGER
#error "RMM's logger stands before the library's"
#endif

int main()
{
  rmm::mr::cuda_memory_resource cuda;
  std::ostringstream log;
  {
    rmm::mr::logging_resource_adaptor<rmm::mr::cuda_memory_resource> logging{
      &cuda, {std::make_shared<rapids_logger::ostream_sink_mt>(log)}};
  }
  bool good = log.str() == "library: Thread,Time,Action,Pointer,Size,Stream\n";
#if RMM_HAS_SPDLOG
  setenv("RMM_DEBUG_LOG_FILE", "rapids_logger_debug.txt", 1);
  rmm::default_logger().info("%s", std::string{"by the library"});
  rmm::default_logger().debug("chosen by the library");
  rmm::logger().flush();
  std::stringstream text;
  text << std::ifstream{"rapids_logger_debug.txt"}.rdbuf();
  good = good && text.str().find("[info  ] by the library\n") != std::string::npos &&
         text.str().find("[debug ] chosen by the library\n") != std::string::npos;
#endif
  if (!good) { std::printf("The log has: %s", log.str().c_str()); }
  return good ? 0 : 1;
}
