/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers without threads for the fuzz targets of whole sessions: tasks run on
 * the loop's own thread, one per turn, most urgent first, so that the same
 * bytes give the same run. The linker puts these functions in the place of
 * common/base/worker.c's (--wrap, tests/CMakeLists.txt).
 */
#ifndef INLINE_WORKER_H
#define INLINE_WORKER_H

#include "common/base/worker.h"

/* No task waits, in any worker. */
bool inline_worker_idle(void);

#endif
