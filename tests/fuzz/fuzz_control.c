/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: any bytes are refused as a control message, or become one whose
 * memory stays within the limit and whose texts are safe to print; packed, it is
 * the same again (common/wire/control.h), unless it had fields that nobody knows: of
 * those the library packs some that it would not read. Every kind of message.
 */
#include <string.h>

#include "common/net/conn.h"
#include "common/wire/control.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SPILL_BYTES = 1 << 20, PACKED_BYTES = 1 << 21 };

static void check_text(const char *text)
{
	char safe[32];
	gp_text_sanitize(text, safe, sizeof safe);
	for (const char *c = safe; *c; c++)
		gp_require(*c >= 0x20 && *c < 0x7f);
}

/* What is taken for an address can be connected to, and says nothing else. */
static void check_server(const char *text)
{
	char host[256];
	uint16_t port;
	struct gp_err err;
	if (!gp_addr_is_plain(text))
		return;
	gp_require(gp_addr_parse(text, host, &port, &err) == GP_OK && port > 0 && host[0]);
	check_text(text);
	for (const char *c = text; *c; c++)
		gp_require(*c > 0x20 && *c < 0x7f);
}

static void check_texts(const Gpsplit__Control *m)
{
	if (m->body_case == GPSPLIT__CONTROL__BODY_HELLO)
		check_text(m->hello->agent);
	if (m->body_case == GPSPLIT__CONTROL__BODY_ERROR)
		check_text(m->error->text);
	if (m->body_case == GPSPLIT__CONTROL__BODY_ERROR)
		for (size_t i = 0; i < m->error->n_servers; i++)
			check_server(m->error->servers[i]);
	gp_require(gp_control_name(m)[0] != '?');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct gp_control_arena first, second;
	static uint8_t packed[2][PACKED_BYTES];
	struct gp_err err = {0};
	const Gpsplit__Control *m, *again;
	if (!first.spill_max) {
		gp_control_arena_init(&first, SPILL_BYTES);
		gp_control_arena_init(&second, 8 * SPILL_BYTES);
	}
	enum gp_status status = gp_control_unpack(&first, (struct gp_span){data, size}, &m, &err);
	gp_require(first.spilled <= SPILL_BYTES);
	if (status == GP_OK) {
		check_texts(m);
		const size_t len = gpsplit__control__get_packed_size(m);
		gp_require(len <= PACKED_BYTES && gpsplit__control__pack(m, packed[0]) == len);
		status = gp_control_unpack(&second, (struct gp_span){packed[0], len}, &again, &err);
		gp_require(status == GP_OK || status == GP_PROTO);
		if (status == GP_OK) {
			gp_require(gpsplit__control__get_packed_size(again) == len);
			gpsplit__control__pack(again, packed[1]);
			gp_require(memcmp(packed[0], packed[1], len) == 0);
		}
	} else {
		gp_require((status == GP_PROTO || status == GP_NOMEM) && err.text[0]);
	}
	gp_control_arena_reset(&first);
	gp_control_arena_reset(&second);
	return 0;
}
