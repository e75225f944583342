/* SPDX-License-Identifier: Apache-2.0
 *
 * See chunk_window.h, and engine_split_window.c for why. Test: tests/unit/test_window.c
 */
#include "client/session/chunk_window.h"

#define ROUND_TRIP_S_SHORT 2e-3
#define RATE_BYTES_S       (1e9 / 8)

int gp_window_for(int now, int chunks, uint64_t chunk_wire_bytes, double round_trip_s)
{
	const double hidden = 2.0 * round_trip_s * RATE_BYTES_S / (double)chunk_wire_bytes;
	if (round_trip_s < ROUND_TRIP_S_SHORT || now >= chunks)
		return now;
	return hidden < (double)(chunks - now) ? now + (int)hidden + 1 : chunks;
}
