# SPDX-License-Identifier: Apache-2.0
"""A stand-in for NVTX. Programs in python/rmm/tests and python/rmm_rapids/tests begin with this text."""

import ctypes

CORE, LAST_ID, PUSH, POP = 1, 15, 9, 11


class Callbacks(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("get_functions", ctypes.c_void_p)]


functions = (ctypes.c_void_p * (LAST_ID + 1))()
table = (ctypes.c_void_p * (LAST_ID + 1))(*(ctypes.addressof(functions) + 8 * i for i in range(LAST_ID + 1)))


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint))
def get_functions(module, to_table, to_last_id):
    if module != CORE:
        return 0
    to_table[0] = ctypes.addressof(table)
    to_last_id[0] = LAST_ID
    return 1


callbacks = Callbacks(ctypes.sizeof(Callbacks), ctypes.cast(get_functions, ctypes.c_void_p))


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
def get_export_table(number):
    return ctypes.addressof(callbacks) if number == 1 else None


def connect(library):
    """Hands a tool a table of the places where NVTX keeps functions, as each shared object with NVTX does.

    Returns the functions that the tool has set for pushing and popping a range.
    """
    assert ctypes.CDLL(library).InitializeInjectionNvtx2(get_export_table) == 1
    push = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(functions[PUSH])
    pop = ctypes.CFUNCTYPE(ctypes.c_int)(functions[POP])
    return push, pop
