/* SPDX-License-Identifier: Apache-2.0
 *
 * A peer on a blocking socket that writes what it is told, right or wrong, for
 * tests of the other end.
 */
#ifndef GP_TEST_RAW_PEER_H
#define GP_TEST_RAW_PEER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <sys/socket.h>
#include <cmocka.h>

#include "common/wire/control.h"

struct raw_peer {
	int fd;
	uint64_t session;
	uint16_t codec; /* of the frames to come; 1 is raw */
	uint8_t *body;
	size_t body_cap;
};

static inline void put(struct raw_peer *c, const void *bytes, size_t len)
{
	const uint8_t *p = bytes;
	while (len > 0) {
		ssize_t n = send(c->fd, p, len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue; /* with a timeout, being stopped and continued is enough (signal(7)) */
		if (n <= 0)
			return; /* the other end has hung up: the caller looks at what it said */
		p += n;
		len -= (size_t)n;
	}
}

static inline bool get(struct raw_peer *c, void *bytes, size_t len)
{
	uint8_t *p = bytes;
	while (len > 0) {
		ssize_t n = recv(c->fd, p, len, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

static inline void put_preface(struct raw_peer *c)
{
	uint8_t bytes[GP_PREFACE_BYTES];
	gp_preface_write(bytes);
	put(c, bytes, sizeof bytes);
	assert_true(get(c, bytes, sizeof bytes));
}

static inline void put_control(struct raw_peer *c, const Gpsplit__Control *m)
{
	size_t len = gpsplit__control__get_packed_size(m);
	uint8_t *bytes = gp_calloc(GP_RECORD_HEADER_BYTES + len, 1);
	struct gp_record_head h = {.kind = GP_RECORD_CONTROL, .klass = GP_CLASS_CONTROL, .len = (uint32_t)len};
	gpsplit__control__pack(m, bytes + GP_RECORD_HEADER_BYTES);
	h.body_sum = gp_control_checksum(bytes + GP_RECORD_HEADER_BYTES, len);
	gp_record_head_write(&h, bytes);
	put(c, bytes, GP_RECORD_HEADER_BYTES + len);
	gp_free(bytes);
}

static inline void put_hello(struct raw_peer *c, uint32_t version)
{
	Gpsplit__Hello hello = GPSPLIT__HELLO__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	hello.version = version;
	m.body_case = GPSPLIT__CONTROL__BODY_HELLO;
	m.hello = &hello;
	put_control(c, &m);
}

/* The next control message or NULL when the connection ends; frames and heartbeats are passed over. */
static inline Gpsplit__Control *get_control(struct raw_peer *c)
{
	for (;;) {
		uint8_t bytes[GP_RECORD_HEADER_BYTES];
		struct gp_record_head h;
		struct gp_err err;
		if (!get(c, bytes, sizeof bytes))
			return NULL;
		assert_int_equal(gp_record_head_read(bytes, &h, &err), GP_OK);
		assert_true(h.len <= c->body_cap);
		if (!get(c, c->body, h.len))
			return NULL;
		if (h.kind == GP_RECORD_CONTROL)
			return gpsplit__control__unpack(NULL, h.len, c->body);
	}
}

#endif
