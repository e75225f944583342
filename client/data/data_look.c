/* SPDX-License-Identifier: Apache-2.0
 *
 * What a picture's file looks like from outside: its first bytes, the size that
 * its header gives, and how it ends. No more than some hundred bytes of each are
 * read, and nothing is decoded. It is enough for saying that nothing is odd; what is
 * wrong with a file that looks odd, if anything, is the decoder's to say.
 * Test: tests/unit/test_data_check.c
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/data/data_internal.h"

enum { JPEG_SEGMENTS = 64 }; /* before the frame header; files have five to twenty */

struct look {
	int fd;
	uint64_t size;
};

static bool look_at(const struct look *l, uint64_t at, uint8_t *to, size_t count)
{
	return at <= l->size && count <= l->size - at && pread(l->fd, to, count, (off_t)at) == (ssize_t)count;
}

static bool has_good_size(uint64_t width, uint64_t height)
{
	return width >= 1 && height >= 1 && width <= GP_IMAGE_SIDE_MAX && height <= GP_IMAGE_SIDE_MAX &&
	       width * height <= GP_IMAGE_PIXELS_MAX;
}

static uint32_t big_endian(const uint8_t *b, int bytes)
{
	uint32_t v = 0;
	for (int i = 0; i < bytes; i++)
		v = v << 8 | b[i];
	return v;
}

/* SOF0 to SOF15 without DHT, JPG and DAC, which lie between them (ITU T.81, table B.1). */
static bool is_frame_header(uint8_t marker)
{
	return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

/* From segment to segment up to the frame header, which has the size; the file ends in EOI. */
static bool jpeg_looks_whole(const struct look *l)
{
	uint8_t b[9], end[2];
	uint64_t at = 2;
	if (!look_at(l, l->size - 2, end, 2) || end[0] != 0xff || end[1] != 0xd9)
		return false;
	for (int i = 0; i < JPEG_SEGMENTS; i++) {
		if (!look_at(l, at, b, sizeof b) || b[0] != 0xff)
			return false;
		if (is_frame_header(b[1]))
			return has_good_size(big_endian(b + 7, 2), big_endian(b + 5, 2));
		at += 2 + (uint64_t)big_endian(b + 2, 2);
	}
	return false;
}

/* The signature, IHDR with the size first, IEND last (PNG specification, sections 5 and 11.2). */
static bool png_looks_whole(const struct look *l)
{
	static const uint8_t first[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n', 0, 0, 0, 13, 'I', 'H', 'D', 'R'};
	static const uint8_t last[] = {0, 0, 0, 0, 'I', 'E', 'N', 'D', 0xae, 0x42, 0x60, 0x82};
	uint8_t b[24], end[sizeof last];
	return look_at(l, 0, b, sizeof b) && memcmp(b, first, sizeof first) == 0 &&
	       has_good_size(big_endian(b + 16, 4), big_endian(b + 20, 4)) && l->size >= sizeof b + sizeof end &&
	       look_at(l, l->size - sizeof end, end, sizeof end) && memcmp(end, last, sizeof end) == 0;
}

static bool looks_whole(const struct look *l)
{
	uint8_t b[4];
	if (!look_at(l, 0, b, sizeof b))
		return false;
	return b[0] == 0xff && b[1] == 0xd8 ? jpeg_looks_whole(l) : png_looks_whole(l);
}

bool gp_picture_looks_whole(const char *path)
{
	struct stat st;
	struct look l = {
		.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)}; /* a pipe of that name must not block us */
	if (l.fd < 0)
		return false;
	bool whole = fstat(l.fd, &st) == 0 && S_ISREG(st.st_mode);
	if (whole) {
		l.size = (uint64_t)st.st_size;
		whole = looks_whole(&l);
	}
	close(l.fd);
	return whole;
}
