# SPDX-License-Identifier: Apache-2.0

# All resources, for modules of others that name this one.

from rmm.pylibrmm.memory_resource._adaptors cimport *
from rmm.pylibrmm.memory_resource._base cimport *
from rmm.pylibrmm.memory_resource._callbacks cimport *
from rmm.pylibrmm.memory_resource._capabilities cimport *
from rmm.pylibrmm.memory_resource._device cimport *
from rmm.pylibrmm.memory_resource._host cimport *
from rmm.pylibrmm.memory_resource._pools cimport *
from rmm.pylibrmm.memory_resource._registry cimport *
