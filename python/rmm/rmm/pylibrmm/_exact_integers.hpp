// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

/// @file
/// Where Cython makes a C integer of an argument it takes any object that can be made an int, and cuts off what floats have
/// behind the point. In modules that include this file it takes those that are integers, and 1.5 bytes are a TypeError.

#define PyNumber_Long(x) PyNumber_Index(x)
