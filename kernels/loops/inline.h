/* SPDX-License-Identifier: Apache-2.0
 *
 * A function that is part of whoever calls it, and is compiled for the instruction set of that one.
 *
 * Threads: any. Test: tests/unit/test_codec_loops.c and those of the other loops
 */
#ifndef GP_LOOPS_INLINE_H
#define GP_LOOPS_INLINE_H

#define GP_INLINE static inline __attribute__((always_inline))

#endif
