# SPDX-License-Identifier: Apache-2.0

"""Pretty printers of gdb for RMM.

    (gdb) source <folder of the installation>/share/rmm/gdb/rmm_printers.py
    (gdb) print buffer
    $1 = rmm::device_buffer: 1000 bytes at 0x7fffd2000000, stream 0x5555555fa2b0, device 0
    (gdb) print pool
    $2 = rmm::mr::pool_memory_resource<...>: live 1.0 MiB, free 7.0 MiB (0 B of it cached), reserved 8.0 MiB

They only read memory of the program and call nothing in it, so they also work on core files. If a thread was stopped while it changed a
pool, the figures of that pool may be off by that change.
"""

import gdb
import gdb.printing


def elements(vector):
    """Returns the elements of a std::vector of any C++ library: it begins with pointers to the first and past the last element."""
    pointers = vector.address.cast(vector.type.strip_typedefs().template_argument(0).pointer().pointer())
    at, end = pointers[0], pointers[1]
    while at != end:
        yield at.dereference()
        at += 1


def pointee(unique_ptr):
    """Returns the object that a std::unique_ptr with a stateless deleter owns."""
    pointer = unique_ptr.type.strip_typedefs().template_argument(0).pointer()
    return unique_ptr.address.cast(pointer.pointer()).dereference().dereference()


def first_member(value):
    """Returns the value of a std::atomic, or the first element of a std::array: both begin with it."""
    kind = value.type.strip_typedefs().template_argument(0)
    return value.address.cast(kind.pointer()).dereference()


def items(array):
    """Returns the elements of a std::array."""
    kind = array.type.strip_typedefs()
    first = array.address.cast(kind.template_argument(0).pointer())
    return [first[i] for i in range(int(kind.template_argument(1)))]


def size_text(count):
    """Returns a size as text: 1536 is 1.5 KiB."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def stream_text(stream):
    """Returns the name or address of a stream."""
    names = {0: "default", 1: "legacy default", 2: "per-thread default"}
    return names.get(int(stream), hex(int(stream)))


def device_text(device):
    return "no device" if int(device) < 0 else f"device {int(device)}"


class Figures:
    """The live, free, cached and reserved bytes of a heap, as in heap_figures."""

    def __init__(self, heap):
        granule = 256
        free = int(heap["shared_"]["idle_"]["ranges_"]["total_bytes_"])
        free += int(heap["limits_"]["reserve"]["waiting_bytes_"])
        caches = heap["caches_"]
        live = int(caches["live_elsewhere_"])
        for each in elements(heap["shared_"]["stores_"]):
            store = pointee(each)
            free += int(store["ranges_"]["total_bytes_"])
            free += sum(int(block["bytes"]) for block in elements(store["unfenced_"]))
        cached = 0
        for each in elements(caches["caches_"]):
            cache = pointee(each)
            live += int(cache["live_bytes_"])
            cached += granule * sum(size * int(count) for size, count in enumerate(items(cache["filled_"])))
            cached += int(cache["ranges_"]["total_bytes_"])
            kept = [cache["recent_"][at] for at in range(int(cache["recent_count_"]))]
            kept += [cache["coalescing_"][at] for at in range(int(cache["coalescing_count_"]))]
            cached += sum(int(block["bytes"]) for block in kept)
        graph = 0
        for each in elements(heap["graphs_"]["memories_"]):
            memory = pointee(each)
            graph += int(memory["chunk_bytes_"]) - int(memory["live_bytes_"]) + int(memory["kept_bytes_"])
        self.live = live - graph
        self.free = free + cached
        self.cached = cached
        self.graph = graph
        self.reserved = int(first_member(caches["block_bytes_"]))

    def add(self, other):
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self):
        graphs = f"{size_text(self.graph)} of CUDA graphs, " if self.graph else ""
        return (
            f"live {size_text(self.live)}, free {size_text(self.free)} ({size_text(self.cached)} of it cached), {graphs}"
            f"reserved {size_text(self.reserved)}"
        )


class Printer:
    """The text of one value, which begins with its type."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        return f"{self.value.type.strip_typedefs().unqualified()}: {self.text()}"


class StreamView(Printer):
    def text(self):
        return f"stream {stream_text(self.value['stream_'])}"


class DeviceId(Printer):
    def text(self):
        return device_text(self.value["value_"])


class DeviceBuffer(Printer):
    def text(self):
        value = self.value
        size, capacity = int(value["size_"]), int(value["capacity_"])
        room = "" if size == capacity else f" with room for {capacity}"
        if int(value["data_"]) == 0:
            return f"no memory, stream {stream_text(value['stream_']['stream_'])}"
        return f"{size} bytes{room} at {hex(int(value['data_']))}, {self.place()}"

    def place(self):
        return f"stream {stream_text(self.value['stream_']['stream_'])}, {device_text(self.value['device_']['value_'])}"


class DeviceUvector(Printer):
    def text(self):
        storage = DeviceBuffer(self.value["storage_"])
        size = self.value.type.strip_typedefs().template_argument(0).sizeof
        count, capacity = int(storage.value["size_"]) // size, int(storage.value["capacity_"]) // size
        room = "" if count == capacity else f" with room for {capacity}"
        if int(storage.value["data_"]) == 0:
            return storage.text()
        return f"{count} elements of {size} bytes{room} at {hex(int(storage.value['data_']))}, {storage.place()}"


class DeviceScalar(Printer):
    def text(self):
        storage = DeviceBuffer(self.value["storage_"]["storage_"])
        if int(storage.value["data_"]) == 0:
            return storage.text()
        return f"{storage.value['size_']} bytes at {hex(int(storage.value['data_']))}, {storage.place()}"


class Heap(Printer):
    def text(self):
        return str(Figures(self.value))


class Pool(Printer):
    def text(self):
        return str(Figures(self.value["heap_"]))


class ElasticPool(Printer):
    def text(self):
        figures = Figures(self.value["heap_"])
        parts = first_member(self.value["parts_"]["now_"])  # memory that can be paused by tag
        if int(parts) != 0:
            for part in elements(parts.dereference()):
                figures.add(Figures(part["pool"].dereference()["heap_"]))
        return str(figures)


def make_printers():
    printers = gdb.printing.RegexpCollectionPrettyPrinter("rmm")
    for name, pattern, printer in (
        ("cuda_stream_view", "cuda_stream_view", StreamView),
        ("cuda_device_id", "cuda_device_id", DeviceId),
        ("device_buffer", "device_buffer", DeviceBuffer),
        ("device_uvector", "device_uvector<.*>", DeviceUvector),
        ("device_scalar", "device_scalar<.*>", DeviceScalar),
        ("pool_memory_resource", "mr::pool_memory_resource<.*>", Pool),
        ("arena_memory_resource", "mr::arena_memory_resource<.*>", Pool),
        ("elastic_pool_memory_resource", "mr::elastic_pool_memory_resource", ElasticPool),
        ("stream_ordered_heap", "detail::basic_stream_ordered_heap<void>", Heap),
    ):
        printers.add_printer(name, f"^rmm::{pattern}$", printer)
    return printers


gdb.printing.register_pretty_printer(gdb.current_objfile(), make_printers(), replace=True)
