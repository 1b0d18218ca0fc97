// SPDX-License-Identifier: Apache-2.0
bool allocate_and_free();

int main() { return allocate_and_free() ? 0 : 1; }
