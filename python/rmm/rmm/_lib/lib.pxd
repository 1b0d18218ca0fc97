# SPDX-License-Identifier: Apache-2.0

from libcpp.pair cimport pair

ctypedef pair[const char*, unsigned int] caller_pair
