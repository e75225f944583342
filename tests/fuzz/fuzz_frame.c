/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: bytes that a header parser accepts are the bytes that writing its
 * result gives again (common/wire/frame.h). The first byte chooses the parser, and
 * whether the checksum is made right first so that the fuzzer gets past it.
 */
#include <string.h>
#include <xxhash.h>

#include "common/wire/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_le(uint8_t *p, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static void try_preface(const uint8_t *in)
{
	uint16_t version = 0;
	struct gp_err err = {0};
	if (gp_preface_read(in, &version, &err) == GP_OK)
		gp_require(version >= 1 && version <= GP_PROTO_VERSION);
	else
		gp_require((err.code == GP_PROTO || err.code == GP_DAMAGED) && err.text[0] && version == 0);
}

static void try_record(uint8_t *in, bool repair)
{
	struct gp_record_head h;
	struct gp_err err = {0};
	uint8_t again[GP_RECORD_HEADER_BYTES];
	if (repair)
		put_le(in + 12, XXH32(in, 12, 0), 4);
	if (gp_record_head_read(in, &h, &err) != GP_OK) {
		gp_require((err.code == GP_PROTO || err.code == GP_DAMAGED) && err.text[0]);
		return;
	}
	gp_require(h.len >= 1 && h.len <= GP_CONTROL_BYTES_MAX && h.klass < GP_CLASS_COUNT);
	gp_record_head_write(&h, again);
	gp_require(memcmp(in, again, sizeof again) == 0);
}

static void try_frame(uint8_t *in, bool repair)
{
	struct gp_frame_head h;
	struct gp_err err = {0};
	uint8_t again[GP_FRAME_HEADER_BYTES];
	if (repair)
		put_le(in + 56, XXH3_64bits(in, 56), 8);
	if (gp_frame_head_read(in, &h, &err) != GP_OK) {
		gp_require((err.code == GP_PROTO || err.code == GP_DAMAGED) && err.text[0]);
		return;
	}
	gp_require(gp_frame_type_name(h.type)[0] != '?');
	gp_frame_head_write(&h, again);
	gp_require(memcmp(in, again, sizeof again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t in[GP_FRAME_HEADER_BYTES] = {0};
	if (size < 1)
		return 0;
	const bool repair = data[0] & 0x80;
	size_t n = size - 1 < sizeof in ? size - 1 : sizeof in;
	memcpy(in, data + 1, n);
	switch (data[0] & 0x03) {
	case 0:
		try_preface(in);
		break;
	case 1:
		try_record(in, repair);
		break;
	default:
		try_frame(in, repair);
		break;
	}
	return 0;
}
