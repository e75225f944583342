/* SPDX-License-Identifier: Apache-2.0
 *
 * What a card refuses, an emulated device refuses, too, and ends the program
 * with a line that says what: tests then fail here, not on the first card. The
 * checks of addresses and calls are here; those of threads, warps and launches
 * are in emulate.cc, those of captures' branches in emulated_rt.cc. It sees more
 * than a card does: memory that is freed while work is still queued, any copy
 * that leaves its allocation.
 *
 * Only of emulated builds.
 *
 * Threads: any. Test: tests/unit/test_emulator.cc
 */
#ifndef GP_STRICT_EMULATED_H
#define GP_STRICT_EMULATED_H

#include <cstddef>

/* Prints "emulated GPU: TEXT" and ends the program. */
[[noreturn]] void gpk_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Memory of a device, or, on GPK_PINNED, of the host and known to the driver. */
#define GPK_PINNED (-1)
void gpk_memory_born(int device, const void *p, size_t bytes);
/* The memory is freed; `device` has to be what it was born with. */
void gpk_memory_dead(int device, const void *p);

/* All of it is in one allocation of that device. `what`, `who`: for the message. */
void gpk_require_device(int device, const void *p, size_t bytes, const char *what, const char *who);
/* None of it is a device's; while `captured` it is pinned. */
void gpk_require_host(const void *p, size_t bytes, bool captured, const char *who);

/* From now on the host's memory is every device's, too; gp_rt_one_memory. */
void gpk_memory_is_one(void);

/* The calling thread captures a stream between the two; within it may not do what waits for, takes or gives back memory. */
void gpk_capture_begins(void);
void gpk_capture_ends(void);
void gpk_require_no_capture(const char *who);

#endif
