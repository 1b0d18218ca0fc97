// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Python.h>

/// @file
/// Makes Cython refuse floats as integer arguments. It converts arguments with PyNumber_Long, which truncates floats. With
/// PyNumber_Index, 1.5 raises a TypeError.

#define PyNumber_Long(x) PyNumber_Index(x)
