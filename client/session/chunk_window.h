/* SPDX-License-Identifier: Apache-2.0
 *
 * How many chunks are in flight where nobody says it: arithmetic alone, for a training (engine_split_window.c) and for a
 * prediction (plan_predict.h).
 *
 * Threads: any; pure. Test: tests/unit/test_window.c
 */
#ifndef GP_CHUNK_WINDOW_H
#define GP_CHUNK_WINDOW_H

#include <stdint.h>

/* Chunks in flight, no less than `now`, that hide round trips so long. A chunk has so many bytes on the wire. */
int gp_window_for(int now, int chunks, uint64_t chunk_wire_bytes, double round_trip_s);

#endif
