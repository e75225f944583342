/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: whatever stands in the files of another server (server/server_beat.h), what is read of its beat is within
 * bounds and can be shown, and a wish is one or is none.
 *
 * Input: the page of a beat, and behind it places for wishes.
 */
#include <string.h>

#include "server/server_beat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_facts(const struct gp_beat_page *page)
{
	const struct gp_beat_facts f = gp_beat_facts(page);
	if (!f.valid)
		return;
	gp_require(f.lease_ms > 0 && f.lease_ms <= GP_LEASE_S_MAX * 1000);
	gp_require(memchr(f.name, '\0', sizeof f.name) != NULL);
	gp_require(!f.load.known || (f.load.sessions <= GP_BEAT_SESSIONS_MAX && f.load.room <= GP_BEAT_SESSIONS_MAX &&
				     f.load.movable <= f.load.sessions));
	for (const char *p = f.name; *p; p++)
		gp_require((unsigned char)*p >= 0x20 && *p != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gp_beat_page page = {.bytes = {0}};
	const size_t head = size < sizeof page.bytes ? size : sizeof page.bytes;
	if (head > 0)
		memcpy(page.bytes, data, head);
	check_facts(&page);
	for (size_t at = head; size - at >= GP_WANT_BYTES; at += GP_WANT_BYTES) {
		char slot[GP_WANT_BYTES];
		struct gp_want want = {.generation = 0};
		memcpy(slot, data + at, sizeof slot);
		if (gp_beat_parse_want(slot, &want)) /* it begins with the run's id */
			gp_require(strspn((const char[2]){slot[0]}, "0123456789abcdef") == 1);
	}
	return 0;
}
