// SPDX-License-Identifier: Apache-2.0

// A model of the registry of the devices' resources (include/rmm/mr/detail/registry.hpp), whose getters take no lock.
//
// Three threads register resources for two devices beyond the table, and a reader reads. On this machine a store that does not release
// may become visible before earlier stores. Proves:
//   a reader sees no entry and no resource before it is made, and no entry of another device
//   a device has one entry
//   a getter that begins after a set has returned gets the resource of that set or of a later one
//   a reader always finds the whole list
//
// Here                  in the code
//   entry, head         listed_entry, list_
//   make_entry          registry::make_entry(), with refs_mutex
//   set                 registry::exchange_pointer(); the caller has made the resource before
//   get                 registry::pointer(), find_listed()
//
// Planted bugs:
//   BUG_NO_MUTEX         set() does not take the mutex
//   BUG_RELAXED_LIST     an entry becomes visible before its members, as with a relaxed store of the head
//   BUG_RELAXED_POINTER  a resource becomes visible before it is made, as with a relaxed exchange of the pointer
//   BUG_TABLE_FIRST      a new entry becomes visible before its next entry is set

#define WRITERS 3
#define ENTRIES 3
#define NONE 0

// Entries have numbers from 1. A resource has the number of the set that registers it, and 0 is the initial resource.
byte entry_device[4];
byte entry_next[4];
byte entry_pointer[4];
bool entry_made[4];
bool resource_made[4];
byte head = NONE;
byte made = 0;
bool mutex = false;
byte last_set = 0;  // the resource of the last set for device 1 that has returned, in the order of the sets
byte order[4];      // by resource of device 1: whether its set came first, second, ...
byte sets = 0;
byte returned = 0;

#define lock atomic { !mutex -> mutex = true }
#define unlock mutex = false

inline find(device, found)
{
  found = head;
  do
  :: found == NONE -> break
  :: found != NONE ->
    assert(entry_made[found]);
    if
    :: entry_device[found] == device -> break
    :: else -> found = entry_next[found]
    fi
  od
}

inline make_entry(device, found)
{
  find(device, found);
  if
  :: found == NONE ->
    atomic { made++; found = made; assert(found <= ENTRIES) };
#ifdef BUG_TABLE_FIRST
    entry_device[found] = device;
    entry_made[found] = true;
    next = head;
    head = found;
    entry_next[found] = next
#else
    next = head;
#ifdef BUG_RELAXED_LIST
    head = found;
    entry_device[found] = device;
    entry_next[found] = next;
    entry_made[found] = true
#else
    entry_device[found] = device;
    entry_next[found] = next;
    entry_made[found] = true;
    head = found
#endif
#endif
  :: else
  fi
}

inline set(device, resource)
{
#ifndef BUG_RELAXED_POINTER
  resource_made[resource] = true;
#endif
#ifndef BUG_NO_MUTEX
  lock;
#endif
  make_entry(device, at);
  atomic {
    entry_pointer[at] = resource;
    if
    :: device == 1 -> sets++; order[resource] = sets
    :: else
    fi
  };
#ifndef BUG_NO_MUTEX
  unlock;
#endif
#ifdef BUG_RELAXED_POINTER
  resource_made[resource] = true;
#endif
  atomic {
    if
    :: device == 1 && order[resource] > order[last_set] -> last_set = resource
    :: else
    fi
  }
}

proctype writer(byte device, resource)
{
  byte at;
  byte next;
  set(device, resource);
  find(device, at);
  assert(at != NONE);
  returned++
}

active proctype reader()
{
  byte at;
  byte got;
  byte before;
  byte round = 0;
  do
  :: round < 2 ->
    before = last_set;
    find(1, at);
    if
    :: at == NONE -> got = 0
    :: else -> got = entry_pointer[at]
    fi;
    assert(got == 0 || resource_made[got]);
    assert(order[got] >= order[before]);
    round++
  :: else -> break
  od
}

init
{
  atomic {
    run writer(1, 1);
    run writer(1, 2);
    run writer(2, 3)
  };
  returned == WRITERS;
  assert(!(entry_made[1] && entry_made[2] && entry_device[1] == entry_device[2]));
  assert(!(entry_made[3]));
  byte at;
  find(2, at);
  assert(at != NONE)
}
