// SPDX-License-Identifier: Apache-2.0
#include "library/rapids_logger/logger.hpp"

void write_to(rapids_logger::logger& log);

void write_to(rapids_logger::logger& log) { log.info("a line"); }
