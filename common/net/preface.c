/* SPDX-License-Identifier: Apache-2.0
 *
 * The first bytes of a link: magic and protocol versions (PROTOCOL.md section 2).
 * Test: tests/unit/test_frame.c
 */
#include "common/net/preface.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/little_endian.h"

#define VERSION_OLDEST 2 /* that this build still speaks */
#define NEARLY_BITS    2 /* no text and no other protocol's first bytes come so near to ours */

static const uint8_t preface_magic[8] = {'g', 'p', 's', 'p', 'l', 'i', 't', '\n'};

/* PROTOCOL.md section 2: magic[8], newest u16, oldest u16, reserved u32. */
void gp_preface_write(uint8_t out[GP_PREFACE_BYTES])
{
	memcpy(out, preface_magic, sizeof preface_magic);
	gp_put_le(out + 8, GP_PROTO_VERSION, 2);
	gp_put_le(out + 10, VERSION_OLDEST, 2);
	gp_put_le(out + 12, 0, 4);
}

bool gp_nearly_same(const uint8_t *a, const uint8_t *b, size_t bytes)
{
	int bits = 0;
	for (size_t i = 0; i < bytes; i++)
		bits += __builtin_popcount((unsigned)(a[i] ^ b[i]));
	return bits <= NEARLY_BITS;
}

static enum gp_status fail_magic(const uint8_t *in, struct gp_err *err)
{
	char seen[9];
	if (gp_nearly_same(in, preface_magic, sizeof preface_magic))
		GP_FAIL(err, GP_DAMAGED, "sent a preface that was damaged on the way");
	for (int i = 0; i < 8; i++)
		seen[i] = isprint(in[i]) ? (char)in[i] : '.';
	seen[8] = '\0';
	const bool tls = in[0] == 0x16 && in[1] == 0x03;
	GP_FAIL(err, GP_PROTO, "does not speak gpsplit (it began with \"%s\"%s)", seen,
		tls ? ", which looks like TLS" : "");
}

enum gp_status gp_preface_read(const uint8_t in[GP_PREFACE_BYTES], uint16_t *version, struct gp_err *err)
{
	if (memcmp(in, preface_magic, sizeof preface_magic) != 0)
		return fail_magic(in, err);
	const unsigned newest = (unsigned)gp_get_le(in + 8, 2), oldest = (unsigned)gp_get_le(in + 10, 2);
	if (oldest == 0 || oldest > newest || !gp_all_zero(in + 12, 4))
		GP_FAIL(err, GP_DAMAGED, "sent a malformed preface (versions %u to %u)", oldest, newest);
	if (oldest > GP_PROTO_VERSION || newest < VERSION_OLDEST)
		GP_FAIL(err, GP_PROTO, "speaks protocol versions %u to %u, this program %d to %d: update the older one",
			oldest, newest, VERSION_OLDEST, GP_PROTO_VERSION);
	*version = (uint16_t)(newest < GP_PROTO_VERSION ? newest : GP_PROTO_VERSION);
	return GP_OK;
}
