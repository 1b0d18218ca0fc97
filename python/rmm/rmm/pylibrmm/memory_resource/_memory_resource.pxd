# SPDX-License-Identifier: Apache-2.0

# Declares all resources, for modules of other projects that cimport this one.

from rmm.pylibrmm.memory_resource._adaptors cimport *
from rmm.pylibrmm.memory_resource._base cimport *
from rmm.pylibrmm.memory_resource._callbacks cimport *
from rmm.pylibrmm.memory_resource._capabilities cimport *
from rmm.pylibrmm.memory_resource._device cimport *
from rmm.pylibrmm.memory_resource._host cimport *
from rmm.pylibrmm.memory_resource._pools cimport *
from rmm.pylibrmm.memory_resource._registry cimport *
